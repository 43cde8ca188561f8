"""People's labels in MLflow: answers as a review queue, and what people said of traces as labels.

An answer is a trace. MLflow shows reviewers a trace's previews, so these hold what there is to read: question and
numbered chunks, and the answer with its statements numbered. Labels belong to the answer, by person, whatever queue
they were given in; without a login everybody is ``default``.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import expectations, record_of_trace
from faith_dspy.io.labels import read_labels
from faith_dspy.io.meanings import Meanings, label_meaning, majority
from faith_dspy.judge import Judge
from faith_dspy.optimize.data.labels import (
    ImportedLabels,
    label_by_majority,
    row_of,
)
from faith_dspy.optimize.tracking.store import (
    EXPERIMENT,
    Store,
    connect,
    global_store,
    mlflow_errors,
    page_of,
)
from faith_dspy.schema import Judgment, LabelledExample, Verdict, digest
from faith_dspy.text.sentences import split_answer

if TYPE_CHECKING:
    from mlflow.entities import Trace
    from mlflow.genai.review_queues import ReviewQueue

NAME = "faithful"
"""Name of people's assessments of traces, unless another is given."""
FAITHFUL, UNSUPPORTED = "Is the answer faithful?", "Which statements are not supported?"
"""A queue's questions; the second is asked where the page numbers statements."""
_HINTS = {
    FAITHFUL: "Do the chunks support all that it says? Say why in the comment. Skip it if you cannot tell.",
    UNSUPPORTED: "Their numbers",
}
_MOST = 10
"""Choices that MLflow's pages offer: an answer of more statements is labelled as a whole."""
_DIGEST, _FIELDS = "faith_dspy.digest", "faith_dspy.label"
"""A pushed trace's tags: by which it is found again, and with the fields that a trace has no place for."""
_STATEMENTS = "faith_dspy.statements"
"""Attribute with the numbered statements."""
_PREVIEW = 1000
"""Characters of a preview that every store takes; SQLite takes any length."""
_CUT = "\n\n*Cut here. “View full trace” shows all of it.*"
_NOBODY = "default"
"""Who MLflow says a reviewer is where nobody logs in."""


class Queued(NamedTuple):
    """What was added to a queue."""

    traces: int
    """Made for answers that had none."""
    items: int
    page: str
    """Address of the queue on MLflow's pages."""


def queue_answers(
    answers: Any,
    queue: str,
    *,
    traces: str | None = None,
    experiment: str = EXPERIMENT,
    tracking_uri: str | None = None,
    verdicts: Judge | None = None,
) -> Queued:
    """Put answers into a review queue, in random order; those that are in it already stay as they are.

    Args:
        answers: a file, a frame or rows, as `read_labels` takes them; labels among them are not shown.
        queue: its name; it is made if it is not there.
        traces: instead of ``answers``, a filter of MLflow's `search_traces`: traces of an application, as they are.
        experiment: MLflow experiment.
        tracking_uri: MLflow store.
        verdicts: a judge whose verdicts reviewers are shown, although that sways them.

    Raises:
        InputError: Both or neither of ``answers`` and ``traces`` are given, or no trace fits.
    """
    from mlflow.genai import review_queues

    if (answers is None) == (traces is None):
        raise InputError(
            "give either answers or --traces FILTER, to queue an application's traces"
        )
    if traces is not None and verdicts is not None:
        raise InputError("traces are queued as they are: --verdicts is for answers")
    examples = [] if answers is None else read_labels(answers, require_label=False)
    judgments = verdicts.batch(examples) if verdicts else [None] * len(examples)
    store = connect(tracking_uri, experiment)
    with mlflow_errors(store.uri, "keep a review queue"), global_store(store):
        if traces is None:
            trace_ids, added = _push(store, examples, judgments)
        else:
            trace_ids = [trace.info.trace_id for trace in _search(store, traces)]
            added = 0
        if not trace_ids:
            raise InputError(
                f"no trace of the experiment {experiment!r} fits {traces!r}."
            )
        target = _queue(store, queue, numbered=traces is None)
        present = {item.item_id for item in _items(target)}
        new = [item for item in dict.fromkeys(trace_ids) if item not in present]
        random.Random(0).shuffle(new)  # what is labelled first is a fair sample
        if new:
            review_queues.add_items_to_review_queue(target.queue_id, item_ids=new)
    page = page_of(store, f"review-queue?selectedQueueId={target.queue_id}")
    return Queued(added, len(new), page)


def read_reviews(
    store: Store, queue: str, reviewer: str | None = None
) -> ImportedLabels:
    """Read what reviewers said, as rows of a labels file: every finished review, one row an answer.

    The label is the majority's; an answer on which people are split has none, and keeps everyone's own. A reviewer who
    did not log in has the name ``reviewer``, else that of the queue. Statement verdicts and reasons are those of the
    reviewers who gave them.
    """
    with mlflow_errors(store.uri, "read a review queue"), global_store(store):
        queues = _queues(store)
        if queue not in queues:
            names = ", ".join(sorted(queues)) or "none"
            raise InputError(
                f"there is no review queue {queue!r}; the experiment has {names}."
            )
        items = list(_items(queues[queue]))
        finished = [item.item_id for item in items if item.status == "complete"]
        traces = _whole(store, finished)
    unfinished = len(items) - len(finished)
    return _labels(traces, FAITHFUL, reviewer=reviewer or queue, unfinished=unfinished)


def read_feedback(
    store: Store, name: str = NAME, values: Meanings | None = None
) -> ImportedLabels:
    """Read the labels that people gave traces, in assessments called ``name``; the newest of each person counts.

    ``values``: what labels mean that are neither yes/no, true/false nor a verdict. Statement labels and scores are
    expectations.
    """
    with mlflow_errors(store.uri, "list its traces"), global_store(store):
        labelled = [t.info.trace_id for t in _search(store) if _by_person(t, name)]
        traces = _whole(store, labelled)
    return _labels(traces, name, values)


# Queues


def _pages(list_page: Callable[..., Any], *args: Any, **options: Any) -> Iterable[Any]:
    """Return what MLflow lists page by page."""
    token = None
    while True:
        page = list_page(*args, page_token=token, **options)
        yield from page
        token = page.token
        if not token:
            return


def _queues(store: Store) -> dict[str, ReviewQueue]:
    """Return the experiment's queues by name."""
    from mlflow.genai.review_queues import list_review_queues

    pages = _pages(list_review_queues, experiment_id=store.experiment_id)
    return {queue.name: queue for queue in pages}


def _items(queue: ReviewQueue) -> Iterable[Any]:
    from mlflow.genai.review_queues import list_review_queue_items

    return _pages(list_review_queue_items, queue.queue_id)


def _queue(store: Store, name: str, *, numbered: bool) -> ReviewQueue:
    """Return the queue of that name, made with its questions if it is not there."""
    from mlflow.genai import label_schemas, review_queues

    if queue := _queues(store).get(name):
        return queue
    inputs: dict[str, Any] = {}
    if numbered:
        numbers = [str(number) for number in range(1, _MOST + 1)]
        inputs[UNSUPPORTED] = label_schemas.InputCategorical(numbers, multi_select=True)
    inputs[FAITHFUL] = label_schemas.InputPassFail("Faithful", "Not faithful")
    present = _pages(label_schemas.list_label_schemas, store.experiment_id)
    ids = {schema.name: schema.schema_id for schema in present}
    schema_ids = []
    for text, answer in inputs.items():
        if text not in ids:
            schema = label_schemas.create_label_schema(
                text,
                type="feedback",
                input=answer,
                instruction=_HINTS[text],
                enable_comment=text == FAITHFUL,
                experiment_id=store.experiment_id,
            )
            ids[text] = schema.schema_id
            time.sleep(0.002)  # MLflow shows the newest first, and has milliseconds
        schema_ids.append(ids[text])
    new: ReviewQueue = review_queues.create_review_queue(
        name,
        queue_type="custom",
        schema_ids=schema_ids,
        experiment_id=store.experiment_id,
    )
    return new


# Answers as traces


def _search(store: Store, query: str = "") -> list[Trace]:
    """Return the experiment's traces, without their spans."""
    import mlflow

    traces: list[Trace] = mlflow.search_traces(
        locations=[store.experiment_id],
        filter_string=query or None,
        include_spans=False,
        return_type="list",
        flush=True,
    )
    return traces


def _whole(store: Store, trace_ids: Sequence[str]) -> list[Trace]:
    """These traces with their spans, the oldest first."""
    traces = [store.client.get_trace(i, display=False) for i in trace_ids]
    return sorted(traces, key=lambda trace: trace.info.request_time)


def _push(
    store: Store,
    examples: Sequence[LabelledExample],
    judgments: Sequence[Judgment | None],
) -> tuple[list[str], int]:
    """Write answers as traces where there are none: their ids, and how many are new."""
    present = [trace.info for trace in _search(store)]
    id_of = {info.tags.get(_DIGEST): info.trace_id for info in present}
    added = 0
    trace_ids = []
    for e, judgment in zip(examples, judgments, strict=True):
        chunks = [c.text for c in e.context]
        key = digest([e.id, e.question, chunks, e.answer])
        if key not in id_of:
            id_of[key] = _write(store, e, key, judgment)
            added += 1
        trace_ids.append(id_of[key])
    return trace_ids, added


def _write(
    store: Store,
    example: LabelledExample,
    key: str,
    judgment: Judgment | None,
) -> str:
    """Write an answer as a trace, and return its id."""
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation

    row = row_of(example)
    fields = {k: row[k] for k in ("id", "group", "split") if k in row} | example.tags
    statements, numbered = _numbered(example)
    if judgment is not None:
        numbered += f"\n\n*A judge said: {judgment}*"
    previews = [_chunks(example), numbered]
    if not store.uri.startswith("sqlite:"):
        previews = list(map(_shortened, previews))
    place = MlflowExperimentLocation(store.experiment_id)
    with mlflow.start_span("answer", "CHAIN", trace_destination=place) as root:
        mlflow.update_current_trace(
            tags={_DIGEST: key, _FIELDS: json.dumps(fields)},
            metadata={"mlflow.source.name": "faith-dspy labels push"},
            request_preview=previews[0],
            response_preview=previews[1],
        )
        question = example.question or ""
        root.set_inputs({"question": question, "context": row["context"]})
        root.set_outputs(example.answer)
        root.set_attribute(_STATEMENTS, statements)
    mlflow.flush_trace_async_logging()
    trace_id: str = root.trace_id
    return trace_id


def _shortened(text: str) -> str:
    if len(text) <= _PREVIEW:
        return text
    return text[: _PREVIEW - len(_CUT)] + _CUT


def _as_written(text: str) -> str:
    """Text with its line breaks, in Markdown."""
    return re.sub(r"(?<!\n)\n(?!\n)", "  \n", text.strip())


def _chunks(example: LabelledExample) -> str:
    """Question and numbered chunks, in Markdown."""
    parts = []
    if example.question:
        parts.append(f"**Question**\n\n{_as_written(example.question)}")
    for chunk in example.context:
        source = f" · {chunk.source}" if chunk.source else ""
        parts.append(f"**Chunk {chunk.id}**{source}\n\n{_as_written(chunk.text)}")
    return "\n\n---\n\n".join(parts)


def _numbered(example: LabelledExample) -> tuple[list[str], str]:
    """Return the statements that a reviewer is asked about, and the answer with their numbers, in Markdown.

    They are those of the labels file; else the answer's sentences that say something.
    """
    statements = [s.text for s in example.statements]
    if statements:
        lines = [example.answer]
        lines += [f"**{number}.** {text}" for number, text in enumerate(statements, 1)]
    else:
        lines = []
        answer = split_answer(example.answer)
        stating = {sentence.index: sentence.text for sentence in answer.stating}
        for sentence in answer.sentences:
            line = stating.get(sentence.index, sentence.text)
            if sentence.index in stating:
                statements.append(line)
                line = f"**{len(statements)}.** {re.sub('^[-*•] ', '', line)}"
            lines.append(line)
    return statements, "\n\n".join(map(_as_written, lines))


# What people said


def _by_person(trace: Trace, name: str) -> dict[str, Any]:
    """Return the newest feedback of that name of each person; of a person who took it back, none."""
    newest: dict[str, Any] = {}
    feedback: list[Any] = trace.search_assessments(name, type="feedback")
    for a in sorted(feedback, key=attrgetter("last_update_time_ms")):
        if a.source.source_type == "HUMAN" and a.value is not None:
            newest[str(a.source.source_id)] = a
    return newest


def _labels(
    traces: Iterable[Trace],
    name: str,
    values: Meanings | None = None,
    reviewer: str = _NOBODY,
    unfinished: int = 0,
) -> ImportedLabels:
    """Return traces as rows of a labels file, with what people said of them in assessments of that name."""
    rows: dict[str, dict[str, Any]] = {}
    unreadable: list[str] = []
    for trace in traces:
        place = f"trace {trace.info.trace_id}"
        answer = _answer_of(trace)
        if "error" in answer:
            unreadable.append(f"{place}: {answer['error']}")
            continue
        label = _label(trace, name, values, reviewer, unreadable)
        expected = expectations(trace)
        for field in expected.keys() & {"statements", "score"}:
            label[field] = expected[field]
        rows[place] = answer | label
    return label_by_majority(rows, unreadable, values, unfinished)


def _answer_of(trace: Trace) -> dict[str, Any]:
    """Return question, context, answer and the `_FIELDS` of a trace; with ``error`` where it cannot be read."""
    fields = json.loads(trace.info.tags.get(_FIELDS, "{}"))
    row = {"id": trace.info.trace_id, **record_of_trace(trace), **fields}
    return {name: value for name, value in row.items() if value not in (None, "")}


def _label(
    trace: Trace,
    name: str,
    values: Meanings | None,
    reviewer: str,
    unreadable: list[str],
) -> dict[str, Any]:
    """Return each person's label of a trace, the majority's, and what it says of the statements."""
    numbered = (span.get_attribute(_STATEMENTS) for span in trace.data.spans)
    texts = next(filter(None, numbered), ())
    marks = _by_person(trace, UNSUPPORTED) if len(texts) <= _MOST else {}
    label: dict[str, Any] = {"annotators": {}, "reviewed": {}}
    votes = []
    marked = []
    for who, a in _by_person(trace, name).items():
        person = reviewer if who == _NOBODY else who
        faithful = label_meaning(a.value, values)
        against = set(map(int, marks[who].value)) if who in marks else set()
        if max(against, default=0) > len(texts):
            unreadable.append(
                f"trace {trace.info.trace_id}, {person}: statement {max(against)} of {len(texts)}"
            )
            against = set()
        if faithful is False and len(texts) == 1:
            against = {1}
        if faithful or against:
            marked.append((against, a.rationale))
        updated = datetime.fromtimestamp(a.last_update_time_ms / 1000, UTC)
        label["annotators"][person] = a.value
        label["reviewed"][person] = updated.isoformat(timespec="seconds")
        if a.rationale:
            label.setdefault("reasons", {})[person] = a.rationale
        votes.append(faithful)
    label["faithful"] = majority(votes)
    if label["faithful"] is None:
        return label
    statements = [_statement(i, text, marked) for i, text in enumerate(texts, 1)]
    if any("verdict" in statement for statement in statements):
        label["statements"] = statements
    return label


def _statement(
    number: int, text: str, marked: Sequence[tuple[set[int], str | None]]
) -> dict[str, Any]:
    """Return a statement with the majority's verdict, and the reasons of those who gave it. ``marked``: the statements
    that each person says are not supported, and why."""
    supported = majority(number not in against for against, _ in marked)
    if supported is None:
        return {"text": text}
    if supported:
        return {"text": text, "verdict": Verdict.FULLY_SUPPORTED.value}
    statement = {"text": text, "verdict": Verdict.NOT_SUPPORTED.value}
    reasons = dict.fromkeys(why for against, why in marked if why and number in against)
    if reasons:
        statement["reason"] = "; ".join(reasons)
    return statement
