"""The champion asked only where words leave something open: what that would agree and cost, and the judge made of it.

Words can settle whole answers, and statements of the others. Both are reckoned from observations already paid for: what
words settle is not asked about, so the LM's reply that is known all the same is left out of predictions and costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.select.comparison import NO_DIFFERENCE
from faith_dspy.optimize.select.evaluate import Observed, cross_fitted_rows, scorable
from faith_dspy.optimize.select.pareto import ASKED_ABOUT, ENOUGH, FrontierPoint, Rival, as_read, frontier, words_first
from faith_dspy.text.context import prepare
from faith_dspy.program.faithfulness import completed, passed_over
from faith_dspy.schema import Usage
from faith_dspy.scoring.score import unasked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.classifier.fitting import FittedHead
    from faith_dspy.optimize.results import PredictionRow, VariantResult


class Way(NamedTuple):
    """One way of asking, as observed, and the head fitted on it."""

    seen: Sequence[Observed]
    """The answers the head was fitted on, `scorable` or not."""
    fitted: FittedHead


class Ways(NamedTuple):
    """How the answers of train and dev can be judged."""

    all: Way
    """The LM asked about everything."""
    novel: Way
    """The LM asked about what words do not clear, see the dial `ask_about`."""
    weakest: Way
    """The LM asked about one statement of an answer at most, likewise."""
    words: Way
    """No LM."""

    def of(self, form: FrontierPoint) -> Way:
        """The way whose head has the last word in a form."""
        if form.reference:
            return self.all
        return {"novel": self.novel, "weakest": self.weakest}[form.ask_about] if form.asked else self.words


def points(
    name: str, config: JudgeConfig, ways: Ways, others: Sequence[VariantResult], seed: int = 0
) -> tuple[FrontierPoint, ...]:
    """The frontier: the variant ``name``, with these dials, and its thriftier forms; and the other variants on dev.

    What a joint reply says of one statement is not what is said of it alone: there is no weakest one then.
    """
    full, novel, weakest, words = (cross_fitted_rows(w.seen, scorable(w.seen), w.fitted) for w in ways)
    least = max(config.ask_about, "novel", key=[*ASKED_ABOUT].index)
    forms = words_first(Rival(name, novel, ask_about=least), words, ways.words.fitted.head.threshold)
    if _cost_differs(novel, full):
        forms.append(Rival(f"{name}, novel only", novel, ask_about=least))
    if config.verification == "each" and _cost_differs(weakest, novel):
        less = Rival(name, weakest, ask_about="weakest")
        forms += words_first(less, words, ways.words.fitted.head.threshold)[:-1]  # words alone are there
        forms.append(less._replace(name=f"{name}, weakest only"))
    forms = [r._replace(rows=as_read(r.rows, full), form=True) for r in forms]
    rivals = [Rival(name, full, ask_about=config.ask_about), *forms]
    rivals += [Rival(v.name, v.predictions) for v in others if v.name != name and v.kind != "floor" and v.predictions]
    return frontier(rivals, name, seed)


def worth_exporting(found: Sequence[FrontierPoint], labels: Sequence[bool], *, prefer: str) -> FrontierPoint:
    """Which form of the champion becomes the judge.

    To ``prefer="cheapest"``: the cheapest that is not shown to be worse, be it words alone. Else the LM is asked about
    everything, unless a form that asks it about less is as good: within `NO_DIFFERENCE` of it, not shown to be
    worse, and with `ENOUGH` answers of each label to know. Of those the cheapest.
    """
    full = next(p for p in found if p.reference)
    forms = [p for p in found if p.form]
    if prefer == "cheapest":
        return min([full, *(p for p in forms if p.not_worse)], key=lambda p: p.cost)
    if min(sum(labels), len(labels) - sum(labels)) < ENOUGH:
        return full
    as_good = [p for p in forms if p.asked and p.not_worse and (p.against.value or 0.0) >= -NO_DIFFERENCE]
    return min([full, *as_good], key=lambda p: p.cost)


def made_of(judge: Judge, form: FrontierPoint, ways: Ways) -> Judge:
    """The judge that works as ``form`` says: ``judge`` itself, novel statements only, words first, or words alone."""
    head = ways.of(form).fitted.head
    if form.reference:
        return judge.copy(head=head)
    first, words = JudgeConfig.make(**judge.config.concluded), ways.words.fitted.head
    if form.asked == 0:
        return Judge(NO_LM, config=first, head=words)
    thrifty = judge.copy(config=judge.config.model_copy(update={"ask_about": form.ask_about}), head=head)
    if form.band is None:
        return thrifty
    return Judge(NO_LM, config=first, head=words.model_copy(update={"band": form.band}), escalate_to=thrifty)


def seen_by(judge: Judge, o: Observed) -> Observed:
    """What a judge of words, or words first, would have observed, from what was seen of everything. No LM call."""
    if (which := judge.chain[-1].config.ask_about) != "all":
        o = less_asked(o, which)
    if judge.asks_lm or o.unscored is not None:
        return o
    first = unasked(o.example.answer)
    if judge.escalate_to and judge.leaves_open(judge.conclude(first, o.example.context, o.example.question)):
        first = first.model_copy(update={"escalated": o.observation, "usage": o.observation.usage})
    return o._replace(observation=first)


def less_asked(o: Observed, ask_about: str) -> Observed:
    """What would have been observed with that dial, ``novel`` or ``weakest``.

    Where the call that read the context falls away, the next one has to read it.
    """
    seen = o.observation
    passed = passed_over(seen.findings, prepare(o.example.context, o.example.question), ask_about)
    asked = [f for f, p in zip(seen.findings, passed, strict=True) if p is None]
    left_out = [f.usage for f, p in zip(seen.findings, passed, strict=True) if p is not None]
    if not left_out:
        return o
    usage = seen.usage - sum(left_out, Usage())
    rest = max((f.usage.computed_tokens for f in asked), default=0)
    moved = max(0, max(u.computed_tokens for u in left_out) - rest) if rest else 0
    usage = usage.model_copy(update={"cached_tokens": usage.cached_tokens - moved})
    findings = tuple(completed(passed, asked))
    return o._replace(observation=seen.model_copy(update={"findings": findings, "usage": usage}))


def _cost_differs(rows: Sequence[PredictionRow], others: Sequence[PredictionRow]) -> bool:
    return any(a.usage != b.usage for a, b in zip(rows, others, strict=True))
