"""Judge against human: agreement with intervals, thresholds, and how far people agree with each other.

Throughout, a label or prediction is True for *faithful*; unfaithful answers are what a judge is there to find.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.schema import Verdict
from faith_dspy.scoring import statistics as rates
from faith_dspy.scoring.statistics import Estimate as Estimate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.statistics import Bools, Floats, Ints

_WORDS = {"yes": True, "true": True, "faithful": True, "no": False, "false": False, "unfaithful": False}
_WORDS |= {v.value: v.is_supported for v in Verdict}


class Agreement(BaseModel):
    """How far a judge agrees with human labels. Everything but `n` and `coverage` is over the scored answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int
    """Labelled answers."""
    scored: int
    """Those of them the judge gave a verdict on."""
    coverage: float
    """``scored / n``."""
    confusion: dict[str, int]
    """``faithful_passed, faithful_failed, unfaithful_passed, unfaithful_failed``: people, then the judge."""
    balanced_accuracy: Estimate
    """Mean of the two recalls; 0.5 is chance."""
    cohen_kappa: Estimate
    """Agreement beyond chance (Cohen 1960); 0 is chance, 1 perfect."""
    auroc: Estimate
    """Chance that a faithful answer scores above an unfaithful one, ties one half (Hanley & McNeil 1982)."""
    mcc: Estimate
    """Correlation of labels and predictions (Matthews 1975); 0 when all predictions are the same."""
    f1_unfaithful: Estimate
    """F1 of raw_verdict unfaithful answers."""
    recall_unfaithful: Estimate
    """Share of the unfaithful answers that were failed."""
    recall_faithful: Estimate
    """Share of the faithful answers that were passed."""
    precision_unfaithful: Estimate
    """Share of the failed answers that are unfaithful."""
    ece: Estimate
    """Expected calibration error of the scores as probabilities: |share faithful - mean score|, averaged over ten
    equally full bins (Naeini et al. 2015, AAAI; equally full: Nguyen & O'Connor 2015). Small samples inflate it."""
    brier: Estimate
    """Mean squared error of the scores as probabilities (Brier 1950); 0 is perfect."""


def measure(
    labels: Sequence[bool],
    predictions: Sequence[bool | None],
    scores: Sequence[float | None],
    *,
    groups: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Agreement:
    """Agreement of a judge with people.

    Args:
        labels: n labels, True = faithful.
        predictions: n verdicts, None where the judge left the answer unscored: out of all metrics, in `coverage`.
        scores: n probabilities that the answer is faithful, or raw scores (higher = more faithful); None where there is
            none, and out of AUROC, ECE and Brier. Scores outside [0, 1] leave ECE and Brier undefined.
        groups: n group names, such as the context's; intervals then resample whole groups.
        n_resamples, seed, confidence: of the intervals.

    Intervals are percentile intervals of a cluster bootstrap (ECE: basic), see `faith_dspy.scoring.statistics`.

    Raises:
        InputError: no labels, lengths differ, a label that is not True or False, a score that is not finite.
    """
    rates.need("numpy", "Measuring agreement")
    import numpy as np

    rates.check_confidence(confidence, n_resamples)
    rates.check_labels(labels, predictions=predictions, scores=scores, groups=groups)
    rates.check_scores(scores)
    if odd := [p for p in predictions if p is not None and p not in (True, False)]:
        raise InputError(f"got prediction {odd[0]!r}, expected True, False, or None where unscored")
    at = [i for i, p in enumerate(predictions) if p is not None]
    y = np.array([bool(labels[i]) for i in at], dtype=bool)
    p = np.array([bool(predictions[i]) for i in at], dtype=bool)
    s = np.array([math.nan if (v := scores[i]) is None else float(v) for i in at], dtype=np.float64)
    why = _reasons(y, p, s)
    metrics: dict[str, Estimate] = dict.fromkeys(why, Estimate(why="no answer was scored"))
    counts = np.zeros(4)
    if at:
        kept = None if groups is None else [groups[i] for i in at]
        blocks = [rates.metric_values(w, y, p, s) for w in rates.resample_weights(len(at), kept, n_resamples, seed)]
        for k, (value,) in rates.metric_values(np.ones((1, len(at))), y, p, s).items():
            draws = np.concatenate([b[k] for b in blocks])
            metrics[k] = rates.from_draws(float(value), draws, confidence, why[k], basic=k == "ece")
        counts = rates.confusion_counts(np.ones((1, len(at))), y, p)[0]
    confusion = {k: int(c) for k, c in zip(rates.CONFUSION, counts, strict=True)}
    return Agreement(n=len(labels), scored=len(at), coverage=len(at) / len(labels), confusion=confusion, **metrics)


def _reasons(y: Bools, p: Bools, s: Floats) -> dict[str, str]:
    """For each metric, what it means when it is undefined for these answers."""
    one = f"all scored answers are labelled {'faithful' if y.any() else 'unfaithful'}"
    why = dict.fromkeys(("balanced_accuracy", "cohen_kappa", "mcc", "recall_unfaithful", "recall_faithful"), one)
    why["f1_unfaithful"] = "no unfaithful answers, and none failed"
    why["precision_unfaithful"] = "no answer was failed"
    none = "no scored answer has a score" if (s != s).all() else ""
    why["auroc"] = none or "all answers with a score have the same label"
    why["ece"] = why["brier"] = none or "some scores are outside [0, 1], so they are not probabilities"
    return why


def shared_ids(predicted: Collection[int], gold: Collection[int]) -> tuple[int, int]:
    """``2 |P and G|`` and ``|P| + |G|`` of chunk ids, whose quotient is their F1."""
    p, g = set(predicted), set(gold)
    return 2 * len(p & g), len(p) + len(g)


def evidence_f1(
    predicted: Sequence[Collection[int]],
    gold: Sequence[Collection[int]],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> Estimate:
    """Micro-F1 of the supporting chunk ids: `shared_ids`, both numbers summed over statements.

    One set of ids a statement; 95 % interval from resampled statements, or ``groups`` of them. `InputError` if the
    lengths differ.
    """
    rates.need("numpy", "Measuring evidence")
    import numpy as np

    if len(predicted) != len(gold):
        raise InputError(f"got {len(predicted)} predicted and {len(gold)} gold sets, expected one each a statement")
    none = "nobody named a supporting chunk"
    if not any(predicted) and not any(gold):
        return Estimate(why=none)
    both = np.array([shared_ids(p, g) for p, g in zip(predicted, gold, strict=True)], dtype=np.float64)
    sums = np.concatenate([w @ both for w in rates.resample_weights(len(both), groups, 1000, seed)])
    with np.errstate(invalid="ignore"):
        return rates.from_draws(float(both[:, 0].sum() / both[:, 1].sum()), sums[:, 0] / sums[:, 1], 0.95, none)


def _cuts(labels: Sequence[bool], scores: Sequence[float | None]) -> tuple[Floats, Ints, Ints]:
    """Edges e (U + 2), and for a threshold in (e[k], e[k+1]]: faithful passed and unfaithful failed (U + 1 each)."""
    rates.need("numpy", "Fitting a threshold")
    import numpy as np

    rates.check_labels(labels, scores=scores)
    rates.check_scores(scores)
    kept = [(bool(y), float(s)) for y, s in zip(labels, scores, strict=True) if s is not None]
    y = np.array([y for y, _ in kept], dtype=bool)
    if not y.any() or y.all():
        raise InputError(f"got {y.sum()} faithful and {(~y).sum()} unfaithful scored answers, expected both kinds")
    levels, at = np.unique([s for _, s in kept], return_inverse=True)
    passed = y.sum() - np.cumsum([0, *np.bincount(at[y], minlength=len(levels))])
    failed = np.cumsum([0, *np.bincount(at[~y], minlength=len(levels))])
    low, high = (0.0, 1.0) if levels[0] >= 0 and levels[-1] <= 1 else (levels[0] - 1, levels[-1] + 1)
    return np.array([low, *levels, high]), passed, failed


def balanced_threshold(labels: Sequence[bool], scores: Sequence[float | None]) -> float:
    """The threshold t with the highest balanced accuracy here, where ``score >= t`` passes.

    The middle of the best plateau: balanced accuracy does not change between neighbouring scores, and the middle moves
    least with the sample. Ties go to the widest plateau, then to the one closest to 0.5. Unscored answers (None) are
    left out. Scores in [0, 1] give a threshold in [0, 1]. `InputError` without scored answers of both kinds.
    """
    edges, passed, failed = _cuts(labels, scores)
    gain = passed * int(failed[-1]) + failed * int(passed[0])  # proportional to balanced accuracy, in whole numbers
    usable = [k for k in range(len(gain)) if k == 0 or edges[k] < edges[k + 1]]
    top = gain[usable].max()
    best = {k for k in usable if gain[k] == top}
    starts, ends = sorted(k for k in best if k - 1 not in best), sorted(k + 1 for k in best if k + 1 not in best)
    plateaus = [(float(edges[a]), float(edges[b])) for a, b in zip(starts, ends, strict=True)]
    low, high = max(plateaus, key=lambda e: (round(e[1] - e[0], 12), -abs((e[0] + e[1]) / 2 - 0.5)))
    return _middle(low, high)


def threshold_for_recall(labels: Sequence[bool], scores: Sequence[float | None], recall_unfaithful: float) -> float:
    """The lowest threshold that fails at least this share of the unfaithful answers here; ``score >= t`` passes.

    In the middle between the neighbouring scores. `InputError` for a share outside (0, 1], without scored answers of
    both kinds, or when unfaithful answers with the score 1 put the share out of reach.
    """
    if not 0 < recall_unfaithful <= 1:
        raise InputError(f"got recall_unfaithful={recall_unfaithful!r}, expected a share above 0 and at most 1")
    edges, _, failed = _cuts(labels, scores)
    wanted = math.ceil(recall_unfaithful * int(failed[-1]) - 1e-9)
    k = int((failed >= wanted).argmax())
    if edges[k] == edges[k + 1]:
        raise InputError(
            f"got unfaithful answers with the score {edges[k]:g}: no threshold fails {recall_unfaithful:.0%} of "
            "the unfaithful answers. Ask for less, or calibrate on more labels"
        )
    return _middle(float(edges[k]), float(edges[k + 1]))


def _middle(low: float, high: float) -> float:
    middle = low + (high - low) / 2
    return middle if middle > low else high


def annotator_agreement(
    examples: Sequence[LabelledExample], *, among: Sequence[LabelledExample] = (), seed: int = 0
) -> Agreement | None:
    """One annotator against the majority of the others: the ceiling for a judge. None when nothing is usable.

    `LabelledExample.annotators` is a list of labels, one a person; the same inside a list of one; or a mapping from
    person to label. A label is a boolean, a verdict's name, yes/no, or a rating, of which the set's highest (at least
    1) means faithful, as in `LabelledExample.label`; any other label is left out. Where the others tie there is no
    majority and the opinion is left out; `n` counts opinions. Intervals resample groups (default: contexts). Give the
    whole set as ``among`` when ``examples`` are a part of it: its highest rating counts.
    """
    people = [_people(e.annotators) for e in examples]
    everybody = [*people, *(_people(e.annotators) for e in among)]
    top = max([1.0, *(r for labels in everybody for x in labels if (r := rating(x)) is not None)])
    opinions: list[tuple[bool, bool, str]] = []
    for example, labels in zip(examples, people, strict=True):
        votes = [v for x in labels if (v := vote(x, top)) is not None]
        for one in votes:
            margin = 2 * (sum(votes) - one) - (len(votes) - 1)
            if margin:
                opinions.append((margin > 0, one, example.group_key))
    if not opinions:
        return None
    others, ones, groups = zip(*opinions, strict=True)
    return measure(others, ones, [None] * len(ones), groups=groups, seed=seed)


def _people(annotators: Any) -> list[Any]:
    if isinstance(annotators, list | tuple) and len(annotators) == 1 and isinstance(annotators[0], list | tuple):
        annotators = annotators[0]
    if isinstance(annotators, dict):
        annotators = list(annotators.values())
    return list(annotators) if isinstance(annotators, list | tuple) else []


def rating(label: Any) -> float | None:
    """A person's label as a number, if it is one."""
    try:
        return number if math.isfinite(number := float(label)) else None
    except (TypeError, ValueError):
        return None


def vote(label: Any, top: float = 1.0) -> bool | None:
    """Whether a person's label means faithful: a boolean, a verdict's name, yes/no, or a rating of which ``top`` does.

    None for any other.
    """
    word = str(label).strip().lower().replace(" ", "_")
    if word in _WORDS:
        return _WORDS[word]
    return None if (number := rating(label)) is None else number >= top
