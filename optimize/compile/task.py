"""What an optimizer is given and gives back, and the stage of a judge it works on."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import dspy

from faith_dspy.errors import FaithDspyError
from faith_dspy.program.adapter import CompactAdapter
from faith_dspy.program.verifier import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faith_dspy.config import JudgeConfig

MAX_DEMO_WORDS = 450
"""Of a demo's context. Demos stand in every prompt; long ones cost more than they teach."""


class Effort(NamedTuple):
    """How much an optimizer may try."""

    demos: int = 4
    """Examples shown in the prompt; half of each class."""
    candidates: int = 3
    """Sets of demos tried by random search, besides none and the labelled ones; instructions that are proposed."""
    compare_on: int = 40
    """Labelled statements that candidates are compared on."""


class Task(NamedTuple):
    """What an optimizer is given. It runs inside ``dspy.context(lm=…)`` of the judged LM."""

    student: Stage
    train: Sequence[Any]
    """Labelled examples of the stage to learn from."""
    dev: Sequence[Any]
    """Labelled examples to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any]
    """As `agreement_metric`: ``(gold, pred, trace, pred_name, pred_trace)``."""
    config: JudgeConfig
    """The judge's options before compiling."""
    proposer: Any = None
    """LM that writes instructions; None: the judged LM itself."""
    threads: int = 1
    """Calls at the same time."""


class Figure(NamedTuple):
    """How one candidate did."""

    name: str
    auroc: float
    balanced_accuracy: float
    n: int
    """Labelled statements it was measured on."""


class Found(NamedTuple):
    """What an optimizer gives back."""

    student: Stage
    figures: tuple[Figure, ...] = ()
    """Of every candidate, where it compared a fixed list of them."""
    note: str = ""
    """What was found, in words."""
    asked: int = 0
    """Predictions that were compared with labels."""
    failed: int = 0
    """Those of them in which the LM failed or gave no label: no verdict, not a wrong one."""


class Stage(dspy.Module):
    """A part of the program as optimizers run it.

    Its own prompts are compact, while whoever proposes instructions talks through DSPy's adapter. An LM fault comes
    back as a prediction with nothing but ``error``, which the metric counts as a failure and never as a verdict.
    """

    def __init__(self, part: dspy.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """The part's prediction."""
        try:
            with dspy.context(adapter=_Answerable()):
                return self.part(**inputs)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted, never mistaken for a wrong verdict
            return dspy.Prediction(error=f"{type(exc).__name__}: {exc}"[:300])

    def set_lm(self, lm: Any) -> None:
        """As DSPy, but samples of a probability read off a token would be paid for and all be the same (SIMBA)."""
        if not (isinstance(self.part, Verifier) and self.part.caller.gives_probabilities):
            super().set_lm(lm)

    def settled(self) -> dspy.Module:
        """The part as it goes into a judge: answerable instructions, demos of the prompt's fields only, no LM."""
        for predictor in self.part.predictors():
            predictor.signature = answerable(predictor.signature)
            fields = predictor.signature.fields
            predictor.demos = [
                dspy.Example(**{k: v for k, v in dict(d).items() if k in fields}) for d in predictor.demos
            ]
            predictor.lm = None
        # DSPy leaves a nested module out of the saved state when it says it is compiled.
        self.part._compiled = False
        return self.part


class _Answerable(CompactAdapter):
    """Candidates are compared as they would be asked in a judge."""

    def format(self, signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return super().format(answerable(signature), demos, inputs)


def answerable(signature: Any) -> Any:
    """The signature with a last paragraph that names its labels, as it is asked after the statement.

    A paragraph that names all of them is moved to the end; where there is none, a closing line is added.
    """
    labels = [
        label
        for field in signature.output_fields.values()
        if get_origin(field.annotation) is Literal
        for label in get_args(field.annotation)
    ]
    paragraphs = [p for p in re.split(r"\n\s*\n", signature.instructions.strip()) if p.strip()]
    naming = [p for p in paragraphs if all(re.search(rf"\b{re.escape(label)}\b", p) for label in labels)]
    if not labels or (naming and naming[-1] is paragraphs[-1]):
        return signature
    if naming:
        paragraphs.remove(naming[-1])
        paragraphs.append(naming[-1])
    else:
        paragraphs[-1:] = [f"{''.join(paragraphs[-1:])}\nAnswer {', '.join(labels[:-1])} or {labels[-1]}.".strip()]
    return signature.with_instructions("\n\n".join(paragraphs))


def short(rows: Sequence[Any]) -> list[Any]:
    """Examples whose context is no longer than the median, and than `MAX_DEMO_WORDS`."""
    size = {id(r): sum(len(c.split()) for c in r.get("context", ())) for r in rows}
    limit = sorted(size.values())[len(rows) // 2]
    kept = [r for r in rows if size[id(r)] <= min(limit, MAX_DEMO_WORDS)]
    return kept if {r.get("supported") for r in kept} == {r.get("supported") for r in rows} else list(rows)


def balanced(rows: Sequence[Any], n: int, seed: int) -> list[Any]:
    """Up to ``n`` examples, as many of each class as there are, classes in turn, at most one of each context first.

    Their weights are those of the sample: with those of all ``rows`` the rarer class would count twice over.
    """
    rng = random.Random(seed)
    pools: list[list[Any]] = []
    for want in (False, True, None):
        pool = [r for r in rows if r.get("supported") is want]
        rng.shuffle(pool)
        seen: set[str] = set()
        fresh: list[Any] = []
        again: list[Any] = []
        for row in pool:
            key = "\n".join(row.get("context", row.get("sentences", ())))
            (again if key in seen else fresh).append(row)
            seen.add(key)
        pools.append(fresh + again)
    out: list[Any] = []
    while len(out) < n and any(pools):
        for pool in pools:
            if pool and len(out) < n:
                out.append(pool.pop(0))
    return reweighted(out)


def reweighted(rows: Sequence[Any]) -> list[Any]:
    """The examples with weights by which both classes count the same in sum; those without a weight as they are."""
    count = Counter(r.get("supported") for r in rows)
    return [r.copy(weight=len(rows) / (2 * count[r.supported])) if "weight" in r else r for r in rows]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """DSPy's optimizers print and log as they go, some in their constructors; the study has its own display."""
    loggers = [logging.getLogger(n) for n in ("dspy.evaluate.evaluate", "dspy.teleprompt")]
    levels = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)
