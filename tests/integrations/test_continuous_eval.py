import json

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.adapters import judge_of
from faith_dspy.integrations.continuous_eval import LLMBasedFaithfulness, LLMFactory

HAMLET, BORN = "Hamlet is a tragedy by William Shakespeare.", "He was born in Ireland."
DATUM = {
    "question": "Who wrote Hamlet?",
    "retrieved_contexts": ["Hamlet, a tragedy, was written by William Shakespeare."],
    "ground_truth_contexts": ["Hamlet, a tragedy, was written by William Shakespeare."],
    "answer": f"{HAMLET} {BORN}",
    "ground_truths": ["Shakespeare wrote Hamlet."],
}


@pytest.fixture
def model(replies, dspy_lm):
    """An LM that supports one of the two statements, and not both together."""
    return dspy_lm(replies({HAMLET: "Yes", BORN: "No", DATUM["answer"]: "No"}))


def test_by_statement(model):
    """The share of statements that are attributed, and as JSON each of them with its reason."""
    found = LLMBasedFaithfulness(model, classify_by_statement=True).calculate(**DATUM)
    assert found["LLM_based_faithfulness"] == 0.5
    assert json.loads(found["LLM_based_faithfulness_reasoning"]) == {
        "classification": [
            {"statement_1": HAMLET, "reason": "So it is.", "Attributed": 1},
            {"statement_2": BORN, "reason": "So it is.", "Attributed": 0},
        ]
    }


def test_by_whole_answer(model):
    """One boolean about all of the answer, and why, as text; the older name of the context is understood."""
    datum = {**DATUM, "retrieved_context": DATUM["retrieved_contexts"]}
    del datum["retrieved_contexts"]
    found = LLMBasedFaithfulness(model).calculate(**datum)
    assert found == {"LLM_based_faithfulness": False, "LLM_based_faithfulness_reasoning": "So it is."}


def test_no_few_shot():
    """Examples are asked for in vain, and not in silence."""
    with pytest.raises(ConfigError, match="there are no examples to use: give labels to `faith-dspy tune`"):
        LLMBasedFaithfulness("none", use_few_shot=True)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (LLMFactory("gpt-4-1106-preview"), "openai/gpt-4-1106-preview"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("ollama_chat/llama3", "ollama_chat/llama3"),
        (None, "local"),
        ("none", "none"),
    ],
)
def test_names_of_models(name, wanted):
    """A bare name gets the provider it is known by; without any the embedded model judges, with “none” no LM does."""
    assert LLMBasedFaithfulness(name).judge.lm_name == wanted


@pytest.mark.all
def test_clients():
    """A client's model, address and key are taken; one that does not tell its model is refused."""
    openai = pytest.importorskip("openai")
    instructor = pytest.importorskip("instructor")
    client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k")
    create = client.chat.completions.create
    judge = judge_of({}, instructor.Instructor(client=client, create=create, model="tiny"))
    assert (judge.lm_name, judge.lm.kwargs["api_base"]) == ("openai/tiny", "http://127.0.0.1:9/v1/")
    for mute in (client, instructor.from_openai(client), instructor.from_openai(client, model="tiny")):
        with pytest.raises(ConfigError, match="does not tell which model it asks; name it"):
            judge_of({}, mute)
    llms = pytest.importorskip("ragas.llms")
    judge = judge_of(
        {}, llms.llm_factory("tiny", client=openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="k"))
    )
    assert (judge.lm_name, judge.lm.kwargs["api_base"]) == ("openai/tiny", "http://127.0.0.1:9/v1/")


def test_a_tuned_judge_by_its_folder(judge_at, tmp_path):
    """A string that names the folder of a judge loads it, with its own options."""
    judge, _ = judge_at(granularity="sentence", threshold=0.7)
    judge.save(tmp_path / "judge")
    assert judge_of({}, str(tmp_path / "judge")).config == judge.config
    other = judge_of({}, str(tmp_path / "judge"), verdict_scores={"no_evidence": -1}).config
    assert (other.threshold, other.verdict_scores["no_evidence"]) == (0.7, -1)
