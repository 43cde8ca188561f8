import asyncio
import json

import pytest

pytest.importorskip("strands_evals")

from cases import LEVEL
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, tool
from strands.models.model import Model
from strands.telemetry import tracer as strands_tracer
from strands_evals import Case, Experiment
from strands_evals.mappers import StrandsInMemorySessionMapper
from strands_evals.types.evaluation import EvaluationData

from faith_dspy.errors import ConfigError
from faith_dspy.integrations import otel
from faith_dspy.integrations.adapters import judge_of
from faith_dspy.integrations.strands import DEFAULTS, FaithfulnessEvaluator, records

pytestmark = pytest.mark.all

FOUND = "Opened software is not refunded."
ANSWER = "Opened software is refunded in full."


class Recorded(Model):
    """A model that calls the tool and then says the answer."""

    def update_config(self, **model_config):
        """Nothing to set."""

    def get_config(self):
        """Its name."""
        return {"model_id": "recorded"}

    def structured_output(self, *args, **kwargs):
        """Not used."""
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **kwargs):
        """A tool call on the user's message, the answer on the tool's result."""
        asked = any("text" in block for block in messages[-1]["content"])
        yield {"messageStart": {"role": "assistant"}}
        start = {"toolUse": {"toolUseId": f"call-{len(messages)}", "name": "search_docs"}} if asked else {}
        delta = {"toolUse": {"input": json.dumps({"query": "refund"})}} if asked else {"text": ANSWER}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if asked else "end_turn"}}
        yield {
            "metadata": {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}}
        }


@tool
def search_docs(query: str) -> str:
    """Search the shop's policies."""
    return FOUND


@pytest.fixture
def ran(monkeypatch):
    """A real agent that was asked two things: spans in memory, agent."""
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = strands_tracer.Tracer()
    monkeypatch.setattr(tracer, "tracer", provider.get_tracer("strands-agents"))
    for module in ("strands.agent.agent", "strands.event_loop.event_loop", "strands.tools.executors._executor"):
        monkeypatch.setattr(f"{module}.get_tracer", lambda: tracer)
    agent = Agent(
        model=Recorded(),
        tools=[search_docs],
        system_prompt="You work for a shop.",
        callback_handler=None,
        agent_id="clerk",
    )
    agent("Do you sell software?")
    agent("Is opened software refunded?")
    return exporter, agent


def test_basic_usage(ran, replies, dspy_lm):
    """Strands' own example, and its file: an experiment with an evaluator, run, and run again as it was read."""
    exporter, _ = ran
    session = StrandsInMemorySessionMapper().map_to_session(list(exporter.get_finished_spans()), session_id="s1")
    evaluator = FaithfulnessEvaluator(model="openai/tiny", system_prompt="You check a shop's clerk.")
    experiment = Experiment(cases=[Case(name="refund", input="Is opened software refunded?")], evaluators=[evaluator])
    read = Experiment.from_dict(experiment.to_dict(), custom_evaluators=[FaithfulnessEvaluator])
    for one in (experiment, read):
        server = replies({ANSWER: "not"})
        (again,) = one.evaluators
        assert (again.model, again.system_prompt) == ("openai/tiny", "You check a shop's clerk.")
        again._judge = judge_of(DEFAULTS, dspy_lm(server), system_prompt=again.system_prompt)
        report = one.run_evaluations(lambda case: {"output": ANSWER, "trajectory": session})
        assert (report.overall_score, report.test_passes) == (0.0, [False])
        assert "So it is." in report.reasons[0]
        assert report.detailed_results[0][0].label == "Not At All"
        assert server.requests[0]["messages"][0]["content"] == "You check a shop's clerk."


def test_another_version():
    """There is one prompt: no other is taken in its place in silence."""
    with pytest.raises(ConfigError, match="no version 'v1' of the prompt here"):
        FaithfulnessEvaluator(version="v1")


class Judging(Recorded):
    """A model of one's own that judges, and remembers what it was asked."""

    async def stream(self, messages, tool_specs=None, system_prompt=None, **kwargs):
        """A level and a reason, in two pieces."""
        self.asked = system_prompt, messages
        for text in ("hardly", "\nWhy: Nobody said so."):
            yield {"contentBlockDelta": {"delta": {"text": text}}}


def test_a_model_of_ones_own():
    """Strands' way to bring a model: a subclass of its `Model` is asked itself."""
    model = Judging()
    evaluator = FaithfulnessEvaluator(model=model, system_prompt="You check a shop's clerk.")
    case = EvaluationData(input="Which colour?", actual_output="It is blue.", metadata={"context": ["It is light."]})
    for (found,) in (evaluator.evaluate(case), asyncio.run(evaluator.evaluate_async(case))):
        assert (found.score, found.label, found.test_pass) == (0.25, "Not Generally", False)
        assert "Nobody said so." in found.reason
        system, messages = model.asked
        assert system == "You check a shop's clerk."
        assert [m["role"] for m in messages] == ["user"]
        assert "[0] It is light." in messages[0]["content"][0]["text"]


def test_an_agent_without_tools(replies, dspy_lm):
    """It is judged by what was said before; where that states nothing, the reason says so."""
    said = "Paris is the capital of France."
    messages = [
        {"role": "user", "content": [{"text": "What is the capital of France?"}]},
        {"role": "assistant", "content": [{"text": said}]},
    ]
    server = replies({said: "hardly"})
    case = EvaluationData(input="?", actual_output=said, actual_trajectory=messages)
    (found,) = FaithfulnessEvaluator(dspy_lm(server)).evaluate(case)
    assert (found.score, found.label, found.test_pass) == (0.25, "Not Generally", False)
    assert "So it is." in found.reason
    assert found.reason.endswith("\nNobody stated anything before it, and no tool was used.")
    assert "[0] What is the capital of France?" in server.requests[0]["messages"][-1]["content"]


def test_unscored(recorded):
    """What could not be scored is not applicable and says why, in the two kinds Strands knows.

    Nothing to judge passes and is outside Strands' mean; what failed to be judged does not pass and is 0 in it:
    (1 + 0) / 2.
    """
    judge, _ = recorded()
    said = {"good": "Refunds go to the card that was used to pay.", "declines": "I don't know.", "bare": "It is blue."}
    experiment = Experiment(
        cases=[Case(name=n, input="?", metadata={} if n == "bare" else {"context": [FOUND]}) for n in said],
        evaluators=[FaithfulnessEvaluator(judge)],
    )
    report = experiment.run_evaluations(lambda case: said[case.name])
    found = {
        case["name"]: (row[0].label, passed, reason)
        for case, row, passed, reason in zip(
            report.cases, report.detailed_results, report.test_passes, report.reasons, strict=True
        )
    }
    assert found["good"][:2] == ("Completely Yes", True)
    assert found["declines"] == (
        "not_applicable",
        True,
        "unscored (abstained): the answer only declines to answer",
    )
    assert found["bare"][:2] == ("not_applicable", False)
    assert found["bare"][2].startswith("unscored (no_context)")
    assert report.overall_score == 0.5


def test_what_an_agent_did(ran, judge_at):
    """Its session, its spans and its messages are a record a turn: answers against all that was said or found before,
    each chunk with its turn. Arguments of tool calls are no evidence."""
    exporter, agent = ran
    session = StrandsInMemorySessionMapper().map_to_session(list(exporter.get_finished_spans()), session_id="s1")
    first, second = records(session)
    assert (first["question"], first["answer"].strip()) == ("Do you sell software?", ANSWER)
    assert first["context"] == [
        {"text": "Do you sell software?", "source": "turn 0: user"},
        {"text": FOUND, "source": "turn 1: tool search_docs"},
    ]
    turns = [
        "turn 0: user",
        "turn 1: tool search_docs",
        "turn 2: assistant",
        "turn 3: user",
        "turn 4: tool search_docs",
    ]
    assert (second["question"], [c["source"] for c in second["context"]]) == ("Is opened software refunded?", turns)
    spans = otel.records(exporter)
    assert [r["question"] for r in spans] == [first["question"], second["question"]]
    for r in spans:
        assert r["answer"].strip() == ANSWER
        assert sum(c["text"] == FOUND and ": tool search_docs" in c["source"] for c in r["context"]) >= 1
        assert not any("query" in c["text"] for c in r["context"])
    assert [c["source"].partition(": ")[2] for c in spans[0]["context"]] == ["tool search_docs", "system", "user"]
    judge, server = judge_at()
    assert judge(conversation=agent.messages).statements[0].text == ANSWER
    assert f"[4] {FOUND}" in server.requests[0]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reply", "level"), [("not", 0), ("hardly", 1), ("mixed", 2), ("generally", 3), ("completely", 4)]
)
def test_five_levels(judge_at, reply, level):
    """The levels are 0, .25, .5, .75, 1 and pass from .5 on; what is supported in part is mixed, as Strands says."""
    words = ("not", "hardly", "mixed", "generally", "completely")
    top = {word: 0.24 if word == reply else 0.19 for word in words}
    judge, server = judge_at(says={"text": reply, "top": top}, granularity="answer", verdicts="five_level")
    case = EvaluationData(input="?", actual_output="It is blue. It is light.", metadata={"context": ["It is blue."]})
    (found,) = FaithfulnessEvaluator(judge).evaluate(case)
    assert (found.score, found.label, found.test_pass) == (level / 4, LEVEL[level], level >= 2)
    assert FaithfulnessEvaluator(judge, threshold=1.0).evaluate(case)[0].test_pass is (level == 4)
    assert "mixed (some of it is supported and some is not)" in server.requests[0]["messages"][-1]["content"]
