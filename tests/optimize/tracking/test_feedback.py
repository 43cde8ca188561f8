from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Document, Feedback, SpanType
from mlflow.entities.assessment_source import AssessmentSource

from faith_dspy.cli import main
from faith_dspy.errors import InputError
from faith_dspy.io.labels import parse_example, read_labels
from faith_dspy.optimize.data.imports import majority, meaning, parse_words
from faith_dspy.optimize.tracking.feedback import labels_of, pull, push
from faith_dspy.optimize.tracking.store import connect

KETTLE = {
    "id": "kettle",
    "question": "What is it like?",
    "context": ["A kettle.", {"text": "It is blue.", "source": "x.md"}, "A kettle."],
    "answer": "It is blue. It is new.",
    "faithful": False,
    "group": "kettles",
    "split": "test",
    "source": "web",
    "annotators": {"ann": "no", "bob": "no", "cy": "yes"},
    "statements": [
        {"text": "It is blue.", "verdict": "fully_supported", "supporting_chunk_ids": [1]},
        {"text": "It is new.", "verdict": "no_evidence", "reason": "no date"},
    ],
}
CUP = {"context": ["A cup."], "answer": "It is a cup.", "faithful": True}


def _say(
    trace_id: str, who: str, value: Any, name: str = "faithful", why: str | None = None, kind: str = "HUMAN"
) -> None:
    mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=AssessmentSource(kind, who), rationale=why)


def _trace(answer: str, context: str = "A kettle.") -> str:
    """The trace of an agent that retrieves and answers."""

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search(question: str) -> list[Document]:
        return [Document(page_content=context)]

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question: str) -> str:
        search(question)
        return answer

    ask("What is it like?")
    return str(mlflow.get_last_active_trace_id())


def _traces() -> list[Any]:
    return list(mlflow.search_traces(return_type="list"))


def test_there_and_back(own_store: Path) -> None:
    """What is pushed comes back as it was: texts, chunks with their ids and sources, statements, annotators, part."""
    store = connect(None, "review")
    examples = [parse_example(row) for row in (KETTLE, CUP)]
    assert push(store, examples) == (2, 5)  # three people and the statements; the file's own word
    pulled = pull(store)
    again = [parse_example(row) for row in pulled.rows]
    assert sorted(again, key=lambda e: e.id) == sorted(examples, key=lambda e: e.id)


def test_pushed_again(own_store: Path) -> None:
    """Nothing is made or added twice, and what a person said in the meantime stays."""
    store = connect(None, "review")
    examples = [parse_example(CUP)]
    push(store, examples)
    (trace,) = mlflow.search_traces(locations=[store.experiment_id], return_type="list")
    _say(trace.info.trace_id, "ann", False, why="It is a mug.")
    assert push(store, examples) == (0, 0)
    (row,) = pull(store).rows
    # The file's word was there only until somebody spoke; one sentence, so what ann said is said of it.
    assert (row["faithful"], row["annotators"], row["reasons"]) == (False, {"ann": False}, {"ann": "It is a mug."})
    assert row["statements"] == [{"text": "It is a cup.", "verdict": "not_supported", "reason": "It is a mug."}]


def test_people_on_traces_of_an_agent(own_store: Path) -> None:
    """The majority is the label, everybody is kept; machines, other names and older words of a person do not count."""
    trace_id = _trace("It is blue. It is new.")
    for who, value in (("ann", "yes"), ("bob", "no"), ("cy", "no")):
        _say(trace_id, who, value)
    _say(trace_id, "ann", "no")  # she has changed her mind
    _say(trace_id, "gpt", "yes", kind="LLM_JUDGE")
    _say(trace_id, "dee", "yes", name="fluent")
    _trace("Nobody looked at this.")
    (row,) = labels_of(_traces()).rows
    assert (row["id"], row["answer"], row["faithful"]) == (trace_id, "It is blue. It is new.", False)
    assert row["annotators"] == {"ann": "no", "bob": "no", "cy": "no"}
    assert [c["text"] for c in row["context"]] == ["A kettle."]
    assert "statements" not in row


def test_what_does_not_become_a_label(own_store: Path) -> None:
    """Traces on which people are split, words nobody explained, and traces without a context are counted and named."""
    split, unknown, bare, told = (_trace(a, c) for a, c in (("A.", "x"), ("B.", "x"), ("C.", ""), ("D.", "x")))
    for who, trace_id, value in (
        ("ann", split, True),
        ("bob", split, False),
        ("ann", unknown, "plausible"),
        ("ann", bare, True),
        ("ann", told, False),
    ):
        _say(trace_id, who, value)
    found = labels_of(_traces())
    assert [r["id"] for r in found.rows] == [told]
    assert (found.split, list(found.unreadable), found.unknown) == ([split], [bare], {"plausible": 1})
    assert found.sentence.startswith(
        "1 labelled answer, 0 faithful; 1 left out because people are split; 1 without answer or"
    )
    assert "of unknown meaning: 'plausible' (1) – say it with --value" in found.sentence
    rows = labels_of(_traces(), words=parse_words(["plausible=true"])).rows
    assert {r["id"]: r["faithful"] for r in rows} == {unknown: True, told: False}


def test_rows_of_an_evaluation(own_store: Path) -> None:
    """People's words on rows that `mlflow.genai.evaluate` made traces of count, too: the context is in the inputs."""
    with mlflow.start_span(name="root_span") as span:
        span.set_inputs({"question": "?", "context": ["A kettle."]})
        span.set_outputs("It is a kettle.")
    _say(span.trace_id, "ann", True)
    (row,) = labels_of(_traces()).rows
    assert (row["context"], row["answer"], row["question"]) == (["A kettle."], "It is a kettle.", "?")


def test_ratings() -> None:
    """Of ratings the highest that is given means faithful; of words the user's meaning comes first."""
    assert [meaning(v, {}, 5.0) for v in (5, "5", 4, True, "No", "perhaps")] == [True, True, False, True, False, None]
    assert meaning("FAIL", parse_words(["fail=false"])) is False
    assert [majority(v) for v in ([True, False], [True, None], [], [True, False, False])] == [None, True, None, False]
    with pytest.raises(InputError, match="'FAIL' says no label's meaning; expected WORD=true"):
        parse_words(["FAIL"])


def test_on_the_command_line(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`labels push` and `labels pull` bring a file there and back; an experiment that is not there is an error."""
    Path("labels.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (KETTLE, CUP)))

    def run(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["faith-dspy", "labels", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), capsys.readouterr().err

    assert run("push", "labels.jsonl", "--experiment", "review") == (
        0, "2 new traces of 2 answers; 5 assessments added.\n",
    )  # fmt: skip
    assert run("pull", "--experiment", "review", "--out", "pulled.jsonl") == (
        0,
        "pulled.jsonl: 2 labelled answers, 1 faithful.\n",
    )
    assert {e.id for e in read_labels("pulled.jsonl")} == {e.id for e in read_labels("labels.jsonl")}
    code, err = run("pull", "--experiment", "reviews")
    assert code == 2
    assert "there is no experiment 'reviews'" in err
    assert "review" in err
    code, err = run("pull", "--experiment", "review", "--name", "fluent")
    assert (code, "usable human assessment called 'fluent'" in err) == (2, True)


def test_feedback_without_a_value(own_store: Path) -> None:
    """Feedback that is only an error says nothing of the answer."""
    trace_id = _trace("A.")
    source = AssessmentSource("HUMAN", "ann")
    mlflow.log_assessment(trace_id, Feedback(name="faithful", error="the page did not load", source=source))
    assert labels_of(_traces()).rows == []
