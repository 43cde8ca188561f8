from __future__ import annotations

from typing import Any

import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.results import PredictionRow
from faith_dspy.optimize.tracking.archive import StudyRecord
from faith_dspy.optimize.tracking.studies import compare_studies
from faith_dspy.scoring.agreement import measure


def study(study_id: str, right: int = 20, **more: Any) -> StudyRecord:
    """A study tested on twenty answers, the first ``right`` of them judged as people do."""
    prefix = more.pop("prefix", "a")
    rows = [
        PredictionRow(
            id=f"{prefix}{i}", group=f"{prefix}{i}", part="test", label=i % 2 == 0,
            predicted=(i % 2 == 0) is (i < right), probability=0.9 if (i % 2 == 0) is (i < right) else 0.1,
        )
        for i in range(20)
    ]  # fmt: skip
    fields = {
        "source": study_id, "labels_file": "l.jsonl", "label_set_hash": "81f2", "lm": "openai/tiny",
        "champion": "sentence", "budget": "quick", "seed": 0, "rows": rows,
        "agreement": measure([r.label for r in rows], [r.predicted for r in rows], [r.probability for r in rows]),
    }  # fmt: skip
    return StudyRecord(study_id=study_id, **(fields | more))


def test_studies_on_the_same_answers_are_paired():
    """All twenty right against ten right: better, by 50 points, on the same answers, whatever their order."""
    other = study("b", 10)
    found = compare_studies([study("a"), other.model_copy(update={"rows": other.rows[::-1]})])
    assert [(p.a, p.b) for p in found.pairs] == [(0, 1)]
    c = found.pairs[0].comparison
    assert (c.n, c.verdict, c.balanced_accuracy.value) == (20, "better", 0.5)
    assert "study 1 is better than study 2" in c.sentence
    assert found.notes == []


def test_the_first_is_held_against_each_other_and_corrected():
    """Three studies are two comparisons, corrected for two."""
    found = compare_studies([study("a"), study("b", 10), study("c", 12)])
    assert [(p.a, p.b) for p in found.pairs] == [(0, 1), (0, 2)]
    assert all(p.comparison.p_holm is not None for p in found.pairs)


def test_studies_on_other_answers_stand_side_by_side():
    """No comparison is made up, and a note says why."""
    found = compare_studies([study("a"), study("b", prefix="x", label_set_hash="77aa")])
    assert found.pairs == []
    assert "side by side only" in found.notes[0]


def test_the_same_ids_with_other_labels_are_other_answers():
    """A label that was changed in between is not silently taken from one of the two."""
    rows = [r.model_copy(update={"label": not r.label}) if i == 0 else r for i, r in enumerate(study("a").rows)]
    assert compare_studies([study("a"), study("b", rows=rows)]).pairs == []


def test_a_study_without_predictions_is_not_paired():
    """Of an exported folder alone the figures are shown, and the note says what is missing."""
    found = compare_studies([study("a"), study("b", rows=[])])
    assert found.pairs == []
    assert "Of study 2 only the exported judge is known" in found.notes[0]


def test_seeds_give_mean_and_spread():
    """Balanced accuracy 1, .9 and .8: mean .9, SD .1; two of three champions are sentences."""
    found = compare_studies([
        study("a", 20), study("b", 18, seed=1, prefix="b"), study("c", 16, seed=2, prefix="c", champion="answer"),
    ])  # fmt: skip
    (seeds,) = found.seeds
    spread = seeds.spread["balanced_accuracy"]
    assert (spread.mean, spread.sd) == (pytest.approx(0.9), pytest.approx(0.1))
    assert (spread.low, spread.high) == (0.8, 1.0)
    assert seeds.won == {"sentence": 2, "answer": 1}
    assert "3 seeds of l.jsonl" in seeds.sentence
    assert "whose luck is in the spread" in seeds.sentence


def test_another_budget_or_lm_is_no_seed():
    """Only studies that differ by their seed alone are put into one spread."""
    found = compare_studies([study("a"), study("b", 18, seed=1, budget="standard"), study("c", 18, seed=2, lm="x")])
    assert found.seeds == []


def test_one_study_or_one_twice_is_refused():
    """The error names them."""
    with pytest.raises(InputError, match="at least two"):
        compare_studies([study("a")])
    with pytest.raises(InputError, match=r"a and judges/a are the same study"):
        compare_studies([study("a"), study("a", source="judges/a")])
