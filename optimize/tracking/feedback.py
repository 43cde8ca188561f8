"""People's feedback on traces in MLflow as labels, and a labels file as traces for people to review.

A trace's human assessments of one name are its label: the majority's, with every annotator's own in ``annotators``.
Statement labels and scores are expectations.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from faith_dspy.integrations.mlflow import expectations, record_of_trace
from faith_dspy.optimize.data.imports import ImportedLabels, best_rating, by_annotator, majority, meaning
from faith_dspy.optimize.tracking.store import global_store, mlflow_errors
from faith_dspy.schema import Verdict, digest
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlflow.entities import Assessment, Trace

    from faith_dspy.optimize.tracking.store import Store
    from faith_dspy.schema import LabelledExample

NAME = "faithful"
"""Name of the assessments, unless another is given."""
_FILE = "labels"
"""The source of assessments that `push` writes for a labels file without annotators. They count only while nobody else
has assessed the answer, or where the others are split."""
_DIGEST = "faith_dspy.digest"
"""Tag of a trace by which it is found again."""
_FIELDS = "faith_dspy.label"
"""Tag for the fields of a labels file that a trace has no place for."""


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
    labelled = [(trace, people) for trace in traces if (people := _human(trace.info.assessments, name))]
    top = best_rating(a.value for _, people in labelled for a in people.values())
    rows, split, unreadable = [], [], {}
    unknown: Counter[str] = Counter()
    for trace, people in labelled:
        votes = {who: meaning(a.value, words or {}, top) for who, a in people.items()}
        unknown.update(str(people[who].value) for who, vote in votes.items() if vote is None)
        label = majority(vote for who, vote in votes.items() if who != _FILE)
        label = votes.get(_FILE) if label is None else label
        row = _row(trace)
        if label is None:
            split += [trace.info.trace_id] if any(vote is not None for vote in votes.values()) else []
        elif "error" in row:
            unreadable[trace.info.trace_id] = f"trace {trace.info.trace_id}: {row['error']}"
        else:
            rows.append(row | _labels(trace, people, label, row["answer"]))
    return ImportedLabels(rows=rows, split=split, unreadable=unreadable, unknown=dict(unknown))


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


def _row(trace: Trace) -> dict[str, Any]:
    """Question, context, answer and the fields that `push` kept; with ``error`` where the trace has not got them."""
    kept = json.loads(trace.info.tags.get(_FIELDS, "{}"))
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


def _labels(trace: Trace, people: Mapping[str, Any], label: bool, answer: str) -> dict[str, Any]:
    expected = expectations(trace)
    row: dict[str, Any] = {"faithful": label, **{k: expected[k] for k in ("statements", "score") if k in expected}}
    annotators = {who: a.value for who, a in people.items() if who != _FILE}
    reasons = {who: a.rationale for who, a in people.items() if a.rationale}
    row |= {k: v for k, v in (("annotators", annotators), ("reasons", reasons)) if v}
    stated = [s for s in sentences(answer) if carries_statement(s.text)]
    if reasons and len(stated) == 1 and "statements" not in row:  # reasons for the answer are reasons for its sentence
        verdict = Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED
        row["statements"] = [{"text": stated[0].text, "verdict": verdict.value, "reason": "; ".join(reasons.values())}]
    return row


def push(store: Store, examples: Sequence[LabelledExample], name: str = NAME) -> tuple[int, int]:
    """Write each labelled answer as a trace, with its labels as human assessments called ``name``; the number of new
    traces and of new assessments.

    Pushing the same answers again adds only assessments that are missing; what people changed stays.
    """
    import mlflow

    made = added = 0
    with mlflow_errors(store.uri, "take traces"), global_store(store.uri):
        there = mlflow.search_traces(
            locations=[store.experiment_id], include_spans=False, return_type="list", flush=True
        )
        known = {t.info.tags[_DIGEST]: t.info for t in there if _DIGEST in t.info.tags}
        for example in examples:
            key = digest([example.id, example.question, [c.text for c in example.context], example.answer])
            assessments = _assessments(example, name)
            if key in known:
                made_before = {(a.name, a.source.source_id) for a in known[key].assessments}
                assessments = [a for a in assessments if (a.name, a.source.source_id) not in made_before]
                for assessment in assessments:
                    mlflow.log_assessment(known[key].trace_id, assessment)
            else:
                made += 1
                _write(store, example, key, assessments)
            added += len(assessments)
        mlflow.flush_trace_async_logging()
    return made, added


def _write(store: Store, example: LabelledExample, key: str, assessments: Sequence[Assessment]) -> None:
    import mlflow
    from mlflow.entities import Document
    from mlflow.entities.trace_location import MlflowExperimentLocation

    place, asked = MlflowExperimentLocation(store.experiment_id), {"question": example.question or ""}
    fields = {"id": example.id, "group": example.group, "split": example.split, **example.tags}
    with mlflow.start_span("labelled answer", "CHAIN", trace_destination=place) as root:
        mlflow.update_current_trace(
            tags={_DIGEST: key, _FIELDS: json.dumps({k: v for k, v in fields.items() if v})},
            metadata={"mlflow.source.name": "faith-dspy labels push"},
            request_preview=asked["question"][:1000],
        )
        root.set_inputs(asked)
        root.set_outputs(example.answer)
        with mlflow.start_span("context", "RETRIEVER") as found:
            found.set_inputs(asked)
            found.set_outputs([Document(c.text, {"doc_uri": c.source} if c.source else {}) for c in example.context])
        for assessment in assessments:
            mlflow.log_assessment(root.trace_id, assessment)


def _assessments(example: LabelledExample, name: str) -> list[Assessment]:
    """Every annotator's label; the file's own where it is not the majority's; statements and score."""
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    labels = {who: v for who, v in by_annotator(example.annotators).items() if isinstance(v, bool | int | float | str)}
    if example.label is not None and majority(meaning(v, {}) for v in labels.values()) is not example.label:
        labels[_FILE] = example.label
    out: list[Assessment] = [Feedback(name, v, source=AssessmentSource("HUMAN", who)) for who, v in labels.items()]
    statements = [s.model_dump(mode="json", exclude_none=True) for s in example.statements]
    expected = {"statements": statements or None, "score": example.score}
    by_file = AssessmentSource("HUMAN", _FILE)
    return out + [Expectation(key, value, by_file) for key, value in expected.items() if value is not None]
