import math

import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.pass_rate import estimate_share, traffic_table
from faith_dspy.optimize.results import Row


def labelled_scores(scores, labels, sources="abcd"):
    """Answers with their scores and labels, each a source of its own unless said."""
    rows = zip(scores, labels, sources, strict=False)
    return [
        Row(id="", source=source, label=bool(label), predicted=None, probability=score)
        for score, label, source in rows
    ]


def test_prediction_powered_share_worked_by_hand():
    """The powered share is the labels' mean, moved by λ times how far the scores differ on the unlabelled answers."""
    # Labels 1 0 1 0, scores .8 .2 .4 .6 | unlabelled .8 .8 .6 .6, each a source of its own.
    # cov(Y, F) = .5 (.3 + .3 - .1 - .1) / 3 = .2 / 3; var(F) = (.09 + .09 + .01 + .01) / 3 = .2 / 3.
    # var(F_N) = .04 / 3. λ = (.2 / 12) / (.2 / 12 + .04 / 12) = 5/6. Share = .5 + 5/6 (.7 - .5).
    labelled = labelled_scores([0.8, 0.2, 0.4, 0.6], [1, 0, 1, 0])
    share = estimate_share(labelled, [0.8, 0.8, 0.6, 0.6])
    assert share.weight == pytest.approx(5 / 6)
    assert share.powered.value == pytest.approx(0.5 + 1 / 6)
    # Variance: λ² .04 / 12 + Σ r² / 12; r is ± (.5 - .3 λ) = ± .25 twice and ± (.5 + .1 λ) = ± .58333 twice.
    variance = (25 / 36 * 0.04 + 2 * 0.25**2 + 2 * 0.583333**2) / 12
    t = 3.182446  # 97.5 % with 3 degrees of freedom
    assert share.powered.low == pytest.approx(
        max(0, 2 / 3 - t * math.sqrt(variance)), abs=1e-5
    )
    # From the labels alone: variance (4 · .25) / 12.
    assert share.labels_only.high == pytest.approx(min(1, 0.5 + t * math.sqrt(1 / 12)))
    # Scores that follow the labels more steeply than one to one count once: λ is cut.
    steep = labelled_scores([0.55, 0.45, 0.55, 0.45], [1, 0, 1, 0])
    assert estimate_share(steep, [0.5, 0.55, 0.5, 0.55]).weight == 1.0


def test_useless_scores_are_not_used():
    """Constant scores get weight 0 and leave the labels' mean; labels all alike get the interval of a share (Wilson),
    each source counted once: two of two."""
    share = estimate_share(labelled_scores([0.5] * 4, [1, 0, 1, 1]), [0.5, None, 0.5])
    assert (share.weight, share.powered.value) == (0.0, 0.75)
    assert "3 unlabelled answers (1 unscored). The" in traffic_table(share).notes[0]
    same = estimate_share(
        labelled_scores([0.9, 0.8, 0.9], [1, 1, 1], "aab"), [0.9, 0.1]
    )
    # Wilson's lower end of 2 of 2: n / (n + z²) = 2 / 5.8415.
    assert same.powered.value == 1
    assert same.powered.low == pytest.approx(0.3424, abs=1e-4)
    # Pairs, one of each in every source, show no spread: the interval is that of 1 of 2.
    pairs = labelled_scores([0.9, 0.8, 0.9, 0.7], [1, 0, 1, 0], "aabb")
    alike = estimate_share(pairs, [0.9, 0.1], judge_rate=0.25)
    assert (alike.alike, alike.labels_only.value) == (True, 0.5)
    assert alike.labels_only.high - alike.labels_only.low > 0.8
    assert "the judge passes .25 of the unlabelled" in traffic_table(alike).notes[0]
    few = "over 1 source and unlabelled ones over 1, expected at least 2 of each"
    with pytest.raises(InputError, match=few):
        estimate_share(labelled_scores([0.5, 0.6], [1, 0], "aa"), [0.5])


def test_five_copies_of_an_answer_tell_no_more_than_one():
    """Rows of one source are one draw: the interval is that of the sources alone, not √5 narrower."""
    scores, more = [0.8, 0.2, 0.4, 0.6], [0.8, 0.8, 0.6, 0.6]
    once, copied = (
        estimate_share(
            labelled_scores(scores * n, [1, 0, 1, 0] * n, "wxyz" * n),
            more * n,
            "wxyz" * n,
        )
        for n in (1, 5)
    )
    assert copied.powered.low == pytest.approx(once.powered.low)
    assert (copied.labelled, copied.sources) == (20, 4)
