"""The contract between the stages of a program and the optimizers that compile them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.config import JudgeConfig
    from faith_dspy.optimize.compile.stage import Stage


class Effort(NamedTuple):
    """How much an optimizer may try."""

    demos: int = 4
    """Examples shown in the prompt; half of each class."""
    candidates: int = 3
    """Instructions that are proposed, and sets of demos that random search tries besides none and the labelled ones."""
    compare_on: int = 40
    """Labelled statements that candidates are compared on."""


class Task(NamedTuple):
    """What an optimizer is given. It is called inside ``dspy.context(lm=…)`` with the judge's LM."""

    student: Stage
    """A copy of the stage; the optimizer may change it."""
    train: Sequence[Any]
    """Labelled `dspy.Example`s of the stage, to learn from."""
    dev: Sequence[Any]
    """Labelled examples to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any]
    """``metric(gold, pred, trace, pred_name, pred_trace)``; more is better. See `agreement_metric`."""
    config: JudgeConfig
    """The judge's options before compiling."""
    proposer: Any = None
    """The LM that writes instructions; None: the judge's own."""
    threads: int = 1
    """Calls at the same time."""


class InstructionResult(NamedTuple):
    """How well one instruction of the bank agrees with people."""

    name: str
    auroc: float
    balanced_accuracy: float
    """With cross-fitted thresholds."""
    n: int
    """Labelled statements it was measured on."""


class CompiledStage(NamedTuple):
    """What an optimizer returns."""

    student: Stage
    """The stage with its new prompts."""
    instructions: tuple[InstructionResult, ...] = ()
    """Of every instruction, where the bank was searched."""
    note: str = ""
    """The outcome in a sentence."""
    asked: int = 0
    """Predictions that were compared with labels; `compile_stage` counts them."""
    failed: int = 0
    """Those of them in which the LM failed or gave no label: no verdict, not a wrong one."""


class Optimizer(NamedTuple):
    """One entry of `OPTIMIZERS`.

    ``compile`` takes a `Task` and returns a `CompiledStage`. It asks verdicts of the judge's LM through
    ``task.student`` only, whose predictions have ``error`` set, and nothing else, where the LM failed; the metric
    scores those 0. It raises `ConfigError` where it cannot run on these labels, and `MissingExtraError` where a package
    is missing, before any call. Whatever else it raises is reported as the proposer's fault if it ``proposes``.
    """

    compile: Callable[[Task], CompiledStage]
    proposes: bool = False
    """Whether an LM writes instructions for it."""
    verdicts_only: bool = False
    """Whether it compiles verification only, and leaves extraction as it is."""
