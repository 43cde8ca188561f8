"""Judged answers as MLflow traces: what was asked, statement by statement, with people's label beside the verdict.

They are written from what a study keeps anyway, in a batch, when it is finished: no LM is asked, nothing is patched,
and no tracing is switched on.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.reporting.learned import disagreements
from faith_dspy.schema import Usage, digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow, StatementRow, StudyResult
    from faith_dspy.optimize.tracking.store import Store

MOST = 100
"""Traces of a study at most, those where judge and people disagree first; all answers are in ``predictions.jsonl``."""
_RUN, _DIGEST = "mlflow.sourceRun", "faith_dspy.digest"
_PREVIEW = 1000  # characters MLflow keeps


def log_traces(store: Store, run_id: str, result: StudyResult) -> int:
    """See that the champion's test answers are traces of the study's run; returns how many there are.

    The newest trace, on top of MLflow's page, is the worst disagreement. Assessments of each: ``faithful`` as people's
    expectation and as the judge's feedback, its ``probability``, and ``agrees`` (whether the two are the same); per
    statement ``supported``, of the judge and, where they labelled it, of people. A trace that is there already is left
    as it is, with what people have added to it; one that the study no longer holds is deleted.
    """
    from mlflow.tracing.client import TracingClient

    client = TracingClient(store.uri)
    rows = ordered(result.tested("champion").predictions)[:MOST]
    written = round(time.time() * 1000)
    lm = str(result.lm.get("name"))
    traces = [_Trace(row, run_id, result.champion, lm, written - i) for i, row in enumerate(rows)]
    # As many as an MLflow server gives at once.
    found = client.search_traces(locations=[store.experiment_id], run_id=run_id, include_spans=False, max_results=500)
    there = {t.info.trace_id: t.info.tags[_DIGEST] for t in found if _DIGEST in t.info.tags}
    kept = {t.id for t in traces if there.get(t.id) == t.digest}
    old, new = [i for i in there if i not in kept], [t for t in traces if t.id not in kept]
    for i in range(0, len(old), 100):  # and deletes
        client.delete_traces(store.experiment_id, trace_ids=old[i : i + 100])
    for t in new:
        client.start_trace(t.info(store.experiment_id))
    client.log_spans(store.experiment_id, [span for t in new for span in t.spans])
    return len(traces)


def ordered(rows: Sequence[PredictionRow]) -> list[PredictionRow]:
    """Disagreements first, the worst on top; then what judge and people agree on."""
    return [*disagreements(rows), *(r for r in rows if r.predicted == r.label)]


class _Trace:
    """One answer. Spans follow each other as the calls did; their lengths are the calls' seconds."""

    def __init__(self, row: PredictionRow, run_id: str, judge: str, lm: str, at: int) -> None:
        self.row, self.run_id, self.judge, self.lm, self.at = row, run_id, judge, lm, at
        # The same answer of the same run has the same id.
        self._otel = hashlib.sha256(f"{run_id} {row.group} {row.id}".encode()).hexdigest()[:32]
        self.id = f"tr-{self._otel}"
        self.digest = digest([judge, lm, row.model_dump(mode="json")])
        self.spans: list[Any] = []
        self.assessments: list[Any] = []
        self._build()

    def _build(self) -> None:
        r, extraction = self.row, self.row.extraction
        asked: dict[str, Any] = {"question": r.question} if r.question else {}
        asked |= {"answer": r.answer, "context": r.context}
        verified = max(0.0, r.usage.seconds - extraction.seconds)
        root = self._span("judge", "EVALUATOR", None, (0.0, r.usage.seconds), asked, self._outcome())
        texts = [s.text for s in r.statements]
        kind = "LLM" if extraction.calls else "PARSER"
        self._span("extract", kind, root, (0.0, extraction.seconds), {"answer": r.answer}, texts, extraction)
        there = (extraction.seconds, extraction.seconds + verified)
        each = [s.usage or Usage() for s in r.statements]
        together = _less(r.usage, extraction, *each)
        parent = self._span(
            "verify",
            "LLM" if together.calls else "CHAIN",
            root,
            there,
            {"statements": texts},
            self._verdicts(),
            together,
        )
        at = there[0]
        for s, usage in zip(r.statements, each, strict=True):
            said = s.model_dump(
                mode="json", include={"verdict", "confidence", "chunk_ids", "reason"}, exclude_none=True
            )
            span = self._span(
                "statement", "LLM" if usage.calls else "CHAIN", parent, (at, at + usage.seconds),
                {"statement": s.text}, said, usage, s.error,
            )  # fmt: skip
            at += usage.seconds
            self._assess_statement(s, span)
        self._assess()

    def _verdicts(self) -> list[str]:
        return [s.verdict or "unjudged" for s in self.row.statements]

    def _outcome(self) -> dict[str, Any]:
        r = self.row
        found = {"faithful": r.predicted, "probability": r.probability, "unscored": r.unscored}
        return {k: v for k, v in found.items() if v is not None} | {"verdicts": self._verdicts()}

    def _span(
        self, name: str, kind: str, parent: str | None, at: tuple[float, float], inputs: Any, outputs: Any,
        usage: Usage | None = None, error: str | None = None,
    ) -> str:  # fmt: skip
        from mlflow.entities.span import Span

        span_id = hashlib.sha256(f"{self.id} {len(self.spans)}".encode()).hexdigest()[:16]
        attributes = {
            "mlflow.traceRequestId": self.id,
            "mlflow.spanType": kind,
            "mlflow.spanInputs": inputs,
            "mlflow.spanOutputs": outputs,
        }
        if usage is not None and usage.calls:
            attributes |= {"mlflow.chat.tokenUsage": _tokens(usage), "mlflow.llm.model": self.lm, "calls": usage.calls}
            if usage.dollars is not None:
                attributes["mlflow.llm.cost"] = {"total_cost": usage.dollars}
        start, end = (self.at * 1_000_000 + round(s * 1e9) for s in at)
        self.spans.append(
            Span.from_dict(
                {
                    "trace_id": _base64(self._otel),
                    "span_id": _base64(span_id),
                    "parent_span_id": parent and _base64(parent),
                    "name": name,
                    "start_time_unix_nano": start,
                    "end_time_unix_nano": max(end, start + 1),
                    "status": {"code": "ERROR" if error else "OK", "message": error or ""},
                    "attributes": {k: json.dumps(v, ensure_ascii=False) for k, v in attributes.items()},
                }
            )
        )
        return span_id

    def _assess(self) -> None:
        from mlflow.entities import AssessmentError, Expectation, Feedback

        r, of_judge = self.row, self._source("LLM_JUDGE", self.judge)
        self.assessments.append(Expectation("faithful", _yes(r.label), self._source("HUMAN", "labels")))
        if r.predicted is None:
            error = AssessmentError("UNSCORED", r.unscored or "no verdict")
            self.assessments.append(Feedback("faithful", error=error, source=of_judge))
            return
        self.assessments.append(Feedback("faithful", _yes(r.predicted), source=of_judge, rationale=self._rationale()))
        if r.probability is not None:
            self.assessments.append(Feedback("probability", round(r.probability, 4), source=of_judge))
        agrees = Feedback("agrees", _yes(r.predicted == r.label), source=self._source("CODE", "faith_dspy"))
        self.assessments.append(agrees)

    def _assess_statement(self, s: StatementRow, span_id: str) -> None:
        from mlflow.entities import Expectation, Feedback

        if s.verdict:
            of_judge = self._source("LLM_JUDGE", self.judge)
            supported = _yes(s.verdict == "fully_supported")
            self.assessments.append(
                Feedback("supported", supported, source=of_judge, span_id=span_id, rationale=s.reason)
            )
        if s.label is not None:
            people = self._source("HUMAN", "labels")
            self.assessments.append(Expectation("supported", _yes(s.label), people, span_id=span_id))

    def _rationale(self) -> str:
        doubtful = [s for s in self.row.statements if s.verdict != "fully_supported"]
        told = [f"{(s.verdict or 'unjudged').replace('_', ' ')}: {s.text}" for s in doubtful]
        return "\n".join(told) or "every statement is supported"

    def _source(self, kind: str, name: str) -> Any:
        from mlflow.entities import AssessmentSource

        return AssessmentSource(kind, name)

    def info(self, experiment_id: str) -> Any:
        """What MLflow's list of traces shows."""
        from mlflow.entities import TraceInfo, TraceLocation, TraceState

        r = self.row
        words = {True: "faithful", False: "unfaithful", None: f"unscored: {r.unscored or 'no verdict'}"}
        for a in self.assessments:
            a.trace_id = self.id
        return TraceInfo(
            trace_id=self.id,
            trace_location=TraceLocation.from_experiment_id(experiment_id),
            request_time=self.at,
            execution_duration=round(r.usage.seconds * 1000),
            state=TraceState.OK,
            client_request_id=r.id,
            request_preview=r.answer[:_PREVIEW],
            response_preview=f"{words[r.predicted]}; people: {words[r.label]}",
            trace_metadata={
                _RUN: self.run_id,
                "mlflow.trace_schema.version": "3",
                "mlflow.trace.tokenUsage": json.dumps(_tokens(r.usage)),
            },
            tags={"mlflow.traceName": "judge", _DIGEST: self.digest, "part": r.part, **_short(r.tags)},
            assessments=self.assessments,
        )


def _yes(value: bool) -> str:
    """As MLflow's own judges say it; its table of traces shows nothing for an expectation that is false."""
    return "yes" if value else "no"


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }


def _less(whole: Usage, *parts: Usage) -> Usage:
    """What is left of a usage; its price is not told."""
    names = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "seconds")
    return Usage(**{n: max(0, getattr(whole, n) - sum(getattr(p, n) for p in parts)) for n in names})


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {k[:250]: str(v)[:250] for k, v in tags.items()}
