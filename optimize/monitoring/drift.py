"""Whether a judge in use still agrees with people, on anchor labels that it is measured on again and again.

from faith_dspy.optimize.monitoring.drift import measure_drift
first = measure_drift(judge, labelled)
later = measure_drift(judge, labelled, earlier=[first], minimum=0.75)
later.alarms, later.flips, later.agreement.answers.balanced_accuracy
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.io.labels import label_set_hash
from faith_dspy.optimize.monitoring.prevalence import Prevalence, faithful_share
from faith_dspy.optimize.results import Comparison
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.report.numbers import points
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, JudgeAgreement, measure_agreement
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample

MAX_SHIFT = 0.2
"""The largest shift of scores or coverage that raises no alarm."""
_CHARACTERS = 200  # of an answer, kept to recognise it by
Since = Literal["last", "first"]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AnchorVerdict(_Frozen):
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
    """An answer whose verdict is not the last report's. None: unscored."""

    id: str
    label: bool
    before: bool | None
    now: bool | None
    answer: str


class Shift(_Frozen):
    """How far scores and coverage have moved since an earlier report."""

    since: Since
    distance: float | None
    """Largest difference of the two distribution functions, in [0, 1] (two-sample Kolmogorov–Smirnov statistic); None
    when nothing was scored on one side."""
    p_value: float | None
    coverage: float
    """Share of scored answers now, minus the share then."""


class DriftReport(_Frozen):
    """A judge measured on anchor labels, and compared with earlier reports on the same labels."""

    at: str
    """ISO 8601, UTC."""
    judge: str
    """`Judge.fingerprint`."""
    label_set_hash: str
    agreement: JudgeAgreement
    usage: Usage
    """Of judging the anchor answers."""
    verdicts: tuple[AnchorVerdict, ...]
    """Ordered by id."""
    prevalence: Prevalence | None = None
    """Share of faithful answers among the unlabelled ones."""
    compared: dict[Since, Comparison] = {}
    """The judge now against the last report and the first, paired; empty without earlier reports."""
    compared_at: dict[Since, str] = {}
    """When those were."""
    new_version: bool = False
    """Whether LM, options, prompts or classifier changed since the last report."""
    flips: tuple[Flip, ...] = ()
    """Since the last report, those to a wrong verdict first."""
    shifts: tuple[Shift, ...] = ()
    alarms: tuple[str, ...] = ()
    """A sentence for each limit that was passed."""

    @property
    def changes(self) -> list[str]:
        """What changed since the earlier reports, a sentence each; empty without any."""
        out = [
            f"Since the {since} report ({self.compared_at[since]}): balanced accuracy {_change(c)}."
            for since, c in self.compared.items()
        ]
        if self.compared:
            wrong = sum(f.now != f.label for f in self.flips)
            version = "another version of the judge" if self.new_version else "the same judge"
            out.append(f"{len(self.flips)} verdicts flipped, {wrong} of them to wrong or unscored; {version}.")
        for s in self.shifts:
            p = "" if s.p_value is None else f" (p = {s.p_value:.2g})"
            moved = "not comparable" if s.distance is None else f"shifted by {s.distance:.2f}{p}"
            out.append(f"Since the {s.since} report: scores {moved}, coverage {s.coverage:+.2f}.")
        return out


def measure_drift(
    judge: Judge,
    labelled: Sequence[LabelledExample],
    *,
    earlier: Sequence[DriftReport] = (),
    unlabelled: Iterable[Mapping[str, Any]] = (),
    minimum: float | None = None,
    max_shift: float = MAX_SHIFT,
    num_threads: int | None = None,
    seed: int = 0,
) -> DriftReport:
    """Judge the anchor labels again, and compare with earlier reports on them.

    Args:
        judge: a hosted LM is asked anew, not the cache: another model may answer to its name by now.
        labelled: the anchor labels, always the same and never tuned on.
        earlier: reports on the same labels, the oldest first. The first and the last count.
        unlabelled: records of answers that nobody labelled, for their share of faithful answers (`faithful_share`;
            the anchor labels must then be a random sample of them).
        minimum: balanced accuracy below which there is an alarm.
        max_shift: shift of scores or coverage above which there is an alarm.
        num_threads, seed: of `Judge.batch` and of the intervals.

    Further alarms are raised by a judge that is shown worse than the first or the last report says (95 %, paired).

    Raises:
        InputError: no answer is labelled, or an earlier report is about other labels.
    """
    ignore_cache(judge)
    records = [{"question": e.question, "context": e.context, "answer": e.answer} for e in labelled]
    return drift_report(
        labelled,
        judge.batch(records, num_threads),
        judge.fingerprint,
        earlier=earlier,
        unlabelled=judge.batch(list(unlabelled), num_threads),
        minimum=minimum,
        max_shift=max_shift,
        seed=seed,
    )


def ignore_cache(judge: Judge) -> None:
    """Make hosted LMs answer anew. The embedded LM may answer from the cache: its file's hash is in its name."""
    for lm in judge.lms:
        lm.cache = lm.cache and bool(lm.endpoint.sha256)


def drift_report(
    labelled: Sequence[LabelledExample],
    judgments: Sequence[Judgment],
    judge: str,
    *,
    earlier: Sequence[DriftReport] = (),
    unlabelled: Sequence[Judgment] = (),
    minimum: float | None = None,
    max_shift: float = MAX_SHIFT,
    seed: int = 0,
) -> DriftReport:
    """`measure_drift` for answers that are judged already. ``judge``: its fingerprint."""
    agreement = measure_agreement(labelled, judgments, seed=seed)
    verdicts = sorted(
        (
            AnchorVerdict(
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
        raise InputError(f"none of the {len(labelled)} anchor answers is labelled faithful or not; drift needs some.")
    labels_hash = label_set_hash(labelled)
    if any(report.label_set_hash != labels_hash for report in earlier):
        raise InputError("an earlier report is about other labels; drift is measured on the same labels each time.")
    scores = tuple(j.ranking for j in unlabelled)
    now = DriftReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=judge,
        label_set_hash=labels_hash,
        agreement=agreement,
        usage=sum((j.usage for j in judgments), Usage()),
        verdicts=tuple(verdicts),
        prevalence=faithful_share([v.label for v in verdicts], [v.score for v in verdicts], scores) if scores else None,
        alarms=tuple(below_minimum(agreement.answers, minimum)),
    )
    return _compared(now, earlier, max_shift, seed) if earlier else now


def below_minimum(agreement: Agreement | None, minimum: float | None) -> list[str]:
    """The alarm for a balanced accuracy that is below a minimum, or unknown; empty without an alarm."""
    if minimum is None:
        return []
    accuracy = agreement.balanced_accuracy if agreement else None
    if accuracy is not None and accuracy.value is not None:
        what = f"is {accuracy.value:.3f}, below the minimum of {minimum:g}"
        return [] if accuracy.value >= minimum else [f"balanced accuracy {what}."]
    why = accuracy.why if accuracy else "no answer is labelled"
    return [f"balanced accuracy is unknown ({why}); the minimum is {minimum:g}."]


def _compared(now: DriftReport, earlier: Sequence[DriftReport], max_shift: float, seed: int) -> DriftReport:
    last = earlier[-1]
    then: dict[Since, DriftReport] = {"last": last}
    if len(earlier) > 1:
        then["first"] = earlier[0]
    labels, groups = [v.label for v in now.verdicts], [v.group for v in now.verdicts]
    compared = {
        since: compare(
            labels, _side(now), _side(old), groups, names=("the judge now", f"the {since} report"), seed=seed
        )
        for since, old in then.items()
    }
    shifts = [_shift(now, old, since) for since, old in then.items()]
    alarms = [
        f"worse than the {since} report ({then[since].at}): balanced accuracy {_change(c)}."
        for since, c in compared.items()
        if c.verdict == "worse"
    ]
    for s in shifts:
        if s.distance is not None and s.distance > max_shift:
            what = f"shifted by {s.distance:.2f} since the {s.since} report"
            alarms.append(f"the scores have {what}, more than {max_shift:g}.")
        if abs(s.coverage) > max_shift:
            what = f"changed by {s.coverage:+.2f} since the {s.since} report"
            alarms.append(f"the coverage has {what}, more than {max_shift:g}.")
    return now.model_copy(
        update={
            "compared": compared,
            "compared_at": {since: old.at for since, old in then.items()},
            "new_version": last.judge != now.judge,
            "flips": _flips(now, last),
            "shifts": tuple(shifts),
            "alarms": (*now.alarms, *alarms),
        }
    )


def _side(report: DriftReport) -> Side:
    return Side([v.predicted for v in report.verdicts], [v.score for v in report.verdicts])


def _flips(now: DriftReport, last: DriftReport) -> tuple[Flip, ...]:
    flips = (
        Flip(id=n.id, label=n.label, before=b.predicted, now=n.predicted, answer=n.answer)
        for n, b in zip(now.verdicts, last.verdicts, strict=True)
        if n.predicted != b.predicted
    )
    return tuple(sorted(flips, key=lambda f: (f.now == f.label, f.id)))


def _shift(now: DriftReport, old: DriftReport, since: Since) -> Shift:
    here, there = ([v.score for v in r.verdicts if v.score is not None] for r in (now, old))
    test = need("scipy.stats", "Measuring drift").ks_2samp(here, there) if here and there else None
    return Shift(
        since=since,
        distance=float(test.statistic) if test else None,
        p_value=float(test.pvalue) if test else None,
        coverage=(len(here) - len(there)) / len(now.verdicts),
    )


def _change(c: Comparison) -> str:
    return f"{points(c.balanced_accuracy)} points"
