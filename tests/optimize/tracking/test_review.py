import re
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from mlflow.genai import review_queues

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.data.audit import annotator_agreement
from faith_dspy.optimize.tracking import review
from faith_dspy.optimize.tracking.review import CANNOT_TELL, EVIDENCE, FAITHFUL, UNSUPPORTED, WHY, pull, push
from faith_dspy.optimize.tracking.store import connect

KETTLE = {
    "id": "kettle",
    "question": "What is it like?",
    "context": ["A kettle.", {"text": "It is blue.\nIt is old.", "source": "x.md"}, "A kettle."],
    "answer": "Hello! It is blue. It is new.",
    "faithful": True,
    "group": "kettles",
    "split": "test",
    "source": "web",
}
CUP = {"context": ["A cup."], "answer": "It is a cup."}


def traces(experiment="faithfulness"):
    return mlflow.search_traces(locations=[connect(None, experiment).experiment_id], return_type="list")


def trace_of(row, experiment="faithfulness"):
    """The trace of a pushed answer."""
    return next(t for t in traces(experiment) for s in t.data.spans if s.outputs == row["answer"]).info


def finish(row, queue, answers, experiment="faithfulness"):
    """What MLflow's page does when a reviewer whom it does not know submits answers."""
    trace_id, store = trace_of(row, experiment).trace_id, connect(None, experiment)
    who = queue.partition(" (")[2]
    for question, value in answers.items():
        name = f"{question} ({who}" if who else question
        mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=AssessmentSource("HUMAN", "default"))
    found = review_queues.get_review_queue(name=queue, experiment_id=store.experiment_id)
    done = {"item_id": trace_id, "status": "complete", "completed_by": "default"}
    review_queues.set_review_queue_item_status(found.queue_id, **done)


def labels(queue="first", experiment="faithfulness"):
    return review.labels_of(connect(None, experiment), queue)


def test_from_answers_to_labels(own_store):
    """What a reviewer says by numbers becomes statement verdicts, chunk ids and reasons; the answer's own fields stay;
    pushing again adds what is new and doubles nothing."""
    pushed = push([KETTLE], "first")
    assert (pushed.traces, pushed.items, pushed.queues, pushed.cut) == (1, 1, ["first"], 0)
    assert push([KETTLE, CUP], "first")[:2] == (1, 1)
    assert push([KETTLE, CUP], "first").items == 0
    assert len(traces()) == 2
    finish(KETTLE, "first", {FAITHFUL: False, UNSUPPORTED: "2.", EVIDENCE: "1", WHY: "No date is given."})
    found = labels()
    (row,) = found.rows
    assert re.fullmatch(r"20.*\+00:00", row.pop("reviewed")["default"])
    assert row == {
        **KETTLE,
        "faithful": False,
        "annotators": {"default": False},
        "reasons": {"default": "No date is given."},
        "statements": [
            {"text": "It is blue.", "verdict": "fully_supported", "supporting_chunk_ids": [1]},
            {"text": "It is new.", "verdict": "not_supported", "reason": "No date is given."},
        ],
    }
    assert found.sentence == "1 labelled answer, 0 faithful; 1 review unfinished."
    assert parse_example(pull("first").to_dict("records")[0]).faithful is False


def test_what_a_reviewer_reads(own_store):
    """Question and numbered chunks, and the answer with its statements numbered; a label in the file is not shown, nor
    what a judge says, unless it is asked for."""
    push([CUP], "second", verdicts=Judge(NO_LM))
    assert re.search(r"\*A judge said: .*faithful", trace_of(CUP).response_preview)
    push([KETTLE], "first")
    info = trace_of(KETTLE)
    assert info.request_preview == (
        "**Question**\n\nWhat is it like?\n\n---\n\n**Chunk 0**\n\nA kettle.\n\n---\n\n"
        "**Chunk 1** · x.md\n\nIt is blue.  \nIt is old.\n\n---\n\n**Chunk 2**\n\nA kettle."
    )
    assert info.response_preview == "Hello!\n\n**1.** It is blue.\n\n**2.** It is new."
    assert "faithful" not in str(info)


def test_two_reviewers(own_store):
    """Each has a queue and questions of their own, so that neither needs to log in; an answer on which they are split
    keeps both labels and has none of its own, and `audit` measures their agreement."""
    assert push([KETTLE, CUP], "first", ["Ann", "bea"]).queues == ["first (Ann)", "first (bea)"]
    finish(KETTLE, "first (Ann)", {FAITHFUL: False, UNSUPPORTED: "1-2"})
    finish(KETTLE, "first (bea)", {FAITHFUL: True})
    finish(CUP, "first (Ann)", {FAITHFUL: True})
    finish(CUP, "first (bea)", {CANNOT_TELL: False})
    found = labels()
    kettle, cup = sorted(found.rows, key=lambda r: r["answer"])
    assert (kettle["faithful"], kettle["annotators"]) == (None, {"Ann": False, "bea": True})
    assert (cup["faithful"], cup["annotators"]) == (True, {"Ann": True, "bea": "cannot tell"})
    assert (found.split, found.unfinished) == (["kettle"], 0)
    examples = [parse_example(row) for row in (kettle, cup)]
    assert examples[0].label is None
    people = annotator_agreement(examples)
    assert (people.n, people.cohen_kappa.value) == (2, -1.0)  # they both told of the kettle only


@pytest.mark.parametrize(
    ("where", "name", "calls"),
    [(mlflow, "flush_trace_async_logging", 1), (review_queues, "add_items_to_review_queue", 3)],
)
def test_a_push_that_was_cut_off(own_store, monkeypatch, where, name, calls):
    """Pushed again, all of it is in both queues, and nothing twice: cut off after a trace, or in the second queue."""
    real, left = getattr(where, name), iter(range(calls))

    def cut_off(*args, **kwargs):
        if next(left, None) is None:
            raise ConnectionError("the server is gone")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, cut_off)
        with pytest.raises(FaithDspyError, match="the server is gone"):
            push([KETTLE, CUP], "first", ["ann", "bea"])
    push([KETTLE, CUP], "first", ["ann", "bea"])
    assert len(traces()) == 2
    queues = list(review_queues.list_review_queues(experiment_id=connect().experiment_id))
    there = [[i.item_id for i in review_queues.list_review_queue_items(q.queue_id)] for q in queues]
    assert [len(set(items)) for items in there] == [len(items) for items in there] == [2, 2]


def test_what_cannot_be_read_is_named(own_store):
    """Numbers that are none or out of range, and evidence of which it cannot be told whose it is; the rest counts."""
    push([KETTLE], "first")
    finish(KETTLE, "first", {FAITHFUL: False, UNSUPPORTED: "the second", EVIDENCE: "0"})
    found = labels()
    assert (found.rows[0]["faithful"], found.rows[0].get("statements")) == (False, None)
    wrong = "".join(found.unreadable.values())
    assert f"default: {UNSUPPORTED!r} is 'the second'; expected numbers from 1 to 2" in wrong
    assert "is '0', over 2 supported statements; expected e.g. 1: 0" in wrong
    finish(KETTLE, "first", {FAITHFUL: True, UNSUPPORTED: "7", EVIDENCE: "1: 1; 2: 0, 2"})
    assert "is '7'; expected numbers from 1 to 2" in next(iter(labels().unreadable.values()))
    with pytest.raises(InputError, match="there is no review queue 'second'; the experiment has first"):
        labels("second")


def test_traces_of_an_application(own_store):
    """They are queued as they are, without the questions for numbers, which their page does not show."""
    with mlflow.start_span("agent") as span:
        span.set_inputs({"question": "?", "context": CUP["context"]})
        span.set_outputs(CUP["answer"])
    assert push(None, "live", traces="attributes.status = 'OK'", experiment="Default").items == 1
    assert len(review_queues.get_review_queue(name="live", experiment_id="0").schema_ids) == 3
    finish(CUP, "live", {FAITHFUL: True}, experiment="Default")
    (row,) = labels("live", "Default").rows
    assert (row["context"], row["answer"], row["faithful"]) == (CUP["context"], CUP["answer"], True)
    with pytest.raises(InputError, match="no trace of the experiment 'Default' fits"):
        push(None, "live", traces="attributes.status = 'ERROR'", experiment="Default")


def test_on_the_command_line(own_store, cli):
    """`labels push` says what was added and where the page is, `labels pull` what the labels are."""

    def run(*args):
        code, _, err = cli("labels", *args)
        return code, err

    Path("answers.csv").write_text("context,answer\nA cup.,It is a cup.\n")
    code, err = run("push", "answers.csv", "--queue", "first", "--reviewers", "ann, bea")
    assert (code, err.startswith("first (ann), first (bea): 2 reviews added (1 new trace). Page")) == (0, True)
    assert "review-queue?selectedQueueId=rq-" in err
    code, err = run("pull", "--queue", "first")
    assert code == 2
    assert "nobody has finished a review of the queue 'first': 0 labelled answers, 0 faithful; 2 reviews unf" in err
    finish(CUP, "first (ann)", {FAITHFUL: True})
    assert run("pull", "--queue", "first") == (0, "labels.jsonl: 1 labelled answer, 1 faithful; 1 review unfinished.\n")
    code, err = run("push", "answers.csv", "--queue", "first")
    assert "Labelled so far: 1 answer from 1 source: too few to tune" in err
    assert run("push", "--queue", "first")[0] == 2
    Path("more.csv").write_text("context,answer\nA jug.,It is a jug.\nA pan.,It is a pan.\n")
    assert run("push", "more.csv", "--queue", "second", "--first", "uncertain", "--verdicts", "none")[0] == 0
    drawn = [trace_of({"answer": answer}) for answer in ("It is a jug.", "It is a pan.")]
    assert sorted("uncertain" in str(info.tags) for info in drawn) == [False, True]
    assert all("A judge said" in info.response_preview for info in drawn)
    assert run("push", "--traces", "", "--queue", "third", "--first", "uncertain")[0] == 2
