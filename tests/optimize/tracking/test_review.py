from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from mlflow.genai import review_queues

from faith_dspy.cli import main
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


def _trace(row: dict[str, Any], experiment: str = "faithfulness") -> str:
    """The trace of a pushed answer."""
    found = mlflow.search_traces(locations=[connect(None, experiment).experiment_id], return_type="list")
    return next(t.info.trace_id for t in found for s in t.data.spans if s.outputs == row["answer"])


def _finish(row: dict[str, Any], queue: str, answers: dict[str, Any], experiment: str = "faithfulness") -> None:
    """What MLflow's page does when a reviewer whom it does not know submits answers."""
    trace_id, store = _trace(row, experiment), connect(None, experiment)
    person = AssessmentSource("HUMAN", "default")
    who = queue.partition(" (")[2]
    for question, value in answers.items():
        name = f"{question} ({who}" if who else question
        mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=person)
    found = review_queues.get_review_queue(name=queue, experiment_id=store.experiment_id)
    done = {"item_id": trace_id, "status": "complete", "completed_by": "default"}
    review_queues.set_review_queue_item_status(found.queue_id, **done)


def test_from_answers_to_labels(own_store: Path) -> None:
    """What a reviewer says by numbers becomes statement verdicts, chunk ids and reasons; the answer's own fields stay;
    pushing again adds what is new and doubles nothing."""
    pushed = push([KETTLE], "first")
    assert (pushed.traces, pushed.items, pushed.queues, pushed.cut) == (1, 1, ["first"], 0)
    pushed = push([KETTLE, CUP], "first")
    assert (pushed.traces, pushed.items) == (1, 1)
    assert (push([KETTLE, CUP], "first").items, len(mlflow.search_traces(locations=[connect().experiment_id]))) == (
        0,
        2,
    )
    said = {FAITHFUL: False, UNSUPPORTED: "2.", EVIDENCE: "1", WHY: "No date is given."}
    _finish(KETTLE, "first", said)
    found = review.labels_of(connect(), "first")
    (row,) = found.rows
    when = row.pop("reviewed")["default"]
    assert when.startswith("20")
    assert when.endswith("+00:00")
    assert row == {
        **{k: v for k, v in KETTLE.items() if k != "faithful"},
        "faithful": False,
        "annotators": {"default": False},
        "reasons": {"default": "No date is given."},
        "statements": [
            {"text": "It is blue.", "verdict": "fully_supported", "supporting_chunk_ids": [1]},
            {"text": "It is new.", "verdict": "not_supported", "reason": "No date is given."},
        ],
    }
    assert found.sentence == "1 labelled answer, 0 faithful; 1 review unfinished."
    frame = pull("first")
    assert parse_example(frame.to_dict("records")[0]).faithful is False


def test_what_a_reviewer_reads(own_store: Path) -> None:
    """Question and numbered chunks, and the answer with its statements numbered; a label in the file is not shown, nor
    what a judge says, unless it is asked for."""
    push([CUP], "second", verdicts=Judge(NO_LM))
    assert re.search(r"\*A judge said: .*faithful", mlflow.get_trace(_trace(CUP)).info.response_preview)
    push([KETTLE], "first")
    info = mlflow.get_trace(_trace(KETTLE)).info
    assert info.request_preview == (
        "**Question**\n\nWhat is it like?\n\n---\n\n**Chunk 0**\n\nA kettle.\n\n---\n\n"
        "**Chunk 1** · x.md\n\nIt is blue.  \nIt is old.\n\n---\n\n**Chunk 2**\n\nA kettle."
    )
    assert info.response_preview == "Hello!\n\n**1.** It is blue.\n\n**2.** It is new."
    assert "faithful" not in str(info)


def test_two_reviewers(own_store: Path) -> None:
    """Each has a queue and questions of their own, so that neither needs to log in; an answer on which they are split
    keeps both labels and has none of its own, and `audit` measures their agreement."""
    assert push([KETTLE, CUP], "first", ["Ann", "bea"]).queues == ["first (Ann)", "first (bea)"]
    _finish(KETTLE, "first (Ann)", {FAITHFUL: False, UNSUPPORTED: "1-2"})
    _finish(KETTLE, "first (bea)", {FAITHFUL: True})
    _finish(CUP, "first (Ann)", {FAITHFUL: True})
    _finish(CUP, "first (bea)", {CANNOT_TELL: False})
    found = review.labels_of(connect(), "first")
    kettle, cup = sorted(found.rows, key=lambda r: r["answer"])
    assert (kettle["faithful"], kettle["annotators"]) == (None, {"Ann": False, "bea": True})
    assert parse_example(kettle).label is None
    assert (cup["faithful"], cup["annotators"]) == (True, {"Ann": True, "bea": "cannot tell"})
    assert (found.split, found.unfinished) == (["kettle"], 0)
    people = annotator_agreement([parse_example(row) for row in found.rows])
    assert people is not None
    assert (people.n, people.cohen_kappa.value) == (2, -1.0)  # they both told of the kettle only


@pytest.mark.parametrize("stopped", ["flush_trace_async_logging", "add_items_to_review_queue"])
def test_a_push_that_was_cut_off(own_store: Path, monkeypatch: pytest.MonkeyPatch, stopped: str) -> None:
    """Pushed again, all of it is in both queues, and nothing twice: cut off after a trace, or in the second queue."""
    where = mlflow if stopped == "flush_trace_async_logging" else review_queues
    real, left = getattr(where, stopped), [1 if where is mlflow else 3]

    def cut_off(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise ConnectionError("the server is gone")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(where, stopped, cut_off)
        with pytest.raises(FaithDspyError, match="the server is gone"):
            push([KETTLE, CUP], "first", ["ann", "bea"])
    push([KETTLE, CUP], "first", ["ann", "bea"])
    store = connect()
    assert len(mlflow.search_traces(locations=[store.experiment_id], return_type="list")) == 2
    queues = list(review_queues.list_review_queues(experiment_id=store.experiment_id))
    there = [[i.item_id for i in review_queues.list_review_queue_items(q.queue_id)] for q in queues]
    assert [len(set(items)) for items in there] == [len(items) for items in there] == [2, 2]


def test_what_cannot_be_read_is_named(own_store: Path) -> None:
    """Numbers that are none or out of range, and evidence of which it cannot be told whose it is; the rest counts."""
    push([KETTLE], "first")
    _finish(KETTLE, "first", {FAITHFUL: False, UNSUPPORTED: "the second", EVIDENCE: "0"})
    found = review.labels_of(connect(), "first")
    assert (found.rows[0]["faithful"], found.rows[0].get("statements")) == (False, None)
    wrong = "".join(found.unreadable.values())
    assert f"default: {UNSUPPORTED!r} is 'the second'; expected numbers from 1 to 2" in wrong
    assert "is '0', over 2 supported statements; expected e.g. 1: 0" in wrong
    _finish(KETTLE, "first", {FAITHFUL: True, UNSUPPORTED: "7", EVIDENCE: "1: 1; 2: 0, 2"})
    found = review.labels_of(connect(), "first")
    assert "is '7'; expected numbers from 1 to 2" in next(iter(found.unreadable.values()))
    with pytest.raises(InputError, match="there is no review queue 'second'; the experiment has first"):
        review.labels_of(connect(), "second")


def test_traces_of_an_application(own_store: Path) -> None:
    """They are queued as they are, without the questions for numbers, which their page does not show."""
    with mlflow.start_span("agent") as span:
        span.set_inputs({"question": "?", "context": ["A kettle."]})
        span.set_outputs("It is a kettle.")
    assert push(None, "live", traces="attributes.status = 'OK'", experiment="Default").items == 1
    found = review_queues.get_review_queue(name="live", experiment_id="0")
    assert len(found.schema_ids) == 3
    _finish({"answer": "It is a kettle."}, "live", {FAITHFUL: True}, experiment="Default")
    (row,) = review.labels_of(connect(None, "Default"), "live").rows
    assert (row["context"], row["answer"], row["faithful"]) == (["A kettle."], "It is a kettle.", True)
    with pytest.raises(InputError, match="no trace of the experiment 'Default' fits"):
        push(None, "live", traces="attributes.status = 'ERROR'", experiment="Default")


def test_on_the_command_line(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`labels push` says what was added and where the page is, `labels pull` what the labels are."""

    def run(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["faith-dspy", "labels", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), capsys.readouterr().err

    Path("answers.csv").write_text("context,answer\nA cup.,It is a cup.\n")
    code, err = run("push", "answers.csv", "--queue", "first", "--reviewers", "ann, bea")
    assert (code, err.startswith("first (ann), first (bea): 2 reviews added (1 new trace). Page")) == (0, True)
    assert "review-queue?selectedQueueId=rq-" in err
    code, err = run("pull", "--queue", "first")
    assert code == 2
    assert "nobody has finished a review of the queue 'first': 0 labelled answers, 0 faithful; 2 reviews unf" in err
    _finish(CUP, "first (ann)", {FAITHFUL: True})
    assert run("pull", "--queue", "first") == (0, "labels.jsonl: 1 labelled answer, 1 faithful; 1 review unfinished.\n")
    assert (
        "Labelled so far: 1 answer from 1 source: too few to tune" in run("push", "answers.csv", "--queue", "first")[1]
    )
    assert run("push", "--queue", "first")[0] == 2
    Path("more.csv").write_text("context,answer\nA jug.,It is a jug.\nA pan.,It is a pan.\n")
    assert run("push", "more.csv", "--queue", "second", "--first", "uncertain", "--verdicts", "none")[0] == 0
    drawn = {row: mlflow.get_trace(_trace({"answer": row})).info for row in ("It is a jug.", "It is a pan.")}
    assert sorted("uncertain" in str(info.tags) for info in drawn.values()) == [False, True]
    assert all("A judge said" in info.response_preview for info in drawn.values())
    assert run("push", "--traces", "", "--queue", "third", "--first", "uncertain")[0] == 2
