import json
import time
from concurrent.futures import ThreadPoolExecutor

import mlflow
import pytest
from mlflow.entities import Document, SpanType

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import FaithfulnessScorer, records

BLUE, RED, NEW = "The kettle is blue.", "It is red.", "It is new."
YES = {BLUE: 0.9, RED: 0.2, NEW: 0.3}
CONTEXT = ["The kettle is blue.", "It was bought in May."]


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store of these tests; by the environment, as what `set_tracking_uri` sets would stay for the tests after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "MLFLOW_TRACKING_URI",
            f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db",
        )
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        patch.setenv("MLFLOW_GENAI_EVAL_MAX_WORKERS", "6")
        mlflow.tracing.reset()  # spans go to the store that was there when the first one was made
        yield
    mlflow.tracing.reset()


def test_evaluate(judge_at):
    """Of each row: the score, whether it passes, whether it was scored, and the unsupported statements; their means are
    the run's metrics, the score's over the scored answers only."""
    question = {"question": "What is it like?"}
    rows = [
        {"inputs": {**question, "context": CONTEXT}, "outputs": f"{BLUE} {RED} {NEW}"},
        {"inputs": {**question, "context": CONTEXT}, "outputs": BLUE},
        {"inputs": question, "outputs": BLUE},
    ]
    found = mlflow.genai.evaluate(
        data=rows, scorers=[FaithfulnessScorer(judge_at(yes=YES)[0])]
    )
    # (1/3 + 1) / 2; one of two passes; two of three have a context.
    means = {"": 2 / 3, "/faithful": 1 / 2, "/scored": 2 / 3}
    expected = {f"faithfulness{name}/mean": mean for name, mean in means.items()}
    assert found.metrics == pytest.approx(expected)

    def told(assessed):
        given = (a for a in assessed if "feedback" in a)
        return sorted((a["assessment_name"], a["feedback"].get("value")) for a in given)

    bare, passed, failed = sorted(map(told, found.result_df["assessments"]), key=len)
    assert bare == [("faithfulness", None), ("faithfulness/scored", False)]
    assert [value for _, value in passed] == [1.0, True, True]
    share = pytest.approx(1 / 3)
    assert [value for _, value in failed[:3]] == [share, False, True]
    assert failed[3:] == [("faithfulness/statement", "not_supported")] * 2
    # MLflow traces DSPy while it evaluates: the judge's own work is not to stand among what it scores.
    assert len(mlflow.search_traces(return_type="list")) == 3


def test_citations_are_feedback():
    """Recall and precision of an answer that cites, and what is cited wrongly or not at all; none of another."""
    inputs = {"question": "?", "context": CONTEXT}
    scorer = FaithfulnessScorer("none")
    answer = (
        "The kettle is blue [1]. It was bought in May [1]. The kettle was bought [7]."
    )
    cited = {f.name: f for f in scorer(inputs=inputs, outputs=answer)}
    assert cited["faithfulness/citation_recall"].value == pytest.approx(1 / 3)
    assert cited["faithfulness/citation_precision"].value == pytest.approx(1 / 3)
    assert cited["faithfulness/citation_recall"].rationale.split("\n") == [
        "not in the context: [7]",
        "cites [0], supported by [1]: It was bought in May [1].",
        "cites nothing, supported by [0, 1]: The kettle was bought [7].",
    ]
    assert not any("citation" in f.name for f in scorer(inputs=inputs, outputs=BLUE))


def test_feedback(judge_at):
    """Rationale, metadata and source say what was found, statement by statement, at which cost, by which judge."""
    judge, _ = judge_at(yes=YES)
    row = {"inputs": {"question": "?", "context": CONTEXT}, "outputs": f"{BLUE} {RED}"}
    scorer = FaithfulnessScorer(judge, statements="all")
    overall, faithful, scored, blue, red = scorer(**row)
    assert FaithfulnessScorer(judge, statements=None)(**row).value == overall.value
    rationale = f"1 of 2 statements supported\nfully_supported [0]: {BLUE}\nnot_supported: {RED}"
    assert overall.rationale == rationale
    assert (overall.value, faithful.value, scored.value) == (0.5, False, True)
    source = overall.source
    assert (source.source_type, source.source_id) == ("LLM_JUDGE", "faith_dspy openai/tiny")  # fmt: skip
    assert overall.metadata["mlflow.assessment.judgeInputTokens"] == "200"
    verdicts = json.loads(overall.metadata["verdict_counts"])
    assert verdicts["fully_supported"] == verdicts["not_supported"] == 1
    confidences = [s["confidence"] for s in json.loads(overall.metadata["statements"])]
    assert confidences == pytest.approx([0.9, 0.2])
    assert (blue.value, blue.rationale) == ("fully_supported", BLUE)
    assert blue.metadata["supporting_chunk_ids"] == "[0]"
    assert (red.value, red.rationale) == ("not_supported", RED)
    assert red.name == "faithfulness/statement"


def message(role, content):
    return {"message": {"role": role, "content": content}}


@pytest.mark.parametrize(
    ("inputs", "outputs", "expectations"),
    [
        ({"question": "?", "context": CONTEXT}, BLUE, {}),
        ({"question": "?"}, BLUE, {"context": CONTEXT}),
        ({"query": "?"}, {"response": BLUE, "retrieved_contexts": CONTEXT}, {}),
        ({"context": "\n".join(CONTEXT)}, BLUE, {}),
        ({"context": [{"page_content": c} for c in CONTEXT]}, BLUE, {}),
        ({"messages": [*message("user", " ".join([*CONTEXT, "What is it like?"])).values()]},
         {"choices": [message("assistant", BLUE)]}, {}),
    ],
    ids=["inputs", "expectations", "outputs", "one text", "documents", "conversation"],
)  # fmt: skip
def test_where_the_context_is(judge_at, inputs, outputs, expectations):
    """The context is found in inputs, expectations or outputs, under the names other libraries use."""
    judge, server = judge_at(yes=YES)
    row = {"inputs": inputs, "outputs": outputs, "expectations": expectations}
    assert FaithfulnessScorer(judge)(**row)[0].value == 1.0
    asked = server.requests[0]["messages"][-1]["content"]
    assert all(c in asked for c in CONTEXT)
    assert server.statements == [BLUE]


def test_an_embedded_model_is_asked_by_one_at_a_time(judge_at):
    """More at a time would push each other's document out of its single slot."""
    busy, most = [], []

    def count(asked):
        busy.append(asked)
        most.append(len(busy))
        time.sleep(0.02)
        busy.pop()
        return "Yes"

    asked, _ = judge_at(says=count)
    judge = Judge("local")
    scorer = FaithfulnessScorer(judge)  # which does not fetch the model
    judge.lm = asked.lm
    contexts = [{"context": [f"Chunk {n}."]} for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda inputs: scorer(inputs=inputs, outputs=BLUE), contexts))
    assert most == [1] * 6


QUESTION = "Is opened software refunded?"
ANSWER = "No, opened software is not refunded."


@pytest.fixture(scope="module")
def trace():
    """The trace of an agent that retrieves, calls a tool, and asks a model."""

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search_docs(query):
        policy = {"doc_uri": "policy.md"}
        refused = Document("Opened software is not refunded.", policy)
        return [refused, Document("Unused items are refunded.", id="p2")]

    @mlflow.trace(span_type=SpanType.TOOL)
    def order_status(number):
        return {"number": number, "status": "delivered"}

    @mlflow.trace(span_type=SpanType.CHAT_MODEL)
    def complete(messages):
        return {"choices": [message("assistant", ANSWER)]}

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question):
        search_docs(question)
        order_status(12)
        words = ("user", "Hello."), ("assistant", "Good day."), ("user", question)
        reply = complete([message(*said)["message"] for said in words])
        return {"answer": reply["choices"][0]["message"]["content"]}

    ask(QUESTION)
    return mlflow.get_trace(mlflow.get_last_active_trace_id())


def test_record(trace, judge_at):
    """Root inputs and outputs are question and answer; documents and tool results the context, not what the assistant
    said earlier, nor what users only asked; or what the root names as such. Read back from JSON it is the same; what is
    no trace is refused."""
    (record,) = records([mlflow.entities.Trace.from_json(trace.to_json())])
    assert [record] == records(trace)
    assert record["id"] == trace.info.trace_id
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    sources = [chunk["source"].split(": ") for chunk in record["context"]]
    assert [source for _, source in sources] == [
        "retriever search_docs, document policy.md",
        "retriever search_docs, document p2",
        "tool order_status",
    ]
    ids = {f"span {span.span_id}" for span in trace.data.spans}
    assert {span for span, _ in sources} <= ids
    assert [chunk["text"] for chunk in record["context"]] == [
        "Opened software is not refunded.",
        "Unused items are refunded.",
        '{"number": 12, "status": "delivered"}',
    ]
    (judgment,) = judge_at(says="Yes [0]", cite=True)[0].batch([record])
    assert judgment.statements[0].supporting_chunk_ids == (0,)
    app = mlflow.trace(lambda question, context: BLUE, name="app")
    app(QUESTION, CONTEXT)
    (record,) = records(mlflow.get_trace(mlflow.get_last_active_trace_id()))
    del record["id"]
    assert record == {"question": QUESTION, "context": CONTEXT, "answer": BLUE}
    with pytest.raises(
        InputError,
        match=r"a trace is dict, expected mlflow.entities.Trace, as mlflow.get_trace",
    ):
        records([{"a": 1}])
