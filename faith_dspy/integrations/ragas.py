"""RAGAS' own calls, over a judge.

from faith_dspy.integrations.ragas import Faithfulness
ragas.evaluate(dataset, metrics=[Faithfulness()], llm=llm)
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from faith_dspy.errors import optional_dependency
from faith_dspy.integrations.adapters import explain, judge_of, prompt_of
from faith_dspy.judge import Judge
from faith_dspy.program.extraction import assign_statements
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Judgment, digest
from faith_dspy.text.sentences import split_answer

with optional_dependency("ragas", "ragas", "A judge as a RAGAS metric"):
    from ragas.metrics.base import MetricType, MetricWithLLM, SingleTurnMetric
    from ragas.metrics.collections.faithfulness import util
    from ragas.metrics.result import MetricResult
    from ragas.prompt import PydanticPrompt

DEFAULTS = {"granularity": "statement", "reasoning": "after"}
KEPT = 10_000
"""Judgments that a metric keeps for ``judgment(sample)``, the latest."""


class _Prompt(PydanticPrompt[Any, Any]):
    """A prompt of which ``instruction`` and ``examples`` are the user's to set; the form of the reply stays ours. The
    examples are RAGAS' unless set."""

    def to_string(self, data: Any = None) -> str:
        """Return the instruction; the texts that are judged follow it."""
        return str(self.instruction)


class NLIStatementPrompt(_Prompt):
    """What the judge is asked about a statement; ``language`` is that of the reasons."""

    instruction = prompt_of(DEFAULTS)
    examples = util.NLIStatementPrompt.examples
    input_model, output_model = util.NLIStatementInput, util.NLIStatementOutput


class StatementGeneratorPrompt(_Prompt):
    """What the judge is asked where it takes an answer apart."""

    instruction = prompt_of(DEFAULTS, "extract")
    examples = util.StatementGeneratorPrompt.examples
    input_model = util.StatementGeneratorInput
    output_model = util.StatementGeneratorOutput


def _verification_demos(prompt: Any, verdicts: str) -> dict[str, list[Any]]:
    """Return the prompt's examples as demos of a judge that asks about each statement, and of one that asks about all
    at once; ``verdicts`` as in `JudgeConfig`."""
    labels = INSTRUCTIONS[verdicts].labels
    words = min(labels, key=labels.__getitem__), max(labels, key=labels.__getitem__)
    each, joint = [], []
    for example, reply in prompt.examples:
        asked = {"context": [example.context], "question": ""}
        texts, entries = {}, []
        for number, one in enumerate(reply.statements, 1):
            verdict = {"verdict": words[bool(one.verdict)], "reason": one.reason}
            ids = [0] if one.verdict else []
            statement = {"statement": one.statement, "supporting_chunk_ids": ids}
            each.append(asked | statement | verdict)
            texts[number] = one.statement
            entries.append({"statement": number, **verdict})
        numbered = {"context": {0: example.context}, "statements": texts}
        joint.append(asked | numbered | {"verdicts": entries})
    return {"verify.predict": each, "joint": joint}


def _extraction_demos(prompt: Any) -> list[dict[str, Any]]:
    """Return the prompt's examples as demos, each statement after the number of the sentence that it is from."""
    demos = []
    for example, reply in prompt.examples:
        asked, sentences = example.question, split_answer(example.answer).stating
        order: list[int | None] = [sentence.index for sentence in sentences]
        lines = []
        for one in assign_statements(reply.statements, sentences, asked, check=False)[
            0
        ]:
            lines.append(f"{order.index(one.sentence_index) + 1}. {one.text}")
        texts = [sentence.text for sentence in sentences]
        demos.append({"question": asked, "sentences": texts, "statements": lines})
    return demos


class Faithfulness(MetricWithLLM, SingleTurnMetric):
    """`Judgment.score` as a RAGAS metric, for `ragas.evaluate`, ``single_turn_ascore`` and the newer ``ascore``.

    ``llm`` and ``options``: what `judge_of` takes, a RAGAS LLM or a judge among it. Without ``llm`` the one of
    `ragas.evaluate` is asked (by RAGAS' own default a model of OpenAI's), outside it the embedded model. ``language``:
    of the reasons; answers and contexts may be in any. It needs ``response`` and ``retrieved_contexts`` and uses
    ``user_input`` if it is there.

    An unscored answer is NaN, RAGAS's word for it, which its means leave out; the reason is in the `MetricResult`, and
    in ``judgment(sample)`` after `evaluate`, whose results have room for a number only.
    """

    def __init__(
        self,
        llm: Any = None,
        name: str = "faithfulness",
        *,
        language: str = "english",
        **options: Any,
    ) -> None:
        columns = {"response", "retrieved_contexts", "user_input:optional"}
        super().__init__(_required_columns={MetricType.SINGLE_TURN: columns}, name=name)
        self.llm, self.options = llm, options
        self.nli_statement_prompt: Any = NLIStatementPrompt(language=language)
        self.statement_generator_prompt: Any = StatementGeneratorPrompt()
        self._last: tuple[Any, Judge] | None = None
        self._judgments: dict[str, Judgment] = {}

    @property
    def judge(self) -> Judge:
        """Made anew when the LM or a prompt has changed."""
        verify, extract = self.nli_statement_prompt, self.statement_generator_prompt
        asks: dict[str, Any] = {}
        if verify.instruction != NLIStatementPrompt.instruction:
            asks["system_prompt"] = verify.instruction
        if extract.instruction != StatementGeneratorPrompt.instruction:
            asks["extraction_prompt"] = extract.instruction
        if verify.language != "english":
            asks["criteria"] = f"Give reasons in {verify.language.capitalize()}."
        examples = [*verify.examples], [*extract.examples]
        settings = self.llm, asks, examples
        if self._last is None or self._last[0] != settings:
            demos = _verification_demos(verify, self.options.get("verdicts", "binary"))
            demos["extract"] = _extraction_demos(extract)
            defaults: dict[str, Any] = DEFAULTS | {"demos": demos}
            theirs = NLIStatementPrompt.examples, StatementGeneratorPrompt.examples
            if examples != theirs:
                asks["demos"] = demos
            self._last = settings, judge_of(defaults, self.llm, **asks | self.options)
        return self._last[1]

    nli_statements_prompt = property(
        lambda self: self.nli_statement_prompt,
        lambda self, prompt: setattr(self, "nli_statement_prompt", prompt),
        doc="`nli_statement_prompt` under the name that it has in `ragas.metrics`.",
    )

    def init(self, run_config: Any) -> None:
        """Do nothing: waiting and trying again are the judge's own business."""

    async def ascore(self, **row: Any) -> MetricResult:
        """Score ``user_input``, ``response`` and ``retrieved_contexts`` (NaN if unscored) with the reason; ``traces``
        have each statement with its sentence's index."""
        return (await self.abatch_score([row]))[0]

    def score(self, **row: Any) -> MetricResult:
        """Score as `ascore` does, also where an event loop runs."""
        return self.batch_score([row])[0]

    async def abatch_score(self, inputs: list[Any]) -> list[MetricResult]:
        """Results in the order of ``inputs``, each the arguments of `ascore` by name."""
        rows = list(map(_row_of, inputs))
        return list(map(self._result, await self.judge.abatch(rows), rows))

    def batch_score(self, inputs: list[Any]) -> list[MetricResult]:
        """Score as `abatch_score` does, also where an event loop runs."""
        rows = list(map(_row_of, inputs))
        return list(map(self._result, self.judge.batch(rows), rows))

    def single_turn_score(self, sample: Any, callbacks: Any = None) -> float:
        """Return the score of a sample, also where an event loop runs."""
        return float(self.batch_score([sample])[0].value)

    async def _single_turn_ascore(self, sample: Any, callbacks: Any) -> float:
        from langchain_core.runnables.config import set_config_context

        with set_config_context({"callbacks": callbacks}) as context:
            scoring = self.abatch_score([sample])
            (result,) = await asyncio.create_task(scoring, context=context)
        return float(result.value)

    def _result(self, judgment: Judgment, row: dict[str, Any]) -> MetricResult:
        self._judgments[digest(row)] = judgment
        if len(self._judgments) > KEPT:
            del self._judgments[next(iter(self._judgments))]
        statements = [
            {
                "sentence_index": s.sentence_index,
                "statement": s.text,
                "reason": s.reason or s.error,
                "verdict": int(bool(s.is_supported)),
            }
            for s in judgment.statements
        ]
        score = math.nan if judgment.score is None else judgment.score
        return MetricResult(
            value=score,
            reason=explain(judgment),
            traces={"output": {"statements": statements}},
        )

    def judgment(self, sample: Any) -> Judgment | None:
        """Return what was found of a sample (or a row of the data set) that this metric has scored; None of any
        other."""
        return self._judgments.get(digest(_row_of(sample)))


faithfulness = Faithfulness()


def _row_of(sample: Any) -> dict[str, Any]:
    """Return what a judge is asked about: the arguments of `Faithfulness.ascore` of a sample or a row."""
    row = sample if isinstance(sample, dict) else sample.to_dict()
    names = ("user_input", "response", "retrieved_contexts")
    return {name: row.get(name) for name in names}
