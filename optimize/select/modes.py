"""Cheaper modes of a champion: lexical features first and the LM where they are unsure, or fewer statements.

All are computed from replies already paid for: where a mode would not ask the LM, its known reply is left out of
predictions and costs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.select.evaluate import JudgedExample, cross_fitted_rows, fit, scorable, without_lm
from faith_dspy.program.program import combine_verdicts, verdicts_without_lm
from faith_dspy.schema import Usage
from faith_dspy.scoring.classifier import LOGIT_LIMIT, to_logit, to_probability
from faith_dspy.scoring.score import unverified
from faith_dspy.text.features import index_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.results import CostPoint, PredictionRow
    from faith_dspy.scoring.classifier import Classifier

SHARES = (0.25, 0.5, 0.75)
"""Shares of the answers that a cascade escalates: those that the lexical judge is least sure of."""


class Replies(NamedTuple):
    """Judged answers, and the classifier fitted on the `scorable` ones of them."""

    judged: Sequence[JudgedExample]
    fitted: FittedClassifier

    @property
    def rows(self) -> list[PredictionRow]:
        """Cross-fitted predictions."""
        return cross_fitted_rows(self.judged, self.fitted)


class Modes(NamedTuple):
    """The same answers of train and dev, judged with the LM asked about more or less."""

    every: Replies
    """The LM asked about every statement, as the champion's options say."""
    weakest: Replies
    """The LM asked about the weakest uncovered statement only (option ``ask_about``)."""
    lexical: Replies
    """No LM."""
    priors: Mapping[str, Classifier] = MappingProxyType({})
    """What their classifiers were fitted with (`priors_of`)."""

    def of(self, point: CostPoint) -> Replies:
        """The replies whose classifier has the last word in that mode."""
        if point.lm_share == 0 and point.cheaper_mode:
            return self.lexical
        return self.weakest if point.cheaper_mode and point.ask_about == "weakest" else self.every


class Candidate(NamedTuple):
    """Cross-fitted predictions of one way to judge, with what each of them costs."""

    name: str
    rows: Sequence[PredictionRow]
    cheaper_mode: bool = False
    escalates_within: tuple[float, float] | None = None
    ask_about: str = "all"


def fit_modes(
    judged: Sequence[JudgedExample],
    seed: int,
    operating_point: OperatingPoint = BALANCED,
    priors: Mapping[str, Classifier] = MappingProxyType({}),
) -> Modes:
    """Fit a classifier for each mode on what would have been asked in it; ``priors`` as for `fit`."""

    def replies(judged: Sequence[JudgedExample], which: str, point: OperatingPoint) -> Replies:
        return Replies(judged, fit(scorable(judged), which, seed, point, priors))

    return Modes(
        every=replies(judged, "both", operating_point),
        weakest=replies([ask_weakest(e) for e in judged], "both", operating_point),
        lexical=replies(without_lm(e.example for e in judged), "lexical", BALANCED),
        priors=priors,
    )


def cheaper_modes(name: str, config: JudgeConfig, modes: Modes) -> list[Candidate]:
    """The champion called ``name`` in every mode that asks the LM about less, with the costs of each mode alone.

    In joint verification a reply about one statement depends on the others: there is no weakest one then.
    """
    full, weakest, lexical = (replies.rows for replies in (modes.every, modes.weakest, modes.lexical))
    threshold = modes.lexical.fitted.classifier.threshold
    found = cascades(Candidate(name, full, ask_about=config.ask_about), lexical, threshold)
    if config.verification == "each" and any(a.usage != b.usage for a, b in zip(weakest, full, strict=True)):
        less = Candidate(f"{name}, weakest", weakest, ask_about="weakest")
        found += [*cascades(less, lexical, threshold)[:-1], less]  # without lexical features alone: they are there
    return [c._replace(rows=with_own_context(c.rows, full), cheaper_mode=True) for c in found]


def cascades(lm: Candidate, lexical: Sequence[PredictionRow], threshold: float) -> list[Candidate]:
    """Lexical features first and the LM where they are least sure, then lexical features alone; the dearest first.

    ``lexical``: cross-fitted predictions of the same answers, passing from ``threshold``. The LM is asked within a
    range around the threshold, equally wide in log-odds on both sides, which holds one of `SHARES` of the answers and
    ends half way to the next one. An answer that the LM declined stays unscored.
    """
    centre = to_logit(threshold)
    distances = sorted(abs(to_logit(r.probability) - centre) for r in lexical if r.probability is not None)
    if not distances:
        return []
    found = []
    for share in reversed(SHARES):
        k = int(share * len(distances))
        reach = (distances[k - 1] + distances[k]) / 2 if k else 0.0
        within = (
            to_probability(max(-LOGIT_LIMIT, centre - reach)),
            to_probability(min(LOGIT_LIMIT, centre + reach)),
        )
        rows = _escalated(lm, lexical, within)
        if any(r is not own for r, own in zip(rows, lm.rows, strict=True)):
            found.append(lm._replace(name=f"lexical, then {lm.name} {share:.0%}", rows=rows, escalates_within=within))
    nothing = (threshold, threshold)
    found.append(lm._replace(name="lexical", rows=_escalated(lm, lexical, nothing), escalates_within=nothing))
    return [c._replace(cheaper_mode=True) for c in found]


def _escalated(lm: Candidate, lexical: Sequence[PredictionRow], within: tuple[float, float]) -> list[PredictionRow]:
    """Each answer as the lexical judge sees it, or as the LM does where the probability is within the range."""
    low, high = within

    def escalates(p: float | None) -> bool:
        return low < high if p is None else low <= p < high

    return [
        own if own.unscored is not None or escalates(row.probability) else row
        for own, row in zip(lm.rows, lexical, strict=True)
    ]


def with_own_context(rows: Sequence[PredictionRow], full: Sequence[PredictionRow]) -> list[PredictionRow]:
    """Costs of ``rows`` as if no other answer were judged: some answer has to pay for reading each context.

    ``full``: the same answers with the LM asked about everything. Its dearest call over a context is the one that read
    it; where a mode leaves that call out, the difference is charged to the dearest call that is left.
    """
    dearest: dict[tuple[str, ...], int] = {}
    for r in full:
        dearest[r.context] = max(dearest.get(r.context, 0), _dearest_call(r))
    asked: dict[tuple[str, ...], list[int]] = {}
    for i, r in enumerate(rows):
        if r.usage.calls:
            asked.setdefault(r.context, []).append(i)
    charged = list(rows)
    for context, places in asked.items():
        i = max(places, key=lambda i: _dearest_call(rows[i]))
        missing = max(0, dearest.get(context, 0) - _dearest_call(rows[i]))
        usage = rows[i].usage
        cached = max(0, usage.cached_tokens - missing)
        charged[i] = rows[i].model_copy(update={"usage": usage.model_copy(update={"cached_tokens": cached})})
    return charged


def _dearest_call(row: PredictionRow) -> int:
    """Most tokens that the server computed for one statement, plus whatever it computed for the answer as a whole."""
    each = [s.usage.computed_tokens for s in row.statements if s.usage]
    return row.usage.computed_tokens - sum(each) + max(each, default=0)


def build_judge(champion: Judge, point: CostPoint, modes: Modes) -> Judge:
    """The champion with its classifier, in the mode of that point."""
    classifier = modes.of(point).fitted.classifier
    if not point.cheaper_mode:
        return champion.copy(classifier=classifier)
    first, lexical = JudgeConfig.make(**champion.config.scoring_options), modes.lexical.fitted.classifier
    if point.lm_share == 0:
        return Judge(NO_LM, config=first, classifier=lexical)
    second = champion.copy(
        config=champion.config.model_copy(update={"ask_about": point.ask_about}), classifier=classifier
    )
    if point.escalates_within is None:
        return second
    within = lexical.model_copy(update={"review_range": point.escalates_within})
    return Judge(NO_LM, config=first, classifier=within, escalate_to=second)


def as_judged_by(judge: Judge, judged: JudgedExample) -> JudgedExample:
    """What ``judge``, a cheaper mode, would have made of an answer that was asked about in full. No LM call."""
    if judge.chain[-1].config.ask_about == "weakest":
        judged = ask_weakest(judged)
    if judge.asks_lm or judged.unscored is not None:
        return judged
    first, example = unverified(judged.example.answer), judged.example
    if judge.escalate_to and judge.should_escalate(judge.score_answer(first, example.context, example.question)):
        asked = judged.raw_judgment
        first = first.model_copy(update={"escalated": asked, "usage": asked.usage})
    return judged._replace(raw_judgment=first)


def ask_weakest(judged: JudgedExample) -> JudgedExample:
    """What the LM would have said with ``ask_about="weakest"``.

    Where the call that read the context is left out, the next one has to read it.
    """
    raw, example = judged.raw_judgment, judged.example
    passed = verdicts_without_lm(raw.raw_verdicts, index_context(example.context, example.question))
    asked = [v for v, p in zip(raw.raw_verdicts, passed, strict=True) if p is None]
    left_out = [v.usage for v, p in zip(raw.raw_verdicts, passed, strict=True) if p is not None]
    if not left_out:
        return judged
    usage = raw.usage - sum(left_out, Usage())
    rest = max((v.usage.computed_tokens for v in asked), default=0)
    moved = max(0, max(u.computed_tokens for u in left_out) - rest) if rest else 0
    usage = usage.model_copy(update={"cached_tokens": usage.cached_tokens - moved})
    verdicts = tuple(combine_verdicts(passed, asked))
    return judged._replace(raw_judgment=raw.model_copy(update={"raw_verdicts": verdicts, "usage": usage}))
