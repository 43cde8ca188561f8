"""The champion asked only where words leave an answer open: what that would agree and cost, and the judge made of it.

Both from observations already paid for. What words settle is not asked about: the LM's reply that is known all the same
is left out of such a form's predictions and costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.config import JudgeConfig
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.compare import NO_DIFFERENCE
from faith_dspy.optimize.evaluate import Observed, cross_fitted_rows, scorable, without_lm
from faith_dspy.optimize.frontier import ENOUGH, FrontierPoint, Rival, frontier, words_first
from faith_dspy.scoring import unasked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.calibration import Head
    from faith_dspy.optimize.head import FittedHead
    from faith_dspy.optimize.results import VariantResult


def points(
    name: str,
    seen: Sequence[Observed],
    fitted: FittedHead,
    words: FittedHead,
    others: Sequence[VariantResult],
    seed: int = 0,
) -> tuple[FrontierPoint, ...]:
    """The frontier: the variant ``name`` with its words-first forms, and the other variants on dev.

    ``seen``: what the variant's LM said of the answers that ``fitted`` was fitted on, `scorable` or not; ``words`` is
    the overlap head of the same answers.
    """
    plain = without_lm(o.example for o in seen)
    full = Rival(name, cross_fitted_rows(seen, scorable(seen), fitted))
    by_words = cross_fitted_rows(plain, scorable(plain), words)
    rivals = [full, *words_first(full, by_words, words.head.threshold)]
    rivals += [Rival(v.name, v.predictions) for v in others if v.name != name and v.kind != "floor" and v.predictions]
    return frontier(rivals, name, seed)


def worth_exporting(found: Sequence[FrontierPoint], labels: Sequence[bool], *, prefer: str) -> FrontierPoint:
    """Which form of the champion becomes the judge.

    To ``prefer="cheapest"``: the cheapest that is not shown to be worse, be it words alone. Else the LM is asked about
    every answer, unless a form that asks it about fewer is as good: within `NO_DIFFERENCE` of it, not shown to be
    worse, and with `ENOUGH` answers of each label to know. Of those the cheapest.
    """
    full = next(p for p in found if p.reference)
    forms = [p for p in found if p.band is not None]
    if prefer == "cheapest":
        return min([full, *(p for p in forms if p.not_worse)], key=lambda p: p.cost)
    if min(sum(labels), len(labels) - sum(labels)) < ENOUGH:
        return full
    as_good = [p for p in forms if p.asked and p.not_worse and (p.against.value or 0.0) >= -NO_DIFFERENCE]
    return min([full, *as_good], key=lambda p: p.cost)


def made_of(judge: Judge, form: FrontierPoint, words: Head) -> Judge:
    """The judge that works as ``form`` says: ``judge`` itself, words alone, or words first."""
    if form.reference:
        return judge
    dials = judge.config.concluded
    first = JudgeConfig.make(**dials)
    if form.band is None or form.asked == 0:
        return Judge(NO_LM, config=first, head=words)
    return Judge(NO_LM, config=first, head=words.model_copy(update={"band": form.band}), escalate_to=judge)


def seen_by(judge: Judge, o: Observed) -> Observed:
    """What a judge of words, or words first, would have observed, from what its last judge saw. No LM call."""
    if judge.asks_lm or o.unscored is not None:
        return o
    first = unasked(o.example.answer)
    if judge.escalate_to and judge.leaves_open(judge.conclude(first, o.example.context, o.example.question)):
        first = first.model_copy(update={"escalated": o.observation, "usage": o.observation.usage})
    return o._replace(observation=first)
