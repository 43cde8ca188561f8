import json

import pytest

from faith_dspy.errors import LabelsError
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.data.audit import annotator_agreement, audit_labels, few


@pytest.fixture
def audited(tmp_path):
    """Audits a file of rows, each over a context of its own."""

    def run(rows):
        path = tmp_path / "l.jsonl"
        made = (
            {"context": [f"{i:x}" * 9], "answer": "A.", "faithful": i % 2 == 0, **r}
            for i, r in enumerate(rows)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in made))
        return audit_labels(path)

    return run


def test_an_audit_counts_and_shows_the_split():
    """Hard cases: 132 answers, half faithful, 33 contexts, its own parts."""
    found = audit_labels(path_of("hard_cases"))
    assert (found["answers"], found["faithful"], found["contexts"]) == (132, 66, 33)
    assert found["split"] == {"pool": 88, "test": 44}
    assert found["labels_at_odds"] == 0
    # 1.96 · √(1/12 · (1/22 + 1/22)) = .1706; 132 · ((.1706/.11)² − 1) = 186, said as 190
    assert found["enough"] == {
        "to tune": "yes",
        "to test": "hardly, 44 answers that tuning does not see. Few answers: read the interval, not the figure.",
        "to show": "132 answers from 33 sources: a gain of about 17 points would be seen, at even odds; "
        "about 190 more for 11.",
    }


def test_what_labels_are_enough_for(audited):
    """Six of each label are cross-fitted, and what a test takes is said; four cannot be tuned on; a test part is small
    below the figure from which a study no longer warns."""
    enough = audited([{}] * 12)["enough"]
    assert enough["to test"].startswith(
        "no: a test takes 8 answers of each label over 4 sources each"
    )
    assert enough["to show"].endswith(
        "no gain yet; it takes 10 sources in the test part, these have 0."
    )
    assert audited([{}] * 4)["enough"]["to tune"].startswith("no: got 4 sources")
    for answers, said in ((7, "hardly, 7 answers"), (100, "yes, 100 answers")):
        found = audited(
            {"split": s} for s in ["train"] * 10 + ["dev"] * 10 + ["test"] * answers
        )
        assert (
            found["enough"]["to test"]
            == f"{said} that tuning does not see.{few(answers)}"
        )


def test_labels_at_odds_with_their_statements_are_named(audited):
    """Faithful with an unsupported statement cannot both be right; a file without labels says what a label is."""
    found = audited(
        [{"id": "odd", "statements": [{"text": "A.", "verdict": "no_evidence"}]}]
    )
    assert (found["labels_at_odds"], found["first_at_odds"]) == (1, "odd")
    assert str(found["split"]).startswith("cannot be tuned on")
    with pytest.raises(LabelsError, match="usable label"):
        audited([{"faithful": None}])


def agreement(*annotators):
    """Of answers with these annotators, each over a context of its own."""
    rows = [
        {"context": [f"c{i}"], "answer": "a", "faithful": True, "annotators": x}
        for i, x in enumerate(annotators)
    ]
    return annotator_agreement([parse_example(row) for row in rows])


def test_one_annotator_against_the_majority_of_the_others():
    """Each person is held against the others; where the others tie there is nothing to hold against."""
    # yes yes no: the two yes face a tie and drop out; the no faces yes, yes.
    # no no no: three times unfaithful against unfaithful. True True True: three times faithful against faithful.
    found = agreement(["yes", "yes", "no"], [["no", "no", "no"]], [[True, True, True]])
    pairs = {
        "faithful_passed": 3,
        "faithful_failed": 1,
        "unfaithful_passed": 0,
        "unfaithful_failed": 3,
    }
    assert (found.n, found.confusion) == (7, pairs)
    assert found.balanced_accuracy.value == pytest.approx((3 / 4 + 1) / 2)
    # Observed 6/7; by chance (4*3 + 3*4) / 49 = 24/49; (42/49 - 24/49) / (25/49)
    assert found.cohen_kappa.value == pytest.approx(18 / 25)
    # Of ratings the highest is faithful. 4 4 3: the 3 faces two faithful. 1 2 4: the 4 faces two unfaithful; the others
    # face a tie. Of a mapping what nobody can read is left out.
    ratings = agreement([["4", "4", "3"]], [["1", "2", "4"]])
    assert (
        ratings.confusion["faithful_failed"]
        == ratings.confusion["unfaithful_passed"]
        == 1
    )
    assert (
        agreement({"ann": "fully_supported", "bo": "contradictory", "cy": "?"}).n == 2
    )


@pytest.mark.parametrize(
    "annotators", [None, [], ["yes"], [["?", "!"]], 3, "yes", [{"a": 1}, None]]
)
def test_nothing_usable_gives_no_ceiling(annotators):
    """Without two readable labels on one answer there is no human agreement to report."""
    assert agreement(annotators) is None
