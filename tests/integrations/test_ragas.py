import asyncio
import json

import pytest

pytest.importorskip("ragas")

from ragas import EvaluationDataset, SingleTurnSample, evaluate
from ragas.metrics import Faithfulness as TheirFaithfulness

from faith_dspy import Judge
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


def test_batches(llm):
    """`batch_score` and `abatch_score`, as RAGAS' collections have them: results in the order of the rows; one that
    cannot be scored is NaN with the reason, beside the others; what was judged is kept as of single rows."""
    rows = [
        ROW,
        {**ROW, "response": LANDED},
        {**ROW, "retrieved_contexts": []},
        {**ROW, "response": ICELAND, "retrieved_contexts": CONTEXT[:1]},
    ]
    metric = Faithfulness(llm=llm)

    async def inside():
        return await metric.abatch_score(rows), metric.batch_score(rows)

    for results in [*asyncio.run(inside()), metric.batch_score(rows)]:
        values = [result.value for result in results]
        assert values == pytest.approx([0.5, 1.0, float("nan"), 0.0], nan_ok=True)
        assert results[2].reason.startswith("unscored (no_context)")
        assert results[0].traces == metric.score(**ROW).traces
    assert metric.judgment(rows[3]).score == 0.0
    assert metric.batch_score([]) == []


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
    """Both prompts can be read, changed where they stand, replaced and saved; each is asked in its own requests."""
    metric = Faithfulness(llm=llm)
    generator, verifier = (
        metric.get_prompts()[name]
        for name in ("statement_generator_prompt", "n_l_i_statement_prompt")
    )
    for prompt in (generator, verifier):
        assert prompt.to_string() == prompt.instruction
    metric.score(**ROW)
    for prompt, asked in zip((generator, verifier), server.requests[:2], strict=True):
        top, _, ask = prompt.instruction.rpartition("\n\n")
        assert asked["messages"][0]["content"] == top
        assert f"\n{ask}" in asked["messages"][-1]["content"]
    server.requests.clear()
    verifier.instruction = "You check lives of scientists."
    generator.instruction = "You divide lives of scientists."
    metric.score(**ROW)
    tops = [asked["messages"][0]["content"] for asked in server.requests]
    assert tops == [generator.instruction] + [verifier.instruction] * 2
    server.requests.clear()
    german = NLIStatementPrompt(language="german")
    german.instruction = "Du prüfst Lebensläufe."
    metric.set_prompts(n_l_i_statement_prompt=german)
    metric.score(**ROW)
    top = server.requests[-1]["messages"][0]["content"]
    assert top == "Du prüfst Lebensläufe.\nGive reasons in German."
    metric.save_prompts(str(tmp_path))
    assert {f.name for f in tmp_path.iterdir()} == {
        "faithfulness_n_l_i_statement_prompt_german.json",
        "faithfulness_statement_generator_prompt_english.json",
    }


@pytest.mark.parametrize("options", [{}, {"verification": "joint"}], ids=str)
def test_examples(llm, server, options):
    """Examples of both prompts, here RAGAS' own, are demos before what is asked; a tuned judge refuses them."""
    metric, theirs = Faithfulness(llm=llm, **options), TheirFaithfulness()
    metric.set_prompts(**theirs.get_prompts())
    assert metric.score(**ROW).value == 0.5
    extraction, verification, *_ = (asked["messages"] for asked in server.requests)
    assert extraction[0]["content"].startswith("Given a question and an answer")
    assert extraction[2] == {
        "role": "assistant",
        "content": "1. Albert Einstein was a German-born theoretical physicist.\n"
        "1. Albert Einstein is recognized as one of the greatest and most influential physicists of all time.\n"
        "2. Albert Einstein was best known for developing the theory of relativity.\n"
        "2. Albert Einstein also made important contributions to the development of the theory of quantum mechanics.",
    }
    replies = [one["content"] for one in verification if one["role"] == "assistant"]
    if options:
        verdicts = [json.loads(reply)["verdicts"] for reply in replies]
        assert [len(entries) for entries in verdicts] == [4, 1]
        assert verdicts[1][0]["reason"] == "The context and statement are unrelated"
    else:
        labels = [reply.partition("\nWhy: ")[0] for reply in replies]
        assert labels == ["No", "No", "Yes", "No", "No"]
    metric.llm = Judge("openai/tiny")
    with pytest.raises(ConfigError, match="was made without system_prompt="):
        metric.score(**ROW)
    metric = Faithfulness(metric.llm)
    metric.nli_statements_prompt.examples = theirs.nli_statements_prompt.examples
    with pytest.raises(ConfigError, match="was made without demos="):
        metric.score(**ROW)
