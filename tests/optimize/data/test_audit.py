from __future__ import annotations

import json

import pytest

from faith_dspy.errors import LabelsError
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.optimize.data.audit import audit, few


def test_an_audit_counts_and_shows_the_split():
    """Hard cases: 132 answers, half faithful, 33 contexts, its own parts."""
    found = audit(path_of("hard_cases"))
    assert (found["answers"], found["faithful"], found["contexts"]) == (132, 66, 33)
    assert found["split"] == {"train": 44, "dev": 44, "test": 44}
    assert found["labels_at_odds"] == 0
    # 1.96 · √(1/12 · (1/22 + 1/22)) = .171; 132 · ((.171/.1)² − 1) = 252
    assert found["enough"] == {
        "to tune": "yes",
        "to test": "hardly, 44 answers that tuning does not see. Few answers: read the interval, not the figure.",
        "to show": "a gain of about 17 points of balanced accuracy, at even odds; label about 250 more to show 10",
    }


def test_too_few_to_test_or_to_tune(tmp_path):
    """Six answers of each label are cross-fitted, and what a test takes is said; four cannot be tuned on."""
    path = tmp_path / "l.jsonl"
    rows = [{"context": [f"{i} cups of {'tea' * i}."], "answer": f"{i}.", "faithful": i % 2 == 0} for i in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = audit(path)
    assert found["enough"]["to test"].startswith("no: a test takes 8 answers of each label over 6 sources each")
    assert found["enough"]["to show"] == "nothing: it takes 10 sources in the test part, these have 0."
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    assert audit(path)["enough"]["to tune"].startswith("no: got 4 sources")


def test_labels_at_odds_with_their_statements_are_named(tmp_path):
    """Faithful with an unsupported statement cannot both be right."""
    row = {"context": ["c"], "answer": "A.", "faithful": True, "statements": [{"text": "A.", "verdict": "no_evidence"}]}
    path = tmp_path / "l.jsonl"
    path.write_text(json.dumps({**row, "id": "odd"}) + "\n")
    found = audit(path)
    assert found["labels_at_odds"] == 1
    assert found["first_at_odds"] == "odd"
    assert str(found["split"]).startswith("cannot be tuned on")


def test_a_file_without_labels_says_what_a_label_is(tmp_path):
    """Nothing to audit is an error, not a table of zeros."""
    path = tmp_path / "l.jsonl"
    path.write_text(json.dumps({"context": ["c"], "answer": "A."}) + "\n")
    with pytest.raises(LabelsError, match="usable label"):
        audit(path)


@pytest.mark.parametrize(("answers", "said"), [(7, "hardly, 7 answers"), (100, "yes, 100 answers")])
def test_a_small_test_part_is_told_as_the_study_tells_it(tmp_path, answers, said):
    """Below the figure from which a study no longer warns, labels are hardly enough to test."""
    path = tmp_path / "l.jsonl"
    splits = ["train"] * 10 + ["dev"] * 10 + ["test"] * answers
    rows = [{"context": [f"{i:x}" * 9], "answer": "A.", "faithful": i % 2 == 0} for i in range(len(splits))]
    path.write_text("".join(json.dumps({**r, "split": s}) + "\n" for r, s in zip(rows, splits, strict=True)))
    found = audit(path)
    assert found["enough"]["to test"] == f"{said} that tuning does not see.{few(answers)}"
