"""People's feedback on traces in MLflow as labels.

A trace's human assessments of one name are its label: the majority's, with every annotator's own in ``annotators``.
Statement labels and scores are expectations.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faith_dspy.integrations.mlflow import expectations, record_of_trace
from faith_dspy.optimize.data.imports import ImportedLabels, labelled
from faith_dspy.optimize.tracking.store import global_store, mlflow_errors
from faith_dspy.schema import Verdict
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mlflow.entities import Assessment, Trace

    from faith_dspy.optimize.tracking.store import Store

NAME = "faithful"
"""Name of the assessments, unless another is given."""
FIELDS = "faith_dspy.label"
"""Tag for the fields of a labels file that a trace has no place for, of a trace that was made for review."""


def pull(store: Store, name: str = NAME, words: Mapping[str, bool] | None = None) -> ImportedLabels:
    """`labels_of` all traces of the store's experiment, the oldest first."""
    import mlflow

    with mlflow_errors(store.uri, "list its traces"), global_store(store.uri):
        found = mlflow.search_traces(locations=[store.experiment_id], include_spans=False, return_type="list")
        infos = [t.info for t in found if _human(t.info.assessments, name)]
        infos.sort(key=lambda i: (i.request_time, i.trace_id))
        traces = [store.client.get_trace(i.trace_id, display=False) for i in infos]
    return labels_of(traces, name, words)


def labels_of(traces: Iterable[Trace], name: str = NAME, words: Mapping[str, bool] | None = None) -> ImportedLabels:
    """The labels that people gave traces, in assessments called ``name``; the newest of each person counts.

    ``words``: the meaning of labels that are neither yes/no, true/false, a verdict nor a rating.
    """
    rows: dict[str, dict[str, Any]] = {}
    unreadable: dict[str, str] = {}
    for trace in traces:
        if people := _human(trace.info.assessments, name):
            place, row = f"trace {trace.info.trace_id}", answer_of(trace)
            if "error" in row:
                unreadable[place] = f"{place}: {row['error']}"
                continue
            given = expectations(trace)
            row |= {k: given[k] for k in ("statements", "score") if k in given}
            row["annotators"] = {who: a.value for who, a in people.items()}
            row |= (
                {"reasons": reasons} if (reasons := {w: a.rationale for w, a in people.items() if a.rationale}) else {}
            )
            rows[place] = row
    found = labelled(rows, unreadable, words)
    for row in found.rows:
        stated = [s for s in sentences(row["answer"]) if carries_statement(s.text)]
        if "reasons" in row and len(stated) == 1 and "statements" not in row:  # reasons for its only sentence
            verdict = Verdict.FULLY_SUPPORTED if row["faithful"] else Verdict.NOT_SUPPORTED
            reason = "; ".join(row["reasons"].values())
            row["statements"] = [{"text": stated[0].text, "verdict": verdict.value, "reason": reason}]
    return found


def _human(assessments: Iterable[Assessment], name: str) -> dict[str, Any]:
    """The newest feedback of each person by source; of a person who took it back, none."""
    from mlflow.entities import Feedback

    human = [
        a
        for a in assessments
        if isinstance(a, Feedback) and a.name == name and a.source.source_type == "HUMAN"
        and a.valid is not False and a.value is not None
    ]  # fmt: skip
    return {str(a.source.source_id): a for a in sorted(human, key=lambda a: a.last_update_time_ms or 0)}


def answer_of(trace: Trace) -> dict[str, Any]:
    """Question, context, answer and the `FIELDS` of a trace; with ``error`` where it has not got them."""
    kept = json.loads(trace.info.tags.get(FIELDS, "{}"))
    row = {"id": trace.info.trace_id, **record_of_trace(trace), **kept}
    if kept:  # exactly the chunks that were pushed, because people's chunk ids count them
        retrieved = next(s for s in trace.data.spans if s.span_type == "RETRIEVER")
        row["context"] = [
            {"text": d["page_content"], "source": d["metadata"]["doc_uri"]} if d["metadata"] else d["page_content"]
            for d in retrieved.outputs
        ]
    if "error" not in row and not (row.get("context") and row["answer"].strip()):
        row["error"] = f"it has no {'answer' if row.get('context') else 'context'}"
    return {k: v for k, v in row.items() if v is not None and v != ""}
