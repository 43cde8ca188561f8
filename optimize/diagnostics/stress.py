"""A judge under stress: answers and contexts changed so that the right verdict is known without asking anybody.

Faithful answers are made unfaithful (a number changed, a name swapped …): the judge must catch it. And what does not
touch the truth (order of chunks, layout, an order to the judge) is changed: the verdict must stay.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.optimize.diagnostics.perturbations import CHANGES, Change, Must
from faith_dspy.optimize.select.evaluate import judged_rows, usage_of, verify
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.statistics import Estimate, wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import LabelledExample

_SHOWN = 3


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Miss(_Result):
    """An answer on which the judge did not do what it must."""

    id: str
    before: float | None
    after: float | None
    """What AUROC is measured on, of the answer as it was and as it was changed; None: unscored."""
    answer: str
    """As it was changed."""


class Perturbed(_Result):
    """What the judge made of one kind of change."""

    name: str
    what: str
    """What was changed, in words."""
    must: Must
    """``caught``: an answer that passed must fail; ``unchanged``: the verdict must stay."""
    n: int
    """Answers that could be changed so, and whose verdict before was what the change is about."""
    share: Estimate
    """Of them, those the judge did right on, with a Wilson interval. What came back unscored is not right."""
    lowered: Estimate | None
    """Of ``caught``: those whose probability or score fell, if not below the threshold."""
    moved: float | None
    """Mean change of probability or score."""
    unscored: int
    """Changed answers the judge left unscored."""
    misses: list[Miss]
    """The first three."""


class StressReport(_Result):
    """A judge under all changes."""

    judge: str
    """`Judge.fingerprint`."""
    answers: int
    """Labelled answers that were changed."""
    seed: int
    perturbed: list[Perturbed]
    worst: str | None
    """The change with the lowest share, of those that could be tried."""
    usage: Usage

    def below(self, minimum: float | None) -> list[str]:
        """A sentence for each change whose share is below a bar."""
        if minimum is None:
            return []
        return [
            f"{p.name}: {p.must} in {p.share.value:.2f} of {p.n}, below the {minimum:g} that was asked for."
            for p in self.perturbed
            if p.share.value is not None and p.share.value < minimum
        ]


def stress(
    judge: Judge,
    examples: Sequence[LabelledExample],
    *,
    answers: int = 50,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> StressReport:
    """Judge up to ``answers`` labelled answers, half of them faithful, as they are and under each of `CHANGES`.

    The same seed and labels give the same changes; ``advance`` is told of each judgment. `InputError` without an
    answer labelled faithful, or with a single context.
    """
    examples = sorted(examples, key=lambda e: e.id)
    chosen = _chosen(examples, answers, seed)
    variants: dict[str, tuple[LabelledExample, str | None, LabelledExample]] = {}
    for e in chosen:
        others = [o for o in examples if o.context_key != e.context_key]
        variants[e.id] = (e, None, e)
        for name, change in CHANGES.items():
            if change.of in (None, e.label):
                made = change.make(e, others, random.Random(digest([seed, e.id, name])))
                if made is not None:
                    key = f"{e.id} {name}"
                    variants[key] = (e.model_copy(update={**made, "id": key}), name, e)
    seen = verify(judge, [v[0] for v in variants.values()], advance)
    found = {r.id: (r.predicted, r.probability, r.answer) for r in judged_rows(seen, judge)}
    perturbed = []
    for name, change in CHANGES.items():
        pairs = [(was.id, found[was.id], found[key]) for key, (_, made, was) in variants.items() if made == name]
        perturbed.append(_perturbed(name, change, pairs))
    tried = [p for p in perturbed if p.share.value is not None]
    return StressReport(
        judge=judge.fingerprint,
        answers=len(chosen),
        seed=seed,
        perturbed=perturbed,
        worst=min(tried, key=lambda p: p.share.value or 0.0).name if tried else None,
        usage=usage_of(seen),
    )


_Found = tuple[bool | None, float | None, str]


def _perturbed(name: str, change: Change, pairs: Sequence[tuple[str, _Found, _Found]]) -> Perturbed:
    about = [(i, a, b) for i, a, b in pairs if a[0] is not None and change.of in (None, a[0])]
    wrong = [p for p in about if (p[2][0] is not False if change.must == "caught" else p[2][0] != p[1][0])]
    both = [(a[1], b[1]) for _, a, b in about if a[1] is not None and b[1] is not None]
    lowered = wilson(sum(b < a for a, b in both), len(both)) if both else None
    return Perturbed(
        name=name,
        what=change.what,
        must=change.must,
        n=len(about),
        share=wilson(len(about) - len(wrong), len(about)) if about else Estimate(why="no answer could be changed so"),
        lowered=lowered if change.must == "caught" else None,
        moved=sum(b - a for a, b in both) / len(both) if both else None,
        unscored=sum(b[0] is None for _, _, b in about),
        misses=[Miss(id=i, before=a[1], after=b[1], answer=b[2]) for i, a, b in wrong[:_SHOWN]],
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
