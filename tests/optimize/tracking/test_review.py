import re
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource, Document, Feedback, SpanType
from mlflow.genai import review_queues

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.tracking.review import (
    FAITHFUL,
    UNSUPPORTED,
    queue_answers,
    read_feedback,
    read_reviews,
)
from faith_dspy.optimize.tracking.store import connect

KETTLE = {
    "id": "kettle",
    "question": "What is it like?",
    "context": ["A kettle.", {"text": "It is blue.\nIt is old.", "source": "x.md"}],
    "answer": "Hello! It is blue. It is new.",
    "faithful": True,
    "group": "kettles",
}
CUP = {"context": ["A cup."], "answer": "It is a cup."}


def traces():
    where = [connect().experiment_id]
    return mlflow.search_traces(locations=where, return_type="list")


def trace_of(row):
    """The trace of a pushed answer."""
    return next(t.info for t in traces() if t.data.spans[0].outputs == row["answer"])


def finish(row, queue, faithful, unsupported=(), why=None, who="default"):
    """What MLflow's page does when a reviewer submits answers."""
    trace_id = trace_of(row).trace_id
    person = AssessmentSource("HUMAN", who)
    common = {"trace_id": trace_id, "source": person}
    mlflow.log_feedback(name=FAITHFUL, value=faithful, rationale=why, **common)
    if unsupported:
        mlflow.log_feedback(name=UNSUPPORTED, value=list(unsupported), **common)
    experiment = connect().experiment_id
    found = review_queues.get_review_queue(name=queue, experiment_id=experiment)
    done = {"item_id": trace_id, "status": "complete", "completed_by": who}
    review_queues.set_review_queue_item_status(found.queue_id, **done)


def reviews(queue="first", reviewer=None):
    return read_reviews(connect(), queue, reviewer)


def statement(text, verdict, **more):
    return {"text": text, "verdict": verdict, **more}


def test_from_answers_to_labels(own_store):
    """What a reviewer picks becomes statement verdicts and reasons; the answer's own fields stay; pushing again adds
    what is new and doubles nothing."""
    for answers, added in (([KETTLE], 1), ([KETTLE, CUP], 1), ([KETTLE, CUP], 0)):
        assert queue_answers(answers, "first")[:2] == (added, added)
    finish(KETTLE, "first", False, ["2"], "No date is given.")
    labels = reviews(reviewer="ann")
    (row,) = labels.rows
    assert row.pop("reviewed").keys() == {"ann"}
    assert row == {
        **KETTLE,
        "faithful": False,
        "annotators": {"ann": False},
        "reasons": {"ann": "No date is given."},
        "statements": [
            statement("It is blue.", "fully_supported"),
            statement("It is new.", "not_supported", reason="No date is given."),
        ],
    }
    assert labels.sentence == "1 labelled answer, 0 faithful; 1 review unfinished."
    none = "there is no review queue 'second'; the experiment has first"
    with pytest.raises(InputError, match=none):
        reviews("second")


def test_what_a_reviewer_reads(own_store):
    """Question and numbered chunks, and the answer with its statements numbered; a label in the file is not shown, nor
    what a judge says, unless it is asked for."""
    queue_answers([CUP], "second", verdicts=Judge(NO_LM))
    assert re.search(r"\*A judge said: .*faithful", trace_of(CUP).response_preview)
    queue_answers([KETTLE], "first")
    info = trace_of(KETTLE)
    assert info.request_preview == (
        "**Question**\n\nWhat is it like?\n\n---\n\n**Chunk 0**\n\nA kettle.\n\n---\n\n"
        "**Chunk 1** · x.md\n\nIt is blue.  \nIt is old."
    )
    assert info.response_preview == "Hello!\n\n**1.** It is blue.\n\n**2.** It is new."
    assert "faithful" not in str(info)


def test_two_people(own_store):
    """Labels belong to the answer: of two people in two queues, either has both, under their logins, or ``--reviewer``
    of one who did not log in. An answer on which they are split keeps both labels and has none of its own."""
    for queue in ("first", "second"):
        queue_answers([KETTLE, CUP], queue)
    finish(KETTLE, "first", False, ["1", "2"], who="ann")
    finish(KETTLE, "second", True)
    finish(CUP, "first", True, who="ann")
    finish(CUP, "second", True)
    labels = reviews("second", reviewer="bea")
    assert labels == reviews("first", reviewer="bea")
    kettle, cup = sorted(labels.rows, key=lambda r: r["answer"])
    assert (kettle["faithful"], cup["faithful"]) == (None, True)
    assert kettle["annotators"] == {"ann": False, "bea": True}
    assert "statements" not in kettle
    assert cup["statements"] == [statement(CUP["answer"], "fully_supported")]
    assert (labels.split, labels.unfinished) == (["kettle"], 0)


def test_statements_that_are_not_there(own_store):
    """A number beyond the answer's statements is named, and tells of none of them; an unfaithful answer of one
    statement tells of it."""
    queue_answers([KETTLE, CUP], "first")
    finish(KETTLE, "first", False, ["2", "7"])
    finish(CUP, "first", False)
    labels = reviews()
    cup, kettle = sorted(labels.rows, key=lambda r: r["answer"], reverse=True)
    assert (kettle["faithful"], kettle.get("statements")) == (False, None)
    assert labels.unreadable == [
        f"trace {trace_of(KETTLE).trace_id}, first: statement 7 of 2"
    ]
    assert cup["statements"] == [statement(CUP["answer"], "not_supported")]


@pytest.mark.parametrize(
    ("where", "name", "calls"),
    [
        (mlflow, "flush_trace_async_logging", 1),
        (review_queues, "add_items_to_review_queue", 0),
    ],
)
def test_a_push_that_was_cut_off(own_store, monkeypatch, where, name, calls):
    """Pushed again, all of it is in the queue, and nothing twice: cut off after a trace, or before the queue."""
    real, left = getattr(where, name), iter(range(calls))

    def cut_off(*args, **kwargs):
        if next(left, None) is None:
            raise ConnectionError("the server is gone")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, cut_off)
        with pytest.raises(FaithDspyError, match="the server is gone"):
            queue_answers([KETTLE, CUP], "first")
    queue_answers([KETTLE, CUP], "first")
    (queue,) = review_queues.list_review_queues(experiment_id=connect().experiment_id)
    items = review_queues.list_review_queue_items(queue.queue_id)
    pushed = {t.info.trace_id for t in traces()}
    assert ({item.item_id for item in items}, len(pushed)) == (pushed, 2)


def test_traces_of_an_application(own_store, monkeypatch):
    """They are queued as they are, without the question for numbers, which their page does not show."""
    connect()
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "faithfulness")
    with mlflow.start_span("agent") as span:
        span.set_inputs({"question": "?", "context": CUP["context"]})
        span.set_outputs(CUP["answer"])
    assert queue_answers(None, "live", traces="attributes.status = 'OK'").items == 1
    queue = {"name": "live", "experiment_id": connect().experiment_id}
    assert len(review_queues.get_review_queue(**queue).schema_ids) == 1
    finish(CUP, "live", True)
    (row,) = reviews("live").rows
    assert {**CUP, "faithful": True}.items() <= row.items()
    with pytest.raises(InputError, match="no trace of the experiment 'faithfulness'"):
        queue_answers(None, "live", traces="attributes.status = 'ERROR'")


def test_queues_on_the_command_line(own_store, cli):
    """`labels push` says what was added and where the page is, `labels pull` what the labels are."""

    def run(words, code, said):
        done, _, err = cli("labels", *words.split(), "--queue", "first")
        assert (done, bool(re.match(said, err))) == (code, True), err

    Path("answers.csv").write_text("context,answer\nA cup.,It is a cup.\n")
    added = r"first: 1 review added \(1 new trace\)\. Its page.*review-queue\?selectedQueueId=rq-"
    run("push answers.csv --verdicts none", 0, added)
    none = "nobody has finished a review of the queue 'first': 0 labelled"
    run("pull", 2, f".*{none}")
    finish(CUP, "first", True)
    run("pull --reviewer ann", 0, r"labels.jsonl: 1 labelled answer, 1 faithful\.\n")
    assert read_labels("labels.jsonl")[0].annotators == {"ann": True}
    run("push", 2, ".*give either answers or --traces FILTER")
    run("push --traces x --verdicts none", 2, ".*--verdicts is for answers")


def say(trace_id, who, value, name="faithful", kind="HUMAN"):
    source = AssessmentSource(kind, who)
    mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=source)


def traced(answer, context="A kettle."):
    """The trace of an agent that retrieves and answers."""

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search(question):
        return [Document(page_content=context)]

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question):
        search(question)
        return answer

    ask("What is it like?")
    return mlflow.get_last_active_trace_id()


def feedback(**options):
    return read_feedback(connect(None, "Default"), **options)


def test_people_on_traces_of_an_agent(own_store):
    """The majority is the label, everybody is kept; machines, other names, errors and older words do not count.

    Rows that `mlflow.genai.evaluate` made traces of count, too: the context is in the inputs.
    """
    trace_id = traced("It is blue. It is new.")
    for who, value in (("ann", "yes"), ("bob", "no"), ("cy", "no")):
        say(trace_id, who, value)
    say(trace_id, "ann", "no")  # she has changed her mind
    say(trace_id, "gpt", "yes", kind="LLM_JUDGE")
    say(trace_id, "dee", "yes", name="fluent")
    eve = AssessmentSource("HUMAN", "eve")
    failed = Feedback(name="faithful", error="the page did not load", source=eve)
    mlflow.log_assessment(traced("Nobody said anything of this."), failed)
    with mlflow.start_span(name="root_span") as span:
        span.set_inputs({"question": "?", "context": ["A kettle."]})
        span.set_outputs("It is a kettle.")
    say(span.trace_id, "ann", True)
    rows = {row["id"]: row for row in feedback().rows}
    assert rows.keys() == {trace_id, span.trace_id}
    row, evaluated = rows[trace_id], rows[span.trace_id]
    assert (row["answer"], row["faithful"]) == ("It is blue. It is new.", False)
    assert row["annotators"] == {"ann": "no", "bob": "no", "cy": "no"}
    assert [c["text"] for c in row["context"]] == evaluated["context"] == ["A kettle."]
    assert "statements" not in row
    assert (evaluated["answer"], evaluated["question"]) == ("It is a kettle.", "?")


def test_what_does_not_become_a_label(own_store):
    """Words nobody explained and traces without a context are named."""
    unknown, bare = traced("A."), traced("B.", context="")
    say(unknown, "ann", "plausible")
    say(bare, "ann", True)
    labels = feedback()
    assert labels.rows == []
    assert {*labels.unreadable} == {
        f"trace {bare}: context is empty: a labelled example needs the text the answer was judged against.",
        f"trace {unknown}: the label is 'plausible'. Say what it means: --value 'plausible=true'",
    }
    (explained,) = feedback(values={"plausible": True}).rows
    assert explained["faithful"] is True


def test_feedback_on_the_command_line(own_store, cli):
    """`labels pull` writes a file of the feedback; an experiment or assessments that are not there are an error."""
    say(traced("It is blue."), "ann", "yes")
    default = "--experiment Default"
    for words, code, said in (
        (f"{default} --out pulled.jsonl", 0, "pulled.jsonl: 1 labelled answer"),
        ("--experiment reviews", 2, "there is no experiment 'reviews'"),
        (f"{default} --name fluent", 2, "human assessment called 'fluent'"),
    ):
        done, _, err = cli("labels", "pull", *words.split())
        assert (done, said in err) == (code, True)
    (example,) = read_labels("pulled.jsonl")
    assert (example.faithful, example.annotators) == (True, {"ann": "yes"})
