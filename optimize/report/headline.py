"""The three lines that every result begins with: how far the judge agrees, what it gained, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import counted
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHEAPER,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    costs,
)
from faith_dspy.optimize.select.comparison import ALPHA
from faith_dspy.report.tables import NONE, Table, estimate, few, number, points, roughly
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, Estimate

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import JudgeResult, StudyResult

_CHANCE = 0.5
_MADE = {
    LEXICAL: 'Judge("none").fit(labels)',
    CALIBRATED: 'Judge(lm).fit(labels, "lm")',
    UNTUNED: "Judge(lm, granularity='answer', classifier=None)",
}
"""How the judges that a champion is compared with are made in Python."""
_FIRST_IMPRESSION = (
    "A first impression, not a test: {n} labels are too few to hold some out. Each answer was judged by weights fitted "
    "on answers over other contexts, but the judge was chosen on all of them, which flatters it; nor are prompts "
    "compiled on so few. Eight answers of each label over more contexts make a small test, a hundred a fair one."
)


class Measured(NamedTuple):
    """What the three lines are made from."""

    agreement: Agreement
    comparisons: Mapping[str, Comparison]
    """The judge against those of `CHEAPER` and the length baseline, by name; empty for a judge that was not tuned."""
    judge: str
    """What ``--judge`` takes."""
    answers: str = "test answers"
    """What it was measured on."""
    compared: str = ""
    """Where it was compared, if elsewhere: words before the gain."""
    chosen: str = ""
    """What it was chosen on, a sentence."""
    prices: Mapping[str, str] = {}
    """What an answer costs by ``judge`` and by each that costs no more, in words; empty where nobody knows."""
    seen: int = 0
    """How many of these answers had a part in the study that tuned it."""
    asks_lm: bool = True


def three_lines(m: Measured) -> Table:
    """Agreement with its interval and n, gain, and next step, a sentence each."""
    return Table(
        "In three lines",
        notes=(f"Agreement: {_agrees(m)}", f"Gain: {_gained(m)}", f"Next: {_next(m)}"),
    )


def of_study(result: StudyResult) -> Table:
    """The three lines of a study."""
    champion = result.tested("champion")
    cost = dict(zip((t.name for t in result.test), costs(result.test), strict=True))
    prices = {
        t.name: _price(t) for t in result.test if cost[t.name] <= cost["champion"]
    }
    return three_lines(
        Measured(
            champion.agreement,
            result.comparisons,
            result.judge_dir,
            "cross-fitted answers (no test)"
            if result.split.get("cross_fitted")
            else "test answers",
            chosen=_chosen_on(result),
            prices=prices,
            asks_lm=champion.lm_share > 0,
        )
    )


def of_judge(
    judge: Judge,
    source: str | None,
    agreement: Agreement | None = None,
    *,
    seen: int = 0,
) -> Table:
    """The three lines of a judge: what its export says of its study, or ``agreement`` on other labels.

    ``source``: where it was loaded from. ``seen``: how many of these answers had a part in its study.
    """
    # Exported objects without the fields that only other versions have.
    exported = judge.manifest.get("comparison", {})
    names = [name for name in (*CHEAPER, LENGTH) if name in exported]
    made = {
        name: Comparison.model_validate(exported[name], extra="ignore")
        for name in names
    }
    if agreement is None:
        tested = Agreement.model_validate(judge.manifest["agreement"], extra="ignore")
        return three_lines(Measured(tested, made, source or ""))
    return three_lines(
        Measured(
            agreement,
            made,
            source or "",
            "labelled answers",
            "in its study ",
            seen=seen,
        )
    )


def _price(judge: JudgeResult) -> str:
    if not judge.lm_share:
        return "free"
    if judge.price is not None:
        return f"${1000 * judge.price:,.2f} for 1,000 answers"
    return f"{judge.cost:,.0f} tokens an answer"


def _chosen_on(result: StudyResult) -> str:
    rows = result.variant(result.champion).rows
    sources = len({r.source for r in rows})
    return (
        f" Chosen on {counted(len(rows), 'answer')} over {counted(sources, 'source')}."
    )


def notes_of(result: StudyResult, reason: str, point: OperatingPoint) -> list[str]:
    """What a reader must know beside the figures, a sentence each; ``reason``: why the champion was chosen."""
    notes = [f"{_chosen_on(result).strip().rstrip('.')}: {reason}."]
    if not result.variant(result.champion).lm_share:
        notes.append(
            "The champion asks no LM: on these labels nothing that does was shown to be better."
        )
    if result.split.get("cross_fitted"):
        notes.append(_FIRST_IMPRESSION.format(n=result.test[0].agreement.n))
    if result.opened is not None and result.opened > 1:
        notes.append(
            f"{result.opened} studies have opened this testset: the more are compared on it, the more the best "
            "flatters itself."
        )
    notes += operating_point_note(result, point)
    return notes + [f"Held back: {why}" for why in result.held_back]


def operating_point_note(result: StudyResult, point: OperatingPoint) -> list[str]:
    """What a threshold that is not for balanced accuracy reaches on test, beside the untuned judge."""
    if point == BALANCED:
        return []
    caught, passed = (
        [
            _percent(getattr(result.tested(name).agreement, recall))
            for name in ("champion", UNTUNED)
        ]
        for recall in ("recall_unfaithful", "recall_faithful")
    )
    unfaithful = sum(not r.label for r in result.variant(result.champion).rows)
    rests = (
        f", and rests on {counted(unfaithful, 'unfaithful answer')}"
        if point.kind == "recall"
        else ""
    )
    return [
        f"The threshold is for the operating point “{point}”, not for balanced accuracy{rests}: on test it catches "
        f"{caught[0]} of the unfaithful answers (untuned: {caught[1]}) and passes {passed[0]} of the faithful "
        f"(untuned: {passed[1]})."
    ]


def _percent(e: Estimate) -> str:
    """A share with its interval in per cent: ``75% [67%, 82%]``."""
    if e.value is None:
        return NONE
    return f"{e.value:.0%}" + (
        "" if e.low is None or e.high is None else f" [{e.low:.0%}, {e.high:.0%}]"
    )


def not_shown(result: StudyResult) -> str:
    """``not shown better than chance``, or than its own untuned judge; nothing of a champion that is both."""
    if not better_than_chance(result.tested("champion").agreement):
        return "not shown better than chance"
    return (
        ""
        if result.comparisons[UNTUNED].verdict == "better"
        else "not shown better than its own untuned judge"
    )


def better_than_chance(a: Agreement) -> bool:
    """Whether so many sources show it."""
    low = a.balanced_accuracy.low
    return not few_sources(a) and low is not None and low > _CHANCE


def few_sources(a: Agreement) -> bool:
    """Whether the rarer label is in too few to show anything."""
    least = a.sources if a.least_sources is None else a.least_sources
    return least is not None and least < SIGNIFICANT_FROM


def _agrees(m: Measured) -> str:
    a = m.agreement
    on = f"{a.n:,} {m.answers}" + (
        f", {a.scored:,} of them scored" if a.scored < a.n else ""
    )
    if a.balanced_accuracy.value is None:
        return f"unknown on {on}: {a.balanced_accuracy.why}."
    over = (
        ""
        if a.sources is None
        else f"{',' * (a.scored < a.n)} over {counted(a.sources, 'source')}"
    )
    accuracy = estimate(a.balanced_accuracy)
    return f"balanced accuracy {accuracy} on {on}{over} (chance is .50).{few(a.n)}{m.chosen}"


def _gained(m: Measured) -> str:
    known = [(name, m.comparisons[name]) for name in CHEAPER if name in m.comparisons]
    if not known:
        return "none yet; this judge was not tuned on labels."
    parts = [
        f"{points(c.balanced_accuracy)} over {CHEAPER[name]}{_said(c)}"
        for name, c in known
    ]
    return f"{m.compared}in points, {'; '.join(parts)}."


def _said(c: Comparison) -> str:
    d = c.balanced_accuracy
    excludes_0 = d.low is not None and d.high is not None and not d.low <= 0 <= d.high
    if (
        c.verdict == "inconclusive"
        and excludes_0
        and c.p_value is not None
        and c.p_value > ALPHA
    ):
        return f", inconclusive by permutation (p = {number(c.p_value)})"
    return "" if c.verdict == "better" else f", {c.verdict}"


def _next(m: Measured) -> str:
    """One of: measure elsewhere, label more, take the cheaper judge, decide between two, use it."""
    accuracy = m.agreement.balanced_accuracy
    if m.seen:
        seen = f"{m.seen} of {counted(m.agreement.n, 'answer')} had a part in the study that tuned this judge"
        return f"label other answers to measure it on: {seen}. This is no agreement with people."
    if accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return "label more answers of both kinds, over more contexts."
    if accuracy.value <= _CHANCE:
        return (
            "label more answers like these and tune on them; until then do not use it."
        )
    if few_sources(m.agreement):
        return f"label answers over more sources to test on: it takes {SIGNIFICANT_FROM} of either label to decide."
    if not better_than_chance(m.agreement):
        half = (accuracy.high - accuracy.low) / 2
        more = m.agreement.n * ((half / (accuracy.value - _CHANCE)) ** 2 - 1)
        return f"label {roughly(max(1, round(more)))} more answers to test on: it is not shown better than chance."
    if not m.comparisons:
        return "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl"
    return _against_cheaper(m)


def _against_cheaper(m: Measured) -> str:
    """The judge against those that cost no more: it bears the burden of proof."""
    cheaper = [
        name
        for name in CHEAPER
        if name in m.comparisons and (not m.prices or name in m.prices)
    ]
    behind = [
        name
        for name in cheaper
        if (m.comparisons[name].balanced_accuracy.value or 0.0) < 0
    ]
    if behind:
        name = min(
            behind, key=lambda name: m.comparisons[name].balanced_accuracy.value or 0.0
        )
        c = m.comparisons[name]
        ahead = (
            f"{-100 * (c.balanced_accuracy.value or 0.0):.1f} points ahead on the test"
        )
        take = f"take {CHEAPER[name]}{_costing(m, name)}, {ahead}: {_MADE[name]}"
        return (
            f"{take}."
            if c.verdict == "worse"
            else f"{take}. Inconclusive{_deciding(c)}."
        )
    length = m.comparisons.get(LENGTH)
    if length is not None and (length.balanced_accuracy.value or 0.0) <= 0:
        return "label more answers, to tune and to test: counting words agrees as well, it may have learned length."
    use = f"use it{_costing(m, 'champion')}"
    command = f"faith-dspy judge ANSWERS.jsonl --judge {m.judge}"
    if not m.asks_lm:
        return f"{use}, your labels need no LM: {command}"
    free = m.comparisons.get(LEXICAL)
    if free is not None and free.verdict == "inconclusive":
        return f"{use}: {command}; or {CHEAPER[LEXICAL]}, free: {_MADE[LEXICAL]}. Inconclusive{_deciding(free)}."
    return f"{use}: {command}"


def _costing(m: Measured, name: str) -> str:
    return f" ({m.prices[name]})" if name in m.prices else ""


def _deciding(c: Comparison) -> str:
    if c.more_labels is None or c.more_sources is None:
        return ""
    difference = 100 * abs(c.balanced_accuracy.value or 0.0)
    answers, sources = roughly(c.more_labels), roughly(c.more_sources)
    return f": {answers} more answers over {sources} more contexts would decide a difference of {difference:.1f} points"
