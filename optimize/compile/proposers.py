"""Optimizers that have an LM propose instructions: MIPROv2, SIMBA and GEPA.

The proposer may be another LM than the judged one. All verdicts are asked of the judged LM.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import dspy
from dspy.adapters import ChatAdapter
from dspy.teleprompt.gepa import InstructionProposer

from faith_dspy.errors import ConfigError, MissingExtraError
from faith_dspy.optimize.compile.task import Found, Task, balanced, short

MIN_REPLY = 1024
"""Output tokens a proposer needs; a limit below it is raised."""
MINIBATCH = 35
"""Examples MIPROv2 tries a candidate on before the best are tried on all."""
REFLECT_ON = 3
"""Statements GEPA reflects on at a time."""
SMALLEST_BATCH, LARGEST_BATCH = 4, 32
"""Of SIMBA."""
FORM = (
    "Write the instruction in two parts with one blank line between them. The first says what to mind when statements "
    "are checked against a context. The second, the last paragraph, is put after the statement: it asks the question "
    "in one or two sentences and names the labels to answer with, exactly as they are now."
)


def mipro(task: Task) -> Found:
    """MIPROv2 (Opsahl-Ong et al. 2024): proposed instructions and bootstrapped demos, searched by TPE on dev."""
    if find_spec("optuna") is None:  # MIPROv2 itself finds out after it has paid for bootstrapping and proposals
        raise MissingExtraError("optuna", "tune", "The optimizer mipro")
    valset = balanced(task.dev, task.effort.compare_on, task.seed)
    candidates = task.effort.candidates + 2  # the first is the seed instruction, the first set of demos is empty
    optimizer = dspy.MIPROv2(
        metric=task.metric,
        prompt_model=_proposing(task),
        task_model=dspy.settings.lm,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=task.effort.demos,
        auto=None,
        num_candidates=candidates,
        num_threads=task.threads,
        seed=task.seed + 1,  # it takes 0 for no seed at all
    )
    compiled = optimizer.compile(
        task.student,
        trainset=balanced(short(task.train), task.effort.compare_on, task.seed),
        valset=valset,
        num_trials=2 * candidates,
        minibatch=len(valset) > MINIBATCH,
        minibatch_size=min(MINIBATCH, len(valset)),
        program_aware_proposer=False,  # the source code of our adapter teaches nobody to judge
    )
    return Found(compiled)


def simba(task: Task) -> Found:
    """SIMBA: rules and demos from the statements on which candidates differ most."""
    batch = min(LARGEST_BATCH, task.effort.compare_on, len(task.train))
    if batch < SMALLEST_BATCH:
        raise ConfigError(f"simba needs at least {SMALLEST_BATCH} labelled statements in train; got {len(task.train)}")
    trainset = balanced(short(task.train), 2 * task.effort.compare_on, task.seed)
    if len(trainset) < batch:
        trainset = balanced(task.train, 2 * task.effort.compare_on, task.seed)

    def metric(gold: Any, pred: Any) -> dspy.Prediction:
        told = task.metric(gold, pred, None, "asked")  # with words: SIMBA shows them to the proposer
        return dspy.Prediction(score=told.score * gold.weight, feedback=told.feedback)

    task.student(**trainset[0].inputs())  # finds out whether the LM tells probabilities: see `Stage.set_lm`
    optimizer = dspy.SIMBA(
        metric=metric,
        bsize=batch,
        num_candidates=task.effort.candidates + 1,
        max_steps=task.effort.candidates + 1,
        max_demos=task.effort.demos,
        prompt_model=_proposing(task),
        num_threads=task.threads,
    )
    return Found(optimizer.compile(task.student, trainset=trainset, seed=task.seed))


def gepa(task: Task) -> Found:
    """GEPA (Agrawal et al. 2025): instructions rewritten from feedback on single statements, Pareto-compared on dev.

    Without a `log_dir`: DSPy's cache of replies makes a second run as free as resuming, and cannot return the result of
    other data.
    """

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None) -> Any:
        # GEPA passes a trace where it compares scores, which the metric would answer with right or wrong.
        return task.metric(gold, pred, None, pred_name, pred_trace)

    valset = balanced(task.dev, task.effort.compare_on, task.seed)
    proposer = _Reflection(adapter=ChatAdapter(), additional_instructions=FORM)
    optimizer = dspy.GEPA(
        metric=metric,
        max_metric_calls=(task.effort.candidates + 1) * (len(valset) + 2 * REFLECT_ON),
        reflection_minibatch_size=REFLECT_ON,
        reflection_lm=_proposing(task),
        instruction_proposer=proposer,
        skip_perfect_score=False,  # a score is weighted by its class: 1 is nothing special
        warn_on_score_mismatch=False,
        num_threads=task.threads,
        seed=task.seed,
    )
    compiled = optimizer.compile(task.student, trainset=list(task.train), valset=valset)
    if proposer.trouble and not proposer.proposed:
        raise proposer.trouble
    return Found(compiled)


class _Reflection(InstructionProposer):
    """GEPA's own proposer, which remembers what went wrong: GEPA goes on without proposals and says nothing."""

    proposed = 0
    trouble: Exception | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            texts = super().__call__(*args, **kwargs)
        except Exception as exc:
            self.trouble = exc
            raise
        self.proposed += 1
        return texts


def _proposing(task: Task) -> Any:
    """The proposer with room for a whole instruction, and warm enough not to propose the same again and again."""
    settings: dict[str, Any] = {}
    if "temperature" in task.proposer.kwargs:
        settings["temperature"] = 1.0
    if (task.proposer.kwargs.get("max_tokens") or MIN_REPLY) < MIN_REPLY:
        settings["max_tokens"] = MIN_REPLY
    return task.proposer.copy(**settings)
