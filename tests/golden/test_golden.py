import json

import pytest

from . import record

JUDGMENTS, PROMPTS, STUDY = (
    json.loads((record.HERE / f"{name}.json").read_text(encoding="utf-8")) for name in ("judgments", "prompts", "study")
)


def differences(found, golden, at=""):
    """Where two values differ; numbers by more than a millionth."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in golden.keys() | found.keys():
            yield from differences(found.get(key), golden.get(key), f"{at}.{key}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for i, (one, other) in enumerate(zip(found, golden, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif isinstance(golden, float) and isinstance(found, float):
        if abs(found - golden) > 1e-6:
            yield f"{at}: {found} instead of {golden}"
    elif found != golden:
        yield f"{at}: {str(found)[:400]} instead of {str(golden)[:400]}"


def as_recorded(found, name):
    """Judgments and requests are those of the golden files."""
    assert not list(differences(found["judgments"], JUDGMENTS[name]))
    asked = record.unpacked(PROMPTS, name)
    assert len(found["requests"]) == len(asked)
    assert not list(differences(found["requests"], asked))


@pytest.mark.parametrize("name", record.SETS)
def test_option_sets(name):
    """With every set of options each record gets the recorded judgment, by the recorded requests, byte for byte."""
    as_recorded(record.judged(name), name)


@pytest.mark.parametrize("name", record.CHAMPIONS)
def test_champions(name):
    """The shipped champions, in the export format of version 1, judge as ever."""
    as_recorded(record.loaded(record.SHIPPED / name, record.RECORDS), name)


def test_study(tmp_path):
    """The same labels, LM and seed give the same requests, byte for byte and as often, and the same champion: its
    classifier, its agreement, on train, test and others, and what its export judges."""
    found = record.study(tmp_path)
    assert not list(differences(found["found"], STUDY))
    assert not list(differences(found["requests"], record.unpacked(PROMPTS, "tune")))
    as_recorded(record.loaded(tmp_path / "judge", record.FIVE), "exported")
