from __future__ import annotations

import asyncio
import math

import pytest

pytest.importorskip("ragas")

from ragas import EvaluationDataset, SingleTurnSample, evaluate
from ragas.llms import llm_factory

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
    assert result.traces["output"]["statements"] == [
        {"sentence_index": 0, "statement": "Einstein was born in Ulm.", "reason": "So it is.", "verdict": 1},
        {"sentence_index": 1, "statement": "Einstein played the tuba.", "reason": "So it is.", "verdict": 0},
    ]


def test_evaluate_gives_its_own_llm(replies):
    """`ragas.evaluate(…, llm=…)` is the one that is asked, as with RAGAS' own metrics; a metric's own goes before."""
    server = replies({"Einstein was born in Ulm.": "Yes", "Einstein played the tuba.": "No"})
    openai = pytest.importorskip("openai")
    mine = llm_factory("tiny", client=openai.AsyncOpenAI(base_url=server.base, api_key="k"))
    rows = EvaluationDataset.from_list([ROW])
    assert evaluate(rows, metrics=[Faithfulness()], llm=mine, show_progress=False)["faithfulness"] == [0.5]
    assert len(server.requests) == 3
    assert evaluate(rows, metrics=[Faithfulness("none")], llm=mine, show_progress=False)["faithfulness"] != [None]
    assert len(server.requests) == 3


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


def test_reason(recorded):
    """`ascore`, the newer way, gives the verdict on each statement with the number, and why there is no number."""
    judge, _ = recorded()
    metric = Faithfulness(judge)
    context = ["Opened software is not refunded."]
    result = asyncio.run(metric.ascore(response="Opened software is refunded in full.", retrieved_contexts=context))
    assert result.value == 0.0
    assert result.reason == "0 of 1 statement supported\nnot_supported: Opened software is refunded in full."
    nothing = metric.score(user_input="Why?", response="I don't know.", retrieved_contexts=context)
    assert math.isnan(nothing.value)
    assert nothing.reason == "unscored (abstained): the answer only declines to answer"
    assert metric.score(response="It is.", retrieved_contexts=[]).reason.startswith("unscored (no_context)")
