from __future__ import annotations

import math
import os
import time
from pathlib import Path

import numpy as np
import pytest

from faith_dspy.errors import InputError, MissingExtraError
from faith_dspy.schema import Chunk, LabelledExample
from faith_dspy.scoring.agreement import (
    annotator_agreement,
    balanced_threshold,
    evidence_f1,
    measure,
    threshold_for_recall,
)
from faith_dspy.scoring.statistics import Estimate, from_draws, need, ppi_mean, resample_weights, weighted_auroc

METRICS = (
    "balanced_accuracy",
    "cohen_kappa",
    "auroc",
    "mcc",
    "f1_unfaithful",
    "recall_unfaithful",
    "recall_faithful",
    "precision_unfaithful",
    "ece",
    "brier",
)


def example(annotators: object, i: int = 0) -> LabelledExample:
    """An answer with these annotators, over a context of its own."""
    return LabelledExample(
        id=str(i), context=(Chunk(id=0, text=f"c{i}"),), answer="a", faithful=True, annotators=annotators
    )


# Ten answers, six faithful. Passed: five of the faithful, one of the unfaithful.
LABELS = [True] * 6 + [False] * 4
PREDICTIONS = [True] * 5 + [False] + [True] + [False] * 3
SCORES = [0.9, 0.9, 0.8, 0.7, 0.6, 0.4, 0.7, 0.3, 0.2, 0.1]


def test_every_metric_worked_by_hand() -> None:
    """Each metric has the value of its textbook formula."""
    a = measure(LABELS, PREDICTIONS, SCORES)
    assert a.confusion == {
        "faithful_passed": 5,
        "faithful_failed": 1,
        "unfaithful_passed": 1,
        "unfaithful_failed": 3,
    }
    assert (a.n, a.scored, a.coverage) == (10, 10, 1.0)
    assert a.recall_faithful.value == pytest.approx(5 / 6)
    assert a.recall_unfaithful.value == pytest.approx(3 / 4)
    assert a.balanced_accuracy.value == pytest.approx((5 / 6 + 3 / 4) / 2)
    assert a.precision_unfaithful.value == pytest.approx(3 / 4)
    assert a.f1_unfaithful.value == pytest.approx(3 / 4)  # 2*3 / (2*3 + 1 + 1)
    # JudgedExample .8; by chance .6*.6 + .4*.4 = .52; (.8 - .52) / (1 - .52)
    assert a.cohen_kappa.value == pytest.approx(0.28 / 0.48)
    # (5*3 - 1*1) / sqrt(6*6*4*4) = 14 / 24
    assert a.mcc.value == pytest.approx(14 / 24)
    # 24 pairs. The unfaithful .7 loses to .9 .9 .8, ties .7, beats .6 .4: 3.5 won; the other three lose all 18.
    assert a.auroc.value == pytest.approx(21.5 / 24)
    # Squared errors .01 .01 .04 .09 .16 .36 | .49 .09 .04 .01
    assert a.brier.value == pytest.approx(1.30 / 10)
    # Ten answers, ten bins: every distinct score is its own bin, the two .9 and the two .7 share one each.
    # |gaps| summed: .9s .2 | .8 .2 | .7s |.3 - .7| = .4 | .6 .4 | .4 .6 | .3 .3 | .2 .2 | .1 .1
    assert a.ece.value == pytest.approx(2.4 / 10)


def test_same_numbers_as_scikit_learn() -> None:
    """On random answers with ties every metric equals scikit-learn's."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(3)
    y = rng.random(300) < 0.7
    s = np.clip(0.4 + 0.2 * y + 0.2 * rng.standard_normal(300), 0, 1).round(1)
    p = s >= 0.5
    a = measure(y.tolist(), p.tolist(), s.tolist(), n_resamples=10)
    assert a.balanced_accuracy.value == pytest.approx(metrics.balanced_accuracy_score(y, p))
    assert a.cohen_kappa.value == pytest.approx(metrics.cohen_kappa_score(y, p))
    assert a.mcc.value == pytest.approx(metrics.matthews_corrcoef(y, p))
    assert a.auroc.value == pytest.approx(metrics.roc_auc_score(y, s))
    assert a.f1_unfaithful.value == pytest.approx(metrics.f1_score(~y, ~p))
    assert a.precision_unfaithful.value == pytest.approx(metrics.precision_score(~y, ~p))
    assert a.brier.value == pytest.approx(metrics.brier_score_loss(y, s))


def test_weighted_auroc_is_that_of_repeated_answers() -> None:
    """A resample's AUROC is the AUROC of the answers written out as often as they were drawn."""
    metrics = pytest.importorskip("sklearn.metrics")
    y, s = np.array(LABELS), np.array(SCORES)
    for w in next(resample_weights(10, None, 20, 0)):
        again = w.astype(int)
        if 0 < (again * y).sum() < again.sum():
            expected = metrics.roc_auc_score(np.repeat(y, again), np.repeat(s, again))
            assert weighted_auroc(w[None], y, s)[0] == pytest.approx(expected)


def test_unscored_answers_count_in_coverage_alone() -> None:
    """An answer without a prediction changes coverage and no metric."""
    without = measure(LABELS, PREDICTIONS, SCORES)
    a = measure([*LABELS, False, True], [*PREDICTIONS, None, None], [*SCORES, None, 0.99])
    assert (a.n, a.scored, a.coverage) == (12, 10, 10 / 12)
    assert {m: getattr(a, m) for m in METRICS} == {m: getattr(without, m) for m in METRICS}


def test_a_missing_score_leaves_only_the_metrics_of_scores() -> None:
    """A verdict without a score counts in the confusion, and not in AUROC, ECE and Brier."""
    a = measure(LABELS, PREDICTIONS, [None] * 10)
    assert a.balanced_accuracy.value == pytest.approx((5 / 6 + 3 / 4) / 2)
    for m in ("auroc", "ece", "brier"):
        assert getattr(a, m) == Estimate(why="no scored answer has a score")
    # Without the third .8: 4 of 5 faithful left are the same pairs minus one won by .8 against each of four.
    some = measure(LABELS, PREDICTIONS, [*SCORES[:2], None, *SCORES[3:]])
    assert some.auroc.value == pytest.approx((21.5 - 4) / 20)


def test_nothing_scored_gives_no_numbers() -> None:
    """With every answer unscored, each estimate is None with the reason, and coverage is 0."""
    a = measure([True, False], [None, None], [None, None])
    assert (a.scored, a.coverage, sum(a.confusion.values())) == (0, 0.0, 0)
    assert all(getattr(a, m) == Estimate(why="no answer was scored") for m in METRICS)


def test_one_class_leaves_what_needs_two_undefined() -> None:
    """With faithful labels alone only the faithful recall and the errors of the scores are numbers."""
    a = measure([True] * 4, [True, True, True, False], [0.9, 0.8, 0.7, 0.2])
    assert a.recall_faithful.value == 0.75
    for m in ("balanced_accuracy", "cohen_kappa", "mcc", "recall_unfaithful", "auroc"):
        assert getattr(a, m).value is None
        assert "label" in (getattr(a, m).why or "")
    assert a.precision_unfaithful.value == 0.0
    assert a.brier.value is not None
    assert measure([True, True], [True, True], [1.0, 1.0]).precision_unfaithful.why == "no answer was failed"


def test_a_judge_that_always_passes_is_at_chance() -> None:
    """Constant predictions give balanced accuracy .5, κ 0 and MCC 0, not an error."""
    a = measure(LABELS, [True] * 10, [0.5] * 10)
    assert (a.balanced_accuracy.value, a.cohen_kappa.value, a.mcc.value, a.auroc.value) == (0.5, 0.0, 0.0, 0.5)


def test_raw_scores_have_no_calibration_error() -> None:
    """Scores outside [0, 1] rank, and leave ECE and Brier undefined."""
    a = measure(LABELS, PREDICTIONS, [10 * s for s in SCORES])
    assert a.auroc.value == pytest.approx(21.5 / 24)
    assert "not probabilities" in (a.ece.why or "")
    assert a.brier.value is None


@pytest.mark.parametrize(
    ("labels", "predictions", "scores", "said"),
    [
        ([], [], [], "no labels"),
        ([True], [True, False], [0.5], "got 2 predictions for 1 labels"),
        ([True, None], [True, True], [0.5, 0.5], "label None at position 1"),
        ([True, False], [True, 0.7], [0.5, 0.5], "prediction 0.7"),
        ([True, False], [True, True], [0.5, math.nan], "score nan at position 1"),
        ([True, False], [True, True], [math.inf, 0.5], "score inf at position 0"),
    ],
)
def test_input_that_cannot_be_measured_is_refused(
    labels: list[bool], predictions: list[bool | None], scores: list[float | None], said: str
) -> None:
    """Wrong lengths, labels that are none and NaN are an error that says what was got."""
    with pytest.raises(InputError, match=said):
        measure(labels, predictions, scores)


def test_intervals_depend_on_groups_and_seed_alone() -> None:
    """Same seed, same interval, in whatever order the answers come; groups that agree within widen it."""
    labels, predictions, scores = LABELS * 8, PREDICTIONS * 8, SCORES * 8
    groups = [f"g{i % 10}" for i in range(80)]  # eight copies of each answer in one group
    a = measure(labels, predictions, scores, groups=groups, seed=5)
    assert a == measure(labels, predictions, scores, groups=groups, seed=5)
    backwards = measure(labels[::-1], predictions[::-1], scores[::-1], groups=groups[::-1], seed=5)
    assert backwards.auroc.model_dump() == pytest.approx(a.auroc.model_dump())
    alone = measure(labels, predictions, scores, seed=5).balanced_accuracy
    together = a.balanced_accuracy
    assert together.high - together.low > 1.5 * (alone.high - alone.low)  # type: ignore[operator]  # both have one


def test_no_interval_where_the_data_carry_none() -> None:
    """A perfect judge, or a single group, gives a value without an interval that claims too much."""
    perfect = measure(LABELS, LABELS, SCORES).balanced_accuracy
    assert (perfect.value, perfect.low) == (1.0, None)
    assert "label more" in (perfect.why or "")
    assert measure(LABELS, PREDICTIONS, SCORES, groups=["one"] * 10).auroc.low is None
    # NaN in 6 of 10 resamples is more than half.
    nan = from_draws(0.5, np.array([math.nan] * 6 + [0.1, 0.2, 0.3, 0.4]), 0.95, "undefined")
    assert (nan.value, nan.low, nan.high) == (0.5, None, None)


def test_the_interval_contains_the_truth_about_as_often_as_it_says() -> None:
    """Over 200 samples of 150 answers the 95 % interval of balanced accuracy holds the true .75 in 90 to 99 %."""
    rng = np.random.default_rng(0)
    start, held = time.perf_counter(), 0
    for i in range(200):
        y = rng.random(150) < 0.6
        p = np.where(rng.random(150) < np.where(y, 0.8, 0.7), y, ~y)  # recalls .8 and .7
        e = measure(y.tolist(), p.tolist(), [None] * 150, n_resamples=300, seed=i).balanced_accuracy
        assert e.low is not None
        assert e.high is not None
        held += e.low <= 0.75 <= e.high
    assert 180 <= held <= 198
    assert time.perf_counter() - start < 20


def test_a_thousand_resamples_of_500_answers_take_under_two_seconds() -> None:
    """All metrics with their intervals are cheap enough to compute after every run."""
    rng = np.random.default_rng(0)
    y, s = rng.random(500) < 0.5, rng.random(500)
    start = time.process_time()
    measure(y.tolist(), (s > 0.5).tolist(), s.tolist(), groups=[str(i // 4) for i in range(500)])
    assert time.process_time() - start < 2


def test_ece_of_a_calibrated_judge_reaches_down_to_zero() -> None:
    """Resampling inflates ECE; its interval is corrected for that and still holds the value."""
    rng = np.random.default_rng(1)
    s = rng.random(300)
    ece = measure((rng.random(300) < s).tolist(), (s > 0.5).tolist(), s.tolist()).ece
    assert ece.value is not None
    assert ece.low is not None
    assert ece.high is not None
    assert ece.low < 0.02
    assert ece.low <= ece.value <= ece.high


def test_evidence_f1_pools_ids_over_statements() -> None:
    """Micro-F1 counts ids, so that a statement with many chunks weighs more."""
    # Shared 1 + 0 + 2 = 3; predicted 2 + 1 + 2, gold 1 + 1 + 3: 2*3 / 10.
    e = evidence_f1([{0, 1}, {2}, {3, 4}], [{0}, {5}, {3, 4, 6}])
    assert e.value == pytest.approx(0.6)
    assert e.low is not None
    assert evidence_f1([set(), set()], [set(), set()]).why == "nobody named a supporting chunk"
    assert evidence_f1([], []).value is None
    with pytest.raises(InputError, match="2 predicted and 1 gold"):
        evidence_f1([{1}, {2}], [{1}])


def test_threshold_sits_in_the_middle_of_the_best_gap() -> None:
    """Between the highest unfaithful and the lowest faithful score when they are apart."""
    assert balanced_threshold([False, False, True, True], [0.1, 0.2, 0.6, 0.9]) == pytest.approx(0.4)


def test_threshold_prefers_the_widest_plateau_then_the_one_near_a_half() -> None:
    """Among equally good cuts the one that moves least with the sample is taken."""
    # U .1, F .2, U .6, F .9. Cuts in (.1, .2] and (.6, .9] both give .75; the second is wider.
    assert balanced_threshold([False, True, False, True], [0.1, 0.2, 0.6, 0.9]) == pytest.approx(0.75)
    # The same with gaps of equal width, (.1, .3] and (.7, .9], at the same distance from a half; then one nearer.
    assert balanced_threshold([False, True, False, True], [0.1, 0.3, 0.5, 0.7]) == pytest.approx(0.6)


def test_threshold_joins_neighbouring_gaps_of_equal_worth() -> None:
    """A score at which both classes gain alike does not end the plateau."""
    # U .1, then F and U tied at .4, then F .8: cuts in (.1, .4] and (.4, .8] both give .75; the middle of both is .45.
    assert balanced_threshold([False, True, False, True], [0.1, 0.4, 0.4, 0.8]) == pytest.approx(0.45)


@pytest.mark.parametrize(
    "scores", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.9, 1.0, 0.0], [3.0, -1.0, 7.0]]
)
def test_threshold_is_never_worse_than_any_other(scores: list[float]) -> None:
    """Also for constant, extreme and backward scores; probabilities give a threshold in [0, 1]."""
    labels = [True, False, False]
    t = balanced_threshold(labels, scores)

    def value(cut: float) -> float:
        return measure(labels, [s >= cut for s in scores], scores, n_resamples=2).balanced_accuracy.value or 0.0

    assert value(t) == max(value(c) for c in [-9.0, 9.0, *scores, *(s + 1e-9 for s in scores)])
    if max(scores) <= 1:
        assert 0 <= t <= 1


def test_threshold_for_recall_is_the_lowest_that_finds_enough() -> None:
    """It fails the asked share of unfaithful answers, and passes as many faithful ones as that allows."""
    labels = [False, False, False, False, True, True, True]
    scores = [0.1, 0.2, 0.3, 0.6, 0.25, 0.7, 0.9]
    assert threshold_for_recall(labels, scores, 0.75) == pytest.approx(0.45)  # three of four: between .3 and .6
    assert threshold_for_recall(labels, scores, 0.5) == pytest.approx(0.225)  # two: between .2 and .25
    assert threshold_for_recall(labels, scores, 1.0) == pytest.approx(0.65)


def test_thresholds_that_cannot_be_fitted_say_why() -> None:
    """One class, a share that is none, and unfaithful answers at the very top are refused."""
    with pytest.raises(InputError, match="2 faithful and 0 unfaithful"):
        balanced_threshold([True, True], [0.1, 0.2])
    with pytest.raises(InputError, match="score nan"):
        balanced_threshold([True, False], [0.1, math.nan])
    with pytest.raises(InputError, match=r"recall_unfaithful=1\.5"):
        threshold_for_recall([True, False], [0.1, 0.2], 1.5)
    with pytest.raises(InputError, match="no threshold fails 100%"):
        threshold_for_recall([True, False], [0.1, 1.0], 1.0)


def test_one_annotator_against_the_majority_of_the_others() -> None:
    """Each person is held against the others; where the others tie there is nothing to hold against."""
    # yes yes no: the two yes face a tie and drop out; the no faces yes, yes.
    # no no no: three times unfaithful against unfaithful. True True True: three times faithful against faithful.
    found = annotator_agreement(
        [example(["yes", "yes", "no"], 0), example([["no", "no", "no"]], 1), example([[True, True, True]], 2)]
    )
    assert found is not None
    assert found.n == 7
    assert found.confusion == {
        "faithful_passed": 3,
        "faithful_failed": 1,
        "unfaithful_passed": 0,
        "unfaithful_failed": 3,
    }
    assert found.balanced_accuracy.value == pytest.approx((3 / 4 + 1) / 2)
    # JudgedExample 6/7; by chance (4*3 + 3*4) / 49 = 24/49; (42/49 - 24/49) / (25/49)
    assert found.cohen_kappa.value == pytest.approx(18 / 25)


def test_annotators_may_be_ratings_verdicts_or_a_mapping() -> None:
    """The highest rating of the set and full support mean faithful; labels nobody can read are left out."""
    ratings = annotator_agreement([example([["4", "4", "3"]], 0), example([["1", "2", "4"]], 1)])
    # 4 4 3: the 3 faces two faithful. 1 2 4: the 4 faces two unfaithful; 1 and 2 face a tie, as do both 4 above.
    assert ratings is not None
    assert ratings.confusion["faithful_failed"] == ratings.confusion["unfaithful_passed"] == 1
    verdicts = annotator_agreement([example({"ann": "fully_supported", "bo": "contradictory", "cy": "?"})])
    assert verdicts is not None
    assert verdicts.n == 2


@pytest.mark.parametrize("annotators", [None, [], ["yes"], [["?", "!"]], 3, "yes", [{"a": 1}, None]])
def test_nothing_usable_gives_no_ceiling(annotators: object) -> None:
    """Without two readable labels on one answer there is no human agreement to report."""
    assert annotator_agreement([example(annotators)]) is None


def test_prediction_powered_share_worked_by_hand() -> None:
    """The powered share is the labels' mean, moved by λ times how far the scores differ on the unlabelled answers."""
    # Labels 1 0 1 0, scores .8 .2 .6 .4 | unlabelled .8 .8 .6 .6. cov(Y, F): .5 (.3 + .3 + .1 + .1) / 3 = .4 / 3.
    # var of all eight scores (mean .6): squares .04 .16 0 .04 .04 .04 0 0 -> .32 / 7. n/N = 1.
    # λ = (.4 / 3) / (2 * .32 / 7) = 1.458 -> cut to 1. Share = .5 + (.7 - .5) = .7.
    share = ppi_mean([0.8, 0.2, 0.6, 0.4], [True, False, True, False], [0.8, 0.8, 0.6, 0.6])
    assert share.weight == 1.0
    assert share.powered.value == pytest.approx(0.7)
    # Variance: var(F_u) / 4 + var(Y - F) / 4 = (.04 / 3) / 4 + (.4 / 3) / 4; Y - F = .2 -.2 .4 -.4.
    assert share.powered.low == pytest.approx(0.7 - 1.959964 * math.sqrt(0.44 / 12))
    # Wilson for 2 of 4: .5 ± 1.96 sqrt(.25/4 + 1.96²/64) / (1 + 1.96²/4)
    z = 1.959964
    assert share.labels_only.high == pytest.approx(0.5 + z * math.sqrt(0.0625 + z**2 / 64) / (1 + z**2 / 4), abs=1e-6)


def test_prediction_powered_intervals_hold_the_truth_and_are_narrower() -> None:
    """With 60 labels and 600 scores of a fair but biased judge: coverage in 90 to 99 %, width under that of labels."""
    rng = np.random.default_rng(2)
    held = narrower = 0
    for _ in range(200):
        y = rng.random(660) < 0.7
        f = np.clip(0.2 + 0.5 * y + 0.1 * rng.standard_normal(660), 0, 1)
        share = ppi_mean(f[:60].tolist(), y[:60].tolist(), f[60:].tolist())
        p, c = share.powered, share.labels_only
        held += p.low <= 0.7 <= p.high  # type: ignore[operator]  # all samples have both classes
        narrower += p.high - p.low < c.high - c.low  # type: ignore[operator]
    assert 180 <= held <= 198
    assert narrower > 190


def test_useless_scores_are_not_used() -> None:
    """Constant scores get weight 0 and leave the labels' mean; labels all alike give no normal interval."""
    share = ppi_mean([0.5] * 4, [True, False, True, True], [0.5, None, 0.5])
    assert (share.weight, share.powered.value) == (0.0, 0.75)
    same = ppi_mean([0.9, 0.8], [True, True], [0.9, 0.1])
    assert same.powered.low is None
    assert same.labels_only.low is not None
    for bad in (
        ([1.5, 0.5], [True, False], [0.5, 0.5]),
        ([0.5], [True], [0.5]),
        ([math.nan, 0.5], [True, False], [1, 1]),
    ):
        with pytest.raises(InputError):
            ppi_mean(*bad)


def test_a_missing_package_names_the_extra() -> None:
    """What is not installed is an error that says how to install it, not an ImportError."""
    with pytest.raises(MissingExtraError, match=r"faith_dspy\[tune\]"):
        need("no_such_package.part", "Measuring agreement")


def test_people_agree_on_real_data_as_far_as_published() -> None:
    """On the multi-turn RAG answers one annotator reaches .78 to .86 against the majority of the others."""
    path = Path(os.environ.get("FAITH_DSPY_DATA", Path(__file__).parents[2] / "shared" / "data")) / "long_context.jsonl"
    if not path.exists():
        pytest.skip(f"no labelled data at {path}")
    labels = pytest.importorskip("faith_dspy.io.labels")
    found = annotator_agreement(labels.read_labels(path))
    assert found is not None
    assert 0.78 <= (found.balanced_accuracy.value or 0) <= 0.86
