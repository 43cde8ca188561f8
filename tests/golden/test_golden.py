import json

import pytest

from . import record

JUDGMENTS, REQUESTS = (
    json.loads((record.HERE / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("judgments", "requests")
)


def approximately(value):
    """The same value, numbers to a millionth."""
    if isinstance(value, dict):
        return {key: approximately(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [approximately(inside) for inside in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


@pytest.mark.parametrize("name", record.NAMES)
def test_judges_are_as_recorded(name):
    """Exports of format 1 judge as ever, and what they ask, as what the untuned judge asks, is the same in every byte:
    another prompt is another judge than the one that was measured, and the default classifiers are fitted to its
    replies again (`tests/benchmarks/default_classifier.py`)."""
    judgments, requests = record.recorded(name)
    assert judgments == approximately(JUDGMENTS[name])
    assert requests == REQUESTS[name]
