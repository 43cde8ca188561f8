import asyncio
import math

import pytest

pytest.importorskip("ragas")

from ragas import EvaluationDataset, SingleTurnSample, evaluate

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.ragas import Faithfulness, NLIStatementPrompt

pytestmark = pytest.mark.all


def test_evaluate(recorded):
    """In `ragas.evaluate` each row gets its score; a row that cannot be scored is NaN and outside the mean.

    Rows: both sentences supported (1.0), one of two (0.5), an answer that declines.
    """
    judge, _ = recorded()
    rows = [
        {
            "user_input": "When did it land?",
            "response": answer,
            "retrieved_contexts": ["Apollo 11 landed on the Moon on July 20, 1969."],
        }
        for answer in (
            "Apollo 11 landed on the Moon on July 20, 1969. Armstrong and Aldrin walked on the surface.",
            "Apollo 11 landed on the Moon on July 20, 1969. The astronauts had trained in Iceland.",
            "I don't know.",
        )
    ]
    metric = Faithfulness(judge)
    result = evaluate(EvaluationDataset.from_list(rows), metrics=[metric], show_progress=False)
    scores = result["faithfulness"]
    assert scores[:2] == [1.0, 0.5]
    assert math.isnan(scores[2])
    assert "0.75" in str(result)  # (1 + .5) / 2
    assert metric.judgment(rows[2]).unscored == "abstained"
    assert [s.is_supported for s in metric.judgment(SingleTurnSample(**rows[1])).statements] == [True, False]
    assert metric.judgment({"response": "Something else."}) is None


@pytest.fixture
def llm(replies, dspy_lm):
    """An LM that supports the first of two statements."""
    return dspy_lm(replies({"Einstein was born in Ulm.": "Yes", "Einstein played the tuba.": "No"}))


ROW = {
    "user_input": "Who was Einstein?",
    "response": "Einstein was born in Ulm. Einstein played the tuba.",
    "retrieved_contexts": ["Albert Einstein was born in Ulm in 1879."],
}


def test_basic_usage(llm):
    """RAGAS' own calls, old and new, awaited and not, also from inside a running event loop."""
    metric = Faithfulness(llm=llm)

    async def inside():
        awaited = await metric.ascore(**ROW)
        row = SingleTurnSample(**ROW)
        values = [metric.score(**ROW).value, await metric.single_turn_ascore(row), metric.single_turn_score(row)]
        return awaited, values

    result, values = asyncio.run(inside())
    assert [result.value, *values] == [0.5] * 4
    assert result.reason.startswith("1 of 2 statements supported\nfully_supported [0]: Einstein was born in Ulm. – So")
    assert result.traces["output"]["statements"] == [
        {"sentence_index": 0, "statement": "Einstein was born in Ulm.", "reason": "So it is.", "verdict": 1},
        {"sentence_index": 1, "statement": "Einstein played the tuba.", "reason": "So it is.", "verdict": 0},
    ]


def test_defaults(llm):
    """Without an LM the embedded one judges; one may be set later; the language is that of the reasons."""
    metric = Faithfulness()
    assert metric.judge.lm_name == "local"
    metric.llm = llm
    assert metric.score(**ROW).value == 0.5
    assert Faithfulness(llm=llm, language="german").judge.config.criteria == "Give reasons in German."


def test_prompts(replies, dspy_lm, tmp_path):
    """The prompt can be read, changed where it stands, replaced, saved; its words are those of every request."""
    server = replies({"Einstein was born in Ulm.": "Yes", "Einstein played the tuba.": "No"})
    metric = Faithfulness(llm=dspy_lm(server))
    (prompt,) = metric.get_prompts().values()
    assert prompt.name == "n_l_i_statement_prompt"
    assert prompt.to_string() == prompt.instruction
    top, _, ask = prompt.instruction.rpartition("\n\n")
    assert metric.score(**ROW).value == 0.5
    assert server.requests[-1]["messages"][0]["content"] == top
    assert f"\n{ask}\n" in server.requests[-1]["messages"][-1]["content"]
    server.requests.clear()
    prompt.instruction = "You check lives of scientists."
    assert metric.score(**ROW).value == 0.5
    other = NLIStatementPrompt(language="german")
    other.instruction = "Du prüfst Lebensläufe."
    metric.set_prompts(n_l_i_statement_prompt=other)
    assert metric.score(**ROW).value == 0.5
    tops = [asked["messages"][0]["content"] for asked in server.requests]
    german = "Du prüfst Lebensläufe.\nGive reasons in German."
    assert tops == ["You check lives of scientists."] * 3 + [german] * 3
    other.examples = [(None, None)]
    with pytest.raises(ConfigError, match="examples are not used"):
        metric.score(**ROW)
    other.examples = []
    metric.save_prompts(str(tmp_path))
    assert [f.name for f in tmp_path.iterdir()] == ["faithfulness_n_l_i_statement_prompt_german.json"]
