import asyncio

import pytest

pytest.importorskip("ragas")

from ragas import EvaluationDataset, SingleTurnSample, evaluate

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.ragas import Faithfulness, NLIStatementPrompt
from tests.support.cases import CONTEXT, ICELAND, LANDED, WALKED

pytestmark = pytest.mark.all
ROW = {
    "user_input": "When did it land?",
    "response": f"{LANDED} {ICELAND}",
    "retrieved_contexts": CONTEXT,
}


@pytest.fixture
def server(replies):
    """It supports the first of two statements."""
    return replies({LANDED: "Yes", ICELAND: "No"})


@pytest.fixture
def llm(server, dspy_lm):
    """The endpoint as an LM."""
    return dspy_lm(server)


def test_evaluate(recorded):
    """In `ragas.evaluate` each row gets its score; a row that cannot be scored is NaN and outside the mean."""
    rows = [
        {**ROW, "response": answer}
        for answer in (f"{LANDED} {WALKED}", ROW["response"], "I don't know.")
    ]
    metric = Faithfulness(recorded()[0])
    result = evaluate(
        EvaluationDataset.from_list(rows), metrics=[metric], show_progress=False
    )
    assert result["faithfulness"] == pytest.approx(
        [1.0, 0.5, float("nan")], nan_ok=True
    )
    assert "0.75" in str(result)  # (1 + .5) / 2
    assert metric.judgment(rows[2]).unscored == "abstained"
    assert [
        s.is_supported for s in metric.judgment(SingleTurnSample(**rows[1])).statements
    ] == [True, False]
    assert metric.judgment({"response": "Something else."}) is None


def test_basic_usage(llm):
    """RAGAS' own calls, old and new, awaited and not, also from inside a running event loop."""
    metric, sample = Faithfulness(llm=llm), SingleTurnSample(**ROW)

    async def inside():
        awaited = await metric.ascore(**ROW)
        return (
            awaited,
            metric.score(**ROW).value,
            await metric.single_turn_ascore(sample),
        )

    result, *values = asyncio.run(inside())
    assert [result.value, *values, metric.single_turn_score(sample)] == [0.5] * 4
    assert result.reason.startswith(
        f"1 of 2 statements supported\nfully_supported [0]: {LANDED} – So it is."
    )
    assert result.traces["output"]["statements"] == [
        {"sentence_index": 0, "statement": LANDED, "reason": "So it is.", "verdict": 1},
        {
            "sentence_index": 1,
            "statement": ICELAND,
            "reason": "So it is.",
            "verdict": 0,
        },
    ]


def test_defaults(llm):
    """Without an LM the embedded one judges; one may be set later; the language is that of the reasons."""
    metric = Faithfulness()
    assert metric.judge.lm_name == "local"
    metric.llm = llm
    assert metric.score(**ROW).value == 0.5
    assert (
        Faithfulness(llm=llm, language="german").judge.config.criteria
        == "Give reasons in German."
    )


def test_prompts(llm, server, tmp_path):
    """The prompt can be read, changed where it stands, replaced, saved; its words are those of every request."""
    metric = Faithfulness(llm=llm)
    (prompt,) = metric.get_prompts().values()
    assert prompt.name == "n_l_i_statement_prompt"
    assert prompt.to_string() == prompt.instruction
    top, _, ask = prompt.instruction.rpartition("\n\n")
    metric.score(**ROW)
    assert server.requests[-1]["messages"][0]["content"] == top
    assert f"\n{ask}\n" in server.requests[-1]["messages"][-1]["content"]
    server.requests.clear()
    prompt.instruction = "You check lives of scientists."
    metric.score(**ROW)
    other = NLIStatementPrompt(language="german")
    other.instruction = "Du prüfst Lebensläufe."
    metric.set_prompts(n_l_i_statement_prompt=other)
    metric.score(**ROW)
    tops = [asked["messages"][0]["content"] for asked in server.requests]
    german = "Du prüfst Lebensläufe.\nGive reasons in German."
    assert tops == ["You check lives of scientists."] * 3 + [german] * 3
    metric.save_prompts(str(tmp_path))
    assert [f.name for f in tmp_path.iterdir()] == [
        "faithfulness_n_l_i_statement_prompt_german.json"
    ]
    other.examples = [(None, None)]
    with pytest.raises(ConfigError, match="examples are not used"):
        metric.score(**ROW)
