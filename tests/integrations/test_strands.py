import asyncio
import io
import json

import pytest

pytest.importorskip("strands_evals")

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
from faith_dspy.integrations.strands import FaithfulnessEvaluator, records
from tests.support.cases import CONTEXT, WALKED

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
        start, delta, reason = {}, {"text": ANSWER}, "end_turn"
        if any("text" in block for block in messages[-1]["content"]):
            tool_use = {"toolUseId": f"call-{len(messages)}", "name": "search_docs"}
            start = {"toolUse": tool_use}
            delta = {"toolUse": {"input": json.dumps({"query": "refund"})}}
            reason = "tool_use"
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


@tool
def search_docs(query: str) -> str:
    """Search the shop's policies."""
    return FOUND


@pytest.fixture
def ran(monkeypatch):
    """A real agent that was asked two things: spans in memory, its session, agent."""
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = strands_tracer.Tracer()
    monkeypatch.setattr(tracer, "tracer", provider.get_tracer("strands-agents"))
    for module in (
        "strands.agent.agent",
        "strands.event_loop.event_loop",
        "strands.tools.executors._executor",
    ):
        monkeypatch.setattr(f"{module}.get_tracer", lambda: tracer)
    own = {"tools": [search_docs], "system_prompt": "You work for a shop."}
    agent = Agent(model=Recorded(), callback_handler=None, agent_id="clerk", **own)
    agent("Do you sell software?")
    agent("Is opened software refunded?")
    spans = [*exporter.get_finished_spans()]
    session = StrandsInMemorySessionMapper().map_to_session(spans, session_id="s1")
    return exporter, session, agent


def test_basic_usage(ran, replies, capsys, monkeypatch):
    """Strands' own example, and its file: an experiment with an evaluator, run, and run again as it was read, for which
    the file does not name Strands' own evaluator. Its report is shown by Strands' own table."""
    server = replies({ANSWER: "not"})
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    own = {"model": "openai/tiny", "system_prompt": "You check a shop's clerk."}
    experiment = Experiment(
        cases=[Case(name="refund", input="Is opened software refunded?")],
        evaluators=[FaithfulnessEvaluator(**own)],
    )
    written = experiment.to_dict()
    with pytest.raises(Exception, match=r"Cannot find faith_dspy\.FaithfulnessEvalu"):
        Experiment.from_dict(written)
    read = Experiment.from_dict(written, custom_evaluators=[FaithfulnessEvaluator])
    for one in (experiment, read):
        monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))  # leaves Strands' table
        run = {"output": ANSWER, "trajectory": ran[1]}
        report = one.run_evaluations(lambda case, run=run: run)
        assert (report.overall_score, report.test_passes) == (0.0, [False])
        assert "So it is." in report.reasons[0]
        assert report.detailed_results[0][0].label == "Not At All"
        report.run_display()
        assert "refund" in capsys.readouterr().out
    assert server.requests[0]["messages"][0]["content"] == own["system_prompt"]
    with pytest.raises(ConfigError, match="no version 'v1' of the prompt here"):
        FaithfulnessEvaluator(version="v1")


def data(answer, **fields):
    return EvaluationData(input="Which colour?", actual_output=answer, **fields)


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
    evaluator = FaithfulnessEvaluator(model=model, system_prompt="You check a clerk.")
    case = data("It is blue.", metadata={"context": ["It is light."]})
    (output,) = evaluator.evaluate(case)
    assert asyncio.run(evaluator.evaluate_async(case)) == [output]
    outcome = (output.score, output.label, output.test_pass)
    assert outcome == (0.25, "Not Generally", False)
    assert "Nobody said so." in output.reason
    system, (message,) = model.asked
    assert (system, message["role"]) == ("You check a clerk.", "user")
    assert "[0] It is light." in message["content"][0]["text"]


def test_an_agent_without_tools(replies, dspy_lm, judge_at):
    """Where nothing but the question was there before it, a model is asked, as by Strands, whether the answer conflicts
    with it, and the reason says so; a judge of one's own leaves it unscored."""
    said = "Paris is the capital of France."
    turns = {"user": "What is the capital of France?", "assistant": said}
    messages = [{"role": r, "content": [{"text": t}]} for r, t in turns.items()]
    server = replies({said: "completely"})
    case = data(said, actual_trajectory=messages)
    (found,) = FaithfulnessEvaluator(dspy_lm(server)).evaluate(case)
    assert (found.score, found.label) == (1.0, "Completely Yes")
    assert found.reason.endswith(
        "\nNobody stated anything before it, and no tool was used."
    )
    top, asked = (one["content"] for one in server.requests[0]["messages"])
    assert "conflicts with a conversation" in top
    assert f"[0] {turns['user']}" in asked
    (found,) = FaithfulnessEvaluator(judge_at()[0]).evaluate(case)
    assert found.reason.startswith("unscored (no_context)")


def test_a_session_without_an_answer(ran):
    """Where Strands finds no span of an agent, nothing can be judged: it does not pass, and says why."""
    session = ran[1].model_copy(deep=True)
    for trace in session.traces:
        trace.spans = [s for s in trace.spans if s.span_type != "invoke_agent"]
    case = data("?", actual_trajectory=session)
    (found,) = FaithfulnessEvaluator("none").evaluate(case)
    assert (found.label, found.test_pass) == ("not_applicable", False)
    assert "the Session has no agent's answer" in found.reason


def test_unscored(recorded):
    """What could not be scored is not applicable, in the two kinds Strands knows.

    Nothing to judge passes and is outside Strands' mean; what failed to be judged does not pass and is 0 in it:
    (1 + 0) / 2.
    """
    context = {"context": CONTEXT}
    cases = [
        Case(name="good", input=WALKED, metadata=context),
        Case(name="declines", input="I don't know.", metadata=context),
        Case(name="bare", input="It is blue."),
    ]
    evaluators = [FaithfulnessEvaluator(recorded()[0])]
    report = Experiment(cases=cases, evaluators=evaluators).run_evaluations(
        lambda case: case.input
    )
    names = [case["name"] for case in report.cases]
    passes = dict(zip(names, report.test_passes, strict=True))
    assert passes == {"good": True, "declines": True, "bare": False}
    labels = sorted(row[0].label for row in report.detailed_results)
    assert labels == ["Completely Yes", "not_applicable", "not_applicable"]
    assert report.overall_score == 0.5


def test_what_an_agent_did(ran, judge_at):
    """Its session, its spans and its messages are a record a turn: answers against all that users said or tools found
    before, each chunk with its turn. Arguments of tool calls, and what the agent said itself, are no evidence."""
    exporter, session, agent = ran
    first, second = records(session)
    asked = "Do you sell software?", "Is opened software refunded?"
    assert (first["question"], second["question"]) == asked
    assert first["answer"].strip() == ANSWER
    assert first["context"] == [
        {"text": asked[0], "source": "turn 0: user"},
        {"text": FOUND, "source": "turn 1: tool search_docs"},
    ]
    sources = [c["source"] for c in second["context"]]
    places = "0: user", "1: tool search_docs", "3: user"  # what 4 found is there
    assert sources == [f"turn {place}" for place in places]
    spans = otel.records(exporter)
    assert tuple(record["question"] for record in spans) == asked
    for record in spans:
        assert record["answer"].strip() == ANSWER
        assert not any("query" in chunk["text"] for chunk in record["context"])
    context = [(c["text"], c["source"].partition(": ")[2]) for c in spans[0]["context"]]
    assert context[0] == (FOUND, "tool search_docs")
    assert [source for _, source in context[1:]] == ["system", "user"]
    judge, server = judge_at()
    assert judge(conversation=agent.messages).statements[0].text == ANSWER
    assert f"[1] {FOUND}" in server.requests[0]["messages"][-1]["content"]


LEVELS = {
    **{"not": "Not At All", "hardly": "Not Generally", "mixed": "Neutral/Mixed"},
    **{"generally": "Generally Yes", "completely": "Completely Yes"},
}


@pytest.mark.parametrize(("level", "reply"), [*enumerate(LEVELS)])
def test_five_levels(judge_at, reply, level):
    """The levels are 0, .25, .5, .75, 1 and pass from .5 on; what is supported in part is mixed, as Strands says."""
    top = {word: 0.24 if word == reply else 0.19 for word in LEVELS}
    says = {"text": reply, "top": top}
    judge, server = judge_at(says=says, granularity="answer", verdicts="five_level")
    case = data("It is blue. It is light.", metadata={"context": ["It is blue."]})
    (output,) = FaithfulnessEvaluator(judge).evaluate(case)
    outcome = (output.score, output.label, output.test_pass)
    assert outcome == (level / 4, LEVELS[reply], level >= 2)
    assert case.actual_output in output.reason
    asked = server.requests[0]["messages"][-1]["content"]
    assert "mixed (some of it is supported and some is not)" in asked
