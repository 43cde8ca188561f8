import json
import time
from concurrent.futures import ThreadPoolExecutor

import mlflow
import pytest
from mlflow.entities import Document, SpanType, Trace

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import FaithfulnessScorer, records

BLUE, RED, NEW = "The kettle is blue.", "It is red.", "It is new."
YES = {BLUE: 0.9, RED: 0.2, NEW: 0.3}
CONTEXT = [BLUE, "It was bought in May."]
INPUTS = {"question": "What is it like?", "context": CONTEXT}


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store of these tests; by the environment, as what `set_tracking_uri` sets would stay for the tests after."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        patch.setenv("MLFLOW_GENAI_EVAL_MAX_WORKERS", "6")
        mlflow.tracing.reset()  # spans go to the store that was there when the first one was made
        yield
    mlflow.tracing.reset()


def test_evaluate(judge_at):
    """Means of the score, of what passes and of what was scored are the run's metrics, the score's over the scored
    answers only."""
    rows = [
        {"inputs": INPUTS, "outputs": f"{BLUE} {RED} {NEW}"},
        {"inputs": INPUTS, "outputs": BLUE},
        {"inputs": {"question": "?"}, "outputs": BLUE},
    ]
    scorer = FaithfulnessScorer(judge_at(yes=YES)[0])
    result = mlflow.genai.evaluate(data=rows, scorers=[scorer])
    # (1/3 + 1) / 2; one of two passes; two of three have a context.
    means = {"": 2 / 3, "/faithful": 1 / 2, "/scored": 2 / 3}
    expected = {f"faithfulness{name}/mean": mean for name, mean in means.items()}
    assert result.metrics == pytest.approx(expected)

    # Two of the bare row, three of one that passes, and each unsupported statement of one that does not.
    assert sorted(map(len, result.result_df["assessments"])) == [2, 3, 5]
    # MLflow traces DSPy while it evaluates: the judge's own work is not to stand among what it scores.
    assert len(mlflow.search_traces(return_type="list")) == 3


def test_citations_are_feedback():
    """Recall and precision of an answer that cites, and what is cited wrongly or not at all; none of another."""
    scorer = FaithfulnessScorer("none")
    answer = f"{BLUE[:-1]} [1]. It was bought in May [1]. The kettle was bought [7]."
    cited = {f.name: f for f in scorer(inputs=INPUTS, outputs=answer)}
    for measure in ("recall", "precision"):
        feedback = cited[f"faithfulness/citation_{measure}"]
        assert feedback.value == pytest.approx(1 / 3)
        assert feedback.rationale.split("\n") == [
            "not in the context: [7]",
            "cites [0], supported by [1]: It was bought in May [1].",
            "cites nothing, supported by [0, 1]: The kettle was bought [7].",
        ]
    assert len(scorer(inputs=INPUTS, outputs=BLUE)) == 3


def test_feedback(judge_at):
    """Rationale, metadata and source say what was found, statement by statement, at which cost, by which judge; the
    overall one can be had alone."""
    judge, _ = judge_at(yes=YES)
    row = {"inputs": INPUTS, "outputs": f"{BLUE} {RED}"}
    overall, _, _, blue, red = FaithfulnessScorer(judge, statements="all")(**row)
    assert FaithfulnessScorer(judge, statements=None)(**row).value == 0.5
    source = overall.source.source_type, overall.source.source_id
    assert source == ("LLM_JUDGE", "faith_dspy openai/tiny")
    assert overall.rationale == (
        f"1 of 2 statements supported\nfully_supported [0]: {BLUE}\nnot_supported: {RED}"
    )
    assert overall.metadata["mlflow.assessment.judgeInputTokens"] == "200"
    confidences = [s["confidence"] for s in json.loads(overall.metadata["statements"])]
    assert confidences == pytest.approx([0.9, 0.2])
    assert (blue.value, blue.rationale) == ("fully_supported", BLUE)
    assert blue.metadata["supporting_chunk_ids"] == "[0]"
    assert (red.value, red.rationale) == ("not_supported", RED)


def message(role, content):
    return {"message": {"role": role, "content": content}}


SAID = message("user", " ".join([*CONTEXT, "What is it like?"]))["message"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expectations"),
    [
        ({"question": "?"}, BLUE, {"context": CONTEXT}),
        ({"query": "?"}, {"response": BLUE, "retrieved_contexts": CONTEXT}, {}),
        ({"messages": [SAID]}, {"choices": [message("assistant", BLUE)]}, {}),
    ],
    ids=["expectations", "outputs", "conversation"],
)
def test_where_the_context_is(judge_at, inputs, outputs, expectations):
    """The context is found in inputs, expectations or outputs, under the names other libraries use."""
    judge, server = judge_at(yes=YES)
    row = {"inputs": inputs, "outputs": outputs, "expectations": expectations}
    assert FaithfulnessScorer(judge)(**row)[0].value == 1.0
    asked = server.requests[0]["messages"][-1]["content"]
    assert all(chunk in asked for chunk in CONTEXT)


def test_an_embedded_model_is_asked_by_one_at_a_time(judge_at):
    """More at a time would push each other's document out of its single slot."""
    busy, most = [], []

    def count(asked):
        busy.append(asked)
        most.append(len(busy))
        time.sleep(0.02)
        busy.pop()
        return "Yes"

    judge = Judge("local")
    scorer = FaithfulnessScorer(judge)  # which does not fetch the model
    judge.lm = judge_at(says=count)[0].lm
    contexts = [{"context": [f"Chunk {n}."]} for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda inputs: scorer(inputs=inputs, outputs=BLUE), contexts))
    assert most == [1] * 6


QUESTION = "Is opened software refunded?"
REFUSED = "Opened software is not refunded."


@pytest.fixture(scope="module")
def trace():
    """The trace of an agent that retrieves, calls a tool, and asks a model."""

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search_docs(query):
        unused = Document("Unused items are refunded.", id="p2")
        return [Document(REFUSED, {"doc_uri": "policy.md"}), unused]

    @mlflow.trace(span_type=SpanType.TOOL)
    def order_status(number):
        return {"number": number, "status": "delivered"}

    @mlflow.trace(span_type=SpanType.CHAT_MODEL)
    def complete(messages):
        return {"choices": [message("assistant", REFUSED)]}

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question):
        search_docs(question)
        order_status(12)
        words = ("user", "Hello."), ("assistant", "Good day."), ("user", question)
        reply = complete([message(*said)["message"] for said in words])
        return {"answer": reply["choices"][0]["message"]["content"]}

    ask(QUESTION)
    return mlflow.get_trace(mlflow.get_last_active_trace_id())


def test_record(trace):
    """Root inputs and outputs are question and answer; documents and tool results the context, not what the assistant
    said earlier, nor what users only asked. Read back from JSON it is the same."""
    (record,) = records([Trace.from_json(trace.to_json())])
    assert [record] == records(trace)
    assert record["id"] == trace.info.trace_id
    assert (record["question"], record["answer"]) == (QUESTION, REFUSED)
    spans = {f"span {span.span_id}" for span in trace.data.spans}
    sources = [chunk["source"].split(": ") for chunk in record["context"]]
    assert {span for span, _ in sources} <= spans
    texts = [chunk["text"] for chunk in record["context"]]
    assert dict(zip(texts, [place for _, place in sources], strict=True)) == {
        REFUSED: "retriever search_docs, document policy.md",
        "Unused items are refunded.": "retriever search_docs, document p2",
        '{"number": 12, "status": "delivered"}': "tool order_status",
    }


def test_what_the_root_names_is_the_context():
    """As where a trace is evaluated; what is no trace is refused."""
    mlflow.trace(lambda question, context: BLUE, name="app")(**INPUTS)
    (record,) = records(mlflow.get_trace(mlflow.get_last_active_trace_id()))
    del record["id"]
    assert record == INPUTS | {"answer": BLUE}
    assert records([]) == []
    why = r"a trace is dict, expected mlflow.entities.Trace, as mlflow.get_trace"
    with pytest.raises(InputError, match=why):
        records([{"a": 1}])
