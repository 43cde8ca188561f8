"""One variant compiled: each stage by an optimizer on labels of its own, its prompts put into the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, MissingExtraError
from faith_dspy.optimize.compile.extraction import Extractor, choose_prompt, extraction_examples, extraction_metric
from faith_dspy.optimize.compile.metric import agreement_metric, statement_examples
from faith_dspy.optimize.compile.optimizers import check_optimizer, compile_stage
from faith_dspy.optimize.compile.task import Figure, Found, Stage, Task, balanced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.compile.task import Effort
    from faith_dspy.optimize.select.variants import Variant
    from faith_dspy.schema import LabelledExample

    Pieces = Sequence[tuple[LabelledExample, Sequence[str], Sequence[bool | None]]]

VERIFICATION_ONLY = ("search",)
"""Optimizers that know only verdicts."""
MIN_EXTRACTIONS = 2
"""Answers with people's own statements, in train and in dev, from which extraction is compiled on them."""

MIN_LABELS = 2
"""Labels of each kind, in train and in dev, from which verification is compiled."""


class Compiled(NamedTuple):
    """What compiling a variant found."""

    instruction: str
    """Name of what the judge asks now; it stands in its config, too."""
    figures: tuple[Figure, ...]
    """Of each instruction, where the bank was searched."""
    notes: tuple[str, ...]
    """What was found, one line each."""
    asked: int
    """Predictions that were compared with labels."""
    failed: int
    """Those of them in which the LM failed or gave no label; they are in no figure as a verdict."""


def compiled_judge(
    judge: Judge,
    variant: Variant,
    train: Pieces,
    dev: Pieces,
    effort: Effort,
    seed: int,
    advance: Callable[[int], None],
    proposer: Any = None,
) -> Compiled:
    """Compile the judge's program on labelled pieces of answers, in place. Call it inside `dspy.context(lm=…)`.

    ``proposer``: the LM that writes instructions; None: the judge's own. Statements the LM extracts are verified as
    people's own statements where they wrote some, and extraction is compiled on those; where only answers are labelled,
    its prompt is chosen by the answers' labels, end to end. Where no part of an answer is labelled unsupported,
    verification is compiled on whole answers.

    Raises `ConfigError` where the optimizer cannot be run on these labels or without an LM that can propose,
    `LMUnavailableError` when an endpoint is not there.
    """
    assert variant.optimizer is not None
    check_optimizer(variant.optimizer)
    window = judge.window
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
    parts: list[Found] = []
    try:
        if judge.config.granularity is Granularity.STATEMENT:
            if not any(s.verdict for e, _, _ in (*train, *dev) for s in e.statements):
                judge.program.window = window
                note = _end_to_end(judge, [e for e, _, _ in train], task, advance)
                return Compiled(judge.config.instruction, (), (note,), 0, 0)
            train, dev = _own(train), _own(dev)
            if variant.optimizer not in VERIFICATION_ONLY:
                parts.append(_extraction(judge, variant.optimizer, task, train, dev, advance))
        of_answers = judge.config.granularity is Granularity.ANSWER
        too_few = not (_both_kinds(train) and _both_kinds(dev))
        if of_answers or too_few:
            train, dev = _whole(train), _whole(dev)
        if too_few and not of_answers:
            parts.append(
                Found(task.student, note="verification: compiled on whole answers, too few of their parts are labelled")
            )
        instruction = judge.config.instruction
        task = task._replace(
            train=_fitting(statement_examples(train, instruction), window),
            dev=_fitting(statement_examples(dev, instruction), window),
        )
        parts.append(_verification(judge, variant.optimizer, task))
    except MissingExtraError as exc:
        raise ConfigError(str(exc)) from exc
    return Compiled(
        instruction=judge.config.instruction,
        figures=tuple(f for p in parts for f in p.figures),
        notes=tuple(p.note for p in parts if p.note),
        asked=sum(p.asked for p in parts),
        failed=sum(p.failed for p in parts),
    )


def _advancing(metric: Callable[..., Any], advance: Callable[[int], None]) -> Callable[..., Any]:
    def advancing(*args: Any, **kwargs: Any) -> Any:
        advance(1)
        return metric(*args, **kwargs)

    return advancing


def _verification(judge: Judge, optimizer: str, task: Task) -> Found:
    for part, rows in (("train", task.train), ("dev", task.dev)):
        per_class = [sum(e.supported is want for e in rows) for want in (True, False)]
        if min(per_class) < MIN_LABELS:
            raise ConfigError(
                f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, "
                f"or answers, in {part}; got {per_class[0]} and {per_class[1]}"
            )
    found = compile_stage(optimizer, task)
    verifier: Any = found.student.settled()
    judge.program.verify = verifier
    # The judge's options say what is asked: scoring and export read them.
    judge.config = judge.config.model_copy(update={"instruction": verifier.instruction})
    judge.program.config = judge.config
    return found


def _extraction(
    judge: Judge, optimizer: str, task: Task, train: Pieces, dev: Pieces, advance: Callable[[int], None]
) -> Found:
    extract: Any = judge.program.extract
    rows = [extraction_examples([e for e, _, _ in part]) for part in (train, dev)]
    if min(map(len, rows)) < MIN_EXTRACTIONS:
        few = f"{len(rows[0])} answers of train and {len(rows[1])} of dev"
        return Found(Stage(extract), note=f"extraction: as it was, only {few} have people's own statements throughout")
    found = compile_stage(
        optimizer,
        task._replace(
            student=Stage(Extractor(extract)),
            train=rows[0],
            dev=rows[1],
            effort=task.effort._replace(compare_on=max(2, task.effort.compare_on // 4)),
            metric=_advancing(extraction_metric, advance),
        ),
    )
    settled: Any = found.student.settled()
    judge.program.extract = settled.extract
    return found._replace(note=f"extraction: compiled on {len(rows[0])} answers with people's own statements")


def _end_to_end(judge: Judge, train: Sequence[LabelledExample], task: Task, advance: Callable[[int], None]) -> str:
    rows = [dspy.Example(example=e, supported=e.label, context=[c.text for c in e.context]) for e in train]
    chosen = [r.example for r in balanced(rows, max(4, task.effort.compare_on // 2), task.seed)]
    if len({e.label for e in chosen}) < 2:
        raise ConfigError("the extraction prompt is chosen by answers of both labels; train has only one.")
    text, note = choose_prompt(judge.program, chosen, lambda: advance(1))
    extract: Any = judge.program.extract
    extract.signature = extract.signature.with_instructions(text)
    return note


def _own(pieces: Pieces) -> Pieces:
    """People's own statements instead of the sentences, where they gave verdicts on some."""
    out = []
    for e, texts, labels in pieces:
        told = [(s.text, s.verdict.is_supported) for s in e.statements if s.verdict is not None]
        out.append((e, [t for t, _ in told], [v for _, v in told]) if told else (e, texts, labels))
    return out


def _both_kinds(pieces: Pieces) -> bool:
    """Whether both kinds are there to learn from: answers labelled as a whole tell of supported parts only."""
    labels = [label for _, _, told in pieces for label in told]
    return min(labels.count(True), labels.count(False)) >= MIN_LABELS


def _whole(pieces: Pieces) -> Pieces:
    """Each answer as one piece."""
    return [(e, [e.answer], [e.label]) for e, _, _ in pieces]


def _fitting(rows: list[dspy.Example], window: int | None) -> list[dspy.Example]:
    """Those whose context fits one call: an optimizer asks about the whole context at once."""
    return [r for r in rows if window is None or sum(len(c.encode()) for c in r.context) <= window]


def demo_ids(judge: Judge, examples: Sequence[LabelledExample]) -> set[str]:
    """Ids of labelled examples that stand in the prompt as demos: their labels were shown, so they measure nothing."""
    demos = [dict(demo) for _, predictor in judge.program.named_predictors() for demo in predictor.demos]
    verified = {(tuple(d["context"]), d["statement"]) for d in demos if "statement" in d}
    extracted = {tuple(d["sentences"]) for d in demos if "sentences" in d}

    def shown(e: LabelledExample) -> bool:
        context = tuple(c.text for c in e.context)
        stated = {s.text for s in e.statements}
        return any(context == c and (piece in e.answer or piece in stated) for c, piece in verified) or any(
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
