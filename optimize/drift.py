"""Whether a judge in use still agrees with people, on labels that it is measured on again and again.

from faith_dspy.optimize.drift import drift_report, ignore_cache
ignore_cache(judge)
first = drift_report(labelled, judge.batch(records), judge.fingerprint)
later = drift_report(labelled, judge.batch(records), judge.fingerprint, earlier=[first], minimum=0.75)
later.alarms, later.changes, later.flips, later.agreement.answers.balanced_accuracy

`DriftRun` keeps the reports in MLflow: one run for each judge and label set. Each report is a step of the run's
metrics, and a file ``history/000012.json`` among its artifacts, which the next report is compared with.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faith_dspy.errors import FaithDspyError, InputError, counted, need
from faith_dspy.io.labels import label_set_hash
from faith_dspy.optimize.report.tables import OUTCOME
from faith_dspy.optimize.results import Comparison, Row
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.optimize.tracking.store import DESCRIPTION, MAX_TAG, Store, log_batch, mlflow_errors
from faith_dspy.optimize.tracking.study_run import agreement_metrics, cost_metrics
from faith_dspy.report.tables import Table, csv_text, estimate, markdown, points, table_of
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.statistics import Estimate, wilson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample

MAX_SHIFT = 0.2
"""The largest change of coverage that raises no alarm."""
SIGNIFICANT = 0.01
"""p-value below which labelled and unlabelled answers are taken to have different scores."""
_CHARACTERS = 200  # of an answer, kept to recognise it by
_MOST = 20  # flips that are shown
_KEY = "faith_dspy.drift"


class _Found(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaithfulShare(_Found):
    """The share of faithful answers in traffic that is labelled only in part."""

    powered: Estimate
    """From the labels and the judge's scores together (prediction-powered)."""
    labels_only: Estimate
    """From the labels alone, with a Wilson interval: the scores help if `powered` is narrower."""
    weight: float = Field(ge=0, le=1)
    """Weight of the scores (λ of PPI++): 0 ignores them, 1 uses them fully."""
    labelled: int
    unlabelled: int


class Flip(_Found):
    """An answer whose verdict is not the last report's."""

    id: str
    label: bool
    before: bool | None
    """None: unscored."""
    now: bool | None
    answer: str


class Change(_Found):
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


class Prevalence(_Found):
    """The share of faithful answers among those that nobody labelled, and whether the labels still fit them."""

    share: FaithfulShare
    drift_p_value: float | None
    """Two-sample Kolmogorov–Smirnov test of the scores of labelled and of unlabelled answers."""
    labels_fit: bool
    sentence: str


class DriftReport(_Found):
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
    unlabelled: Sequence[Judgment] = (),
    earlier: Sequence[DriftReport] = (),
    minimum: float | None = None,
    max_shift: float = MAX_SHIFT,
) -> DriftReport:
    """Agreement on the same labels, never tuned on, compared with earlier reports.

    ``judgments``: of ``labelled``, by the judge of the fingerprint ``judge``; ``unlabelled``: of other answers of the
    same traffic, for the share of faithful ones (`faithful_share`). ``earlier``: reports on the same labels,
    the oldest first; the first and the last count. There is an alarm where balanced accuracy is below ``minimum``,
    where the coverage has changed by more than ``max_shift``, and where the judge is shown worse than the first or the
    last report says (95 %, paired). `InputError` when an earlier report is about other labels.
    """
    agreement = measure_agreement(labelled, judgments)
    labels_hash = label_set_hash(labelled)
    if agreement.answers is None or any(report.label_set_hash != labels_hash for report in earlier):
        raise InputError("an earlier report is about other labels, or these hold none; give the same ones each time.")
    found = (
        Row(id=e.id, source=e.group_key, label=e.label, predicted=j.faithful, probability=j.ranking)
        for e, j in zip(labelled, judgments, strict=True)
        if e.label is not None
    )
    verdicts = sorted(found, key=lambda v: (v.id, v.source))
    last = earlier[-1] if earlier else None
    changes = [_change(verdicts, last, "last")] if last else []
    changes += [_change(verdicts, earlier[0], "first")] if len(earlier) > 1 else []
    accuracy, alarms = agreement.answers.balanced_accuracy, []
    if minimum is not None and (accuracy.value is None or accuracy.value < minimum):
        known = f"unknown ({accuracy.why})" if accuracy.value is None else f"{accuracy.value:.3f}"
        alarms.append(f"balanced accuracy is {known}, below the minimum of {minimum:g}.")
    for c in changes:
        since = f"the {c.since} report ({c.at})"
        if c.comparison.verdict == "worse":
            alarms.append(f"worse than {since}: balanced accuracy {points(c.comparison.balanced_accuracy)} points.")
        if abs(c.coverage) > max_shift:
            alarms.append(f"the coverage has changed by {c.coverage:+.2f} since {since}, more than {max_shift:g}.")
    scores = [j.ranking for j in unlabelled]
    return DriftReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=judge,
        label_set_hash=labels_hash,
        agreement=agreement,
        usage=sum((j.usage for j in judgments), Usage()),
        replayed=sum((j.replayed for j in judgments), Usage()),
        verdicts=tuple(verdicts),
        prevalence=faithful_share(verdicts, scores) if scores else None,
        changes=tuple(changes),
        new_version=last is not None and last.judge != judge,
        flips=_flips(verdicts, last.verdicts, {(e.id, e.group_key): e.answer for e in labelled}) if last else (),
        alarms=tuple(alarms),
    )


def _change(verdicts: Sequence[Row], old: DriftReport, since: Literal["last", "first"]) -> Change:
    scored = [sum(v.probability is not None for v in side) for side in (verdicts, old.verdicts)]
    return Change(
        since=since,
        at=old.at,
        comparison=compare(verdicts, old.verdicts, ("the judge now", f"the {since} report")),
        coverage=(scored[0] - scored[1]) / len(verdicts),
    )


def _flips(now: Sequence[Row], before: Sequence[Row], answers: Mapping[tuple[str, str], str]) -> tuple[Flip, ...]:
    flips = (
        Flip(id=n.id, label=n.label, before=b.predicted, now=n.predicted, answer=answers[n.id, n.source][:_CHARACTERS])
        for n, b in zip(now, before, strict=True)
        if n.predicted != b.predicted
    )
    return tuple(sorted(flips, key=lambda f: (f.now == f.label, f.id)))


def faithful_share(labelled: Sequence[Row], unlabelled: Sequence[float | None]) -> Prevalence:
    """Estimate the share by prediction-powered inference (`ppi_mean`), and check that the labels fit the traffic.

    ``unlabelled``: scores of the others. None: unscored.
    """
    labels, scores = [v.label for v in labelled], [v.probability for v in labelled]
    known = [[s for s in side if s is not None] for side in (scores, unlabelled)]
    stats = need("scipy.stats", "The share of faithful answers")
    p = float(stats.ks_2samp(*known).pvalue) if all(known) else None
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


def ppi_mean(
    labelled_scores: Sequence[float | None],
    labels: Sequence[bool],
    unlabelled_scores: Sequence[float | None],
) -> FaithfulShare:
    """The share of faithful answers in the traffic that the unlabelled answers are a sample of.

    Scores are the judge's, in [0, 1], of n ≥ 2 labelled answers and N ≥ 2 others. Valid when the labelled answers are a
    *random* sample of the same traffic and were not used to tune the judge; the scores need no calibration, since the
    labels correct their bias. Unscored answers (None) enter with 0.5, which only widens the interval. The 95 % interval
    is normal: doubt it below 30 labels.

    With Y labels, F scores: ``mean(Y) + λ (mean_N(F) - mean_n(F))``, variance ``λ² var_N(F)/N + var_n(Y - λF)/n``,
    ``λ = cov_n(Y, F) / ((1 + n/N) var(F))`` cut to [0, 1]: prediction-powered inference (Angelopoulos et al. 2023,
    *Science* 382) with power tuning (PPI++: Angelopoulos, Duchi, Zrnic 2023, arXiv:2311.01453).
    """
    n, n_more = len(labels), len(unlabelled_scores)
    if n < 2 or n_more < 2:
        raise InputError(f"got {n} labelled and {n_more} unlabelled answers, expected at least 2 of each")
    f, f_more = (np.array([0.5 if s is None else s for s in scores]) for scores in (labelled_scores, unlabelled_scores))
    y = np.asarray(labels, dtype=np.float64)
    spread = float(np.var(np.concatenate([f, f_more]), ddof=1))
    weight = float(np.clip(np.cov(y, f)[0, 1] / ((1 + n / n_more) * spread), 0, 1)) if spread > 0 else 0.0
    powered = Estimate(value=float(y.mean()), why="no interval: all labels are the same; see `labels_only`")
    if y.min() < y.max():
        value = y.mean() + weight * (f_more.mean() - f.mean())
        error = (weight**2 * f_more.var(ddof=1) / n_more + (y - weight * f).var(ddof=1) / n) ** 0.5
        half = NormalDist().inv_cdf(0.975) * error
        low, value, high = np.clip([value - half, value, value + half], 0, 1).tolist()
        powered = Estimate(value=value, low=low, high=high)
    labels_only = wilson(int(y.sum()), n)
    return FaithfulShare(powered=powered, labels_only=labels_only, weight=weight, labelled=n, unlabelled=n_more)


class DriftRun:
    """The MLflow run that holds the drift reports on one judge and one set of labels.

    ``judge``: its name – a folder, an address in the registry, an LM – which stays when a new version takes its place.
    Other labels, or another name, are another run. Raises `FaithDspyError` when the run cannot be read.
    """

    def __init__(self, store: Store, judge: str, labels_file: str, label_set_hash: str) -> None:
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
            found = self._client.search_runs([store.experiment_id], f"tags.`{_KEY}` = '{key}'", max_results=1)
            if not found:
                name = f"drift · {judge} · {labels_file}"
                found = [self._client.create_run(store.experiment_id, None, tags, name)]
            self.run_id = str(found[0].info.run_id)
            files = sorted(f.path for f in self._client.list_artifacts(self.run_id, "history"))
            self.steps = len(files)
            self.earlier = tuple(self._read(f) for f in dict.fromkeys([*files[:1], *files[-1:]]))
            """The first report and the last; one, or none, where there are no more."""

    def log(self, report: DriftReport) -> None:
        """Record a report; `FaithDspyError` when the store does not take it."""
        a = report.agreement.answers
        assert a is not None  # else there is no report
        found = f"Balanced accuracy {estimate(a.balanced_accuracy)}, {a.coverage:.0%} of {a.n} answers scored."
        latest = Table(f"Report {self.steps + 1}, {report.at}", notes=(found,))
        tables = [Table("Alarms", notes=report.alarms or ("None.",)), latest, *drift_tables(report)]
        alarms = "; ".join(report.alarms)[:MAX_TAG] or "none"
        tags = {DESCRIPTION: markdown(tables, level=3)[:MAX_TAG], "alarms": alarms}
        metrics = {
            **agreement_metrics("labelled", report.agreement),
            "alarms": len(report.alarms),
            "flips": len(report.flips) if report.changes else None,
            "unlabelled/faithful_share": report.prevalence.share.powered.value if report.prevalence else None,
            **cost_metrics(report.usage + report.replayed, len(report.verdicts)),
        }
        with mlflow_errors(self._store.uri, "take this report"):
            self._client.log_text(self.run_id, csv_text(_flips_table(report.flips)), "flips.csv")
            log_batch(self._client, self.run_id, metrics, tags=tags, step=self.steps)
            # Last: a report that is recorded by half is no step.
            self._client.log_text(self.run_id, report.model_dump_json(), f"history/{self.steps:06d}.json")
            self._client.set_terminated(self.run_id, "FINISHED")

    def _read(self, path: str) -> DriftReport:
        text = Path(self._client.download_artifacts(self.run_id, path)).read_text(encoding="utf-8")
        try:
            return DriftReport.model_validate_json(text)
        except ValidationError as exc:
            raise FaithDspyError(
                f"{path} in MLflow run {self.run_id} is not a drift report that this version reads "
                f"({str(exc).splitlines()[0]}). Delete the run to begin anew."
            ) from exc


def drift_tables(report: DriftReport) -> list[Table]:
    """What changed, and the flips, those to wrong first."""
    if not report.changes:
        return [Table("Drift", notes=("This is the first report: there is nothing to compare it with.",))]
    wrong = sum(f.now != f.label for f in report.flips)
    version = "another version of the judge" if report.new_version else "the same judge"
    flipped = f"{counted(len(report.flips), 'verdict')} flipped, {wrong} of them to wrong or unscored; {version}."
    tables = [Table("Drift", notes=(*(c.sentence for c in report.changes), flipped))]
    if report.flips:
        more = len(report.flips) - _MOST
        notes = (f"MLflow's flips.csv and --json have {more} more.",) if more > 0 else ()
        tables.append(_flips_table(report.flips[:_MOST], notes))
    return tables


def _flips_table(flips: Sequence[Flip], notes: tuple[str, ...] = ()) -> Table:
    columns = {
        "answer": lambda f: f.answer,
        "people": lambda f: OUTCOME[f.label],
        "before": lambda f: OUTCOME[f.before],
        "now": lambda f: OUTCOME[f.now],
        "id": lambda f: f.id,
    }
    return table_of("Flips", columns, flips, notes=notes)


def traffic_table(share: Prevalence) -> Table:
    """The share of faithful answers in the traffic."""
    s = share.share
    sentence = (
        f"{estimate(s.powered)} of the traffic is faithful ({estimate(s.labels_only)} from the labels alone), "
        f"estimated from {counted(s.labelled, 'label')} and {counted(s.unlabelled, 'unlabelled answer')}."
    )
    return Table("Traffic", notes=(sentence, share.sentence))
