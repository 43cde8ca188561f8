from __future__ import annotations

import mlflow
import pytest
from mlflow.entities import Document, SpanType

from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import records

QUESTION = "Is opened software refunded?"
ANSWER = "No, opened software is not refunded."


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """The trace of an agent that retrieves, calls a tool, and asks a model."""
    # By the environment: what `set_tracking_uri` sets stays for the tests that follow.
    store = pytest.MonkeyPatch()
    store.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db")

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search_docs(query):
        return [
            Document(page_content="Opened software is not refunded.", metadata={"doc_uri": "policy.md"}),
            Document(page_content="Unused items are refunded.", id="p2"),
        ]

    @mlflow.trace(span_type=SpanType.TOOL)
    def order_status(number):
        return {"number": number, "status": "delivered"}

    @mlflow.trace(span_type=SpanType.CHAT_MODEL)
    def complete(messages):
        return {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]}

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question):
        search_docs(question)
        order_status(12)
        history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good day."}]
        reply = complete([*history, {"role": "user", "content": question}])
        return {"answer": reply["choices"][0]["message"]["content"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        ask(QUESTION)
    yield mlflow.get_trace(mlflow.get_last_active_trace_id())
    store.undo()


def test_record(trace):
    """Root inputs and outputs are question and answer; documents, tool results and earlier turns the context."""
    (record,) = records(trace)
    assert record["id"] == trace.info.trace_id
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    assert [(c["text"], c["source"].partition(": ")[2]) for c in record["context"]] == [
        ("Opened software is not refunded.", "retriever search_docs, document policy.md"),
        ("Unused items are refunded.", "retriever search_docs, document p2"),
        ('{"number": 12, "status": "delivered"}', "tool order_status"),
        ("Hello.", "user"),
        ("Good day.", "assistant"),
        (QUESTION, "user"),
    ]
    ids = {s.span_id for s in trace.data.spans}
    assert all(c["source"].split(":")[0].removeprefix("span ") in ids for c in record["context"][:3])


def test_round_trip(trace, judge_at):
    """A trace read back from JSON gives the same record, and a judge takes it."""
    again = records([mlflow.entities.Trace.from_json(trace.to_json())])
    assert again == records(trace)
    judge, _ = judge_at(says="Yes [0]", cite=True)
    (judgment,) = judge.batch(again)
    assert judgment.statements[0].supporting_chunk_ids == (0,)


def test_what_is_no_trace():
    """Anything else is an error that says how to get traces."""
    with pytest.raises(InputError, match=r"a trace is dict, expected mlflow.entities.Trace, as mlflow.get_trace"):
        records([{"a": 1}])
