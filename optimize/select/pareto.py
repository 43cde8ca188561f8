"""What agreement costs: the variants and their words-first forms side by side, from replies already paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.optimize.checks import CostPoint, Difference
from faith_dspy.optimize.select.optimism import chosen_by
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.classifier import LOGIT_LIMIT, to_logit, to_probability
from faith_dspy.scoring.statistics import need, resample_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow

SHARES = (0.25, 0.5, 0.75)
"""Of the answers an LM is asked about, those that words are least sure of, in the words-first forms that are tried."""
MARGIN = 0.02
"""Two points of the figure that variants are chosen by: what a cheaper form may be worse at most, with 95 % confidence,
to count as not worse."""
ENOUGH = 50
"""Answers of each label from which on a words-first form may take the champion's place: its review_range is fitted on them."""
WORDS = "words"
ASKED_ABOUT = {  # from much to little
    "all": "every statement",
    "weakest": "one statement that words do not clear, the one with most in it that is new",
}
_RESAMPLES = 1000


def not_worse(p: CostPoint) -> bool:
    """Whether it is shown to be at most `MARGIN` worse than the reference."""
    return p.reference or (p.difference.low is not None and p.difference.low >= -MARGIN)


def in_words(points: Sequence[CostPoint]) -> list[str]:
    """What a reader should take from a frontier; nothing of an empty one."""
    if not points:
        return []
    full, fair = (next(p for p in points if getattr(p, which)) for which in ("reference", "cheapest"))
    out = []
    form = next((p for p in points if p.exported and p.cheaper_mode), None)
    if form is not None:
        rest = f"; words settle the other {1 - form.lm_share:.0%}" if form.lm_share and form.escalates_within else ""
        part = f", and of these about {ASKED_ABOUT[form.ask_about]}" if form.lm_share else ""
        out.append(
            f"The champion asks the LM about {form.lm_share:.0%} of the answers{part}{rest}. Against asking about all: "
            f"{_points(form.difference)} in the mean of balanced accuracy and AUROC, cross-fitted on {full.n} answers."
        )
    less = f"shown to be less than {100 * MARGIN:.0f} points worse than {full.name}"
    if fair is full:
        out.append(f"Nothing cheaper is {less}.")
    elif not fair.exported:
        out.append(
            f"The cheapest that is {less}: {fair.name}, {fair.computed_tokens:.0f} tokens read an answer "
            f"instead of {full.computed_tokens:.0f} ({_points(fair.difference)}); `tune --prefer cheapest` exports it."
        )
    return out


def _points(d: Difference) -> str:
    if d.value is None or d.low is None or d.high is None:
        return f"no interval, {d.why}"
    return f"{100 * d.value:+.1f} points, 90 % interval {100 * d.low:+.1f} to {100 * d.high:+.1f}"


class Candidate(NamedTuple):
    """Cross-fitted predictions of one way to judge, with what each of them costs."""

    name: str
    rows: Sequence[PredictionRow]
    form: bool = False
    review_range: tuple[float, float] | None = None
    ask_about: str = "all"


def words_first(lm: Candidate, words: Sequence[PredictionRow], threshold: float) -> list[Candidate]:
    """The LM's forms that ask it only where words are least sure, and lexical features alone; from the dear to the cheap.

    ``words``: the cross-fitted predictions of words about the same answers, ``threshold`` their threshold. A review_range
    reaches as far from it in log-odds, to either side, as holds one of `SHARES` of the answers, and half way to the
    next one. An answer that nothing could be asked about stays unscored.
    """
    centre = to_logit(threshold)
    away = sorted(abs(to_logit(w.probability) - centre) for w in words if w.probability is not None)
    if not away:
        return []
    forms = [
        lm._replace(name=WORDS, rows=_mixed(lm, words, (threshold, threshold)), review_range=(threshold, threshold))
    ]
    asked = "weakest" if lm.ask_about == "weakest" else lm.name
    for share in SHARES:
        k = int(share * len(away))
        reach = (away[k - 1] + away[k]) / 2 if k else 0.0
        review_range = (
            to_probability(max(-LOGIT_LIMIT, centre - reach)),
            to_probability(min(LOGIT_LIMIT, centre + reach)),
        )
        rows = _mixed(lm, words, review_range)
        if any(r is not own for r, own in zip(rows, lm.rows, strict=True)):
            forms.append(lm._replace(name=f"{WORDS}, then {asked} {share:.0%}", rows=rows, review_range=review_range))
    return [f._replace(form=True) for f in forms[::-1]]


def _mixed(lm: Candidate, words: Sequence[PredictionRow], review_range: tuple[float, float]) -> list[PredictionRow]:
    """Each answer as words judge it, or as the LM does where it is asked, which is within the review_range."""

    def asked(p: float | None) -> bool:
        return review_range[0] < review_range[1] if p is None else review_range[0] <= p < review_range[1]

    return [
        own if own.unscored is not None or asked(word.probability) else word
        for own, word in zip(lm.rows, words, strict=True)
    ]


def as_read(rows: Sequence[PredictionRow], full: Sequence[PredictionRow]) -> list[PredictionRow]:
    """What ``rows`` cost if nobody else were asked: each context has to be read by an answer that is asked about.

    ``full``: the same answers with everything asked. Who read a context there is known by its dearest call; where that
    call falls away, what it read more than others is put on the dearest call that is left over the same context.
    """
    dearest: dict[tuple[str, ...], int] = {}
    for r in full:
        dearest[tuple(r.context)] = max(dearest.get(tuple(r.context), 0), _dearest_call(r))
    asked: dict[tuple[str, ...], list[int]] = {}
    for i, r in enumerate(rows):
        if r.usage.calls:
            asked.setdefault(tuple(r.context), []).append(i)
    out = list(rows)
    for context, places in asked.items():
        i = max(places, key=lambda i: _dearest_call(rows[i]))
        missing = max(0, dearest.get(context, 0) - _dearest_call(rows[i]))
        usage = rows[i].usage
        cached = max(0, usage.cached_tokens - missing)
        out[i] = rows[i].model_copy(update={"usage": usage.model_copy(update={"cached_tokens": cached})})
    return out


def _dearest_call(row: PredictionRow) -> int:
    """Most tokens that one statement's calls had to read, with whatever else was read for the answer."""
    each = [s.usage.computed_tokens for s in row.statements if s.usage]
    return row.usage.computed_tokens - sum(each) + max(each, default=0)


def frontier(candidates: Sequence[Candidate], reference: str, seed: int = 0) -> tuple[CostPoint, ...]:
    """All candidates as points, the cheapest first, each compared with the one named ``reference``."""
    standard = next(r for r in candidates if r.name == reference)
    found = [_point(r, standard, seed) for r in candidates]
    fair = min((p for p in found if not_worse(p)), key=lambda p: p.cost)
    return tuple(p.model_copy(update={"cheapest": p is fair}) for p in sorted(found, key=lambda p: (p.cost, p.name)))


def _point(candidate: Candidate, standard: Candidate, seed: int) -> CostPoint:
    rows, n = candidate.rows, max(1, len(candidate.rows))
    found = measure(
        [r.label for r in rows],
        [r.predicted for r in rows],
        [r.probability for r in rows],
        groups=[r.group for r in rows],
        seed=seed,
    )
    total = sum((r.usage for r in rows), Usage())
    return CostPoint(
        name=candidate.name,
        n=len(rows),
        balanced_accuracy=found.balanced_accuracy,
        auroc=found.auroc,
        lm_share=sum(r.usage.calls > 0 for r in rows) / n,
        calls=total.calls / n,
        computed_tokens=total.computed_tokens / n,
        output_tokens=total.output_tokens / n,
        seconds=total.seconds / n,
        cheaper_mode=candidate.form,
        ask_about=candidate.ask_about,
        escalates_within=candidate.review_range,
        difference=difference(candidate.rows, standard.rows, seed),
        reference=candidate is standard,
    )


def difference(rows: Sequence[PredictionRow], others: Sequence[PredictionRow], seed: int = 0) -> Difference:
    """What variants are chosen by, of the first minus of the second, on the answers both have; interval of 90 %.

    Both are measured on the same resamples of whole groups. No interval where most resamples hold one label only.
    """
    need("numpy", "Comparing judges")
    import numpy as np

    both = {r.id for r in rows} & {r.id for r in others}
    order = sorted({(r.group, r.id) for r in rows if r.id in both})
    if not order:
        return Difference(why="no answer was judged by both")
    drawn = np.concatenate(
        [np.ones((1, len(order))), *resample_weights(len(order), [g for g, _ in order], _RESAMPLES, seed)]
    )
    one, other = (chosen_by([r for r in side if r.id in both], order, drawn) for side in (rows, others))
    value, *draws = (one - other).tolist()
    kept = [d for d in draws if not np.isnan(d)]
    if np.isnan(value):
        return Difference(why="all these answers have the same label, or none was scored")
    if len(kept) <= _RESAMPLES / 2:
        return Difference(value=value, why="no interval: more than half of the resamples have one class only")
    low, high = np.quantile(kept, [0.05, 0.95]).tolist()
    return Difference(value=value, low=low, high=high, standard_error=float(np.std(kept, ddof=1)))
