import pytest
from made import rows
from made import study as made

from faith_dspy.errors import InputError
from faith_dspy.optimize.report.studies import compare_studies


def study(study_id, right=20, prefix="a", **more):
    """A study tested on twenty answers, the first ``right`` of them judged as people do."""
    labels = [i % 2 == 0 for i in range(20)]
    found = rows([0.9 if y is (i < right) else 0.1 for i, y in enumerate(labels)], labels, prefix)
    return made(found[::-1], study_id=study_id, **more)


def test_studies_on_the_same_answers_are_paired_with_the_first():
    """Twenty right against ten: better by 50 points. Three studies are two comparisons; one is none."""
    pairs, sentences = compare_studies([study("a"), study("b", 10), study("c", 12)])
    assert (pairs[0].n, pairs[0].verdict, pairs[0].balanced_accuracy.value) == (20, "better", 0.5)
    assert "study 1 is better than study 2" in pairs[0].sentence
    assert "study 1 is better than study 3" in pairs[1].sentence
    assert sentences == []
    with pytest.raises(InputError, match="at least two"):
        compare_studies([study("a")])


def test_studies_on_other_answers_stand_side_by_side():
    """No comparison is made up, and a note says why; a changed label makes it another answer."""
    corrected = made(rows([0.9] * 20, [i > 0 for i in range(20)]), study_id="c")
    pairs, (note,) = compare_studies([study("a"), study("b", prefix="x"), corrected])
    assert pairs == []
    assert "side by side only" in note


def test_seeds_give_mean_and_spread():
    """Balanced accuracy 1, .9 and .8: mean .9, SD .1; two of three champions are sentences.

    Only studies that differ by their seed alone are put into one spread.
    """
    studies = [study("a"), study("b", 18, "b", seed=1), study("c", 16, "c", seed=2, champion="answer")]
    spread = compare_studies(studies).sentences[0]
    assert "3 seeds of labels.jsonl" in spread
    assert "balanced accuracy 0.90 ± 0.10 (0.80 to 1.00)" in spread
    assert "whose luck is in the spread. Champion: sentence 2 of 3, answer 1 of 3." in spread
    others = [study("b", 18, seed=1, budget="standard"), study("c", 18, seed=2, lm={"name": "x"})]
    assert compare_studies([study("a"), *others]).sentences == []
