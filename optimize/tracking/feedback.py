"""People's feedback on traces in MLflow, as labels.

A trace's human assessments of one name are its label: the majority's, with every annotator's own in ``annotators``.
`faith_dspy.optimize.tracking.review` writes a labels file as such traces.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from faith_dspy.integrations.mlflow_traces import expectations, record_of_trace
from faith_dspy.optimize.data.imported import ImportedLabels, best_rating, majority, meaning
from faith_dspy.optimize.tracking.store import mlflow_errors
from faith_dspy.optimize.tracking.traces import trace_infos
from faith_dspy.schema import Verdict
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mlflow.entities import Assessment, Trace

    from faith_dspy.optimize.tracking.store import Store


NAME = "faithful"
"""Name of the assessments, unless another is given."""
FILE = "labels"
"""The source of assessments that `push` writes for a labels file without annotators. They count only while nobody else
has assessed the answer, or where the others are split."""
TAG = "faith_dspy.label"
"""Tag for the fields of a labels file that a trace has no place for."""


def pull(store: Store, name: str = NAME, words: Mapping[str, bool] | None = None) -> ImportedLabels:
    """`labels_of` all traces of the store's experiment, the oldest first.

    Raises `FaithDspyError` when the store does not answer.
    """
    with mlflow_errors(store.uri, "list its traces"):
        infos = [i for i in trace_infos(store) if _human(i.assessments, name)]
        infos.sort(key=lambda i: (i.request_time, i.trace_id))
        traces = [store.client.get_trace(i.trace_id, display=False) for i in infos]
    return labels_of(traces, name, words)


def labels_of(traces: Iterable[Trace], name: str = NAME, words: Mapping[str, bool] | None = None) -> ImportedLabels:
    """The labels that people gave traces, in assessments called ``name``; the newest of each person counts.

    ``words``: the meaning of labels that are neither yes/no, true/false, a verdict nor a rating. Traces without a human
    label are skipped.
    """
    labelled = [(trace, people) for trace in traces if (people := _human(trace.info.assessments, name))]
    top = best_rating(a.value for _, people in labelled for a in people.values())
    rows, split, unreadable = [], [], {}
    unknown: Counter[str] = Counter()
    for trace, people in labelled:
        votes = {who: meaning(a.value, words or {}, top) for who, a in people.items()}
        unknown.update(str(people[who].value) for who, vote in votes.items() if vote is None)
        label = majority(vote for who, vote in votes.items() if who != FILE)
        label = votes.get(FILE) if label is None else label
        if label is None:
            split += [trace.info.trace_id] if any(vote is not None for vote in votes.values()) else []
            continue
        row, error = _row(trace)
        if error:
            unreadable[trace.info.trace_id] = error
        else:
            rows.append(row | _labels(trace, people, label, row["answer"]))
    return ImportedLabels(rows=rows, split=split, unreadable=unreadable, unknown=dict(unknown))


def _human(assessments: Iterable[Assessment], name: str) -> dict[str, Any]:
    """The newest feedback of each person by source; of a person who took it back, none."""
    from mlflow.entities import Feedback

    found = [
        a
        for a in assessments
        if isinstance(a, Feedback) and a.name == name and a.valid is not False and a.value is not None
    ]
    human = [a for a in found if str(a.source.source_type) == "HUMAN"]
    return {str(a.source.source_id): a for a in sorted(human, key=lambda a: a.last_update_time_ms or 0)}


def _row(trace: Trace) -> tuple[dict[str, Any], str]:
    """Question, context, answer and the fields that `push` kept; or what is wrong with the trace."""
    kept = json.loads(trace.info.tags.get(TAG, "{}"))
    row = {"id": trace.info.trace_id, **record_of_trace(trace), **kept}
    if kept:  # exactly the chunks that were pushed, because people's chunk ids count them
        retrieved = next(s for s in trace.data.spans if s.span_type == "RETRIEVER")
        row["context"] = [
            {"text": d["page_content"], "source": d["metadata"]["doc_uri"]} if d["metadata"] else d["page_content"]
            for d in retrieved.outputs
        ]
    where = f"trace {trace.info.trace_id}"
    if "error" in row:
        return {}, f"{where}: {row['error']}"
    if "conversation" in row or not row["context"] or not row["answer"].strip():
        return {}, f"{where} has no {'answer' if row.get('context') else 'context'}"
    return {k: v for k, v in row.items() if v is not None and v != ""}, ""


def _labels(trace: Trace, people: Mapping[str, Any], label: bool, answer: str) -> dict[str, Any]:
    expected = expectations(trace)
    row: dict[str, Any] = {"faithful": label, **{k: expected[k] for k in ("statements", "score") if k in expected}}
    annotators = {who: a.value for who, a in people.items() if who != FILE}
    reasons = {who: a.rationale for who, a in people.items() if a.rationale}
    row |= {k: v for k, v in (("annotators", annotators), ("reasons", reasons)) if v}
    stated = [s for s in sentences(answer) if carries_statement(s.text)]
    if reasons and len(stated) == 1 and "statements" not in row:  # reasons for the answer are reasons for its sentence
        verdict = Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED
        row["statements"] = [{"text": stated[0].text, "verdict": verdict.value, "reason": "; ".join(reasons.values())}]
    return row
