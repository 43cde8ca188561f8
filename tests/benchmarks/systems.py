"""The judges that are compared, each as its own users would set it up, on one model at one endpoint.

Every maker imports its library, and gives a function from a record to a `RawVerdict`. Nobody's options are turned:
temperatures, retries, thresholds and prompts are each library's defaults.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}
"""Set before a library is imported."""
NO_QUESTION = "What is known about this?"
"""Stands for the question where a set has none and a library insists on one."""
INSTRUCTIONS = """Is the answer faithful to the context? An answer is faithful when the context fully supports every \
statement in it; a single statement that the context does not support makes it unfaithful.

Question and context: {{ inputs }}

Answer: {{ outputs }}"""
"""What `make_judge` is given; its prompt is its user's to write."""


class Endpoint(NamedTuple):
    """Where a system finds the model."""

    base: str
    """Of the OpenAI protocol, counted for this system alone."""
    model: str
    num_ctx: int
    sha256: str


class Record(NamedTuple):
    """One answer to judge."""

    question: str | None
    context: tuple[str, ...]
    answer: str


class RawVerdict(NamedTuple):
    """What a system says of an answer."""

    passes: bool | None = None
    """Faithful by the system's own threshold; None where it gave no verdict."""
    score: float | None = None
    """What AUROC is measured on: higher is more faithful."""
    why: str | None = None
    """Why there is no verdict, in one line."""


Made = tuple["Callable[[Record], RawVerdict]", str]
"""The judging function, and a text that changes whenever its verdicts may."""


class System(NamedTuple):
    """A system: how it is described and made."""

    title: str
    make: Callable[[Endpoint, str | None], Made]
    """From the endpoint and the folder of the judge tuned on the set."""
    mark: str = ""
    """See `MeteringProxy.marks`."""


def by_score(value: float | None, threshold: float) -> RawVerdict:
    """A score with its threshold; a NaN is RAGAS's word for “could not score”."""
    if value is None or math.isnan(value):
        return RawVerdict(why="no score (NaN)")
    return RawVerdict(value >= threshold, value)


def _lm(at: Endpoint) -> Any:
    """Our LM at the counted address, with all that is known of the embedded server; no cache of replies."""
    from faith_dspy.lm.make import make_lm

    lm = make_lm(
        f"openai/{at.model}",
        api_base=at.base,
        context_window=at.num_ctx,
        cache=False,
        num_retries=1,
        timeout=900,
    )
    lm.endpoint = replace(lm.endpoint, sha256=at.sha256)
    return lm


def _ours(judge: Any) -> Made:
    def find(record: Record) -> RawVerdict:
        r = judge(
            question=record.question, context=list(record.context), answer=record.answer
        )
        why = (
            None
            if r.unscored is None
            else f"{r.unscored}: {r.detail or ''}".strip(": ")
        )
        return RawVerdict(r.faithful, r.ranking, why)

    return find, f"faith_dspy {version('faith_dspy')} {judge.fingerprint}"


def _tuned(folder: str | None, at: Endpoint) -> Any:
    """Our judge as tuned on the set's train and dev parts."""
    from faith_dspy import load_judge

    if folder is None:
        raise ValueError(
            "no judge was tuned on this set; make one with faith-dspy tune"
        )
    return load_judge(folder, lm=_lm(at))


def words(at: Endpoint, folder: str | None) -> Made:
    """The lexical baseline: the features our judge goes by before it asks the LM, fitted on the same labels."""
    judge = _tuned(folder, at)
    if judge.asks_lm:
        raise ValueError(
            "the judge asks the LM first; no lexical features stand before it"
        )
    return _ours(judge.copy(escalate_to=None))


def untuned(at: Endpoint, granularity: str) -> Made:
    """Our judge as it comes."""
    from faith_dspy import Judge

    return _ours(Judge(_lm(at), granularity=granularity, classifier=None))


def ragas(at: Endpoint, _: str | None) -> Made:
    """RAGAS `Faithfulness`, the present API: statements, then one verdict each, in two calls.

    It has no threshold of its own: an answer passes with every statement supported.
    """
    os.environ["RAGAS_DO_NOT_TRACK"] = "true"
    import asyncio

    from openai import AsyncOpenAI
    from ragas.llms import llm_factory
    from ragas.metrics.collections import Faithfulness

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    llm = llm_factory(at.model, client=AsyncOpenAI(base_url=at.base, api_key="none"))
    metric = Faithfulness(llm=llm)

    def find(record: Record) -> RawVerdict:
        result = loop.run_until_complete(
            metric.ascore(
                user_input=record.question or NO_QUESTION,
                response=record.answer,
                retrieved_contexts=list(record.context),
            )
        )
        return by_score(result.value, 1.0)

    return find, f"ragas {version('ragas')}"


def deepeval(at: Endpoint, _: str | None) -> Made:
    """DeepEval's `FaithfulnessMetric` with its own wrapper for local models."""
    os.environ.update(
        DEEPEVAL_TELEMETRY_OPT_OUT="1", DEEPEVAL_UPDATE_WARNING_OPT_OUT="1"
    )
    from deepeval.metrics import FaithfulnessMetric
    from deepeval.models import LocalModel
    from deepeval.test_case import LLMTestCase

    model = LocalModel(model=at.model, base_url=at.base, api_key="none")

    def find(record: Record) -> RawVerdict:
        metric = FaithfulnessMetric(model=model)
        case = LLMTestCase(
            input=record.question or NO_QUESTION,
            actual_output=record.answer,
            retrieval_context=list(record.context),
        )
        metric.measure(case, _show_indicator=False)
        return by_score(metric.score, metric.threshold)

    return find, f"deepeval {version('deepeval')}"


def make_judge(at: Endpoint, _: str | None) -> Made:
    """MLflow's `make_judge` on whole answers."""
    os.environ.update(OPENAI_API_BASE=at.base, OPENAI_API_KEY="none")
    from mlflow.genai.judges import make_judge

    judge = make_judge(
        name="faithfulness",
        instructions=INSTRUCTIONS,
        model=f"openai:/{at.model}",
        feedback_value_type=bool,
    )

    def find(record: Record) -> RawVerdict:
        inputs = ({"question": record.question} if record.question else {}) | {
            "context": list(record.context)
        }
        feedback = judge(inputs=inputs, outputs=record.answer)
        if feedback.error is not None or not isinstance(feedback.value, bool):
            return RawVerdict(
                why=str(
                    feedback.error
                    or f"its value is {feedback.value!r}, expected true or false"
                )
            )
        return RawVerdict(feedback.value, float(feedback.value))

    return find, f"mlflow {version('mlflow')} {judge.instructions}"


TUNED = ("champion", "words")
"""Those that are made of the judge tuned on the set."""
SYSTEMS = {
    "champion": System(
        "faith_dspy, tuned", lambda at, folder: _ours(_tuned(folder, at))
    ),
    "words": System("lexical baseline, no LM", words),
    "sentence": System(
        "faith_dspy, untuned, by sentence", lambda at, _: untuned(at, "sentence"), "\n"
    ),
    "answer": System(
        "faith_dspy, untuned, whole answer", lambda at, _: untuned(at, "answer"), "\n\n"
    ),
    "ragas": System("RAGAS Faithfulness", ragas),
    "deepeval": System("DeepEval FaithfulnessMetric", deepeval),
    "make_judge": System("MLflow make_judge", make_judge),
}
