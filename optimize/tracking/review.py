"""A labels file as traces in MLflow, for people to review; `faith_dspy.optimize.tracking.feedback` reads them back.

Each annotator's label is a human assessment; statement labels and scores are expectations.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.data.imported import majority, meaning
from faith_dspy.optimize.tracking.feedback import FILE, NAME, TAG
from faith_dspy.optimize.tracking.store import global_store, mlflow_errors
from faith_dspy.optimize.tracking.traces import new_trace, trace_infos
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.tracking.store import Store
    from faith_dspy.schema import LabelledExample

_DIGEST = "faith_dspy.digest"


def push(store: Store, examples: Sequence[LabelledExample], name: str = NAME) -> tuple[int, int]:
    """Write each labelled answer as a trace, with its labels as human assessments called ``name``.

    Pushing the same answers again adds only assessments that are missing; what people changed stays. Returns the number
    of new traces and of new assessments. Raises `FaithDspyError` when the store does not answer.
    """
    import mlflow

    made = added = 0
    with mlflow_errors(store.uri, "take traces"), global_store(store.uri):
        known = {i.tags[_DIGEST]: i for i in trace_infos(store) if _DIGEST in i.tags}
        for example in examples:
            key = digest([example.id, example.question, [c.text for c in example.context], example.answer])
            info = known.get(key)
            there = {(a.name, str(a.source.source_id)) for a in info.assessments} if info else set()
            new = [a for a in _assessments(example, name) if (a.name, str(a.source.source_id)) not in there]
            added += len(new)
            if info is None:
                made += 1
                _write(store, example, key, new)
            else:
                for assessment in new:
                    mlflow.log_assessment(info.trace_id, assessment)
        mlflow.flush_trace_async_logging()
    return made, added


def _write(store: Store, example: LabelledExample, key: str, assessments: Sequence[Any]) -> None:
    documents = [
        {"page_content": c.text, "metadata": {"doc_uri": c.source} if c.source else {}} for c in example.context
    ]
    fields = {"id": example.id, "group": example.group, "split": example.split, **example.tags}
    asked = {"question": example.question or ""}
    with new_trace(
        store,
        "labelled answer",
        "CHAIN",
        inputs=asked,
        outputs=example.answer,
        source="faith-dspy labels push",
        tags={_DIGEST: key, TAG: json.dumps({k: v for k, v in fields.items() if v})},
        request_preview=(example.question or "")[:1000],
    ) as trace:
        trace.span("context", "RETRIEVER", inputs=asked, outputs=documents)
        for assessment in assessments:
            trace.assess(assessment)


def _assessments(example: LabelledExample, name: str) -> list[Any]:
    """Every annotator's label; the file's own where it is not the majority's; statements and score."""
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    labels = {who: v for who, v in _annotators(example.annotators).items() if isinstance(v, bool | int | float | str)}
    if example.label is not None and majority(meaning(v, {}) for v in labels.values()) is not example.label:
        labels[FILE] = example.label
    out: list[Any] = [Feedback(name=name, value=v, source=AssessmentSource("HUMAN", who)) for who, v in labels.items()]
    statements = [s.model_dump(mode="json", exclude_none=True) for s in example.statements]
    for key, value in (("statements", statements), ("score", example.score)):
        if value not in (None, []):
            out.append(Expectation(name=key, value=value, source=AssessmentSource("HUMAN", FILE)))
    return out


def _annotators(given: Any) -> dict[str, Any]:
    """Labels by annotator; those of a list are numbered."""
    if isinstance(given, list | tuple):
        labels = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
        return {f"person {i + 1}": label for i, label in enumerate(labels)}
    return {str(k): v for k, v in given.items()} if isinstance(given, dict) else {}
