"""A study in MLflow: one run, with a run for each variant below it and a trace for each test answer; the champion goes
into the registry.

Metrics are the few by which runs are compared; a run's artifacts hold all else that was measured.
``test/…`` the champion on the testset, ``dev/…`` a variant on dev, ``labelled/…`` a judge whose drift is watched
``…_low`` and ``…_high`` the ends of the 95 % interval
``cost/…`` for each answer
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from faith_dspy.export import exported_files
from faith_dspy.optimize.report.pages import (
    card,
    links,
    variant_markdown,
    write_learned,
)
from faith_dspy.optimize.report.plots import judge_figures, study_figures
from faith_dspy.optimize.report.tables import (
    OUTCOME,
    predictions_table,
    study_tables,
    worst_first,
)
from faith_dspy.optimize.results import (
    JudgedAnswer,
    JudgeResult,
    StudyResult,
    StudySetup,
)
from faith_dspy.optimize.tracking.archive import STUDY_FILE
from faith_dspy.optimize.tracking.registry import MODEL, register, register_prompts
from faith_dspy.optimize.tracking.store import (
    DESCRIPTION,
    MAX_TAG,
    Store,
    global_store,
    log_batch,
    mlflow_errors,
    page_of,
    quiet,
    reason,
    redacted,
)
from faith_dspy.report.tables import MARK, csv_text, markdown
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import JudgeAgreement
from faith_dspy.scoring.statistics import Estimate

if TYPE_CHECKING:
    from mlflow.entities import Assessment, DatasetInput

MOST = 100
"""Traces of a study at most, those where judge and people disagree first; all answers are in ``predictions.csv``."""
_STUDY, _KIND, _VARIANT, _CHAMPION = (
    "faith_dspy.study_id",
    "faith_dspy.kind",
    "faith_dspy.variant",
    "champion",
)
_PARENT = "mlflow.parentRunId"
_OPENED = "faith_dspy.test_hash"
_STATUS = {"done": "FINISHED", "skipped": "KILLED"}
Metrics = dict[str, float | None]
log = logging.getLogger(__name__)


class MlflowTracker(AbstractContextManager["MlflowTracker"]):
    """Records a study in MLflow as it goes: a study that is killed keeps the variants that were finished.

    A failing store never ends a study: there is one warning, and what could not be recorded is missing.
    """

    def __init__(
        self, store: Store, setup: StudySetup, *, register: bool = True
    ) -> None:
        self._store, self.client, self._model = (
            store,
            store.client,
            MODEL if register else None,
        )
        self._complete = True
        lm = str(setup.lm["name"]).rpartition("/")[2].partition("@")[0]
        self._id = setup.study_id[
            :4
        ]  # in the names of all its runs: what is cut from a long one is the end
        parts = [f"{PurePath(setup.labels_file).stem} {self._id}", lm, setup.budget]
        self._title = " · ".join(
            [*parts, *([f"seed {setup.seed}"] if setup.seed else [])]
        )
        self._runs: dict[str, str] = {}
        """Of the variants, by name."""
        tags = {_STUDY: setup.study_id, _KIND: "study", "status": "running"}
        params = {
            **setup.model_dump(
                include={"labels_file", "label_set_hash", "budget", "seed"}
            ),
            **{f"answers_{part}": n for part, n in setup.split["used"].items()},
            **{
                "lm" if k == "name" else f"lm_{k}": v
                for k, v in setup.lm.items()
                if v is not None
            },
        }
        with mlflow_errors(store.uri, "take a run"):
            self.run_id = self._create(
                tags,
                self._title,
                "Not finished. Its variants appear below as they finish.",
            )
            log_batch(self.client, self.run_id, params=params)
            self.client.log_inputs(self.run_id, datasets=_datasets(setup))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run of a study that ended before it was finished."""
        if kind is not None:
            status = "FAILED" if issubclass(kind, Exception) else "KILLED"
            self._try(
                lambda: self.client.set_tag(self.run_id, "status", status.lower())
            )
            self._try(lambda: self.client.set_terminated(self.run_id, status))

    @property
    def page(self) -> str:
        """The address of the study's run on MLflow's pages."""
        return page_of(self._store, self.run_id)

    def count_openings(self, test_hash: str) -> int | None:
        """Record that this study opens a testset; returns how often it has been opened, this time included.

        Args:
            test_hash: `label_set_hash` of the test answers.

        Returns:
            The number of studies in this store that opened it, deleted ones among them. The same study run again is the
            same opening: it shows nothing new. None where the store fails.
        """
        opened: list[int] = []
        self._try(
            lambda: opened.append(record_opening(self._store, self.run_id, test_hash))
        )
        return opened[0] if opened else None

    def variant(self, result: JudgeResult) -> None:
        """Record a finished or skipped variant."""
        self._try(lambda: self._log_variant(result))

    def finish(self, result: StudyResult) -> str:
        """Record the finished study and register its champion; returns what became of it in the registry, a sentence,
        or nothing where it is not to be registered."""
        registered: list[str] = []
        self._try(lambda: self._log_study(result))
        self._try(lambda: log_study_traces(self._store, self.run_id, result))
        if name := self._model:
            self._try(
                lambda: registered.append(
                    register(self._store, self.run_id, result, name)
                )
            )
            self._try(lambda: register_prompts(self._store, self.run_id, result, name))
        self._try(lambda: self.client.set_terminated(self.run_id, "FINISHED"))
        if not self._complete:
            log.warning(
                "MLflow's record of this study is incomplete. The judge in %s is complete. When MLflow is back, run "
                "the study again: the LM's replies are cached, so it costs no calls.",
                result.judge_dir,
            )
        if self._model and not registered:
            return f"Not registered: MLflow at {redacted(self._store.uri)} failed. Run the study again when it is back."
        return "".join(registered)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            with quiet():
                step()
        except Exception as exc:  # noqa: BLE001 - whatever MLflow raises
            if self._complete:
                where = redacted(self._store.uri)
                log.warning(
                    "MLflow at %s failed (%s); the study goes on.", where, reason(exc)
                )
            self._complete = False

    def _create(self, tags: Mapping[str, str], name: str, text: str) -> str:
        tags = {
            **tags,
            "mlflow.source.name": "faith-dspy tune",
            DESCRIPTION: text[:MAX_TAG],
        }
        return str(
            self.client.create_run(
                self._store.experiment_id, None, tags, name
            ).info.run_id
        )

    def _log_variant(self, v: JudgeResult) -> None:
        tags = {
            _PARENT: self.run_id,
            _KIND: v.kind,
            _VARIANT: v.name,
            "study": self._title,
            "status": v.status,
        }
        run_id = self._runs[v.name] = self._create(
            tags, f"{v.name} · {self._id}", variant_markdown(v)
        )
        metrics = {
            **agreement_metrics("dev", v.levels),
            "dev/score": v.score,
            **cost_metrics(v.usage, v.judged),
        }
        log_batch(self.client, run_id, metrics, v.params)
        self._log_result(run_id, v, "", f"{v.name}, on dev")
        self.client.set_terminated(run_id, _STATUS[v.status])

    def _log_study(self, result: StudyResult) -> None:
        champion = result.tested("champion")
        for t in result.test:
            self._log_result(
                self.run_id, t, f"test/{t.name}/", f"{t.name}, on the testset"
            )
        metrics = {
            **agreement_metrics("test", champion.levels),
            **_interval(
                "test/gain_over_untuned",
                result.comparisons["untuned"].balanced_accuracy,
            ),
            "dev/flip_rate": result.flip_rate,
            **cost_metrics(champion.usage, champion.agreement.n),
        }
        here = f"#/experiments/{self._store.experiment_id}/runs/{self.run_id}"
        text = card(result, links(result, self._model, here)).replace(
            " |", "&ensp;|"
        )  # MLflow's cells have no margin
        tags = {
            _CHAMPION: result.champion,
            "status": "done" if result.finished else "stopped early",
            DESCRIPTION: text[:MAX_TAG],
            "vs_untuned": result.comparisons["untuned"].verdict,
        }
        log_batch(self.client, self.run_id, metrics, tags=tags)
        for name, figure in study_figures(result).items():
            self.client.log_figure(self.run_id, figure, name)
        self.client.log_text(self.run_id, result.model_dump_json(indent=1), STUDY_FILE)
        self.client.log_text(self.run_id, write_learned(result), "learned.html")
        self.client.log_text(self.run_id, markdown(study_tables(result)), "details.md")
        folder = Path(result.judge_dir)
        for path in exported_files(folder):
            self.client.log_artifact(
                self.run_id,
                str(path),
                ("judge" / path.relative_to(folder)).parent.as_posix(),
            )
        if run_id := self._runs.get(result.champion):
            self.client.set_tag(run_id, _CHAMPION, "true")
            self.client.update_run(run_id, name=f"{MARK}{result.champion} · {self._id}")

    def _log_result(self, run_id: str, found: JudgeResult, to: str, title: str) -> None:
        """Log all that was measured of a judge, its answers as a table with the worst mistakes on top, and figures."""
        if found.levels.answers is None:
            return
        self.client.log_text(
            run_id, found.model_dump_json(indent=1), f"{to}result.json"
        )
        self.client.log_text(
            run_id, csv_text(predictions_table(found.answers)), f"{to}predictions.csv"
        )
        if found.kind != "baseline":
            for name, figure in judge_figures(
                found.rows, found.agreement, title
            ).items():
                self.client.log_figure(run_id, figure, f"{to}plots/{name}")


def record_opening(store: Store, run_id: str, test_hash: str) -> int:
    """Tag a study's run with the testset it opens; returns the number of studies in the store that opened it."""
    from mlflow.entities import ViewType

    store.client.set_tag(run_id, _OPENED, test_hash)
    experiments = [
        e.experiment_id for e in store.client.search_experiments(view_type=ViewType.ALL)
    ]
    query = f"tags.`{_OPENED}` = '{test_hash}'"
    runs = store.client.search_runs(
        experiments, query, run_view_type=ViewType.ALL, max_results=10_000
    )
    studies = {run.data.tags.get(_STUDY, run.info.run_id) for run in runs}
    return len(studies)


def _datasets(setup: StudySetup) -> list[DatasetInput]:
    """The answers of each part that are used, by name, hash and number, without their texts."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    out = []
    for part, digest in setup.split["hashes"].items():
        file = (
            setup.test_file if part == "test" and setup.test_file else setup.labels_file
        )
        profile = json.dumps({"num_rows": setup.split["used"][part]})
        dataset = Dataset(
            PurePath(file).stem,
            digest,
            "local",
            json.dumps({"uri": file}),
            profile=profile,
        )
        out.append(DatasetInput(dataset, [InputTag("mlflow.data.context", part)]))
    return out


def agreement_metrics(part: str, found: JudgeAgreement) -> Metrics:
    """Agreement on answers, statements and evidence, as far as it is known."""
    out: Metrics = {}
    if (a := found.answers) is not None:
        out |= _interval(f"{part}/balanced_accuracy", a.balanced_accuracy)
        out |= _interval(f"{part}/auroc", a.auroc)
        out |= {
            f"{part}/cohen_kappa": a.cohen_kappa.value,
            f"{part}/coverage": a.coverage,
        }
    if found.statements is not None:
        out[f"{part}/statements/balanced_accuracy"] = (
            found.statements.balanced_accuracy.value
        )
    if found.evidence is not None:
        out[f"{part}/evidence/f1"] = found.evidence.f1.value
    return out


def cost_metrics(usage: Usage, answers: int) -> Metrics:
    """Prompt tokens that were not cached, seconds and dollars; empty for no answers."""
    if not answers:
        return {}
    dollars = None if usage.dollars is None else 1000 * usage.dollars / answers
    return {
        "cost/computed_tokens": usage.computed_tokens / answers,
        "cost/seconds": usage.seconds / answers,
        "cost/dollars_per_1000_answers": dollars,
    }


def _interval(name: str, found: Estimate) -> Metrics:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def log_study_traces(store: Store, run_id: str, result: StudyResult) -> None:
    """Make the champion's test answers traces of the study's run, the newest and first shown the worst disagreement.

    Each has these assessments: ``faithful``, as people's expectation and as the judge's feedback; the judge's
    ``probability``; and ``agrees``, whether judge and people agree. The LM is not called.
    """
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation
    from mlflow.tracing.constant import SpanAttributeKey

    place = MlflowExperimentLocation(store.experiment_id)
    with global_store(store.uri):
        for row in reversed(worst_first(result.tested("champion").answers)[:MOST]):
            with mlflow.start_span(
                "judge", "EVALUATOR", trace_destination=place, run_id=run_id
            ) as span:
                mlflow.update_current_trace(
                    tags={k[:250]: v[:250] for k, v in row.example.tags.items()},
                    metadata={"mlflow.source.name": "faith-dspy tune"},
                    client_request_id=row.id,
                    response_preview=f"{OUTCOME[row.predicted]}; people: {OUTCOME[row.label]}",
                )
                e, u = row.example, row.raw.usage
                asked = {"question": e.question} if e.question else {}
                span.set_inputs(
                    {
                        **asked,
                        "answer": e.answer,
                        "context": [c.text for c in e.context],
                    }
                )
                kept = {"faithful", "probability", "unscored", "statements"}
                span.set_outputs(row.judgment.model_dump(mode="json", include=kept))
                tokens = {
                    "input_tokens": u.prompt_tokens,
                    "output_tokens": u.output_tokens,
                    "total_tokens": u.prompt_tokens + u.output_tokens,
                }
                span.set_attributes(
                    {SpanAttributeKey.CHAT_USAGE: tokens, "calls": u.calls}
                )
                for assessment in _assessments(row, result.champion):
                    mlflow.log_assessment(span.trace_id, assessment)
        mlflow.flush_trace_async_logging()


def _assessments(row: JudgedAnswer, judge: str) -> Iterator[Assessment]:
    from mlflow.entities import AssessmentError, AssessmentSource, Expectation, Feedback

    by_judge = AssessmentSource("LLM_JUDGE", judge)
    yield Expectation("faithful", _yes(row.label), AssessmentSource("HUMAN", "labels"))
    if row.predicted is None:
        why = row.judgment.unscored.value if row.judgment.unscored else None
        yield Feedback("faithful", None, AssessmentError("UNSCORED", why), by_judge)
        return
    doubtful = [
        f"{s.verdict.value if s.verdict else 'unjudged'}: {s.text}"
        for s in row.judgment.statements
        if not s.is_supported
    ]
    rationale = "\n".join(doubtful) or "every statement is supported"
    yield Feedback(
        "faithful", _yes(row.predicted), source=by_judge, rationale=rationale
    )
    yield Feedback(
        "agrees",
        _yes(row.predicted == row.label),
        source=AssessmentSource("CODE", "faith_dspy"),
    )
    if row.probability is not None:
        yield Feedback("probability", round(row.probability, 4), source=by_judge)


def _yes(value: bool) -> str:
    """As MLflow's own judges write it; its table of traces shows nothing for an expectation that is False."""
    return "yes" if value else "no"
