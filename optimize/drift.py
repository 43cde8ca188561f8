"""A judge in use: whether it still agrees with people, and what share of its traffic is faithful.

from faith_dspy.optimize.drift import drift_report, ignore_cache
ignore_cache(judge)
first = drift_report(labelled, judge.batch(records), judge.fingerprint)
later = drift_report(labelled, judge.batch(records), judge.fingerprint, earlier=[first], minimum=0.75)
later.alarms, later.changes, later.flips, later.agreement.answers.balanced_accuracy

`DriftRun` keeps one run in MLflow for each judge and label set. Each report is a step of its metrics; the first report
and the last one are among its artifacts, and the next is compared with both.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faith_dspy.errors import FaithDspyError, InputError, counted, import_optional
from faith_dspy.io.labels import label_set_hash
from faith_dspy.optimize.report.tables import OUTCOME
from faith_dspy.optimize.results import Comparison, Row
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.optimize.tracking.store import (
    DESCRIPTION,
    MAX_TAG,
    Store,
    log_batch,
    mlflow_errors,
)
from faith_dspy.optimize.tracking.study_run import agreement_metrics, cost_metrics
from faith_dspy.report.tables import (
    Table,
    csv_text,
    markdown,
    points,
    table_of,
    with_interval,
)
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.gate import gate_checks
from faith_dspy.scoring.statistics import (
    Estimate,
    Floats,
    Ints,
    wilson,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample

MAX_SHIFT = 0.2
"""The largest change of coverage that raises no alarm."""
_CHARACTERS = 200  # of an answer, kept to recognise it by
_MOST = 20  # flips that are shown
_KEY, _REPORTS = "faith_dspy.drift", "faith_dspy.reports"
_FIRST, _LAST = "first.json", "last.json"


class _Report(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaithfulShare(_Report):
    """The share of faithful answers in traffic that is labelled only in part."""

    powered: Estimate
    """From the labels and the judge's scores together (prediction-powered)."""
    labels_only: Estimate
    """From the labels alone: the scores help if `powered` is narrower."""
    weight: float = Field(ge=0, le=1)
    """Weight of the scores (λ of PPI++): 0 ignores them, 1 uses them fully."""
    labelled: int
    unlabelled: int
    sources: int
    """Over which the labelled answers were given: what intervals are made from."""


class Flip(_Report):
    """An answer whose verdict is not the last report's."""

    id: str
    label: bool
    before: bool | None
    """None: unscored."""
    now: bool | None
    answer: str


class Change(_Report):
    """The judge now against an earlier report, on the same answers."""

    since: Literal["last", "first"]
    at: str
    """When the earlier report was made."""
    comparison: Comparison
    """Paired."""
    coverage: float
    """Share of scored answers now, minus the share then."""

    @property
    def sentence(self) -> str:
        """What changed."""
        gain = points(self.comparison.balanced_accuracy)
        return (
            f"Since the {self.since} report ({self.at}): balanced accuracy {gain} points; coverage "
            f"{self.coverage:+.2f}."
        )


class DriftReport(_Report):
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
    verdicts: tuple[Row, ...]
    """Ordered by id."""
    share: FaithfulShare | None = None
    """Of faithful answers in the traffic."""
    changes: tuple[Change, ...] = ()
    """Since the last report, then since the first; empty without earlier reports."""
    new_version: bool = False
    """Whether LM, options, prompts or classifier changed since the last report."""
    flips: tuple[Flip, ...] = ()
    """Since the last report, those to a wrong verdict first."""
    alarms: tuple[str, ...] = ()
    """A sentence for each limit that was passed."""
    checks: dict[str, str | None] = Field(default_factory=dict, exclude=True)
    """What was checked, each with its alarm, or None where it holds."""


def ignore_cache(judge: Judge) -> None:
    """Make hosted LMs answer anew: another model may answer to their name by now. The embedded LM may answer from the
    cache, since its file's hash is in its name."""
    for lm in judge.lms:
        lm.cache = lm.cache and bool(lm.endpoint.sha256)


def drift_report(
    labelled: Sequence[LabelledExample],
    judgments: Sequence[Judgment],
    judge: str,
    *,
    share: FaithfulShare | None = None,
    earlier: Sequence[DriftReport] = (),
    minimum: float | None = None,
    min_coverage: float | None = None,
    max_shift: float = MAX_SHIFT,
) -> DriftReport:
    """Measure agreement on the same labels, never tuned on, and compare it with earlier reports.

    Args:
        labelled: the answers, each with a label.
        judgments: of ``labelled``, by the judge of the fingerprint ``judge``.
        judge: `Judge.fingerprint`.
        share: the share of faithful answers in the traffic (`estimate_share`), to be kept with the report.
        earlier: reports on the same labels, the oldest first; the first and the last count.
        minimum: the balanced accuracy below which there is an alarm; an unscored answer counts as wrong. It never
            holds on a coverage below ``min_coverage``, or on fewer than ten sources of a label.
        min_coverage: the coverage below which there is an alarm; without it 0.9 if there is a ``minimum``.
        max_shift: the change of coverage beyond which there is an alarm.

    Returns:
        The report. It has an alarm, too, where the judge is significantly worse than in the first or the last report
        (95 %, paired).

    Raises:
        InputError: An earlier report is about other labels, or these hold none.
    """
    agreement = measure_agreement(labelled, judgments)
    labels_hash = label_set_hash(labelled)
    hashes = {labels_hash, *(report.label_set_hash for report in earlier)}
    if agreement.answers is None or len(hashes) > 1:
        raise InputError(
            "an earlier report is about other labels, or these hold none; give the same ones each time."
        )
    verdicts = judged_rows(labelled, judgments)
    changes: list[Change] = []
    flips: tuple[Flip, ...] = ()
    if earlier:
        changes.append(_change(verdicts, earlier[-1], "last"))
        flips = _flips(verdicts, earlier[-1].verdicts, labelled)
    if len(earlier) > 1:
        changes.append(_change(verdicts, earlier[0], "first"))
    checks = {
        **gate_checks(labelled, judgments, minimum, min_coverage),
        **_change_checks(changes, max_shift),
    }
    return DriftReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=judge,
        label_set_hash=labels_hash,
        agreement=agreement,
        usage=sum((j.usage for j in judgments), Usage()),
        replayed=sum((j.replayed for j in judgments), Usage()),
        verdicts=tuple(verdicts),
        share=share,
        changes=tuple(changes),
        new_version=bool(earlier) and earlier[-1].judge != judge,
        flips=flips,
        alarms=tuple(filter(None, checks.values())),
        checks=checks,
    )


def judged_rows(
    labelled: Sequence[LabelledExample], judgments: Sequence[Judgment]
) -> list[Row]:
    """Return label and verdict of each labelled answer, ordered by id."""
    pairs = zip(labelled, judgments, strict=True)
    rows = [Row.of(e, j) for e, j in pairs if e.label is not None]
    return sorted(rows, key=lambda row: (row.id, row.source))


def _change_checks(
    changes: Sequence[Change], max_shift: float
) -> dict[str, str | None]:
    """Check what changed since earlier reports."""
    checks: dict[str, str | None] = {}
    for change in changes:
        report = f"the {change.since} report"
        since = f"{report} ({change.at})"
        worse = shifted = None
        if change.comparison.verdict == "worse":
            gain = points(change.comparison.balanced_accuracy)
            worse = f"worse than {since}: balanced accuracy {gain} points."
        if abs(change.coverage) > max_shift:
            shifted = f"the coverage has changed by {change.coverage:+.2f} since {since}, more than {max_shift:g}."
        checks[f"not worse than {report}"] = worse
        checks[f"coverage of {report}"] = shifted
    return checks


def _change(
    verdicts: Sequence[Row], old: DriftReport, since: Literal["last", "first"]
) -> Change:
    scored_now = sum(row.probability is not None for row in verdicts)
    scored_then = sum(row.probability is not None for row in old.verdicts)
    names = "the judge now", f"the {since} report"
    return Change(
        since=since,
        at=old.at,
        comparison=compare(verdicts, old.verdicts, names),
        coverage=(scored_now - scored_then) / len(verdicts),
    )


def _flips(
    now: Sequence[Row], before: Sequence[Row], labelled: Sequence[LabelledExample]
) -> tuple[Flip, ...]:
    answers = {(e.id, e.group_key): e.answer for e in labelled}
    flips = []
    for new, old in zip(now, before, strict=True):
        if new.predicted == old.predicted:
            continue
        answer = answers[new.id, new.source]
        flip = Flip(
            id=new.id,
            label=new.label,
            before=old.predicted,
            now=new.predicted,
            answer=answer[:_CHARACTERS],
        )
        flips.append(flip)
    flips.sort(key=lambda flip: (flip.now == flip.label, flip.id))
    return tuple(flips)


# The share of faithful answers


def estimate_share(
    labelled: Sequence[Row],
    scores: Sequence[float | None],
    sources: Sequence[str] | None = None,
) -> FaithfulShare:
    """Estimate the share of faithful answers in the traffic that labelled and unlabelled answers are a sample of.

    Valid when the labelled answers are a *random* sample of the same traffic and were not used to tune the judge. The
    scores need no calibration, since the labels correct their bias. An unscored answer enters with .5, which only
    widens the interval. Doubt the interval below ten labelled sources.

    With Y the labels, F the scores in [0, 1], n labelled and N other answers: ``mean(Y) + λ (mean_N(F) - mean_n(F))``,
    prediction-powered inference (Angelopoulos et al. 2023, *Science* 382) with power tuning (PPI++: Angelopoulos,
    Duchi, Zrnic 2023, arXiv:2311.01453). λ, cut to [0, 1], minimises the variance ``λ² V(F_N) + V(Y - λF)``, where V is
    the variance of a mean over G sources, ``G/(G-1) Σ_g (Σ_{i in g} r_i)² / n²`` of residuals r (Liang & Zeger 1986,
    *Biometrika* 73). The 95 % interval takes t with one degree of freedom less than there are labelled sources.

    Args:
        labelled: answers with their label, source and score; at least two sources.
        scores: of the other answers; None: unscored.
        sources: of the other answers; without them each is its own.

    Raises:
        InputError: There are fewer than two sources on a side.
    """
    y = np.array([row.label for row in labelled], dtype=np.float64)
    f = _or_half([row.probability for row in labelled])
    f_more = _or_half(scores)
    cluster, count = _clusters([row.source for row in labelled])
    own_sources = range(len(scores)) if sources is None else sources
    cluster_more, count_more = _clusters(own_sources)
    if count < 2 or count_more < 2:
        raise InputError(
            f"got labelled answers over {counted(count, 'source')} and unlabelled ones over {count_more}, expected at "
            "least 2 of each."
        )
    variance_more = _covariance(f_more, f_more, cluster_more)
    spread = _covariance(f, f, cluster) + variance_more
    weight = 0.0
    if spread > 0:
        best = _covariance(y, f, cluster) / spread
        weight = float(np.clip(best, 0, 1))
    rest = y - weight * f
    variance = weight**2 * variance_more + _covariance(rest, rest, cluster)
    shift = f_more.mean() - f.mean()
    powered = _t_interval(y.mean() + weight * shift, variance, count)
    labels_only = _t_interval(y.mean(), _covariance(y, y, cluster), count)
    if y.min() == y.max():  # one draw a source
        powered = labels_only = wilson(int(y[0]) * count, count)
    return FaithfulShare(
        powered=powered,
        labels_only=labels_only,
        weight=weight,
        labelled=len(labelled),
        unlabelled=len(scores),
        sources=count,
    )


def _or_half(scores: Sequence[float | None]) -> Floats:
    return np.array([0.5 if score is None else score for score in scores])


def _clusters(sources: Sequence[object]) -> tuple[Ints, int]:
    """Return the number of each one's source, and of all sources."""
    names, numbers = np.unique([str(s) for s in sources], return_inverse=True)
    return numbers, len(names)


def _covariance(a: Floats, b: Floats, cluster: Ints) -> float:
    """Covariance of the means of two columns whose rows are drawn in clusters."""
    sums_a = np.bincount(cluster, a - a.mean())
    sums_b = np.bincount(cluster, b - b.mean())
    count = len(sums_a)
    return float(count / (count - 1) * (sums_a @ sums_b) / len(a) ** 2)


def _t_interval(value: float, variance: float, sources: int) -> Estimate:
    stats = import_optional("scipy.stats", "The interval of a share")
    half = stats.t.ppf(0.975, sources - 1) * variance**0.5
    ends = np.clip([value - half, value, value + half], 0, 1)
    low, value, high = ends.tolist()
    return Estimate(
        value=value,
        low=low,
        high=high,
    )


# MLflow


class DriftRun:
    """The MLflow run that holds the drift reports on one judge and one set of labels.

    ``judge``: its name – a folder, an address in the registry, an LM – which stays when a new version takes its place.
    Other labels, or another name, are another run. Raises `FaithDspyError` when the run cannot be read.
    """

    def __init__(
        self,
        store: Store,
        judge: str,
        labels_file: str,
        label_set_hash: str,
    ) -> None:
        self._store, self._client = store, store.client
        key = digest([judge, label_set_hash])
        tags = {
            _KEY: key,
            "faith_dspy.kind": "drift",
            "judge": judge,
            "labels_file": labels_file,
            "label_set_hash": label_set_hash,
            "mlflow.source.name": "faith-dspy agree --track",
        }
        with mlflow_errors(store.uri, "give the run"):
            runs = self._client.search_runs(
                [store.experiment_id], f"tags.`{_KEY}` = '{key}'", max_results=1
            )
            if not runs:
                name = f"drift · {judge} · {labels_file}"
                runs = [self._client.create_run(store.experiment_id, None, tags, name)]
            self.run_id = str(runs[0].info.run_id)
            self.steps = int(runs[0].data.tags.get(_REPORTS, 0))
            files = (_FIRST, _LAST)[: self.steps]
            self.earlier = tuple(self._read_report(file) for file in files)
            """The first report and the last; one, or none, where there are no more."""

    def log(self, report: DriftReport) -> None:
        """Record a report; `FaithDspyError` when the store does not take it."""
        a = report.agreement.answers
        assert a is not None  # else there is no report
        summary = f"Balanced accuracy {with_interval(a.balanced_accuracy)}, {a.coverage:.0%} of {a.n} answers scored."
        tables = [
            Table("Alarms", notes=report.alarms or ("None.",)),
            Table(f"Report {self.steps + 1}, {report.at}", notes=(summary,)),
            *drift_tables(report),
        ]
        description = markdown(tables, level=3)
        alarms = "; ".join(report.alarms) or "none"
        tags = {DESCRIPTION: description[:MAX_TAG], "alarms": alarms[:MAX_TAG]}
        metrics = {
            **agreement_metrics("labelled", report.agreement),
            "alarms": len(report.alarms),
            "flips": len(report.flips) if report.changes else None,
            **cost_metrics(report.usage + report.replayed, len(report.verdicts)),
        }
        if report.share:
            metrics["unlabelled/faithful_share"] = report.share.powered.value
        client, run_id = self._client, self.run_id
        flips = csv_text(_flips_table(report.flips))
        with mlflow_errors(self._store.uri, "take this report"):
            client.log_text(run_id, flips, "flips.csv")
            log_batch(client, run_id, metrics, tags=tags, step=self.steps)
            for file in (_LAST,) if self.steps else (_FIRST, _LAST):
                client.log_text(run_id, report.model_dump_json(), file)
            # Last: a report that is recorded by half is no step.
            client.set_tag(run_id, _REPORTS, str(self.steps + 1))
            client.set_terminated(run_id, "FINISHED")

    def _read_report(self, path: str) -> DriftReport:
        file = Path(self._client.download_artifacts(self.run_id, path))
        try:
            return DriftReport.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as exc:
            raise FaithDspyError(
                f"{path} in MLflow run {self.run_id} is not a drift report that this version reads "
                f"({str(exc).splitlines()[0]}). Delete the run to begin anew."
            ) from exc


# Tables


def drift_tables(report: DriftReport) -> list[Table]:
    """Return what changed, and the flips, those to wrong first."""
    if not report.changes:
        first = "This is the first report: there is nothing to compare it with."
        return [Table("Drift", notes=(first,))]
    wrong = sum(flip.now != flip.label for flip in report.flips)
    version = "another version of the judge" if report.new_version else "the same judge"
    flipped = f"{counted(len(report.flips), 'verdict')} flipped, {wrong} of them to wrong or unscored; {version}."
    changes = [change.sentence for change in report.changes]
    more = len(report.flips) - _MOST
    if more > 0:
        flipped += f" MLflow's flips.csv and --json have {more} more than are shown."
    tables = [Table("Drift", notes=(*changes, flipped))]
    if report.flips:
        tables.append(_flips_table(report.flips[:_MOST]))
    return tables


def _flips_table(flips: Sequence[Flip]) -> Table:
    columns = {
        "answer": lambda flip: flip.answer,
        "people": lambda flip: OUTCOME[flip.label],
        "before": lambda flip: OUTCOME[flip.before],
        "now": lambda flip: OUTCOME[flip.now],
        "id": lambda flip: flip.id,
    }
    return table_of("Flips", columns, flips)


def traffic_table(share: FaithfulShare) -> Table:
    """Return the share of faithful answers in the traffic."""
    labels_only = with_interval(share.labels_only)
    sentence = (
        f"{with_interval(share.powered)} of the traffic is faithful ({labels_only} from the labels alone), estimated "
        f"from {counted(share.labelled, 'label')} over {counted(share.sources, 'source')} and "
        f"{counted(share.unlabelled, 'unlabelled answer')}."
    )
    return Table("Traffic", notes=(sentence,))
