"""A judge under stress: labelled answers as they are, and perturbed so that the right verdict is known.

Faithful answers are made unfaithful, which the judge must catch; and what does not touch the truth, such as the order
of the chunks or an order to the judge, is changed, which must not change the verdict.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.optimize.diagnostics.perturbations import PERTURBATIONS, Must, Perturbation
from faith_dspy.optimize.select.evaluate import judged_rows, usage_of, verify
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.statistics import Estimate, wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.schema import LabelledExample

_SHOWN = 3


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Miss(_Result):
    """A perturbed answer on which the judge did not do what it must."""

    id: str
    before: float | None
    after: float | None
    """Probability or score without and with the perturbation; None: unscored."""
    answer: str
    """The perturbed answer."""


class Perturbed(_Result):
    """What the judge made of one kind of perturbation."""

    name: str
    what: str
    must: Must
    n: int
    """Answers that could be perturbed and whose verdict before was what the perturbation is for."""
    share: Estimate
    """Of them, those the judge did right on, with a Wilson interval. An unscored answer is not right."""
    misses: list[Miss]
    """The first three."""


class StressReport(_Result):
    """A judge under all perturbations."""

    judge: str
    """`Judge.fingerprint`."""
    answers: int
    """Labelled answers that were perturbed."""
    seed: int
    perturbed: list[Perturbed]
    worst: str | None
    """The perturbation with the lowest share, of those that could be tried."""
    usage: Usage

    def below(self, minimum: float | None) -> list[str]:
        """A sentence for each perturbation whose share is below a minimum."""
        return [
            f"{p.name}: {p.must} in {p.share.value:.2f} of {p.n}, below the {minimum:g} that was asked for."
            for p in self.perturbed
            if minimum is not None and p.share.value is not None and p.share.value < minimum
        ]


def stress(
    judge: Judge,
    examples: Sequence[LabelledExample],
    *,
    answers: int = 50,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> StressReport:
    """Judge up to ``answers`` labelled answers, half of them faithful, as they are and under each of `PERTURBATIONS`.

    The same seed and labels give the same perturbations; ``advance`` is called with each judgment. `InputError` without
    an answer labelled faithful, or with a single context.
    """
    examples = sorted(examples, key=lambda e: e.id)
    chosen = _chosen(examples, answers, seed)
    variants = {e.id: e for e in chosen}
    pairs: dict[str, list[tuple[str, str]]] = {name: [] for name in PERTURBATIONS}
    for e in chosen:
        others = [o for o in examples if o.context_key != e.context_key]
        for name, perturbation in PERTURBATIONS.items():
            if perturbation.of in (None, e.label):
                made = perturbation.make(e, others, random.Random(digest([seed, e.id, name])))
                if made is not None:
                    key = f"{e.id} {name}"
                    variants[key] = e.model_copy(update={**made, "id": key})
                    pairs[name].append((e.id, key))
    seen = verify(judge, list(variants.values()), advance)
    rows = {r.id: r for r in judged_rows(seen, judge)}
    perturbed = [
        _perturbed(name, p, [(rows[before], rows[after]) for before, after in pairs[name]])
        for name, p in PERTURBATIONS.items()
    ]
    tried = [p for p in perturbed if p.share.value is not None]
    return StressReport(
        judge=judge.fingerprint,
        answers=len(chosen),
        seed=seed,
        perturbed=perturbed,
        worst=min(tried, key=lambda p: p.share.value or 0.0).name if tried else None,
        usage=usage_of(seen),
    )


def _perturbed(name: str, p: Perturbation, pairs: Sequence[tuple[PredictionRow, PredictionRow]]) -> Perturbed:
    tried = [(a, b) for a, b in pairs if a.predicted is not None and p.of in (None, a.predicted)]
    wrong = [(a, b) for a, b in tried if b.predicted is not (False if p.must == "caught" else a.predicted)]
    return Perturbed(
        name=name,
        what=p.what,
        must=p.must,
        n=len(tried),
        share=wilson(len(tried) - len(wrong), len(tried)),
        misses=[Miss(id=a.id, before=a.probability, after=b.probability, answer=b.answer) for a, b in wrong[:_SHOWN]],
    )


def _chosen(examples: Sequence[LabelledExample], answers: int, seed: int) -> list[LabelledExample]:
    if len({e.context_key for e in examples}) < 2:
        raise InputError("the labels have one context; expected at least two, to bring what is foreign to each.")
    sides = [[e for e in examples if e.label is label] for label in (True, False)]
    if not sides[0]:
        raise InputError("no answer is labelled faithful; expected some, to make them unfaithful.")
    rng = random.Random(seed)
    for side in sides:
        rng.shuffle(side)
    few = min(len(sides[1]), answers // 2)
    return [*sides[0][: answers - few], *sides[1][:few]]
