"""Compile a judge: extraction and verification, each by an optimizer on labels of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError
from faith_dspy.optimize.compile.examples import statement_examples
from faith_dspy.optimize.compile.extraction import Extractor, extraction_examples, extraction_metric
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import compile_stage
from faith_dspy.optimize.compile.task import Compiled, Effort, Stage, Task
from faith_dspy.program.program import FaithfulnessProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import LabelledExample

    Examples = Sequence[LabelledExample]

MIN_EXTRACTIONS = 2
"""Answers with people's own statements that train and dev need each for extraction to be compiled on them."""
MIN_LABELS = 2
"""Labels of each kind that train and dev need each for verification to be compiled on them."""


def compiled_judge(
    judge: Judge,
    optimizer: str,
    train: Examples,
    dev: Examples,
    effort: Effort,
    seed: int,
    *,
    proposer: Any = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Compiled[Judge]:
    """A new judge, its program compiled by ``optimizer`` on labelled answers; the judge given stays as it is.

    Verification learns from people's statements where the LM extracts statements and people wrote some, else from
    sentences, and from whole answers where that is the granularity or too few of their parts are labelled. Extraction
    learns from people's statements.

    ``proposer``: the LM that writes instructions; None: the judge's own. ``advance`` is called for each prediction.
    Raises `ConfigError` where the optimizer cannot run on these labels or without an LM that can propose, and
    `LMUnavailableError` when an endpoint is down.
    """

    def compiled(part: dspy.Module, rows: Sequence[Any], metric: Any, effort: Effort) -> Compiled[Stage]:
        on_train, on_dev = rows
        task = Task(Stage(part), on_train, on_dev, effort, seed, metric, judge.config, proposer, judge.default_threads)
        return compile_stage(optimizer, task, advance)

    notes: list[str] = []
    extraction: Compiled[Stage] | None = None
    with dspy.context(lm=judge.lm):
        if judge.program.extract is not None and optimizer != "search":  # the bank holds no extraction prompts
            rows = [extraction_examples(part) for part in (train, dev)]
            of = [len(part) for part in rows]
            if min(of) < MIN_EXTRACTIONS:
                few = f"{of[0]} answers of train and {of[1]} of dev"
                notes.append(f"extraction: as it was, only {few} have people's own statements throughout")
            else:
                less = effort._replace(compare_on=max(2, effort.compare_on // 4))
                extraction = compiled(Extractor(judge.program.extract), rows, extraction_metric, less)
                notes.append(f"extraction: compiled on {of[0]} answers with people's own statements")
        rows, note = _verification_rows(judge, optimizer, train, dev)
        verification = compiled(judge.program.verify, rows, partial(agreement_metric, cite=judge.config.cite), effort)

    verifier: Any = verification.result.part
    new = judge.copy(config=judge.config.model_copy(update={"instruction": verifier.instruction}))
    new.program = FaithfulnessProgram(new.config, judge.window)
    verification.result.copy_prompts_to(new.program.verify)
    stages = [verification]
    if extraction is not None and new.program.extract is not None:
        extraction.result.copy_prompts_to(Extractor(new.program.extract))
        stages.append(extraction)
    return Compiled(
        new,
        verification.search,
        (*notes, *note, *verification.notes),
        asked=sum(s.asked for s in stages),
        failed=sum(s.failed for s in stages),
    )


def _verification_rows(
    judge: Judge, optimizer: str, train: Examples, dev: Examples
) -> tuple[list[list[dspy.Example]], tuple[str, ...]]:
    """The examples of train and dev that verification is compiled on, and a note; `ConfigError` if they are too few."""

    def rows(granularity: Granularity) -> list[list[dspy.Example]]:
        """Those an optimizer can ask about: it asks about the whole context at once."""
        parts = [statement_examples(part, granularity, judge.config.instruction) for part in (train, dev)]
        window = judge.window
        return [[r for r in p if window is None or sum(len(c.encode()) for c in r.context) <= window] for p in parts]

    def per_class(part: list[dspy.Example]) -> list[int]:
        return [sum(r.supported is label for r in part) for label in (True, False)]

    granularity, note = judge.config.granularity, ""
    found = rows(granularity)
    if granularity is not Granularity.ANSWER and any(min(per_class(part)) < MIN_LABELS for part in found):
        found, note = (
            rows(Granularity.ANSWER),
            "verification: compiled on whole answers, too few of their parts are labelled",
        )
    for name, part in zip(("train", "dev"), found, strict=True):
        got = per_class(part)
        if min(got) < MIN_LABELS:
            raise ConfigError(
                f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, "
                f"or answers, in {name}; got {got[0]} and {got[1]}"
            )
    return found, (note,) if note else ()


def demo_ids(judge: Judge, examples: Examples) -> set[str]:
    """Ids of labelled examples that are demos in the prompt: the LM was shown their labels, so they measure nothing."""
    demos = [dict(demo) for predictor in judge.program.predictors() for demo in predictor.demos]
    verified = {(tuple(d["context"]), d["statement"]) for d in demos if "statement" in d}
    extracted = {tuple(d["sentences"]) for d in demos if "sentences" in d}

    def shown(e: LabelledExample) -> bool:
        context = tuple(c.text for c in e.context)
        own = {s.text for s in e.statements}
        return any(context == c and (text in e.answer or text in own) for c, text in verified) or any(
            all(sentence in e.answer for sentence in sentences) for sentences in extracted
        )

    return {e.id for e in examples if shown(e)}


def prompts_of(judge: Judge) -> dict[str, Any]:
    """Instructions and demos of each predictor, as they are sent."""
    return {
        name: {
            "instructions": predictor.signature.instructions,
            "demos": [{k: v for k, v in dict(d).items() if k in predictor.signature.fields} for d in predictor.demos],
        }
        for name, predictor in judge.program.named_predictors()
    }
