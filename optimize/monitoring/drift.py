"""Whether a judge in use still agrees with people, on labels that it is measured on again and again.

from faith_dspy.optimize.monitoring.drift import measure_drift
first = measure_drift(judge, labelled)
later = measure_drift(judge, labelled, earlier=[first], minimum=0.75)
later.alarms, later.changes, later.flips, later.agreement.answers.balanced_accuracy
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError, need
from faith_dspy.io.labels import label_set_hash
from faith_dspy.optimize.results import Comparison
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.report.numbers import points
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, JudgeAgreement, measure_agreement
from faith_dspy.scoring.statistics import FaithfulShare, ppi_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample

MAX_SHIFT = 0.2
"""The largest shift of scores or coverage that raises no alarm."""
SIGNIFICANT = 0.01
"""p-value below which labelled and unlabelled answers are taken to have different scores."""
_CHARACTERS = 200  # of an answer, kept to recognise it by


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LabelledVerdict(_Frozen):
    """The judge's verdict on one labelled answer."""

    id: str
    group: str
    label: bool
    predicted: bool | None
    """None: unscored."""
    score: float | None
    """`Judgment.ranking`."""
    answer: str
    """Its beginning."""


class Flip(_Frozen):
    """An answer whose verdict is not the last report's."""

    id: str
    label: bool
    before: bool | None
    """None: unscored."""
    now: bool | None
    answer: str


class Change(_Frozen):
    """The judge now against an earlier report, on the same answers."""

    since: Literal["last", "first"]
    at: str
    """When the earlier report was made."""
    comparison: Comparison
    """Paired."""
    distance: float | None
    """How far the scores have moved: largest difference of the two distribution functions, in [0, 1] (two-sample
    Kolmogorov–Smirnov statistic); None when nothing was scored on one side."""
    p_value: float | None
    coverage: float
    """Share of scored answers now, minus the share then."""

    @property
    def gain(self) -> str:
        """The difference in balanced accuracy, in words."""
        return f"balanced accuracy {points(self.comparison.balanced_accuracy)} points"

    @property
    def sentence(self) -> str:
        """What changed."""
        scores = "are not comparable"
        if self.distance is not None:
            scores = f"shifted by {self.distance:.2f} (p = {self.p_value:.2g})"
        return (
            f"Since the {self.since} report ({self.at}): {self.gain}; scores {scores}; coverage {self.coverage:+.2f}."
        )

    def alarms(self, max_shift: float) -> list[str]:
        """A sentence for each limit that was passed."""
        since, out = f"since the {self.since} report", []
        if self.comparison.verdict == "worse":
            out.append(f"worse than the {self.since} report ({self.at}): {self.gain}.")
        if self.distance is not None and self.distance > max_shift:
            out.append(f"the scores have shifted by {self.distance:.2f} {since}, more than {max_shift:g}.")
        if abs(self.coverage) > max_shift:
            out.append(f"the coverage has changed by {self.coverage:+.2f} {since}, more than {max_shift:g}.")
        return out


class Prevalence(_Frozen):
    """The share of faithful answers among those that nobody labelled, and whether the labels still fit them."""

    share: FaithfulShare
    drift_p_value: float | None
    """Two-sample Kolmogorov–Smirnov test of the scores of labelled and of unlabelled answers."""
    labels_fit: bool
    sentence: str


class DriftReport(_Frozen):
    """A judge measured on labels, and compared with earlier reports on the same labels."""

    at: str
    """ISO 8601, UTC."""
    judge: str
    """`Judge.fingerprint`."""
    label_set_hash: str
    agreement: JudgeAgreement
    usage: Usage
    """What was paid for judging the labelled answers."""
    replayed: Usage = Usage()
    """Replies taken from the cache, not in `usage`."""
    verdicts: tuple[LabelledVerdict, ...]
    """Ordered by id."""
    prevalence: Prevalence | None = None
    """Share of faithful answers among the unlabelled ones."""
    changes: tuple[Change, ...] = ()
    """Since the last report, then since the first; empty without earlier reports."""
    new_version: bool = False
    """Whether LM, options, prompts or classifier changed since the last report."""
    flips: tuple[Flip, ...] = ()
    """Since the last report, those to a wrong verdict first."""
    alarms: tuple[str, ...] = ()
    """A sentence for each limit that was passed."""


def measure_drift(
    judge: Judge,
    labelled: Sequence[LabelledExample],
    *,
    unlabelled: Iterable[Mapping[str, Any]] = (),
    num_threads: int | None = None,
    **options: Any,
) -> DriftReport:
    """Judge the same labels again, and compare with earlier reports on them.

    Args:
        judge: a hosted LM is asked anew, not the cache: another model may answer to its name by now.
        labelled: the labels, always the same and never tuned on.
        unlabelled: records of answers that nobody labelled, for their share of faithful answers (`faithful_share`;
            the labels must then be a random sample of them).
        num_threads: of `Judge.batch`.
        options: ``earlier``, ``minimum``, ``max_shift`` and ``seed`` of `drift_report`.

    Raises `InputError` as `drift_report`.
    """
    ignore_cache(judge)
    records = [{"question": e.question, "context": e.context, "answer": e.answer} for e in labelled]
    judged, others = judge.batch(records, num_threads), judge.batch(list(unlabelled), num_threads)
    return drift_report(labelled, judged, judge.fingerprint, unlabelled=others, **options)


def ignore_cache(judge: Judge) -> None:
    """Make hosted LMs answer anew. The embedded LM may answer from the cache: its file's hash is in its name."""
    for lm in judge.lms:
        lm.cache = lm.cache and bool(lm.endpoint.sha256)


def drift_report(
    labelled: Sequence[LabelledExample],
    judgments: Sequence[Judgment],
    judge: str,
    *,
    unlabelled: Sequence[Judgment] = (),
    earlier: Sequence[DriftReport] = (),
    minimum: float | None = None,
    max_shift: float = MAX_SHIFT,
    seed: int = 0,
) -> DriftReport:
    """`measure_drift` for answers that are judged already.

    Args:
        labelled, judgments: the labels, and a judgment of each.
        judge: its fingerprint.
        unlabelled: judgments of answers that nobody labelled.
        earlier: reports on the same labels, the oldest first. The first and the last count.
        minimum: balanced accuracy below which there is an alarm.
        max_shift: shift of scores or coverage above which there is an alarm.
        seed: of the intervals.

    Further alarms are raised by a judge that is shown worse than the first or the last report says (95 %, paired).

    Raises:
        InputError: no answer is labelled, or an earlier report is about other labels.
    """
    agreement = measure_agreement(labelled, judgments, seed=seed)
    verdicts = sorted(
        (
            LabelledVerdict(
                id=e.id,
                group=e.group_key,
                label=e.label,
                predicted=j.faithful,
                score=j.ranking,
                answer=e.answer[:_CHARACTERS],
            )
            for e, j in zip(labelled, judgments, strict=True)
            if e.label is not None
        ),
        key=lambda v: (v.id, v.group),
    )
    if not verdicts:
        raise InputError(f"none of the {len(labelled)} answers is labelled faithful or not; drift needs some.")
    labels_hash = label_set_hash(labelled)
    if any(report.label_set_hash != labels_hash for report in earlier):
        raise InputError("an earlier report is about other labels; drift is measured on the same labels each time.")
    last = earlier[-1] if earlier else None
    changes = [_change(verdicts, last, "last", seed)] if last else []
    changes += [_change(verdicts, earlier[0], "first", seed)] if len(earlier) > 1 else []
    scores = [j.ranking for j in unlabelled]
    return DriftReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=judge,
        label_set_hash=labels_hash,
        agreement=agreement,
        usage=sum((j.usage for j in judgments), Usage()),
        replayed=sum((j.replayed for j in judgments), Usage()),
        verdicts=tuple(verdicts),
        prevalence=faithful_share([v.label for v in verdicts], [v.score for v in verdicts], scores) if scores else None,
        changes=tuple(changes),
        new_version=last is not None and last.judge != judge,
        flips=_flips(verdicts, last.verdicts) if last else (),
        alarms=(*_below_minimum(agreement.answers, minimum), *(a for c in changes for a in c.alarms(max_shift))),
    )


def _below_minimum(agreement: Agreement | None, minimum: float | None) -> list[str]:
    """The alarm for a balanced accuracy that is below a minimum, or unknown; empty without an alarm."""
    if minimum is None or agreement is None:
        return []
    accuracy = agreement.balanced_accuracy
    if accuracy.value is None:
        return [f"balanced accuracy is unknown ({accuracy.why}); the minimum is {minimum:g}."]
    below = f"balanced accuracy is {accuracy.value:.3f}, below the minimum of {minimum:g}."
    return [below] if accuracy.value < minimum else []


def _change(
    verdicts: Sequence[LabelledVerdict], old: DriftReport, since: Literal["last", "first"], seed: int
) -> Change:
    now, then = (Side([v.predicted for v in side], [v.score for v in side]) for side in (verdicts, old.verdicts))
    distance, p_value = _distance(now.scores, then.scores)
    scored = [sum(s is not None for s in side.scores) for side in (now, then)]
    labels, groups = [v.label for v in verdicts], [v.group for v in verdicts]
    return Change(
        since=since,
        at=old.at,
        comparison=compare(labels, now, then, groups, names=("the judge now", f"the {since} report"), seed=seed),
        distance=distance,
        p_value=p_value,
        coverage=(scored[0] - scored[1]) / len(verdicts),
    )


def _distance(*sides: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Statistic and p-value of the two-sample Kolmogorov–Smirnov test of the scores; None if a side has none."""
    known = [[s for s in side if s is not None] for side in sides]
    if not all(known):
        return None, None
    test = need("scipy.stats", "Comparing scores").ks_2samp(*known)
    return float(test.statistic), float(test.pvalue)


def faithful_share(
    labels: Sequence[bool], scores: Sequence[float | None], unlabelled: Sequence[float | None]
) -> Prevalence:
    """Estimate the share by prediction-powered inference (`ppi_mean`), and check that the labels fit the traffic.

    ``labels`` and ``scores``: one per labelled answer; ``unlabelled``: scores of the others. None: unscored.
    """
    p = _distance(scores, unlabelled)[1]
    fit = p is None or p >= SIGNIFICANT
    return Prevalence(
        share=ppi_mean(scores, labels, unlabelled),
        drift_p_value=p,
        labels_fit=fit,
        sentence="The judge's scores do not suggest that the labels are unlike the traffic."
        if fit
        else f"The judge scores traffic unlike the labelled answers (p = {p:.2g}): the labels no longer fit it, and "
        "the estimate may be off. Label a random sample of the new traffic.",
    )


def _flips(now: Sequence[LabelledVerdict], before: Sequence[LabelledVerdict]) -> tuple[Flip, ...]:
    flips = (
        Flip(id=n.id, label=n.label, before=b.predicted, now=n.predicted, answer=n.answer)
        for n, b in zip(now, before, strict=True)
        if n.predicted != b.predicted
    )
    return tuple(sorted(flips, key=lambda f: (f.now == f.label, f.id)))
