"""People's labels in MLflow: answers as a review queue, and what people said of traces as labels.

An answer is a trace. MLflow shows reviewers a trace's previews, so these hold what there is to read: question and
numbered chunks, and the answer with its statements numbered. A queue has questions of its own, because without a login
everybody is ``default``: two queues with the same answers are two people's labels.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import expectations, record_of_trace
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.data.labels import (
    ImportedLabels,
    label_by_majority,
    label_meaning,
    majority,
)
from faith_dspy.optimize.tracking.store import (
    EXPERIMENT,
    connect,
    global_store,
    mlflow_errors,
)
from faith_dspy.schema import Verdict, digest
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from mlflow.entities import Trace
    from mlflow.genai.review_queues import ReviewQueue

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.tracking.store import Store
    from faith_dspy.schema import Judgment, LabelledExample

NAME = "faithful"
"""Name of people's assessments of traces, unless another is given."""
FAITHFUL, UNSUPPORTED = "Is the answer faithful?", "Which statements are not supported?"
"""A queue's questions; the second is asked where the page numbers statements."""
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
    """Address of the queue on MLflow's pages, from the server's address on."""
    cut: int
    """Answers of which this store shows reviewers only the beginning."""


class _Opinion(NamedTuple):
    """What one person said of one answer."""

    who: str
    at: str
    value: Any
    faithful: bool | None
    unsupported: frozenset[int] | None
    """Numbers of statements, from 1; None where they were not told."""
    why: str


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
    with mlflow_errors(store.uri, "keep a review queue"), global_store(store.uri):
        if traces is None:
            items, made, cut = _traces_of(store, examples, judgments)
        else:
            items, made, cut = (
                [trace_id for trace_id, _ in _search(store, traces)],
                0,
                0,
            )
        if not items:
            raise InputError(
                f"no trace of the experiment {experiment!r} fits {traces!r}."
            )
        target = _queue(store, queue, numbered=traces is None)
        present = {item.item_id for item in _items(target)}
        new = [item for item in dict.fromkeys(items) if item not in present]
        random.Random(0).shuffle(new)  # what is labelled first is a fair sample
        if new:
            review_queues.add_items_to_review_queue(target.queue_id, item_ids=new)
    page = f"#/experiments/{store.experiment_id}/review-queue?selectedQueueId={target.queue_id}"
    return Queued(made, len(new), page, cut)


def read_reviews(
    store: Store, queues: Sequence[str], reviewer: str | None = None
) -> ImportedLabels:
    """Read what reviewers said, as rows of a labels file: every finished review, one row an answer.

    The label is the majority's, over all queues; an answer on which people are split has none, and keeps everyone's
    own. A reviewer who did not log in has the name ``reviewer``, else that of the queue. Statement verdicts and reasons
    are those of the reviewers who gave them.
    """
    opinions: dict[str, list[_Opinion]] = {}
    unreadable: list[str] = []
    unfinished = 0
    with mlflow_errors(store.uri, "read a review queue"), global_store(store.uri):
        by_name = {queue.name: queue for queue in _queues(store)}
        traces: dict[str, Trace] = {}
        for name in queues:
            if name not in by_name:
                names = ", ".join(sorted(by_name)) or "none"
                raise InputError(
                    f"there is no review queue {name!r}; the experiment has {names}."
                )
            for item in _items(by_name[name]):
                if item.status != "complete":
                    unfinished += 1
                    continue
                if item.item_id not in traces:
                    traces[item.item_id] = store.client.get_trace(
                        item.item_id, display=False
                    )
                found = _reviews(
                    traces[item.item_id], name, reviewer or name, unreadable
                )
                opinions.setdefault(item.item_id, []).extend(found)
    rows: dict[str, dict[str, Any]] = {}
    for trace in sorted(
        traces.values(),
        key=lambda trace: (trace.info.request_time, trace.info.trace_id),
    ):
        _add_row(
            rows,
            unreadable,
            trace,
            _statements_of(trace),
            opinions[trace.info.trace_id],
        )
    return label_by_majority(rows, unreadable, unfinished=unfinished)


def read_feedback(
    store: Store, name: str = NAME, values: Mapping[str, bool] | None = None
) -> ImportedLabels:
    """`label_traces` all traces of the store's experiment, the oldest first."""
    import mlflow

    with mlflow_errors(store.uri, "list its traces"), global_store(store.uri):
        found = mlflow.search_traces(
            locations=[store.experiment_id], include_spans=False, return_type="list"
        )
        infos = [trace.info for trace in found if _by_person(trace, name)]
        infos.sort(key=lambda info: (info.request_time, info.trace_id))
        traces = [
            store.client.get_trace(info.trace_id, display=False) for info in infos
        ]
    return label_traces(traces, name, values)


def label_traces(
    traces: Iterable[Trace], name: str = NAME, values: Mapping[str, bool] | None = None
) -> ImportedLabels:
    """Read the labels that people gave traces, in assessments called ``name``; the newest of each person counts.

    ``values``: what labels mean that are neither yes/no, true/false nor a verdict. Statement labels and scores are
    expectations; what people say of an answer with one statement they say of that statement.
    """
    rows: dict[str, dict[str, Any]] = {}
    unreadable: list[str] = []
    for trace in traces:
        people = _by_person(trace, name)
        if people:
            stated = [
                s.text
                for s in sentences(_answer_of(trace).get("answer", ""))
                if carries_statement(s.text)
            ]
            texts = stated if len(stated) == 1 else []
            opinions = [
                _opinion(who, a, len(texts), values) for who, a in people.items()
            ]
            _add_row(rows, unreadable, trace, texts, opinions)
    return label_by_majority(rows, unreadable, values)


# Queues


def _pages(list_page: Callable[[str | None], Any]) -> Iterable[Any]:
    """What MLflow lists page by page."""
    token = None
    while True:
        page = list_page(token)
        yield from page
        token = page.token
        if not token:
            return


def _queues(store: Store) -> Iterable[ReviewQueue]:
    from mlflow.genai.review_queues import list_review_queues

    return _pages(
        lambda token: list_review_queues(
            experiment_id=store.experiment_id, page_token=token
        )
    )


def _items(queue: ReviewQueue) -> Iterable[Any]:
    from mlflow.genai.review_queues import list_review_queue_items

    return _pages(
        lambda token: list_review_queue_items(queue.queue_id, page_token=token)
    )


def _question(text: str, queue: str) -> str:
    return f"{text} ({queue})"


def _queue(store: Store, name: str, *, numbered: bool) -> ReviewQueue:
    """The queue of that name, made with its questions if it is not there."""
    from mlflow.genai import label_schemas, review_queues

    for queue in _queues(store):
        if queue.name == name:
            return queue
    inputs: dict[str, Any] = {}
    if numbered:
        numbers = [str(number) for number in range(1, _MOST + 1)]
        inputs[UNSUPPORTED] = label_schemas.InputCategorical(numbers, multi_select=True)
    inputs[FAITHFUL] = label_schemas.InputPassFail("Faithful", "Not faithful")
    hints = {
        FAITHFUL: "Do the chunks support all that it says? Say why in the comment. Skip it if you cannot tell.",
        UNSUPPORTED: "Their numbers",
    }
    listed = _pages(
        lambda token: label_schemas.list_label_schemas(
            store.experiment_id, page_token=token
        )
    )
    ids = {schema.name: schema.schema_id for schema in listed}
    for (
        text,
        answer,
    ) in inputs.items():  # MLflow shows the newest first, and has milliseconds
        question = _question(text, name)
        if question not in ids:
            schema = label_schemas.create_label_schema(
                question,
                type="feedback",
                input=answer,
                instruction=hints[text],
                enable_comment=text == FAITHFUL,
                experiment_id=store.experiment_id,
            )
            ids[question] = schema.schema_id
            time.sleep(0.002)
    made: ReviewQueue = review_queues.create_review_queue(
        name,
        queue_type="custom",
        schema_ids=[ids[_question(text, name)] for text in inputs],
        experiment_id=store.experiment_id,
    )
    return made


# Answers as traces


def _search(store: Store, query: str = "") -> list[tuple[str, Mapping[str, str]]]:
    """Ids and tags of the experiment's traces."""
    import mlflow

    options = {
        "filter_string": query or None,
        "include_spans": False,
        "return_type": "list",
        "flush": True,
    }
    traces = mlflow.search_traces(locations=[store.experiment_id], **options)
    return [(trace.info.trace_id, trace.info.tags) for trace in traces]


def _traces_of(
    store: Store,
    examples: Sequence[LabelledExample],
    judgments: Sequence[Judgment | None],
) -> tuple[list[str], int, int]:
    """Traces of answers, written where there are none: their ids, how many are new, and of those how many are cut."""
    known = {
        tags[_DIGEST]: trace_id for trace_id, tags in _search(store) if _DIGEST in tags
    }
    items: list[str] = []
    made, cut = 0, 0
    for example, judgment in zip(examples, judgments, strict=True):
        key = digest(
            [
                example.id,
                example.question,
                [c.text for c in example.context],
                example.answer,
            ]
        )
        if key not in known:
            known[key], is_cut = _write(store, example, key, judgment)
            made += 1
            cut += is_cut
        items.append(known[key])
    return items, made, cut


def _write(
    store: Store, example: LabelledExample, key: str, judgment: Judgment | None
) -> tuple[str, bool]:
    """Write an answer as a trace; its id, and whether reviewers are shown only its beginning."""
    import mlflow
    from mlflow.entities import Document
    from mlflow.entities.trace_location import MlflowExperimentLocation

    question = {"question": example.question or ""}
    fields = {
        "id": example.id,
        "group": example.group,
        "split": example.split,
        **example.tags,
    }
    statements, numbered = _numbered(example)
    if judgment is not None:
        numbered += f"\n\n*A judge said: {judgment}*"
    texts = [_chunks(example), numbered]
    previews = (
        texts
        if store.uri.startswith("sqlite:")
        else [_shortened(text) for text in texts]
    )
    place = MlflowExperimentLocation(store.experiment_id)
    with mlflow.start_span("answer", "CHAIN", trace_destination=place) as root:
        mlflow.update_current_trace(
            tags={
                _DIGEST: key,
                _FIELDS: json.dumps({k: v for k, v in fields.items() if v}),
            },
            metadata={"mlflow.source.name": "faith-dspy labels push"},
            request_preview=previews[0],
            response_preview=previews[1],
        )
        root.set_inputs(question)
        root.set_outputs(example.answer)
        root.set_attribute(_STATEMENTS, statements)
        with mlflow.start_span("context", "RETRIEVER") as context:
            context.set_inputs(question)
            documents = [
                Document(c.text, {"doc_uri": c.source} if c.source else {})
                for c in example.context
            ]
            context.set_outputs(documents)
    mlflow.flush_trace_async_logging()
    return root.trace_id, previews != texts


def _shortened(text: str) -> str:
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - len(_CUT)] + _CUT


def _as_written(text: str) -> str:
    """Text with its line breaks, in Markdown."""
    return re.sub(r"(?<!\n)\n(?!\n)", "  \n", text.strip())


def _chunks(example: LabelledExample) -> str:
    """Question and numbered chunks, in Markdown."""
    parts = (
        [f"**Question**\n\n{_as_written(example.question)}"] if example.question else []
    )
    for chunk in example.context:
        source = f" · {chunk.source}" if chunk.source else ""
        parts.append(f"**Chunk {chunk.id}**{source}\n\n{_as_written(chunk.text)}")
    return "\n\n---\n\n".join(parts)


def _numbered(example: LabelledExample) -> tuple[list[str], str]:
    """The statements that a reviewer is asked about, and the answer with their numbers, in Markdown.

    They are those of the labels file; else the answer's sentences that say something.
    """
    statements = [s.text for s in example.statements]
    if statements:
        lines = [_as_written(example.answer)]
        lines += [
            f"**{number}.** {_as_written(text)}"
            for number, text in enumerate(statements, 1)
        ]
        return statements, "\n\n".join(lines)
    lines = []
    for sentence in sentences(example.answer):
        if carries_statement(sentence.text):
            statements.append(sentence.text)
            item = re.sub(r"^[-*•] ", "", sentence.text)
            lines.append(f"**{len(statements)}.** {_as_written(item)}")
        else:
            lines.append(_as_written(sentence.text))
    return statements, "\n\n".join(lines)


# What people said


def _by_person(trace: Trace, name: str) -> dict[str, Any]:
    """The newest feedback of that name of each person; of a person who took it back, none."""
    from mlflow.entities import Feedback

    newest: dict[str, Any] = {}
    assessments: list[Any] = sorted(
        trace.info.assessments, key=lambda a: a.last_update_time_ms or 0
    )
    for a in assessments:
        by_human = (
            isinstance(a, Feedback)
            and a.name == name
            and a.source.source_type == "HUMAN"
        )
        if by_human and a.valid is not False and a.value is not None:
            newest[str(a.source.source_id)] = a
    return newest


def _opinion(
    who: str,
    a: Any,
    statements: int,
    values: Mapping[str, bool] | None = None,
    numbers: Iterable[int] = (),
) -> _Opinion:
    """``numbers``: of the statements that a person says are not supported, of so many."""
    faithful = label_meaning(a.value, values)
    unsupported: frozenset[int] | None = frozenset(numbers)
    if not unsupported and not faithful:
        unsupported = frozenset({1}) if faithful is False and statements == 1 else None
    at = datetime.fromtimestamp((a.last_update_time_ms or 0) / 1000, UTC).isoformat(
        timespec="seconds"
    )
    return _Opinion(who, at, a.value, faithful, unsupported, a.rationale or "")


def _reviews(
    trace: Trace, queue: str, reviewer: str, unreadable: list[str]
) -> list[_Opinion]:
    """What people answered to a queue's questions about an answer."""
    count = len(_statements_of(trace))
    marks = _by_person(trace, _question(UNSUPPORTED, queue))
    opinions = []
    for who, a in _by_person(trace, _question(FAITHFUL, queue)).items():
        numbers = (
            [int(number) for number in marks[who].value]
            if who in marks and count <= _MOST
            else []
        )
        outside = [number for number in numbers if number > count]
        name = reviewer if who == _NOBODY else who
        if outside:
            unreadable.append(
                f"trace {trace.info.trace_id}, {name}: statement {outside[0]} of {count}"
            )
            numbers = []
        opinions.append(_opinion(name, a, count, numbers=numbers))
    return opinions


def _statements_of(trace: Trace) -> list[str]:
    """The numbered statements of a pushed answer."""
    root = next(span for span in trace.data.spans if span.parent_id is None)
    return list(root.get_attribute(_STATEMENTS) or ())


def _answer_of(trace: Trace) -> dict[str, Any]:
    """Question, context, answer and the `_FIELDS` of a trace; with ``error`` where it has not got them."""
    fields = json.loads(trace.info.tags.get(_FIELDS, "{}"))
    row = {"id": trace.info.trace_id, **record_of_trace(trace), **fields}
    if fields:  # exactly the chunks that were pushed
        context = next(
            span for span in trace.data.spans if span.span_type == "RETRIEVER"
        )
        row["context"] = []
        for document in context.outputs:
            text, source = document["page_content"], document["metadata"].get("doc_uri")
            row["context"].append({"text": text, "source": source} if source else text)
    if "error" not in row and not (row.get("context") and row["answer"].strip()):
        row["error"] = f"it has no {'answer' if row.get('context') else 'context'}"
    return {
        name: value for name, value in row.items() if value is not None and value != ""
    }


def _add_row(
    rows: dict[str, dict[str, Any]],
    unreadable: list[str],
    trace: Trace,
    texts: Sequence[str],
    opinions: Sequence[_Opinion],
) -> None:
    """Add the row of a labels file that opinions on a trace make; one that is none to ``unreadable``."""
    place = f"trace {trace.info.trace_id}"
    row = _answer_of(trace)
    if "error" in row:
        unreadable.append(f"{place}: {row['error']}")
        return
    people = expectations(trace)
    row |= {name: people[name] for name in ("statements", "score") if name in people}
    row["annotators"] = {o.who: o.value for o in opinions}
    row["reviewed"] = {o.who: o.at for o in opinions}
    reasons = {o.who: o.why for o in opinions if o.why}
    if reasons:
        row["reasons"] = reasons
    faithful = majority(o.faithful for o in opinions)
    if faithful is not None:
        row["faithful"] = faithful
        statements = [
            _statement(number, text, opinions) for number, text in enumerate(texts, 1)
        ]
        if "statements" not in row and any(
            "verdict" in statement for statement in statements
        ):
            row["statements"] = statements
    rows[place] = row


def _statement(number: int, text: str, opinions: Sequence[_Opinion]) -> dict[str, Any]:
    """A statement with the majority's verdict, and the reasons of those who gave it."""
    marks = [
        (o, number not in o.unsupported) for o in opinions if o.unsupported is not None
    ]
    supported = majority(mark for _, mark in marks)
    if supported is None:
        return {"text": text}
    statement = {
        "text": text,
        "verdict": (
            Verdict.FULLY_SUPPORTED if supported else Verdict.NOT_SUPPORTED
        ).value,
    }
    reasons = dict.fromkeys(o.why for o, mark in marks if mark is supported and o.why)
    if reasons and not supported:
        statement["reason"] = "; ".join(reasons)
    return statement
