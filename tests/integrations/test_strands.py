import asyncio
import io
import json

import pytest

pytest.importorskip("strands_evals")

from strands import Agent, tool
from strands.models.model import Model
from strands_evals import Case, Experiment
from strands_evals.mappers import StrandsInMemorySessionMapper
from strands_evals.telemetry import StrandsEvalsTelemetry
from strands_evals.types.evaluation import EvaluationData

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from faith_dspy.integrations import otel
from faith_dspy.integrations.strands import FaithfulnessEvaluator, records
from tests.support.cases import CONTEXT, WALKED

pytestmark = pytest.mark.all

FOUND = "Opened software is not refunded."
ANSWER = "Opened software is refunded in full."
QUESTIONS = "Do you sell software?", "Is opened software refunded?"


class Scripted(Model):
    """A model of one's own: it says one reply after the other, and remembers what it was asked."""

    def __init__(self, *replies):
        self.replies = iter(replies)

    def get_config(self):
        return {"model_id": "scripted"}

    update_config = structured_output = get_config

    async def stream(self, messages, tool_specs=None, system_prompt=None, **_):
        self.asked = system_prompt, messages
        delta, start, reason = next(self.replies)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def text(words):
    return {"text": words}, {}, "end_turn"


def call(number):
    arguments = {"toolUse": {"input": json.dumps({"query": "refund"})}}
    tool_use = {"toolUseId": f"call-{number}", "name": "search_docs"}
    return arguments, {"toolUse": tool_use}, "tool_use"


@tool
def search_docs(query: str) -> str:
    """Search the shop's policies."""
    return FOUND


@pytest.fixture(scope="module")
def ran():
    """A real agent that was asked two things: its spans, session and messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
        telemetry = StrandsEvalsTelemetry().setup_in_memory_exporter()
        model = Scripted(call(1), text(ANSWER), call(2), text(ANSWER))
        own = {"tools": [search_docs], "system_prompt": "You work for a shop."}
        agent = Agent(model=model, callback_handler=None, agent_id="clerk", **own)
        for question in QUESTIONS:
            agent(question)
    spans = telemetry.in_memory_exporter.get_finished_spans()
    session = StrandsInMemorySessionMapper().map_to_session([*spans], session_id="s1")
    return spans, session, agent.messages


def test_basic_usage(ran, endpoint, capsys, monkeypatch):
    """Strands' own example, and its file: an experiment with an evaluator, run, and run again as it was read, for which
    the file does not name Strands' own evaluator. Its report is shown by Strands' own table."""
    endpoint.labels = {ANSWER: "not"}
    own = {"model": "openai/tiny", "system_prompt": "You check a shop's clerk."}
    experiment = Experiment(
        cases=[Case(name="refund", input=QUESTIONS[1])],
        evaluators=[FaithfulnessEvaluator(**own)],
    )
    written = experiment.to_dict()
    with pytest.raises(Exception, match=r"Cannot find faith_dspy\.FaithfulnessEvalu"):
        Experiment.from_dict(written)
    read = Experiment.from_dict(written, custom_evaluators=[FaithfulnessEvaluator])
    for one in (experiment, read):
        monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))  # leaves Strands' table
        report = one.run_evaluations(lambda _: {"output": ANSWER, "trajectory": ran[1]})
        assert (report.overall_score, report.test_passes) == (0.0, [False])
        assert "So it is." in report.reasons[0]
        assert report.detailed_results[0][0].label == "Not At All"
        report.run_display()
        assert "refund" in capsys.readouterr().out
    assert endpoint.requests[0]["messages"][0]["content"] == own["system_prompt"]
    with pytest.raises(ConfigError, match="no version 'v1' of the prompt here"):
        FaithfulnessEvaluator(version="v1")


def evaluated(model, answer, **fields):
    """The output for one case."""
    case = EvaluationData(input="Which colour?", actual_output=answer, **fields)
    (output,) = FaithfulnessEvaluator(model).evaluate(case)
    return output


def test_a_model_of_ones_own():
    """Strands' way to bring a model: a subclass of its `Model` is asked itself, also awaited."""
    model = Scripted(*[text("hardly\nWhy: Nobody said so.")] * 2)
    evaluator = FaithfulnessEvaluator(model=model, system_prompt="You check a clerk.")
    metadata = {"context": ["It is light."]}
    case = EvaluationData(input="?", actual_output="It is blue.", metadata=metadata)
    (output,) = evaluator.evaluate(case)
    assert asyncio.run(evaluator.evaluate_async(case)) == [output]
    outcome = (output.score, output.label, output.test_pass)
    assert outcome == (0.25, "Not Generally", False)
    assert "Nobody said so." in output.reason
    system, (message,) = model.asked
    assert (system, message["role"]) == ("You check a clerk.", "user")
    assert "[0] It is light." in message["content"][0]["text"]


def test_an_agent_without_tools(endpoint, lm):
    """Where nothing but the question was there before it, a model is asked, as by Strands, whether the answer conflicts
    with it, and the reason says so; a judge of one's own leaves it unscored."""
    said = "Paris is the capital of France."
    turns = {"user": "What is the capital of France?", "assistant": said}
    messages = [{"role": r, "content": [{"text": t}]} for r, t in turns.items()]
    endpoint.labels = {said: "completely"}
    output = evaluated(lm, said, actual_trajectory=messages)
    assert (output.score, output.label) == (1.0, "Completely Yes")
    nothing = "\nNobody stated anything before it, and no tool was used."
    assert output.reason.endswith(nothing)
    top, asked = (one["content"] for one in endpoint.requests[0]["messages"])
    assert "conflicts with a conversation" in top
    assert f"[0] {turns['user']}" in asked
    output = evaluated(Judge(lm), said, actual_trajectory=messages)
    assert output.reason.startswith("unscored (no_context)")


def test_a_session_without_an_answer(ran):
    """Where Strands finds no span of an agent, nothing can be judged: it does not pass, and says why."""
    session = ran[1].model_copy(deep=True)
    for trace in session.traces:
        trace.spans = [s for s in trace.spans if s.span_type != "invoke_agent"]
    output = evaluated("none", "?", actual_trajectory=session)
    assert (output.label, output.test_pass) == ("not_applicable", False)
    assert "the Session has no agent's answer" in output.reason


def test_unscored(lm):
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
    experiment = Experiment(cases=cases, evaluators=[FaithfulnessEvaluator(Judge(lm))])
    report = experiment.run_evaluations(lambda case: case.input)
    names = [case["name"] for case in report.cases]
    passes = dict(zip(names, report.test_passes, strict=True))
    assert passes == {"good": True, "declines": True, "bare": False}
    labels = sorted(row[0].label for row in report.detailed_results)
    assert labels == ["Completely Yes", "not_applicable", "not_applicable"]
    assert report.overall_score == 0.5


def test_what_an_agent_did(ran, judge_at):
    """Its session, its spans and its messages are a record a turn: answers against all that users said or tools found
    before, each chunk with its turn. Arguments of tool calls, and what the agent said itself, are no evidence."""
    spans, session, messages = ran
    first, second = records(session)
    assert (first["question"], second["question"]) == QUESTIONS
    assert first["answer"].strip() == ANSWER
    assert first["context"] == [
        {"text": QUESTIONS[0], "source": "turn 0: user"},
        {"text": FOUND, "source": "turn 1: tool search_docs"},
    ]
    sources = [chunk["source"] for chunk in second["context"]]
    places = "0: user", "1: tool search_docs", "3: user"  # what 4 found is there
    assert sources == [f"turn {place}" for place in places]
    for record, question in zip(otel.records(spans), QUESTIONS, strict=True):
        assert (record["question"], record["answer"].strip()) == (question, ANSWER)
        sources = [c["source"].partition(": ")[2] for c in record["context"]]
        assert sources[:3] == ["tool search_docs", "system", "user"]
        assert record["context"][0]["text"] == FOUND
        assert not any("query" in chunk["text"] for chunk in record["context"])
    judge, server = judge_at()
    assert judge(conversation=messages).statements[0].text == ANSWER
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
    context = {"context": ["It is blue."]}
    output = evaluated(judge, "It is blue. It is light.", metadata=context)
    outcome = (output.score, output.label, output.test_pass)
    assert outcome == (level / 4, LEVELS[reply], level >= 2)
    assert "It is blue. It is light." in output.reason
    asked = server.requests[0]["messages"][-1]["content"]
    assert "mixed (some of it is supported and some is not)" in asked
