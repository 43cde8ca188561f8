from __future__ import annotations

import random
from typing import Any

import pytest

from faith_dspy.optimize.classifier.arrays import ClassifierExample
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.diagnostics.diagnosis import ablate, by_group, calibration_check, shortcut_check
from faith_dspy.optimize.results import PredictionRow
from faith_dspy.text.features import length_features


def examples(n: int, seed: int, *, good: str = "novel_pairs", noise: str = "novel_run") -> list[ClassifierExample]:
    """Answers of one statement: ``good`` is one unit higher in unfaithful ones, ``noise`` and ``lm:x`` tell nothing."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        label = i % 2 == 0
        features = {good: rng.gauss(0 if label else 2, 1), noise: rng.gauss(0, 1), "lm": rng.gauss(0, 1)}
        shape = length_features("word " * rng.randint(5, 60), 1)
        out.append(ClassifierExample([features], label, f"{seed}-{i // 2}", (), shape))
    return out


def test_ablation_tells_what_helps_from_what_does_not() -> None:
    """The one signal that tells comes first among the single ones; without it, and without words, AUROC is lost."""
    rows = examples(80, 0)
    fitted = fit_classifier(rows, prior_widths=(0.4, 0.4))
    found = {a.without: a for a in ablate(rows, fitted)}
    assert list(found)[:3] == ["the LM", "lexical features", "novel_pairs"]
    for name in ("lexical features", "novel_pairs"):
        assert (found[name].auroc.low or 0) > 0.1
    for name in ("the LM", "novel_run"):
        assert abs(found[name].auroc.value or 0) < 0.05
        assert (found[name].auroc.standard_error or 0) > 0


def test_a_single_signal_cannot_be_left_out() -> None:
    """Without its only signal nothing is left of a classifier: there is no ablation."""
    rows = examples(40, 1)
    assert ablate(rows, fit_classifier(rows, names=["novel_pairs"], prior_widths=(0.4, 0.4))) == []


def shaped(words: int, label: bool, i: int) -> ClassifierExample:
    """An answer of so many words and no statements."""
    return ClassifierExample([], label, f"g{i}", (), length_features("word " * words, 1))


def test_a_judge_that_goes_by_length_is_found_out() -> None:
    """Probability 1 / words, long answers unfaithful: all pairs right, yet none among answers of one length.

    Thirds of 4: words 10 (4 faithful), 20 (2 and 2), 30 (4 unfaithful); only the second has pairs, all of them ties.
    """
    sizes = [10] * 4 + [20] * 4 + [30] * 4
    labels = [True] * 4 + [True, False] * 2 + [False] * 4
    rows = [shaped(n, y, i) for i, (n, y) in enumerate(zip(sizes, labels, strict=True))]
    found = shortcut_check(rows, [1 / n for n in sizes])
    # 36 pairs: 4 · 6 and 2 · 4 won, 2 · 2 tied.
    assert found.auroc.value == pytest.approx(34 / 36)
    assert found.alone["answer_words"].value == pytest.approx(2 / 36)
    assert found.within.value == 0.5


def test_calibration_before_and_after_by_hand() -> None:
    """An LM says .9 of everything, half of it faithful: ECE .4. The classifier says .5: 0."""
    found = calibration_check([0.9] * 20, [0.5] * 20, [True, False] * 10, [str(i) for i in range(20)])
    assert (found.before.value, found.after.value) == pytest.approx((0.4, 0.0))


def row(i: int, label: bool, predicted: bool | None, **more: Any) -> PredictionRow:
    """An answer of six words, alone in its group, that the judge is fairly sure about."""
    p = None if predicted is None else 0.8 if predicted else 0.2
    fields = {"answer": "The cat sat on the mat.", "context": ["The cat sat on the mat all day."], **more}
    return PredictionRow(id=f"a{i}", group=f"g{i}", label=label, predicted=predicted, probability=p, **fields)


def rows(source: str, start: int, right: int, n: int = 20, **more: Any) -> list[PredictionRow]:
    """``n`` answers of a source, every other one faithful, the first ``right`` of each label judged right."""
    out = []
    for k in range(n):
        label, ok = k % 2 == 0, k // 2 < right
        out.append(row(start + k, label, label if ok else not label, tags={"source": source}, **more))
    return out


def test_each_source_has_its_agreement() -> None:
    """All right on one source, half right on the other, each with an interval where there is one."""
    found = {g.name: g for g in by_group([*rows("good", 0, 10), *rows("bad", 100, 5)])}
    assert {(name, g.facet, g.n) for name, g in found.items()} == {("good", "source", 20), ("bad", "source", 20)}
    assert found["good"].agreement.balanced_accuracy.value == 1.0
    assert found["bad"].agreement.balanced_accuracy.value == 0.5
    assert found["bad"].agreement.balanced_accuracy.low < 0.4


def test_the_name_of_a_group_is_one_line() -> None:
    """A line break in a tag would end the row of the tables it stands in."""
    found = by_group([*rows("one\n# two", 0, 8), *rows("other", 100, 7)])
    assert {g.name for g in found} == {"one # two", "other"}


def test_small_groups_are_counted_in_one_row() -> None:
    """Seven answers of each label are too few to be measured; a facet without any larger group is left out."""
    small = [r for s in range(2) for r in rows(f"small{s}", 100 * s, 7, n=14)]
    found = by_group([*rows("big", 300, 10), *small])
    assert [(g.name, g.n, g.agreement is None) for g in found] == [("big", 20, False), ("(2 too small)", 28, True)]
    assert by_group(small) == ()


def test_languages_are_guessed() -> None:
    """Without a tag there is still the language of the text."""
    german = {"answer": "Die Katze saß auf der Matte und schlief.", "context": ["Die Katze saß den ganzen Tag dort."]}
    found = by_group([*rows("", 0, 10), *rows("", 100, 9, **german)])
    assert {g.name: g.n for g in found if g.facet == "language"} == {"english": 20, "german": 20}


def test_unscored_answers_are_in_the_coverage_only() -> None:
    """Two of twenty left unscored: balanced accuracy is over eighteen."""
    part = rows("one", 0, 10)
    unscored = [r.model_copy(update={"predicted": None, "probability": None}) for r in part[:2]]
    one = next(g for g in by_group([*unscored, *part[2:], *rows("two", 100, 10)]) if g.name == "one")
    assert one.agreement.coverage == 0.9
    assert one.agreement.balanced_accuracy.value == 1.0
