"""The champion asked only where words leave something open: what that would agree and cost, and the judge made of it.

Words can settle whole answers, and statements of the others. Both are reckoned from raw_judgments already paid for: what
words settle is not asked about, so the LM's reply that is known all the same is left out of predictions and costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.select.comparison import NO_DIFFERENCE
from faith_dspy.optimize.select.evaluate import JudgedExample, cross_fitted_rows, scorable
from faith_dspy.optimize.select.pareto import ENOUGH, Candidate, as_read, frontier, not_worse, words_first
from faith_dspy.program.selection import combine_verdicts, verdicts_without_lm
from faith_dspy.schema import Usage
from faith_dspy.scoring.score import unverified
from faith_dspy.text.context import index_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.checks import CostPoint
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.results import PredictionRow, VariantResult


class Way(NamedTuple):
    """One way of asking, as observed, and the classifier fitted on it."""

    seen: Sequence[JudgedExample]
    """The answers the classifier was fitted on, `scorable` or not."""
    fitted: FittedClassifier


class Ways(NamedTuple):
    """How the answers of train and dev can be judged."""

    all: Way
    """The LM asked about everything."""
    weakest: Way
    """The LM asked about one statement of an answer at most, see the option `ask_about`."""
    words: Way
    """No LM."""

    def of(self, form: CostPoint) -> Way:
        """The way whose classifier has the last word in a form."""
        if form.reference:
            return self.all
        if not form.lm_share:
            return self.words
        return self.weakest if form.ask_about == "weakest" else self.all


def points(
    name: str, config: JudgeConfig, ways: Ways, others: Sequence[VariantResult], seed: int = 0
) -> tuple[CostPoint, ...]:
    """The frontier: the variant ``name``, with these options, and its thriftier forms; and the other variants on dev.

    What a joint reply says of one statement is not what is said of it alone: there is no weakest one then.
    """
    full, weakest, words = (cross_fitted_rows(w.seen, scorable(w.seen), w.fitted) for w in ways)
    forms = words_first(
        Candidate(name, full, ask_about=config.ask_about), words, ways.words.fitted.classifier.threshold
    )
    if config.verification == "each" and _cost_differs(weakest, full):
        less = Candidate(name, weakest, ask_about="weakest")
        forms += words_first(less, words, ways.words.fitted.classifier.threshold)[
            :-1
        ]  # lexical features alone are there
        forms.append(less._replace(name=f"{name}, weakest only"))
    forms = [r._replace(rows=as_read(r.rows, full), form=True) for r in forms]
    candidates = [Candidate(name, full, ask_about=config.ask_about), *forms]
    candidates += [
        Candidate(v.name, v.predictions) for v in others if v.name != name and v.kind != "baseline" and v.predictions
    ]
    return frontier(candidates, name, seed)


def worth_exporting(found: Sequence[CostPoint], labels: Sequence[bool], *, prefer: str) -> CostPoint:
    """Which form of the champion becomes the judge.

    To ``prefer="cheapest"``: the cheapest that is not shown to be worse, be it lexical features alone. Else the LM is asked about
    everything, unless a form that asks it about less is as good: within `NO_DIFFERENCE` of it, not shown to be
    worse, and with `ENOUGH` answers of each label to know. Of those the cheapest.
    """
    full = next(p for p in found if p.reference)
    forms = [p for p in found if p.cheaper_mode]
    if prefer == "cheapest":
        return min([full, *(p for p in forms if not_worse(p))], key=lambda p: p.cost)
    if min(sum(labels), len(labels) - sum(labels)) < ENOUGH:
        return full
    as_good = [p for p in forms if p.lm_share and not_worse(p) and (p.difference.value or 0.0) >= -NO_DIFFERENCE]
    return min([full, *as_good], key=lambda p: p.cost)


def made_of(judge: Judge, form: CostPoint, ways: Ways) -> Judge:
    """The judge that works as ``form`` says: ``judge`` itself, its weakest statements only, words first, or lexical features alone."""
    classifier = ways.of(form).fitted.classifier
    if form.reference:
        return judge.copy(classifier=classifier)
    first, words = JudgeConfig.make(**judge.config.scoring_options), ways.words.fitted.classifier
    if form.lm_share == 0:
        return Judge(NO_LM, config=first, classifier=words)
    thrifty = judge.copy(config=judge.config.model_copy(update={"ask_about": form.ask_about}), classifier=classifier)
    if form.escalates_within is None:
        return thrifty
    return Judge(
        NO_LM,
        config=first,
        classifier=words.model_copy(update={"review_range": form.escalates_within}),
        escalate_to=thrifty,
    )


def seen_by(judge: Judge, o: JudgedExample) -> JudgedExample:
    """What a judge of words, or words first, would have observed, from what was seen of everything. No LM call."""
    if judge.chain[-1].config.ask_about != "all":
        o = less_asked(o)
    if judge.asks_lm or o.unscored is not None:
        return o
    first = unverified(o.example.answer)
    if judge.escalate_to and judge.should_escalate(judge.score_answer(first, o.example.context, o.example.question)):
        first = first.model_copy(update={"escalated": o.raw_judgment, "usage": o.raw_judgment.usage})
    return o._replace(raw_judgment=first)


def less_asked(o: JudgedExample) -> JudgedExample:
    """What would have been observed with ``ask_about="weakest"``.

    Where the call that read the context falls away, the next one has to read it.
    """
    seen = o.raw_judgment
    passed = verdicts_without_lm(seen.raw_verdicts, index_context(o.example.context, o.example.question))
    asked = [f for f, p in zip(seen.raw_verdicts, passed, strict=True) if p is None]
    left_out = [f.usage for f, p in zip(seen.raw_verdicts, passed, strict=True) if p is not None]
    if not left_out:
        return o
    usage = seen.usage - sum(left_out, Usage())
    rest = max((f.usage.computed_tokens for f in asked), default=0)
    moved = max(0, max(u.computed_tokens for u in left_out) - rest) if rest else 0
    usage = usage.model_copy(update={"cached_tokens": usage.cached_tokens - moved})
    raw_verdicts = tuple(combine_verdicts(passed, asked))
    return o._replace(raw_judgment=seen.model_copy(update={"raw_verdicts": raw_verdicts, "usage": usage}))


def _cost_differs(rows: Sequence[PredictionRow], others: Sequence[PredictionRow]) -> bool:
    return any(a.usage != b.usage for a, b in zip(rows, others, strict=True))
