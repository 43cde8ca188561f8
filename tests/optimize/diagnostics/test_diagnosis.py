import random

import pytest

from faith_dspy.optimize.classifier.arrays import ClassifierExample
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.diagnostics.ablation import ablate
from faith_dspy.optimize.diagnostics.diagnosis import calibration_check
from faith_dspy.optimize.diagnostics.shortcuts import shortcut_check
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
    assert found.n == 20
    assert (found.before.value, found.after.value) == pytest.approx((0.4, 0.0))
