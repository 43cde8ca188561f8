from __future__ import annotations

import math

import numpy as np
import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.checks import Comparison, Difference, McNemar
from faith_dspy.optimize.select.comparison import Side, compare, holm, mcnemar, paired_bootstrap

# Eight answers, four faithful. A is right on seven, B on four.
LABELS = [True] * 4 + [False] * 4
A = [True, True, True, True, False, False, False, True]
B = [True, True, False, False, False, False, True, True]
SCORES_A = [0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.65]
SCORES_B = [0.9, 0.8, 0.2, 0.1, 0.3, 0.4, 0.7, 0.6]
NONE: list[float | None] = [None] * 8


def judge(rng: np.random.Generator, labels: list[bool], right: float) -> Side:
    """A judge that is right on this share of the answers."""
    p = [y if rng.random() < right else not y for y in labels]
    return Side(p, [0.5 + (0.3 if v else -0.3) + 0.1 * rng.standard_normal() for v in p])


def sides(n: int, right_a: float, right_b: float) -> tuple[list[bool], Side, Side]:
    """`n` labels, every other one faithful, and two judges."""
    rng = np.random.default_rng(4)
    labels = [i % 2 == 0 for i in range(n)]
    return labels, judge(rng, labels, right_a), judge(rng, labels, right_b)


def test_difference_worked_by_hand() -> None:
    """The value is one judge's metric minus the other's."""
    d = paired_bootstrap(LABELS, A, B, SCORES_A, SCORES_B)
    assert d.value == pytest.approx((4 / 4 + 3 / 4) / 2 - (2 / 4 + 2 / 4) / 2)
    # AUROC of A: .65 beats .6 only: 15 of 16. B: .9 .8 win 8, .2 .1 win none: 8 of 16.
    d = paired_bootstrap(LABELS, A, B, SCORES_A, SCORES_B, metric="auroc")
    assert d.value == pytest.approx(15 / 16 - 8 / 16)


def test_unscored_counts_as_wrong_for_the_judge_that_left_it() -> None:
    """Skipping an answer costs what a wrong verdict and the worst rank cost."""
    skipped = [None, *A[1:]]
    d = paired_bootstrap(LABELS, skipped, B, SCORES_A, SCORES_B)
    assert d.value == pytest.approx((3 / 4 + 3 / 4) / 2 - 0.5)
    # The faithful .9 now loses its four pairs: 11 of 16.
    d = paired_bootstrap(LABELS, skipped, B, SCORES_A, SCORES_B, metric="auroc")
    assert d.value == pytest.approx(11 / 16 - 8 / 16)
    everything = paired_bootstrap(LABELS, [None] * 8, B, NONE, SCORES_B)
    assert everything.value == pytest.approx(0 - 0.5)


def test_a_judge_against_itself_does_not_differ() -> None:
    """Identical verdicts give 0, an interval of 0, p = 1, and no number of labels."""
    c = compare(LABELS, Side(A, SCORES_A), Side(A, SCORES_A))
    assert (c.balanced_accuracy.value, c.balanced_accuracy.low, c.balanced_accuracy.p_value) == (0.0, 0.0, 1.0)
    assert (c.verdict, c.more_labels, c.mcnemar.p_value) == ("not shown better", None, 1.0)
    assert "no number of labels" in c.sentence


def test_mcnemar_is_the_exact_binomial_on_the_discordant_answers() -> None:
    """Only answers one judge alone got right count."""
    # A alone right on answers 3, 4 and 7; B alone on none: 2 * (1/2)^3.
    m = mcnemar(LABELS, A, B)
    assert (m.only_a_right, m.only_b_right) == (3, 0)
    assert m.p_value == pytest.approx(0.25)
    # Unscored is wrong: the first answer is now B's alone. 3 against 1: 2 * (4 + 1) / 16.
    m = mcnemar(LABELS, [None, *A[1:]], B)
    assert (m.only_a_right, m.only_b_right) == (3, 1)
    assert m.p_value == pytest.approx(0.625)


def test_swapping_the_judges_turns_everything_round() -> None:
    """The difference changes its sign, better becomes worse, and the p-value stays."""
    labels, a, b = sides(300, 0.85, 0.65)
    ab, ba = compare(labels, a, b), compare(labels, b, a)
    assert (ab.verdict, ba.verdict) == ("better", "worse")
    assert ab.balanced_accuracy.value == pytest.approx(-ba.balanced_accuracy.value)  # type: ignore[operator]
    assert ab.balanced_accuracy.low == pytest.approx(-ba.balanced_accuracy.high)  # type: ignore[operator]
    assert ab.balanced_accuracy.p_value == ba.balanced_accuracy.p_value
    assert ab.more_labels is None
    assert ab.auroc.value is not None
    assert ab.auroc.value > 0


def test_labels_needed_follow_from_the_standard_error() -> None:
    """n (z SE / d)² labels put the end of the interval at 0; the sentence names them."""
    labels, a, b = sides(100, 0.78, 0.78)
    c = compare(labels, a, b)
    d = c.balanced_accuracy
    assert d.value is not None
    assert d.standard_error is not None
    assert c.verdict == "not shown better"
    assert c.more_labels == math.ceil(100 * (1.959964 * d.standard_error / d.value) ** 2 - 100)
    assert "more answers to test on have an even chance to tell" in c.sentence


def test_the_labels_asked_for_tell_the_judges_apart() -> None:
    """With the same answers repeated up to the number asked for, the interval does end near 0."""
    labels, a, b = sides(100, 0.78, 0.78)
    more = compare(labels, a, b).more_labels
    assert more is not None
    times = math.ceil((100 + more) / 100) + 1
    again = compare(
        labels * times,
        Side([*a.predictions] * times, [*a.scores] * times),
        Side([*b.predictions] * times, [*b.scores] * times),
    )
    assert again.verdict == "better"


def test_the_verdict_names_the_judges_and_the_evidence() -> None:
    """The sentence can be read on its own."""
    labels, a, b = sides(300, 0.85, 0.65)
    sentence = compare(labels, a, b, names=("the champion", "the lexical baseline")).sentence
    assert sentence.startswith("the champion is better than the lexical baseline: balanced accuracy +")
    assert "95% interval" in sentence
    assert "300 labels" in sentence


def test_groups_that_agree_within_widen_the_interval() -> None:
    """Ten answers over each context are worth fewer than as many contexts."""
    labels, a, b = sides(40, 0.9, 0.7)
    labels, a, b = (
        labels * 10,
        Side([*a.predictions] * 10, [*a.scores] * 10),
        Side([*b.predictions] * 10, [*b.scores] * 10),
    )
    groups = [str(i % 40) for i in range(400)]
    alone, grouped = compare(labels, a, b).balanced_accuracy, compare(labels, a, b, groups).balanced_accuracy
    assert grouped.standard_error > 2 * alone.standard_error  # type: ignore[operator]


def test_no_false_alarms_beyond_the_level() -> None:
    """Two equally good judges are called different in at most a tenth of 100 samples."""
    rng = np.random.default_rng(0)
    labels = [i % 2 == 0 for i in range(100)]
    called = sum(
        compare(labels, judge(rng, labels, 0.75), judge(rng, labels, 0.75), n_resamples=300, seed=i).verdict
        != "not shown better"
        for i in range(100)
    )
    assert called <= 10


def test_one_class_or_no_scores_give_a_reason() -> None:
    """What cannot be compared is None with the reason, and never a verdict."""
    c = compare([True] * 8, Side(A, SCORES_A), Side(B, SCORES_B))
    assert c.balanced_accuracy.value is None
    assert c.verdict == "not shown better"
    assert "all answers are labelled faithful" in c.sentence
    c = compare(LABELS, Side(A, SCORES_A), Side(B, NONE))
    assert c.auroc.why == "judge B gives no scores"
    assert c.balanced_accuracy.value is not None


def test_one_group_is_no_evidence() -> None:
    """Answers that all hang together carry a value and no interval, and so no verdict."""
    c = compare(LABELS, Side(A, SCORES_A), Side(B, SCORES_B), ["one"] * 8)
    assert c.balanced_accuracy.value == pytest.approx(0.375)
    assert c.balanced_accuracy.low is None
    assert (c.verdict, c.more_labels) == ("not shown better", None)
    assert "one group" in c.sentence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": []}, "no labels"),
        ({"pred_a": A[:3]}, "got 3 pred_a for 8 labels"),
        ({"scores_b": [math.nan, *SCORES_B[1:]]}, "score nan"),
        ({"groups": ["g"]}, "got 1 groups for 8 labels"),
        ({"metric": "accuracy"}, "metric='accuracy'"),
    ],
)
def test_input_that_cannot_be_compared_is_refused(change: dict[str, object], said: str) -> None:
    """Wrong lengths, NaN and unknown metrics are an error that says what was got."""
    given = {"labels": LABELS, "pred_a": A, "pred_b": B, "scores_a": SCORES_A, "scores_b": SCORES_B}
    with pytest.raises(InputError, match=said):
        paired_bootstrap(**{**given, **change})  # type: ignore[arg-type]


def test_a_comparison_survives_json() -> None:
    """It can be logged and read back."""
    c = compare(LABELS, Side(A, SCORES_A), Side(B, SCORES_B))
    assert Comparison.model_validate_json(c.model_dump_json()) == c


def against(p: float | None, verdict: str = "better") -> Comparison:
    """A comparison with this p."""
    return Comparison(
        n=100, balanced_accuracy=Difference(value=0.1, low=0.01, high=0.2, p_value=p, standard_error=0.05),
        auroc=Difference(why="not asked"), mcnemar=McNemar(only_a_right=9, only_b_right=2, p_value=0.1),
        verdict=verdict, more_labels=None, sentence="the champion is better than it: +10 points.",
    )  # fmt: skip


def test_holm_by_hand() -> None:
    """p = .01, .02, .04: times 3, 2, 1, and never less than the one before; the primary comparison is left alone."""
    given = {"untuned": against(0.049), "a": against(0.04), "b": against(0.01), "c": against(0.02)}
    found = holm(given)
    assert {k: c.p_holm for k, c in found.items()} == {
        "untuned": None, "a": pytest.approx(0.04), "b": pytest.approx(0.03), "c": pytest.approx(0.04),
    }  # fmt: skip
    assert found["untuned"] == given["untuned"]
    assert list(found) == list(given)
    assert "Holm: p = 0.03" in found["b"].sentence


def test_a_verdict_that_does_not_hold_among_several_is_withdrawn() -> None:
    """p = .03 twice is .06: not shown better, and the sentence says why."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(0.03)})
    assert found["a"].verdict == "not shown better"
    assert found["a"].sentence.startswith("the champion is not shown to be better than it")
    assert "Holm: p = 0.06" in found["a"].sentence
    assert found["untuned"].verdict == "better"


def test_comparisons_without_p_are_not_counted() -> None:
    """A baseline that cannot be compared costs the others nothing."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(None, "not shown better")})
    assert found["a"].verdict == "better"
    assert found["a"].p_holm is None
