"""What holds for every adapter, whatever its library calls things."""

import ast
import asyncio
import math
import re
from functools import partial
from pathlib import Path

import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from faith_dspy.integrations import adapters, axion, continuous_eval, rag_evals
from faith_dspy.integrations.adapters import judge_of
from faith_dspy.scoring.classifier import default_classifiers
from tests.support.cases import CASES, CONTEXT, LABELS, QUESTION

pytest.importorskip("ragas")
pytest.importorskip("strands_evals")
pytest.importorskip("deepeval")

import openai
from deepeval.test_case import LLMTestCase
from ragas import EvaluationDataset, evaluate
from ragas.llms import llm_factory
from strands_evals import Case, Experiment
from strands_evals.types.evaluation import EvaluationData

from faith_dspy.integrations import deepeval, mlflow, ragas, strands

pytestmark = pytest.mark.all

# Each adapter as a function of question, context, answer, model and options: the score or None, whether it passed or
# None, and the words beside it.


def _rag_evals(question, context, answer, model, **options):
    own = rag_evals.ContextEvaluation(**options)
    result = own.grade(question, answer, context, model)
    reasons = " ".join(s.reasoning for s in result.statements)
    return result.score, None, result.unscored or reasons


def _continuous_eval(question, context, answer, model, **options):
    metric = continuous_eval.LLMBasedFaithfulness(model, False, True, **options)
    datum = {"question": question, "retrieved_contexts": context, "answer": answer}
    score, reasoning = metric.calculate(**datum).values()
    return score, None, reasoning


def _axion(question, context, answer, model, **options):
    fields = {"query": question, "actual_output": answer, "retrieved_content": context}
    metric = axion.Faithfulness(llm=model, **options)
    result = asyncio.run(metric.execute(axion.DatasetItem(**fields)))
    assert result.explanation in result.pretty()
    return result.score, result.passed, result.explanation


def _ragas(question, context, answer, model, **options):
    row = {"user_input": question, "response": answer, "retrieved_contexts": context}
    result = ragas.Faithfulness(llm=model, **options).score(**row)
    score = None if math.isnan(result.value) else result.value
    return score, None, result.reason


def _strands(question, context, answer, model, **options):
    metadata = {"context": context}
    case = EvaluationData(input=question, actual_output=answer, metadata=metadata)
    (output,) = strands.FaithfulnessEvaluator(model, **options).evaluate(case)
    if output.label == "not_applicable":
        return None, None, output.reason
    return output.score, output.test_pass, output.reason


def _deepeval(question, context, answer, model, **options):
    metric = deepeval.FaithfulnessMetric(model, **options)
    texts = {"input": question, "actual_output": answer, "retrieval_context": context}
    metric.measure(LLMTestCase(**texts))
    if metric.score is None:
        assert metric.is_successful() is False
        return None, None, metric.error
    return metric.score, metric.is_successful(), metric.reason


def _mlflow(question, context, answer, model):
    inputs = {"question": question, "context": context}
    feedback = mlflow.FaithfulnessScorer(model)(inputs=inputs, outputs=answer)
    overall, *_ = feedback
    values = {f.name.removeprefix("faithfulness"): f.value for f in feedback}
    assert values["/scored"] is (overall.value is not None)
    if overall.error is not None:
        assert overall.rationale.startswith(f"unscored ({overall.error.error_code})")
    return overall.value, values.get("/faithful"), overall.rationale


SYSTEMS = {
    "RAGAS": _ragas,
    "Strands": _strands,
    "continuous-eval": _continuous_eval,
    "axion": _axion,
    "rag_evals": _rag_evals,
}
ADAPTERS = {**SYSTEMS, "DeepEval": _deepeval, "MLflow": _mlflow}
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
every_system = pytest.mark.parametrize("adapter", SYSTEMS.values(), ids=SYSTEMS)
BLUE = "It is blue."


@every_adapter
def test_cases(endpoint, lm, adapter):
    """Over a judge of one's own: the share of supported sentences; of axion the mean of its four verdicts' weights."""
    bar, options = 1.0, {}
    if adapter is _axion:
        endpoint.labels = LABELS
        bar, options = 0.5, {"verdicts": "graded", "threshold": 0.5}
    judge = Judge(lm, **options)
    for answer, share, weighted in CASES:
        score, passed, words = adapter(QUESTION, CONTEXT, answer, judge)
        assert score == (weighted if options else share), answer
        assert passed in (None, score >= bar), answer
        assert words


@every_adapter
@pytest.mark.parametrize(
    ("answer", "context", "why"),
    [
        ("I don't know.", [BLUE], "unscored (abstained)"),
        (BLUE, [], "unscored (no_context)"),
        ("It is blue. It is light.", [BLUE], "unscored (lm_failed): 1 of 2"),
    ],
    ids=["declines", "no context", "a statement that was not judged"],
)
def test_no_silent_zero(judge_at, adapter, answer, context, why):
    """Without a judgment there is no score, neither 0 nor 1, and the words begin with the reason."""
    judge, _ = judge_at(yes={BLUE: 0.9})
    score, passed, words = adapter("Which colour?", context, answer, judge)
    assert (score, passed) == (None, None)
    assert words.startswith(why)


@pytest.mark.parametrize("adapter", [_axion, _strands, _deepeval])
def test_a_threshold_of_ones_own(judge_at, adapter):
    """Two of three statements pass at .6 and fail at .7, though the nearest of five levels is .75."""
    judge, _ = judge_at(yes={BLUE: 0.9, "It is light.": 0.9, "It is new.": 0.1})
    asked = "?", [BLUE], "It is blue. It is light. It is new.", judge
    for threshold, passes in ((0.6, True), (0.7, False)):
        assert adapter(*asked, threshold=threshold)[:2] == (2 / 3, passes)


@every_system
def test_options_come_before_the_systems_defaults(endpoint, lm, adapter):
    """An option of `JudgeConfig` changes what is asked; the system's other defaults stay."""
    endpoint.labels = {BLUE: "completely" if adapter is _strands else "fully"}
    options = {"criteria": "Prices count.", "granularity": "answer"}
    adapter("?", [BLUE], BLUE, lm, **options)
    # A reply that is no label of the system is asked for once more.
    top, *_, asked = (one["content"] for one in endpoint.requests[0]["messages"])
    assert "Prices count." in top
    assert "say why" in asked


ASKED, CHUNKS, ANSWER = "Which colour?", [BLUE], "It is blue. It is new."
NAMES = {
    "question": ASKED,
    "answer": ANSWER,
    "chunks": CHUNKS,
    "datum": {"question": ASKED, "answer": ANSWER, "retrieved_contexts": CHUNKS},
    "evaluate": partial(evaluate, show_progress=False),
    "model": "openai/tiny",
    "Experiment": Experiment,
    "cases": [Case(name="a", input=ASKED, metadata={"context": CHUNKS})],
    "task": lambda case: ANSWER,
}
ROW = {"user_input": ASKED, "response": ANSWER, "retrieved_contexts": CHUNKS}
DATASETS = {
    "RAGAS": EvaluationDataset.from_list([ROW]),
    "axion": [{"actual_output": ANSWER, "retrieved_content": CHUNKS}],
}
OUTCOMES = {
    "RAGAS": lambda names: names["result"]["faithfulness"] == [0.5],
    "Strands": lambda names: names["report"].overall_score == 0.5,
    "continuous-eval": lambda names: names["result"]["faithfulness"] < 0.5,
    "axion": lambda names: names["result"].score == names["results"][0].score == 0.0,
    "rag_evals": lambda names: names["result"].score == 0.5,
}
"""Of each block at the top of the page. One of two statements is supported; axion in strict mode weighs them 1 and −1,
Strands' model calls the answer mixed."""


@pytest.mark.parametrize(("number", "system"), [*enumerate(OUTCOMES)])
def test_before_and_after(endpoint, number, system):
    """The blocks of the page do what they say, on an endpoint of OpenAI's shape."""
    page = Path(adapters.__file__).with_name("README.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[number]
    blue, new = ("fully", "nothing") if system == "axion" else ("Yes", "No")
    whole = "mixed" if system == "Strands" else "No"
    endpoint.labels = {BLUE: blue, "It is new.": new, ANSWER: whole}
    endpoint.unlisted = {"gpt-4o-mini"}
    client = openai.AsyncOpenAI(base_url=endpoint.base)
    names = NAMES | {"dataset": DATASETS.get(system)}
    names["llm"] = llm_factory("tiny", client=client)
    lines = [line for line in block.splitlines() if "# before" not in line]
    assert len(lines) < len(block.splitlines())
    code = compile("\n".join(lines), system, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    work = eval(code, names)
    if work is not None:
        asyncio.run(work)
    assert OUTCOMES[system](names)


@every_system
@pytest.mark.parametrize(
    "option",
    [{"system_prompt": "You check shops."}, {"granularity": "answer"}],
    ids=str,
)
def test_a_tuned_judge_refuses_what_it_was_not_tuned_with(adapter, option):
    """An option that would change its prompts or probabilities is an error that names the ways out."""
    (name,) = option
    why = rf"was made without {name}=.*give the LM in place"
    with pytest.raises(ConfigError, match=why):
        adapter("?", [BLUE], BLUE, Judge("openai/tiny"), **option)


def test_what_may_be_changed_of_a_tuned_judge(judge_at):
    """Other weights change the score through the whole chain of a judge as tuning makes them: by words first, then an
    LM with a fitted classifier. Verdicts, probability and prompts stay."""
    second, server = judge_at(says="No")
    fitted = default_classifiers()["local"].model_copy(update={"fitted_to": "labels"})
    judge = Judge("none", escalate_to=second.copy(classifier=fitted))
    asked = "?", [BLUE], "It might be blue."
    plain = judge(*asked)
    other = judge_of({}, judge, verdict_scores={"not_supported": 0.25})
    weighted = other(*asked)
    assert server.requests, "the LM was asked"
    assert (plain.score, plain.faithful, weighted.score) == (0.0, False, 0.25)
    assert (weighted.probability, weighted.escalated) == (plain.probability, 1)
    assert other.escalate_to.program is judge.escalate_to.program
