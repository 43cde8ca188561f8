"""One variant compiled: an optimizer run on labelled statements, its prompts put into the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.metric import agreement_metric, statement_examples
from faith_dspy.optimize.optimizers import Effort, Task, compile_verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.variants import Variant
    from faith_dspy.schema import LabelledExample

    Pieces = Sequence[tuple[LabelledExample, Sequence[str], Sequence[bool | None]]]


def compiled_judge(
    judge: Judge,
    variant: Variant,
    train: Pieces,
    dev: Pieces,
    effort: Effort,
    seed: int,
    advance: Callable[[int], None],
) -> None:
    """Compile the judge's verifier on labelled pieces of answers, in place. Call it inside `dspy.context(lm=…)`."""

    def metric(*args: Any, **kwargs: Any) -> Any:
        advance(1)
        return agreement_metric(*args, **kwargs)

    first = variant.config.instructions[0]
    task = Task(
        student=judge.program.verify,
        train=statement_examples(train, first),
        dev=statement_examples(dev, first),
        effort=effort,
        seed=seed,
        metric=metric,
    )
    assert variant.optimizer is not None
    judge.program.verify = compile_verifier(variant.optimizer, task)


def demo_ids(judge: Judge, examples: Sequence[LabelledExample]) -> set[str]:
    """Ids of labelled examples that stand in the prompt as demos: their labels were shown, so they measure nothing."""
    shown = {
        (tuple(demo.get("context", ())), str(demo.get("statement")))
        for _, predictor in judge.program.named_predictors()
        for demo in predictor.demos
    }
    return {
        e.id
        for e in examples
        for context, piece in shown
        if context == tuple(c.text for c in e.context) and piece in e.answer
    }


def prompts_of(judge: Judge) -> dict[str, Any]:
    """Instructions and demos of each predictor, as they are sent."""
    return {
        name: {
            "instructions": predictor.signature.instructions,
            "demos": [{k: v for k, v in dict(d).items() if k in predictor.signature.fields} for d in predictor.demos],
        }
        for name, predictor in judge.program.named_predictors()
    }
