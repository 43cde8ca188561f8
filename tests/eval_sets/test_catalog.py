import re
from collections import Counter

import pytest

from faith_dspy.eval_sets.catalog import SETS, load, path_of
from faith_dspy.optimize.data.splits import split
from faith_dspy.schema import Verdict
from faith_dspy.scoring.agreement import measure
from faith_dspy.text.sentences import sentences


def test_quickstart_has_what_its_card_promises():
    """200 answers, five over each of 40 contexts, 81 of them faithful; statements are the answers' sentences."""
    examples = load("quickstart")
    assert Counter(e.split for e in examples) == {"train": 80, "dev": 50, "test": 70}
    assert Counter(e.faithful for e in examples) == {True: 81, False: 119}
    assert Counter(e.group for e in examples) == {f"qs-{n:02}": 5 for n in range(1, 41)}
    assert len({e.tags["domain"] for e in examples}) == 40
    assert all(80 <= sum(len(c.text.split()) for c in e.context) <= 160 for e in examples)
    assert all([s.text for s in e.statements] == [s.text for s in sentences(e.answer)] for e in examples)
    assert all(s.reason for e in examples for s in e.statements)
    assert sum(e.annotators["first"] == e.annotators["second"] for e in examples) == 196


def test_hard_cases_has_what_its_card_promises():
    """132 answers in fixed parts, half of each faithful, 2–5 chunks, all four verdicts, each with a reason."""
    examples = load("hard_cases")
    assert len(examples) == 132
    assert Counter((e.split, e.faithful) for e in examples) == {
        (part, label): 22 for part in ("train", "dev", "test") for label in (True, False)
    }
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


@pytest.mark.parametrize("name", ["assistants", "hard_cases"])
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
