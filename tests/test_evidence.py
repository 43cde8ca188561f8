from __future__ import annotations

import pytest

from faith_dspy import Chunk
from faith_dspy.evidence import quote_is_in, valid_chunk_ids

CONTEXT = (Chunk(id=0, text="a"), Chunk(id=1, text="b"), Chunk(id=2, text="c"))


@pytest.mark.parametrize(
    ("named", "kept", "dropped"),
    [
        ([], (), 0),
        ([2, 0], (0, 2), 0),
        ([1, 1, 1], (1,), 0),
        ([3], (), 1),
        ([-1, 1, 99, 99], (1,), 2),
    ],
)
def test_only_ids_of_chunks_that_exist(named, kept, dropped):
    """Ids come back ascending and once each; those of no chunk are left out and counted, each once."""
    assert valid_chunk_ids(named, CONTEXT) == (kept, dropped)


@pytest.mark.parametrize(
    "quote", ["holds 0.9 litres", "HOLDS  0.9\nlitres", "“holds 0.9 litres”", "Caf\u00e9 kettle", "Cafe\u0301 kettle"]
)
def test_quotes_are_found_as_people_write_them(quote):
    """Case, white space, quotation marks and composed characters make no difference."""
    assert quote_is_in(quote, Chunk(id=0, text="The Café kettle holds 0.9 litres."))


@pytest.mark.parametrize("quote", ["holds 9.0 litres", "kettle litres", "", "…", '""'])
def test_what_the_chunk_does_not_say_is_no_quote(quote):
    """Changed numbers, joined pieces and quotes of nothing are not found."""
    assert not quote_is_in(quote, Chunk(id=0, text="The Café kettle holds 0.9 litres."))
