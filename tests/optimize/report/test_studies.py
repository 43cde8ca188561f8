from faith_dspy.optimize.report.tables import compare_studies, studies_table
from tests.support.results import rows
from tests.support.results import study as made


def study(study_id, right=20, prefix="a", **more):
    """A study measured on twenty answers, the first ``right`` of them judged as people do."""
    labels = [i % 2 == 0 for i in range(20)]
    found = rows(
        [0.9 if y is (i < right) else 0.1 for i, y in enumerate(labels)], labels, prefix
    )
    return made(found[::-1], study_id=study_id, **more)


def test_studies_on_the_same_answers_are_paired_with_the_first():
    """Twenty right against ten: better by 50 points. Three studies are two comparisons."""
    studies = [study("a"), study("b", 10), study("c", 12)]
    first, second = pairs = compare_studies(studies)
    assert "side by side only" not in str(studies_table(studies, pairs))
    assert first.sentence.startswith("study 1 is better than study 2: ")
    assert (first.n, first.balanced_accuracy.value) == (20, 0.5)
    assert second.sentence.startswith("study 1 is better than study 3: ")


def test_studies_on_other_answers_stand_side_by_side():
    """No comparison is made up, and a note says why; a changed label makes it another answer."""
    corrected = made(rows([0.9] * 20, [i > 0 for i in range(20)]), study_id="c")
    studies = [study("a"), study("b", prefix="x"), corrected]
    assert compare_studies(studies) == []
    assert "side by side only" in studies_table(studies, []).notes[-1]
