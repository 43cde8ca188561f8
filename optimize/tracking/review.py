"""Answers as a review queue on MLflow's pages, and what its reviewers said as labels.

An answer is a trace. MLflow shows reviewers a trace's previews, so that these hold what there is to read: question and
numbered chunks, and the answer with its statements numbered. A queue's item is closed by whoever finishes it first, and
without authentication all are ``default``: each reviewer gets a queue, and questions of that queue's own.
"""

from __future__ import annotations

import json
import random
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.io.labels import parse_example, read_labels
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.data.imports import ImportedLabels, majority
from faith_dspy.optimize.data.order import First, in_order
from faith_dspy.optimize.tracking.feedback import FIELDS, answer_of
from faith_dspy.optimize.tracking.store import EXPERIMENT, connect, global_store, mlflow_errors
from faith_dspy.schema import Verdict, digest
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlflow.entities import Trace
    from mlflow.genai.review_queues import ReviewQueue

    from faith_dspy.optimize.tracking.store import Store
    from faith_dspy.schema import Judgment, LabelledExample

FAITHFUL, UNSUPPORTED, EVIDENCE, WHY, CANNOT_TELL = (
    "Is the answer faithful?",
    "Which statements are not supported?",
    "Which chunks support the others?",
    "Why?",
    "Can you tell?",
)
QUESTIONS = (FAITHFUL, UNSUPPORTED, EVIDENCE, WHY, CANNOT_TELL)
_NUMBERED = (UNSUPPORTED, EVIDENCE)
"""Asked only where the page numbers statements and chunks: not of an application's own traces."""
_DIGEST, _STATEMENTS = "faith_dspy.digest", "faith_dspy.statements"
"""A trace's tag by which it is found again, and its attribute with the numbered statements."""
_PREVIEW = 1000
"""Characters of a preview that every store takes; SQLite takes any length."""
_CUT = "\n\n*Cut here. “View full trace” shows all of it.*"
_NOBODY = "default"
"""Who MLflow says a reviewer is where nobody logs in."""


class Pushed(NamedTuple):
    """What a push did to a queue."""

    traces: int
    """Made for answers that had none."""
    items: int
    """Added to queues, one for each answer and reviewer."""
    queues: list[str]
    page: str
    """Address of the first queue on MLflow's pages, from the server's address on."""
    cut: int
    """Answers of which this store shows reviewers only the beginning."""
    labels: ImportedLabels
    """What the queue's reviewers have said so far."""


def push(
    answers: Any,
    queue: str,
    reviewers: Sequence[str] = (),
    *,
    traces: str | None = None,
    experiment: str = EXPERIMENT,
    tracking_uri: str | None = None,
    first: First = "random",
    verdicts: Judge | None = None,
) -> Pushed:
    """Put answers into a review queue; those that are in it already stay as they are.

    ``answers``: a file, a frame or rows, as `read_labels` takes them; labels among them are not shown. With ``traces``,
    a filter of MLflow's `search_traces`, instead the traces of an application, as they are. Each of ``reviewers`` gets
    a queue; without any, one queue is everybody's. ``first``: in which order (`in_order`); in random order what is
    labelled first is a fair sample. ``verdicts``: a judge whose verdicts reviewers are shown, although that sways them.
    """
    from mlflow.genai import review_queues

    if (answers is None) == (traces is None):
        raise InputError("give either answers or --traces FILTER, to queue an application's traces")
    if traces is not None and (first != "random" or verdicts is not None):
        raise InputError("traces are queued as they are: --first uncertain and --verdicts are for answers")
    judge = verdicts or Judge(NO_LM)
    given = [] if answers is None else read_labels(answers, require_label=False)
    examples = in_order(given, first, judge.batch)
    shown = dict(zip((e.id for e in examples), judge.batch(examples), strict=True)) if verdicts else {}
    store = connect(tracking_uri, experiment)
    queues = []
    with mlflow_errors(store.uri, "keep a review queue"), global_store(store.uri):
        made, cut, items = 0, 0, [] if traces is None else [i for i, _ in _traces(store, traces)]
        random.Random(0).shuffle(items)
        if traces is not None and not items:
            raise InputError(f"no trace of the experiment {experiment!r} fits {traces!r}.")
        known = {tags[_DIGEST]: i for i, tags in _traces(store) if _DIGEST in tags} if examples else {}
        for example in examples:
            key = digest([example.id, example.question, [c.text for c in example.context], example.answer])
            if key not in known:
                known[key], short = _write(store, example, key, shown.get(example.id))
                made, cut = made + 1, cut + short
            items.append(known[key])
        added = 0
        for who in reviewers or [""]:
            found = _queue(store, queue, who or None, numbered=traces is None)
            there = {item.item_id for item in _items(found)}
            # MLflow shows the newest first, and has milliseconds.
            for item in reversed([i for i in dict.fromkeys(items) if i not in there]):
                review_queues.add_items_to_review_queue(found.queue_id, item_ids=[item])
                added += 1
                time.sleep(0.002)
            queues.append(found)
    page = f"#/experiments/{store.experiment_id}/review-queue?selectedQueueId={queues[0].queue_id}"
    return Pushed(made, added, [q.name for q in queues], page, cut, labels_of(store, queue))


def pull(queue: str, *, experiment: str = EXPERIMENT, tracking_uri: str | None = None) -> Any:
    """The labels of a queue's reviewers as a pandas frame, which `faith_dspy.tune` takes as it is."""
    import pandas

    return pandas.DataFrame(labels_of(connect(tracking_uri, experiment, create=False), queue).rows)


def labels_of(store: Store, queue: str) -> ImportedLabels:
    """What the reviewers of a queue said, as rows of a labels file: every finished review, one row an answer.

    The label is the majority's; an answer on which people are split has none, and keeps everyone's own. Statement
    verdicts, chunk ids and reasons are of those who named them.
    """
    with mlflow_errors(store.uri, "read a review queue"), global_store(store.uri):
        queues = _queues(store, queue)
        if not queues:
            names = ", ".join(sorted(q.name for q in _all(store))) or "none"
            raise InputError(f"there is no review queue {queue!r}; the experiment has {names}.")
        finished: dict[str, list[tuple[str | None, int]]] = {}
        unfinished = 0
        for found, who in queues:
            for item in _items(found):
                if item.status == "complete":
                    finished.setdefault(item.item_id, []).append((who, item.completed_time_ms))
                unfinished += item.status == "pending"
        traces = [store.client.get_trace(trace_id, display=False) for trace_id in sorted(finished)]
    rows, split, unlabelled = [], [], 0
    unreadable: dict[str, str] = {}
    for trace in sorted(traces, key=lambda t: (t.info.request_time, t.info.trace_id)):
        row, place = _row(trace, finished[trace.info.trace_id], unreadable), f"trace {trace.info.trace_id}"
        if "error" in row:
            unreadable[place] = f"{place}: {row['error']}"
        elif row["annotators"]:
            parse_example(row, where=place)
            rows.append(row)
            split += [row["id"]] if row["faithful"] is None else []
        else:
            unlabelled += 1
    return ImportedLabels(rows=rows, split=split, unreadable=unreadable, unlabelled=unlabelled, unfinished=unfinished)


# Queues


def _suffix(reviewer: str | None) -> str:
    return f" ({reviewer})" if reviewer else ""


def _all(store: Store) -> Iterable[ReviewQueue]:
    from mlflow.genai.review_queues import list_review_queues

    return _pages(lambda token: list_review_queues(experiment_id=store.experiment_id, page_token=token))


def _queues(store: Store, name: str) -> list[tuple[ReviewQueue, str | None]]:
    """The queues of that name, each with its reviewer, if it is one's own."""
    found = [(q, re.fullmatch(rf"{re.escape(name)}(?: \((.+)\))?", q.name)) for q in _all(store)]
    return [(q, match[1]) for q, match in found if match]


def _items(queue: ReviewQueue) -> list[Any]:
    from mlflow.genai.review_queues import list_review_queue_items

    return list(_pages(lambda token: list_review_queue_items(queue.queue_id, page_token=token)))


def _pages(page: Any) -> Iterable[Any]:
    token = None
    while True:
        found = page(token)
        yield from found
        if not (token := found.token):
            return


def _queue(store: Store, name: str, reviewer: str | None, *, numbered: bool) -> ReviewQueue:
    """The queue of that name, made with its questions if it is not there."""
    from mlflow.genai.label_schemas import InputPassFail, InputText, create_label_schema, list_label_schemas
    from mlflow.genai.review_queues import create_review_queue

    for found, who in _queues(store, name):
        if who == reviewer:
            return found
    questions: dict[str, tuple[Any, str]] = {
        FAITHFUL: (InputPassFail("Faithful", "Not faithful"), "Do the chunks support all that the answer says?"),
        UNSUPPORTED: (InputText(), "Their numbers, e.g. 2, 4"),
        EVIDENCE: (InputText(), "Chunk numbers, e.g. 0, 3; of several statements also 1: 0, 3; 2: 1"),
        WHY: (InputText(), "In a sentence, e.g. The chunks give no date"),
        CANNOT_TELL: (InputPassFail("Yes", "Cannot tell"), "Cannot tell: the answer then counts as not labelled"),
    }
    there = {
        s.name: s.schema_id for s in _pages(lambda token: list_label_schemas(store.experiment_id, page_token=token))
    }
    ids = []
    for question, (given, hint) in reversed(questions.items()):  # MLflow shows the newest first
        if question in _NUMBERED and not numbered:
            continue
        key = question + _suffix(reviewer)
        if key not in there:
            schema = create_label_schema(
                key, type="feedback", input=given, instruction=hint, experiment_id=store.experiment_id
            )
            there[key] = schema.schema_id
            time.sleep(0.002)
        ids.append(there[key])
    made: ReviewQueue = create_review_queue(
        name + _suffix(reviewer),
        queue_type="custom",
        users=[reviewer] if reviewer else [],
        schema_ids=ids,
        experiment_id=store.experiment_id,
    )
    return made


# Traces


def _traces(store: Store, query: str = "") -> Iterable[tuple[str, Mapping[str, str]]]:
    """Ids and tags of the experiment's traces."""
    import mlflow

    asked = {"filter_string": query or None, "include_spans": False, "return_type": "list", "flush": True}
    found = mlflow.search_traces(locations=[store.experiment_id], **asked)
    return ((t.info.trace_id, t.info.tags) for t in found)


def _write(
    store: Store, example: LabelledExample, key: str, verdict: Judgment | None, limit: int | None = None
) -> tuple[str, bool]:
    """Write an answer as a trace; its id, and whether reviewers are shown only its beginning."""
    import mlflow
    from mlflow.entities import Document
    from mlflow.entities.trace_location import MlflowExperimentLocation

    asked = {"question": example.question or ""}
    fields = {"id": example.id, "group": example.group, "split": example.split, **example.tags}
    statements, shown = _numbered(example)
    if verdict is not None:
        shown += f"\n\n*A judge said: {verdict}*"
    previews = [_cut(text, limit) for text in (_chunks(example), shown)]
    with mlflow.start_span("answer", "CHAIN", trace_destination=MlflowExperimentLocation(store.experiment_id)) as root:
        mlflow.update_current_trace(
            tags={_DIGEST: key, FIELDS: json.dumps({k: v for k, v in fields.items() if v})},
            metadata={"mlflow.source.name": "faith-dspy labels push"},
            request_preview=previews[0],
            response_preview=previews[1],
        )
        root.set_inputs(asked)
        root.set_outputs(example.answer)
        root.set_attribute(_STATEMENTS, statements)
        with mlflow.start_span("context", "RETRIEVER") as found:
            found.set_inputs(asked)
            found.set_outputs([Document(c.text, {"doc_uri": c.source} if c.source else {}) for c in example.context])
    mlflow.flush_trace_async_logging()
    if limit is None and max(map(len, previews)) > _PREVIEW:
        kept = store.client.get_trace(root.trace_id, display=False).info
        if [kept.request_preview, kept.response_preview] != previews or kept.tags.get(_DIGEST) != key:
            store.client.delete_traces(store.experiment_id, trace_ids=[root.trace_id])
            return _write(store, example, key, verdict, _PREVIEW)
    return root.trace_id, limit is not None


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def _as_written(text: str) -> str:
    """Text with its line breaks, in Markdown."""
    return re.sub(r"(?<!\n)\n(?!\n)", "  \n", text.strip())


def _chunks(example: LabelledExample) -> str:
    """Question and numbered chunks, in Markdown."""
    parts = [f"**Question**\n\n{_as_written(example.question)}"] if example.question else []
    for c in example.context:
        parts.append(f"**Chunk {c.id}**{f' · {c.source}' if c.source else ''}\n\n{_as_written(c.text)}")
    return "\n\n---\n\n".join(parts)


def _numbered(example: LabelledExample) -> tuple[list[str], str]:
    """The statements that a reviewer is asked about, and the answer with their numbers, in Markdown.

    They are those of the labels file; else the answer's sentences that say something.
    """
    statements = [s.text for s in example.statements]
    if statements:
        lines = [_as_written(example.answer), *(f"**{i}.** {_as_written(s)}" for i, s in enumerate(statements, 1))]
        return statements, "\n\n".join(lines)
    lines = []
    for s in sentences(example.answer):
        if carries_statement(s.text):
            statements.append(s.text)
            lines.append(f"**{len(statements)}.** {_as_written(re.sub(r'^[-*•] ', '', s.text))}")
        else:
            lines.append(_as_written(s.text))
    return statements, "\n\n".join(lines)


# What reviewers said


class _Review(NamedTuple):
    """One reviewer's answers to the questions about one answer, whose statements are numbered from 1."""

    who: str
    at: str
    faithful: bool | None
    unsupported: set[int] | None
    """Numbers of statements; None where none can be told."""
    evidence: dict[int, set[int]]
    """Chunk ids by number of the statement they support."""
    why: str


def _row(trace: Trace, finished: Sequence[tuple[str | None, int]], unreadable: dict[str, str]) -> dict[str, Any]:
    """A row of a labels file; what of the reviews could not be read goes to ``unreadable``."""
    root = next(s for s in trace.data.spans if s.parent_id is None)
    statements: list[str] = list(root.get_attribute(_STATEMENTS) or ())
    row = answer_of(trace)
    if "error" in row:
        return row
    found = [_review(trace, who, at, len(statements), len(row["context"]), unreadable) for who, at in finished]
    reviews = [r for r in found if r is not None]
    row["annotators"] = {r.who: "cannot tell" if r.faithful is None else r.faithful for r in reviews}
    row["faithful"] = majority(r.faithful for r in reviews)
    row["reasons"] = {r.who: r.why for r in reviews if r.why}
    row["reviewed"] = {r.who: r.at for r in reviews}
    told = [_statement(number, text, reviews) for number, text in enumerate(statements, 1)]
    # Verdicts beside no label would be taken for one.
    if row["faithful"] is not None and any("verdict" in s for s in told):
        row["statements"] = told
    return row


def _review(
    trace: Trace, who: str | None, at: int, statements: int, chunks: int, unreadable: dict[str, str]
) -> _Review | None:
    said: dict[str, Any] = {}
    for question in QUESTIONS:
        given = [a for a in trace.search_assessments(question + _suffix(who), type="feedback") if a.valid is not False]
        if given:
            said[question] = max(given, key=lambda a: a.last_update_time_ms or 0)
    if not said:
        return None
    by = str(next(iter(said.values())).source.source_id)
    by = who or by if by == _NOBODY else by
    faithful = said[FAITHFUL].value if FAITHFUL in said else None
    if CANNOT_TELL in said and said[CANNOT_TELL].value is False:
        faithful = None
    text = {question: str(said[question].value).strip() if question in said else "" for question in QUESTIONS}

    def read(question: str, parse: Any, *args: Any) -> Any:
        try:
            return parse(text[question], *args)
        except ValueError as exc:
            place = f"trace {trace.info.trace_id}, {by}"
            unreadable[f"{place}, {question}"] = f"{place}: {question!r} {exc}"
            return None

    unsupported = read(UNSUPPORTED, _numbers, 1, statements)
    if unsupported == set() and not faithful:
        unsupported = {1} if faithful is False and statements == 1 else None
    supported = [n for n in range(1, statements + 1) if n not in (unsupported or ())]
    evidence = read(EVIDENCE, _evidence, supported, statements, chunks) or {}
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
    return _Review(by, when, faithful, unsupported, evidence, text[WHY])


def _numbers(text: str, first: int, last: int) -> set[int]:
    """Numbers in a text such as ``2, 4 and 6-8``; `ValueError` where there is anything else, or one out of range."""
    found: set[int] = set()
    for part in re.split(r"[\s,;]+|\band\b", re.sub(r"\s*[-–]\s*", "-", text)):
        if part:
            match = re.fullmatch(r"\[?(\d{1,4})\]?(?:-\[?(\d{1,4})\]?)?\.?", part)
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
            if not numbers or numbers[0] < first or numbers[-1] > last:
                raise ValueError(f"is {text!r}; expected numbers from {first} to {last}")
            found.update(numbers)
    return found


def _evidence(text: str, supported: Sequence[int], statements: int, chunks: int) -> dict[int, set[int]]:
    """Chunk ids by statement, from ``0, 3`` or ``1: 0, 3; 2: 1``; `ValueError` if whose they are is unclear."""
    if ":" not in text:
        if (ids := _numbers(text, 0, chunks - 1)) and len(supported) != 1:
            raise ValueError(f"is {text!r}, over {len(supported)} supported statements; expected e.g. 1: {text}")
        return {supported[0]: ids} if ids else {}
    parts = [part.partition(":")[::2] for part in re.split(r"[;\n]", text) if part.strip()]
    return {n: _numbers(ids, 0, chunks - 1) for numbers, ids in parts for n in _numbers(numbers, 1, statements)}


def _statement(number: int, text: str, reviews: Sequence[_Review]) -> dict[str, Any]:
    """A statement with the majority's verdict, the chunks and the reasons of those who gave it."""
    said = [(r, number not in r.unsupported) for r in reviews if r.unsupported is not None]
    supported = majority(theirs for _, theirs in said)
    if supported is None:
        return {"text": text}
    agreed = [r for r, theirs in said if theirs is supported]
    out: dict[str, Any] = {
        "text": text,
        "verdict": (Verdict.FULLY_SUPPORTED if supported else Verdict.NOT_SUPPORTED).value,
    }
    if ids := sorted({c for r in agreed for c in r.evidence.get(number, ())}):
        out["supporting_chunk_ids"] = ids
    if not supported and (why := "; ".join(dict.fromkeys(r.why for r in agreed if r.why))):
        out["reason"] = why
    return out
