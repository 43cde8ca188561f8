import asyncio
import json
import math

import pytest

pytest.importorskip("ragas")

from langchain_openai import ChatOpenAI
from ragas import EvaluationDataset, SingleTurnSample, evaluate
from ragas.cost import get_token_usage_for_openai
from ragas.llms import LangchainLLMWrapper
from ragas.metrics.collections.faithfulness import util

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from faith_dspy.integrations import ragas
from faith_dspy.integrations.ragas import Faithfulness, NLIStatementPrompt, faithfulness
from tests.support.cases import CONTEXT, ICELAND, LANDED

pytestmark = pytest.mark.all
ROW = {
    "user_input": "When did it land?",
    "response": f"{LANDED} {ICELAND}",
    "retrieved_contexts": CONTEXT,
}
ROWS = [ROW, {**ROW, "response": LANDED}, {**ROW, "response": "I don't know."}]
"""Half of it supported, all of it, and nothing to score."""
SCORES = pytest.approx([0.5, 1.0, math.nan], nan_ok=True)
EINSTEIN = (
    "1. Albert Einstein was a German-born theoretical physicist.\n"
    "1. Albert Einstein is recognized as one of the greatest and most influential physicists of all time.\n"
    "2. Albert Einstein was best known for developing the theory of relativity.\n"
    "2. Albert Einstein made important contributions to the development of the theory of quantum mechanics."
)
"""RAGAS' example of statements, each after the number of its sentence."""


def test_evaluate(endpoint):
    """`ragas.evaluate` gives each row its score, and counts the tokens of a LangChain model (100 and 5 a call); a row
    that cannot be scored is NaN and outside the mean."""
    own = ChatOpenAI(model="tiny", base_url=endpoint.base)
    result = evaluate(
        EvaluationDataset.from_list(ROWS),
        metrics=[faithfulness],
        llm=LangchainLLMWrapper(own),
        token_usage_parser=get_token_usage_for_openai,
        show_progress=False,
    )
    assert result["faithfulness"] == SCORES
    assert "0.75" in str(result)  # (.5 + 1) / 2
    tokens, calls = result.total_tokens(), len(endpoint.requests)
    assert (tokens.input_tokens, tokens.output_tokens) == (100 * calls, 5 * calls)
    assert faithfulness.judgment(ROWS[2]).unscored == "abstained"
    statements = faithfulness.judgment(SingleTurnSample(**ROW)).statements
    assert [one.is_supported for one in statements] == [True, False]
    assert faithfulness.judgment({"response": "Something else."}) is None


def test_basic_usage(lm):
    """RAGAS' own calls, old and new, one row and many, awaited and not, also from inside a running event loop. The LM
    may be set later; without one the embedded model judges."""
    metric, sample = Faithfulness(), SingleTurnSample(**ROW)
    assert metric.judge.lm_name == "local"
    metric.llm = lm

    async def inside():
        one = await metric.single_turn_ascore(sample)
        results = [await metric.ascore(**ROW), metric.score(**ROW)]
        return one, results, await metric.abatch_score(ROWS), metric.batch_score(ROWS)

    one, (result, again), *batches = asyncio.run(inside())
    assert [one, metric.single_turn_score(sample), again.value] == [0.5] * 3
    for batch in batches:
        assert [row.value for row in batch] == SCORES
        assert batch[2].reason.startswith("unscored (abstained)")
        assert batch[0] == result
    assert metric.batch_score([]) == []
    supported = f"fully_supported [0]: {LANDED} – So it is."
    assert result.reason.startswith(f"1 of 2 statements supported\n{supported}")
    assert result.traces["output"]["statements"] == [
        {"sentence_index": i, "statement": text, "reason": "So it is.", "verdict": yes}
        for i, (text, yes) in enumerate({LANDED: 1, ICELAND: 0}.items())
    ]


def test_the_latest_judgments_are_kept(monkeypatch):
    """A metric does not grow with what it has scored."""
    monkeypatch.setattr(ragas, "KEPT", 2)
    metric = Faithfulness("none")
    metric.batch_score(ROWS)
    kept = [metric.judgment(row) is not None for row in ROWS]
    assert kept == [False, True, True]


def test_prompts(lm, endpoint, tmp_path):
    """Both prompts can be read, changed where they stand, replaced under either API's name, and saved; each is asked in
    its own requests. The language is that of the reasons."""

    def tops():
        """What stands at the top of each request for a row."""
        endpoint.requests.clear()
        metric.score(**ROW)
        return [asked["messages"][0]["content"] for asked in endpoint.requests]

    metric = Faithfulness(llm=lm)
    generator, verifier = metric.statement_generator_prompt, metric.nli_statement_prompt
    assert [*metric.get_prompts().values()] == [verifier, generator]
    for prompt, top in zip((generator, verifier), tops()[:2], strict=True):
        assert prompt.to_string().startswith(f"{top}\n\n")
    verifier.instruction = "You check lives of scientists."
    generator.instruction = "You divide lives of scientists."
    assert tops() == [generator.instruction] + [verifier.instruction] * 2
    german = NLIStatementPrompt(language="german")
    german.instruction = "Du prüfst Lebensläufe."
    metric.set_prompts(n_l_i_statement_prompt=german)
    assert tops()[-1] == "Du prüfst Lebensläufe.\nGive reasons in German."
    for name in ("nli_statement_prompt", "nli_statements_prompt"):
        theirs = util.NLIStatementPrompt()
        theirs.instruction = f"As {name} has it."
        setattr(metric, name, theirs)
        assert tops()[-1] == theirs.instruction
    metric.nli_statement_prompt = german
    metric.save_prompts(str(tmp_path))
    assert {f.name for f in tmp_path.iterdir()} == {
        "faithfulness_n_l_i_statement_prompt_german.json",
        "faithfulness_statement_generator_prompt_english.json",
    }


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, ["No", "No", "Yes", "No"]),
        ({"cite": True}, ["No []", "No []", "Yes [0]", "No []"]),
        ({"verdicts": "graded"}, ["nothing", "nothing", "fully", "nothing"]),
        ({"verification": "joint"}, None),
    ],
    ids=str,
)
def test_examples(lm, endpoint, options, labels):
    """RAGAS' examples of both prompts are demos before what is asked, in the labels of the options, until others are
    set."""
    Faithfulness(llm=lm, **options).score(**ROW)
    extraction, verification, *_ = (asked["messages"] for asked in endpoint.requests)
    assert extraction[2] == {"role": "assistant", "content": EINSTEIN}
    replies = [one["content"] for one in verification if one["role"] == "assistant"]
    if labels is None:
        (verdicts,) = (json.loads(reply)["verdicts"] for reply in replies)
        assert [one["verdict"] for one in verdicts] == ["No", "No", "Yes", "No"]
        assert verdicts[0]["reason"].startswith("John's major is explicitly stated")
    else:
        assert [reply.partition("\nWhy: ")[0] for reply in replies] == labels


def test_a_tuned_judge_has_its_own_examples():
    """And refuses others."""
    metric = Faithfulness(Judge("openai/tiny"))
    assert metric.judge.program.predictors()[0].demos == []
    metric.nli_statement_prompt.examples = []
    with pytest.raises(ConfigError, match="was made without demos="):
        metric.score(**ROW)
