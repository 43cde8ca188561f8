"""What holds for every adapter, whatever its library calls things."""

import ast
import asyncio
import gc
import inspect
import math
import re
import weakref
from functools import partial
from pathlib import Path

import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from faith_dspy.integrations import adapters, axion, continuous_eval, rag_evals
from faith_dspy.integrations.adapters import judge_of
from faith_dspy.scoring.classifier import default_classifiers
from tests.support.cases import CASES, CONTEXT, QUESTION

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

# Each adapter as a function of model and options that gives one of (question, context, answer): the score or None,
# whether it passed or None, and the words beside it.


def _rag_evals(model, **options):
    own = rag_evals.ContextEvaluation(**options)

    def grade(question, context, answer):
        found = own.grade(question, answer, context, model)
        if inspect.isawaitable(found):  # of an asynchronous client
            found = asyncio.run(_await(found))
        return (
            found.score,
            None,
            found.unscored or " ".join(s.reasoning for s in found.statements),
        )

    return grade


def _continuous_eval(model, **options):
    metric = continuous_eval.LLMBasedFaithfulness(
        model, classify_by_statement=True, **options
    )

    def calculate(question, context, answer):
        found = metric.calculate(
            question=question, retrieved_contexts=context, answer=answer
        )
        return (
            found["LLM_based_faithfulness"],
            None,
            found["LLM_based_faithfulness_reasoning"],
        )

    return calculate


def _axion(model, **options):
    metric = axion.Faithfulness(llm=model, **options)

    def execute(question, context, answer):
        given = axion.DatasetItem(
            query=question, actual_output=answer, retrieved_content=context
        )
        found = asyncio.run(metric.execute(given))
        assert found.explanation in found.pretty() or found.score is not None
        return found.score, found.passed, found.explanation

    return execute


def _ragas(model, **options):
    metric = ragas.Faithfulness(llm=model, **options)

    def score(question, context, answer):
        found = metric.score(
            user_input=question, response=answer, retrieved_contexts=context
        )
        return None if math.isnan(found.value) else found.value, None, found.reason

    return score


def _strands(model, **options):
    evaluator = strands.FaithfulnessEvaluator(model, **options)

    def evaluate(question, context, answer):
        given = EvaluationData(
            input=question, actual_output=answer, metadata={"context": context}
        )
        (found,) = evaluator.evaluate(given)
        assert asyncio.run(evaluator.evaluate_async(given)) == [found]
        score = None if found.label == "not_applicable" else found.score
        return score, None if score is None else found.test_pass, found.reason

    return evaluate


def _deepeval(model, **options):
    metric = deepeval.FaithfulnessMetric(model, **options)

    def measure(question, context, answer):
        metric.measure(
            LLMTestCase(input=question, actual_output=answer, retrieval_context=context)
        )
        assert metric.is_successful() is metric.success
        return (
            metric.score,
            None if metric.score is None else metric.success,
            metric.error or metric.reason,
        )

    return measure


def _mlflow(model):
    scorer = mlflow.FaithfulnessScorer(model)

    def give(question, context, answer):
        found = {
            f.name: f
            for f in scorer(
                inputs={"question": question, "context": context}, outputs=answer
            )
        }
        overall, passed = found["faithfulness"], found.get("faithfulness/faithful")
        assert found["faithfulness/scored"].value is (overall.value is not None)
        assert (overall.error is None) or overall.rationale.startswith(
            f"unscored ({overall.error.error_code})"
        )
        return overall.value, passed and passed.value, overall.rationale

    return give


async def _await(result):
    return await result


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
GIVEN = {"question": "?", "context": ["It is blue."]}


@every_adapter
@pytest.mark.parametrize(
    "tells", [True, False], ids=["log-probabilities", "labels alone"]
)
def test_cases(recorded, adapter, tells):
    """Over a judge of one's own: the share of supported sentences; of axion the mean of its four verdicts' weights."""
    graded = adapter is _axion
    judge, server = recorded(
        **({"verdicts": "graded", "threshold": 0.5} if graded else {})
    )
    server.tells = tells
    judged, bar = adapter(judge), 0.5 if graded else 1.0
    for answer, share, weighted in CASES:
        score, passed, words = judged(QUESTION, CONTEXT, answer)
        assert score == (weighted if graded else share), answer
        assert passed in (None, score >= bar), answer
        assert words


@every_adapter
@pytest.mark.parametrize(
    ("answer", "context", "why"),
    [
        ("I don't know.", ["It is blue."], "unscored (abstained)"),
        ("It is blue.", [], "unscored (no_context)"),
        (
            "It is blue. It is light.",
            ["It is blue."],
            "unscored (lm_failed): 1 of 2 statements",
        ),
    ],
    ids=["declines", "no context", "a statement that was not judged"],
)
def test_no_silent_zero(judge_at, adapter, answer, context, why):
    """Without a judgment there is no score, neither 0 nor 1, and the words begin with the reason."""
    judge, _ = judge_at(yes={"It is blue.": 0.9})
    score, passed, words = adapter(judge)("Which colour?", context, answer)
    assert (score, passed) == (None, None)
    assert words.startswith(why)


@every_system
def test_options_come_before_the_systems_defaults(chat_server, dspy_lm, adapter):
    """An option of `JudgeConfig` changes what is asked; the system's other defaults stay."""
    server = chat_server(says="completely" if adapter is _strands else "Yes")
    adapter(dspy_lm(server), criteria="Prices count.", granularity="answer")(
        **GIVEN, answer="It is blue."
    )
    # A reply that is no label of the system is asked for once more.
    asked = server.requests[0]
    assert "Prices count." in asked["messages"][0]["content"]
    assert "say why" in asked["messages"][-1]["content"]


ASKED, CHUNKS, ANSWER = "Which colour?", ["It is blue."], "It is blue. It is new."
BLOCKS = {
    "RAGAS": (lambda found: found["result"]["faithfulness"], [0.5]),
    "Strands": (
        lambda found: (found["report"].overall_score, found["report"].test_passes),
        (0.5, [True]),
    ),
    "continuous-eval": (lambda found: found["result"]["faithfulness"] < 0.5, True),
    "axion": (
        lambda found: [r.score for r in (found["result"], *found["results"])],
        [0.0, 0.0],
    ),
    "rag_evals": (
        lambda found: (
            found["result"].score,
            found["result"].statements[1].is_supported,
        ),
        (0.5, False),
    ),
}
"""Of each block at the top of the page: what it finds, and what that is. One of two statements is supported; axion in
strict mode weighs them 1 and −1, Strands' model calls the answer mixed."""


@pytest.mark.parametrize("system", BLOCKS)
def test_before_and_after(replies, monkeypatch, system):
    """The blocks of the page do what they say, on an endpoint of OpenAI's shape."""
    page = Path(adapters.__file__).with_name("README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[
        list(BLOCKS).index(system)
    ]
    blue, new = {"axion": ("fully", "nothing")}.get(system, ("Yes", "No"))
    whole = "mixed" if system == "Strands" else "No"
    server = replies({"It is blue.": blue, "It is new.": new, ANSWER: whole})
    server.unlisted = {"gpt-4o-mini"}
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ragas_row = {"user_input": ASKED, "response": ANSWER, "retrieved_contexts": CHUNKS}
    dataset = {
        "RAGAS": EvaluationDataset.from_list([ragas_row]),
        "axion": [{"actual_output": ANSWER, "retrieved_content": CHUNKS}],
    }
    names = {
        **{
            "question": ASKED,
            "answer": ANSWER,
            "chunks": CHUNKS,
            "dataset": dataset.get(system),
        },
        "datum": {"question": ASKED, "answer": ANSWER, "retrieved_contexts": CHUNKS},
        "evaluate": partial(evaluate, show_progress=False),
        "llm": llm_factory(
            "tiny", client=openai.AsyncOpenAI(base_url=server.base, api_key="k")
        ),
        "model": "openai/tiny",
        "Experiment": Experiment,
        "cases": [Case(name="a", input=ASKED, metadata={"context": CHUNKS})],
        "task": lambda case: ANSWER,
    }
    lines = [line for line in code.splitlines() if "# before" not in line]
    assert len(lines) < len(code.splitlines())
    work = eval(
        compile("\n".join(lines), system, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names
    )
    if work is not None:
        asyncio.run(work)
    find, found = BLOCKS[system]
    assert find(names) == found
    assert server.requests


@pytest.fixture
def cascade(judge_at):
    """A judge as tuning makes them: by words first, then an LM with a demo, both with a fitted classifier."""
    judge, server = judge_at(says="No")
    judge = judge.copy(
        classifier=default_classifiers()["local"].model_copy(
            update={"fitted_to": "labels"}
        )
    )
    demo = {
        "context": "[0] It was.",
        "question": "",
        "statement": "So.",
        "verdict": "No",
    }
    judge.program.predictors()[0].demos = [demo]
    return Judge("none", escalate_to=judge), server


@every_system
@pytest.mark.parametrize(
    "option",
    [{"system_prompt": "You check shops."}, {"granularity": "answer"}],
    ids=str,
)
def test_a_tuned_judge_refuses_what_it_was_not_tuned_with(cascade, adapter, option):
    """An option that would change its prompts or probabilities is an error that names the ways out."""
    with pytest.raises(
        ConfigError,
        match=rf"was made without {next(iter(option))}=.*give the LM in place",
    ):
        adapter(cascade[0], **option)(**GIVEN, answer="It is blue.")


def test_what_may_be_changed_of_a_tuned_judge(cascade):
    """Other weights change the score through the whole chain; verdicts, probability and prompts stay. An answer passes
    from axion's threshold on, whatever probability the judge asks for."""
    judge, server = cascade
    given = {**GIVEN, "answer": "It is red. It is new."}
    plain, other = (
        judge(**given),
        judge_of({}, judge, verdict_scores={"not_supported": 0.25}),
    )
    found = other(**given)
    assert server.requests, "the LM was asked"
    assert (plain.score, plain.faithful, found.score) == (0.0, False, 0.25)
    assert (found.probability, found.escalated) == (plain.probability, 1)
    assert other.escalate_to.program is judge.escalate_to.program
    for options, passes in (
        ({"threshold": 0.0}, True),
        ({"threshold": 1.0}, False),
        ({}, False),
    ):
        assert _axion(judge, **options)(**given)[:2] == (0.0, passes)


def test_adapters_keep_no_judges(judge_at, monkeypatch):
    """The judge of the last client alone is kept by rag_evals, and as many judgments as allowed by RAGAS."""
    judges = [judge_at()[0] for _ in range(2)]
    first = weakref.ref(judges[0])
    while judges:
        last = judges.pop(0)
        rag_evals.Faithfulness.grade("?", "It is blue.", ["It is blue."], last)
    gc.collect()
    assert first() is None
    monkeypatch.setattr(ragas, "KEPT", 2)
    metric = ragas.Faithfulness(last)
    rows = [
        {"response": f"Kettle {i} is blue.", "retrieved_contexts": ["It is blue."]}
        for i in range(3)
    ]
    for row in rows:
        metric.score(**row)
    assert [metric.judgment(row) and metric.judgment(row).score for row in rows] == [
        None,
        1.0,
        1.0,
    ]
