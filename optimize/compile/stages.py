"""Compile a judge: extraction and verification, each by an optimizer on labels of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, MissingExtraError
from faith_dspy.optimize.compile.examples import balanced, labelled_texts, statement_examples
from faith_dspy.optimize.compile.extraction import Extractor, choose_prompt, extraction_examples, extraction_metric
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import compile_stage, get_optimizer
from faith_dspy.optimize.compile.stage import Stage
from faith_dspy.optimize.compile.task import CompiledStage, Effort, InstructionResult, Task
from faith_dspy.program.faithfulness import FaithfulnessProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.compile.examples import LabelledTexts
    from faith_dspy.schema import LabelledExample

    Examples = Sequence[LabelledExample]

MIN_EXTRACTIONS = 2
"""Answers with people's own statements that train and dev need each for extraction to be compiled on them."""
MIN_LABELS = 2
"""Labels of each kind that train and dev need each for verification to be compiled on them."""


class CompiledJudge(NamedTuple):
    """What compiling returns."""

    judge: Judge
    """A new judge with the compiled prompts, and the chosen instruction in its options."""
    instructions: tuple[InstructionResult, ...] = ()
    """Of each instruction, where the bank was searched."""
    notes: tuple[str, ...] = ()
    """The outcome of each stage, a line each."""
    asked: int = 0
    """Predictions that were compared with labels."""
    failed: int = 0
    """Those of them in which the LM failed or gave no label; they are in no figure as a verdict."""


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
) -> CompiledJudge:
    """A new judge, its program compiled by ``optimizer`` on labelled answers; the judge given stays as it is.

    Verification learns from people's statements where the LM extracts statements and people wrote some, else from
    sentences, and from whole answers where that is the granularity or too few of their parts are labelled. Extraction
    learns from people's statements; where only answers are labelled, its prompt is chosen by the answers' labels, end
    to end, and verification stays as it is.

    ``proposer``: the LM that writes instructions; None: the judge's own. ``advance`` is called for each prediction.
    Raises `ConfigError` where the optimizer cannot run on these labels or without an LM that can propose, and
    `LMUnavailableError` when an endpoint is down.
    """
    granularity = judge.config.granularity
    extracts = granularity is Granularity.STATEMENT
    task = Task(
        student=Stage(judge.program.verify),
        train=(),
        dev=(),
        effort=effort,
        seed=seed,
        metric=_advancing(agreement_metric, advance),
        config=judge.config,
        proposer=proposer,
        threads=judge.default_threads,
    )
    try:
        with dspy.context(lm=judge.lm):
            if extracts and not any(s.verdict for e in (*train, *dev) for s in e.statements):
                return _with_chosen_prompt(judge, train, task, advance)
            extraction = None
            if extracts and not get_optimizer(optimizer).verdicts_only:
                extraction = _compile_extraction(judge, optimizer, train, dev, task, advance)
            note, rows = _verification_rows(judge, optimizer, train, dev)
            verification = compile_stage(optimizer, task._replace(train=rows[0], dev=rows[1]))
    except MissingExtraError as exc:
        raise ConfigError(str(exc)) from exc

    verifier: Any = verification.student.part
    config = judge.config.model_copy(update={"instruction": verifier.instruction})
    program = FaithfulnessProgram(config, judge.window)
    verification.student.copy_prompts_to(program.verify)
    stages = [verification]
    if extraction is not None:
        assert program.extract is not None
        extraction.student.copy_prompts_to(Extractor(program.extract))
        stages.insert(0, extraction)
    return CompiledJudge(
        judge=_with_program(judge, program),
        instructions=verification.instructions,
        notes=tuple(n for n in (*(s.note for s in stages[:-1]), note, verification.note) if n),
        asked=sum(s.asked for s in stages),
        failed=sum(s.failed for s in stages),
    )


def _verification_rows(
    judge: Judge, optimizer: str, train: Examples, dev: Examples
) -> tuple[str, tuple[list[dspy.Example], list[dspy.Example]]]:
    """A note, and the examples of train and dev that verification is compiled on; `ConfigError` if they are too few."""
    granularity, note = judge.config.granularity, ""
    parts = [labelled_texts(part, granularity) for part in (train, dev)]
    if granularity is not Granularity.ANSWER and not all(_has_both_labels(part) for part in parts):
        parts = [labelled_texts(part, Granularity.ANSWER) for part in (train, dev)]
        note = "verification: compiled on whole answers, too few of their parts are labelled"
    window = judge.window
    rows = []
    for name, part in zip(("train", "dev"), parts, strict=True):
        examples = statement_examples(part, judge.config.instruction)
        # An optimizer asks about the whole context at once.
        fitting = [r for r in examples if window is None or sum(len(c.encode()) for c in r.context) <= window]
        per_class = [sum(r.supported is label for r in fitting) for label in (True, False)]
        if min(per_class) < MIN_LABELS:
            raise ConfigError(
                f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, "
                f"or answers, in {name}; got {per_class[0]} and {per_class[1]}"
            )
        rows.append(fitting)
    return note, (rows[0], rows[1])


def _has_both_labels(answers: Sequence[LabelledTexts]) -> bool:
    labels = [label for answer in answers for label in answer.labels]
    return min(labels.count(True), labels.count(False)) >= MIN_LABELS


def _compile_extraction(
    judge: Judge, optimizer: str, train: Examples, dev: Examples, task: Task, advance: Callable[[int], None]
) -> CompiledStage:
    assert judge.program.extract is not None
    student = Stage(Extractor(judge.program.extract))
    rows = [extraction_examples(part) for part in (train, dev)]
    if min(map(len, rows)) < MIN_EXTRACTIONS:
        few = f"{len(rows[0])} answers of train and {len(rows[1])} of dev"
        return CompiledStage(student, note=f"extraction: as it was, only {few} have people's own statements throughout")
    compiled = compile_stage(
        optimizer,
        task._replace(
            student=student,
            train=rows[0],
            dev=rows[1],
            effort=task.effort._replace(compare_on=max(2, task.effort.compare_on // 4)),
            metric=_advancing(extraction_metric, advance),
        ),
    )
    return compiled._replace(note=f"extraction: compiled on {len(rows[0])} answers with people's own statements")


def _with_chosen_prompt(judge: Judge, train: Examples, task: Task, advance: Callable[[int], None]) -> CompiledJudge:
    rows = [dspy.Example(example=e, supported=e.label, context=[c.text for c in e.context]) for e in train]
    chosen = [r.example for r in balanced(rows, max(4, task.effort.compare_on // 2), task.seed)]
    if len({e.label for e in chosen}) < 2:
        raise ConfigError("the extraction prompt is chosen by answers of both labels; train has only one.")
    program = FaithfulnessProgram(judge.config, judge.window)
    text, note = choose_prompt(program, chosen, advance)
    assert program.extract is not None
    program.extract.signature = program.extract.signature.with_instructions(text)
    return CompiledJudge(_with_program(judge, program), notes=(note,))


def _with_program(judge: Judge, program: FaithfulnessProgram) -> Judge:
    compiled = judge.copy(config=program.config)
    compiled.program = program
    return compiled


def _advancing(metric: Callable[..., Any], advance: Callable[[int], None]) -> Callable[..., Any]:
    def advancing(*args: Any, **kwargs: Any) -> Any:
        advance(1)
        return metric(*args, **kwargs)

    return advancing


def demo_ids(judge: Judge, examples: Examples) -> set[str]:
    """Ids of labelled examples that are demos in the prompt: the LM was shown their labels, so they measure nothing."""
    demos = [dict(demo) for _, predictor in judge.program.named_predictors() for demo in predictor.demos]
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
