"""What becomes of records while their endpoint misbehaves, one fault at a time (`tests.benchmarks.faults`)."""

import pytest

from tests.benchmarks.faults import FAULTS, Endpoint, broken, cell, records

ALWAYS = (
    "400 bad request",
    "429, Retry-After 1 day",
    "503, Retry-After 0",
    "connection closed",
    "half a reply",
    "no JSON",
    "no choices",
    "null content",
    "log-probability is text",
    "label against its token",
)
"""Of the others most are like one of these, or take long; `make test-all` tries them."""


@pytest.fixture
def endpoint():
    made = Endpoint()
    yield made
    made.server.close()


@pytest.mark.parametrize("fault", [pytest.param(f, marks=() if f in ALWAYS else pytest.mark.all) for f in FAULTS])
def test_a_fault_loses_nothing(fault, endpoint, tmp_path):
    """Each record has one row, in order; no unfaithful answer passes; the resumed run asks about nothing that was
    answered, and its rows are those of a run that nobody disturbed."""
    found = cell(endpoint, tmp_path, records(0, 6), fault, 0.5)
    assert broken(found) == []
    assert not found["stopped"]


@pytest.mark.all
def test_an_endpoint_that_dies_for_good_ends_the_run(endpoint, tmp_path):
    """The message says so, and the resumed run judges the rest."""
    endpoint.dead_after = 40
    found = cell(endpoint, tmp_path, records(0, 60), next(iter(FAULTS)), 0.0)
    assert broken(found) == []
    assert found["stopped"]
