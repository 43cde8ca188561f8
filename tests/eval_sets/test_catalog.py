from __future__ import annotations

import re
from collections import Counter

import pytest

from faith_dspy.eval_sets.catalog import SETS, load, path_of
from faith_dspy.optimize.data.splits import split
from faith_dspy.schema import Verdict
from faith_dspy.scoring.agreement import measure


def test_quickstart_has_what_its_card_promises():
    """96 examples or more in fixed parts, eight domains, 2–5 chunks, all four verdicts, each with a reason."""
    examples = load("quickstart")
    assert len(examples) == 132
    assert Counter(e.split for e in examples) == {"train": 44, "dev": 44, "test": 44}
    assert len({e.tags["domain"] for e in examples}) >= 8
    assert all(2 <= len(e.context) <= 5 for e in examples)
    statements = [s for e in examples for s in e.statements]
    assert {s.verdict for s in statements} == set(Verdict) - {Verdict.NOT_SUPPORTED}
    assert all(s.reason for s in statements)
    assert all(s.supporting_chunk_ids for s in statements if s.verdict is Verdict.CONTRADICTORY)


@pytest.mark.parametrize("name", SETS)
def test_labels_do_not_contradict_themselves(name):
    """An answer is faithful exactly when all of its statements are fully supported."""
    for e in load(name):
        assert e.faithful == all(s.verdict is Verdict.FULLY_SUPPORTED for s in e.statements), e.id


def test_half_of_the_quickstart_answers_are_faithful():
    """In each part."""
    for part in ("train", "dev", "test"):
        labels = [e.faithful for e in load("quickstart") if e.split == part]
        assert sum(map(bool, labels)) == len(labels) / 2


def test_assistants_has_what_its_card_promises():
    """332 answers over 84 contexts in twenty domains, two thirds faithful, statements as they stand in the answer."""
    examples = load("assistants")
    assert Counter(e.split for e in examples) == {"train": 118, "dev": 78, "test": 136}
    assert Counter(e.faithful for e in examples) == {True: 220, False: 112}
    assert (len({e.group for e in examples}), len({e.tags["domain"] for e in examples})) == (84, 20)
    assert Counter(e.tags["level"] for e in examples)["hard"] == 73
    assert all(s.text in e.answer and s.reason for e in examples for s in e.statements)
    assert sum(len(e.statements) for e in examples) == 1155


@pytest.mark.parametrize("name", SETS)
def test_parts_share_no_context(name):
    """The fixed parts pass the same leak check as anybody's labels."""
    assert split(load(name)).report["fixed"]


@pytest.mark.parametrize("name", SETS)
def test_the_length_of_answers_gives_little_away(name):
    """Judged by length alone AUROC stays near chance, so a judge has to read."""
    examples = load(name)
    lengths = [len(re.findall(r"\w+", e.answer)) / 200 for e in examples]
    found = measure([bool(e.label) for e in examples], [True] * len(examples), lengths)
    assert 0.35 < found.auroc.value < 0.65


def test_a_file_of_that_name_wins(tmp_path, monkeypatch):
    """A path is a path, even when a shipped set has its name."""
    monkeypatch.chdir(tmp_path)
    assert path_of("quickstart").name == "quickstart.jsonl"
    (tmp_path / "quickstart").write_text("{}")
    assert path_of("quickstart").samefile(tmp_path / "quickstart")
