"""The three lines that every result begins with: how far the judge agrees, what it gained, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import counted
from faith_dspy.optimize.classifier.fitting import BALANCED, OperatingPoint
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
from faith_dspy.report.tables import Table, few, number, points, roughly, with_interval
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import JudgeResult, StudyResult

_CHANCE = 0.5
_IN_PYTHON = {
    LEXICAL: 'Judge("none").fit(labels)',
    CALIBRATED: 'Judge(lm).fit(labels, "lm")',
    UNTUNED: "Judge(lm, granularity='answer', classifier=None)",
}
"""How the judges that a champion is compared with are made."""
_FREE = f"{CHEAPER[LEXICAL]}, free: {_IN_PYTHON[LEXICAL]}"
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
    in_its_study: bool = False
    """Whether it was compared on other answers, those of its study."""
    chosen: str = ""
    """What it was chosen on, a sentence."""
    prices: Mapping[str, str] = {}
    """What an answer costs by ``champion`` and by each that costs no more, in words; empty where nobody knows."""
    seen: int = 0
    """How many of these answers had a part in the study that tuned it."""
    asks_lm: bool = True


def three_lines(m: Measured) -> Table:
    """Say agreement with its interval and n, gain, and next step, a sentence each."""
    lines = (
        f"Agreement: {_agreement_line(m)}",
        f"Gain: {_gain_line(m)}",
        f"Next: {_next_step(m)}",
    )
    return Table("In three lines", notes=lines)


def of_study(result: StudyResult) -> Table:
    """Return the three lines of a study."""
    champion, *others = result.test
    price, *prices = costs(result.test)
    cheaper = [t for t, cost in zip(others, prices, strict=True) if cost <= price]
    measured = Measured(
        champion.agreement,
        result.comparisons,
        result.judge_dir,
        chosen=f" {_chosen_on(result)}.",
        prices={t.name: _price(t) for t in (champion, *cheaper)},
        asks_lm=champion.lm_share > 0,
    )
    if result.split.get("cross_fitted"):
        measured = measured._replace(answers="cross-fitted answers (no test)")
    return three_lines(measured)


def of_judge(
    judge: Judge,
    source: str | None,
    agreement: Agreement,
    *,
    seen: int = 0,
) -> Table:
    """Return the three lines of a judge, whose export says what it gained in its study.

    Args:
        judge: an exported judge, or one that was not tuned.
        source: where it was loaded from.
        agreement: on labelled answers.
        seen: how many of these had a part in its study.
    """
    comparisons = {}
    for name, fields in judge.manifest.get("comparison", {}).items():
        if name in (*CHEAPER, LENGTH):
            # Without the fields that only other versions have.
            comparisons[name] = Comparison.model_validate(fields, extra="ignore")
    prices = {}
    if not judge.asks_lm:
        prices = dict.fromkeys(("champion", LEXICAL), "free")
    measured = Measured(
        agreement,
        comparisons,
        source or "",
        answers="labelled answers",
        in_its_study=True,
        prices=prices,
        seen=seen,
        asks_lm=judge.asks_lm,
    )
    return three_lines(measured)


def _price(judge: JudgeResult) -> str:
    if not judge.lm_share:
        return "free"
    if judge.price is not None:
        return f"${1000 * judge.price:,.2f} for 1,000 answers"
    return f"{judge.cost:,.0f} tokens an answer"


def _chosen_on(result: StudyResult) -> str:
    rows = result.variant(result.champion).rows
    sources = len({r.source for r in rows})
    return f"Chosen on {counted(len(rows), 'answer')} over {counted(sources, 'source')}"


def notes_of(result: StudyResult, reason: str, point: OperatingPoint) -> list[str]:
    """Say what a reader must know beside the figures, a sentence each; ``reason``: why the champion was chosen."""
    notes = [f"{_chosen_on(result)}: {reason}."]
    if not result.variant(result.champion).lm_share:
        notes.append(
            "The champion asks no LM: on the pool nothing that does was significantly better."
        )
    if result.split.get("cross_fitted"):
        notes.append(_FIRST_IMPRESSION.format(n=result.test[0].agreement.n))
    if result.opened == 1:
        notes.append("No other study has opened this testset.")
    elif result.opened is not None:
        notes.append(
            f"{result.opened} studies have opened this testset, this one included: the more of them are compared on "
            "it, the more it flatters the best."
        )
    if point != BALANCED:
        notes.append(_operating_point_note(result, point))
    return notes + [f"Held back: {why}" for why in result.held_back]


def _operating_point_note(result: StudyResult, point: OperatingPoint) -> str:
    """Return what a threshold that is not for balanced accuracy reaches on test, beside the untuned judge."""
    champion = result.tested("champion").agreement
    untuned = result.tested(UNTUNED).agreement
    rests = ""
    if point.kind == "recall":
        unfaithful = sum(not r.label for r in result.variant(result.champion).rows)
        rests = f", and rests on {counted(unfaithful, 'unfaithful answer')}"
    passed = with_interval(champion.recall_faithful)
    return (
        f"The threshold is for the operating point “{point}”, not for balanced accuracy{rests}: on test it catches "
        f"{with_interval(champion.recall_unfaithful)} of the unfaithful answers (untuned: "
        f"{with_interval(untuned.recall_unfaithful)}) and passes {passed} of the faithful "
        f"(untuned: {with_interval(untuned.recall_faithful)})."
    )


def not_shown(result: StudyResult) -> str:
    """Return ``not significantly better than chance``, or than its own untuned judge; nothing where it is both."""
    if not better_than_chance(result.tested("champion").agreement):
        return "not significantly better than chance"
    if result.comparisons[UNTUNED].verdict != "better":
        return "not significantly better than its own untuned judge"
    return ""


def shortfalls(result: StudyResult) -> list[str]:
    """Return a sentence for each of chance, the untuned judge and what is free that the champion is not shown better
    than. A champion that asks no LM is free itself."""
    champion = result.tested("champion")
    sentences = []
    if not better_than_chance(champion.agreement):
        accuracy = with_interval(champion.agreement.balanced_accuracy)
        sentences.append(
            f"the champion is not significantly better than chance: {accuracy}."
        )
    rivals = (UNTUNED, LEXICAL) if champion.lm_share else (UNTUNED,)
    comparisons = [result.comparisons[name] for name in rivals]
    return sentences + [c.sentence for c in comparisons if c.verdict != "better"]


def better_than_chance(a: Agreement) -> bool:
    """Return whether so many sources show it."""
    low = a.balanced_accuracy.low
    return not few_sources(a) and low is not None and low > _CHANCE


def few_sources(a: Agreement) -> bool:
    """Return whether the rarer label is in too few to show anything."""
    least = a.sources if a.least_sources is None else a.least_sources
    return least is not None and least < SIGNIFICANT_FROM


def _agreement_line(m: Measured) -> str:
    a = m.agreement
    on = counted(a.n, m.answers.removesuffix("s"))
    if a.scored < a.n:
        on += f", {a.scored:,} of them scored"
    if a.balanced_accuracy.value is None:
        return f"cannot be measured on {on}: {a.balanced_accuracy.why}."
    if a.sources is not None:
        comma = "," if a.scored < a.n else ""
        on += f"{comma} over {counted(a.sources, 'source')}"
    accuracy = with_interval(a.balanced_accuracy)
    return f"balanced accuracy {accuracy} on {on} (chance is .50).{few(a.n)}{m.chosen}"


def _gain_line(m: Measured) -> str:
    gains = []
    for name, called in CHEAPER.items():
        c = m.comparisons.get(name)
        if c is not None:
            gains.append(
                f"{points(c.balanced_accuracy)} over {called}{_verdict_words(c)}"
            )
    if not gains:
        return "none yet; this judge was not tuned on labels."
    where = "in its study " if m.in_its_study else ""
    return f"{where}in points, {'; '.join(gains)}."


def _verdict_words(c: Comparison) -> str:
    """Return the verdict, if it is not better; with its p where an interval without 0 does not tell why."""
    if c.verdict == "better":
        return ""
    low, high, p = c.balanced_accuracy.low, c.balanced_accuracy.high, c.p_value
    excludes_0 = low is not None and high is not None and not low <= 0 <= high
    if c.verdict == "inconclusive" and excludes_0 and (p or 0.0) > ALPHA:
        return f", inconclusive by permutation (p = {number(p)})"
    return f", {c.verdict}"


def _next_step(m: Measured) -> str:
    """Return one of: measure elsewhere, label more, take the cheaper judge, decide between two, use it.

    A judge bears the burden of proof against those that cost no more.
    """
    a, accuracy = m.agreement, m.agreement.balanced_accuracy
    if m.seen:
        seen = f"{m.seen} of {counted(a.n, 'answer')} had a part in the study that tuned this judge"
        return f"label other answers to measure it on: {seen}. This is no agreement with people."
    if not a.scored:
        return "fix what kept the answers from being scored, then measure again."
    if accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return "label more answers of both kinds, over more contexts."
    rival = _rival(m)
    if rival:
        return _take(m, rival)
    if accuracy.value <= _CHANCE:
        return (
            "label more answers like these and tune on them; until then do not use it."
        )
    if few_sources(a):
        return (
            f"label answers over more sources to test on: it takes {SIGNIFICANT_FROM} sources of each label to decide."
            f"{_until_then(m)}"
        )
    if not better_than_chance(a):
        half = (accuracy.high - accuracy.low) / 2
        more = round(a.n * ((half / (accuracy.value - _CHANCE)) ** 2 - 1))
        return (
            f"label {roughly(max(1, more))} more answers to test on: it is not significantly better than chance."
            f"{_until_then(m)}"
        )
    if not m.comparisons:
        return "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl"
    if LENGTH in m.comparisons and _lead(m.comparisons[LENGTH]) <= 0:
        return "label more answers, to tune and to test: counting words agrees as well, it may have learned length."
    command = f"faith-dspy judge ANSWERS.jsonl --judge {m.judge}"
    if not m.asks_lm:
        return f"use it{_costing(m)}, your labels need no LM: {command}"
    if _leads_by_luck(m):
        c = m.comparisons[LEXICAL]
        return (
            f"use it{_costing(m)}: {command}; or {_FREE}. Inconclusive{_deciding(c)}."
        )
    return f"use it{_costing(m)}: {command}"


def _lead(c: Comparison) -> float:
    """Points by which the champion is ahead."""
    return 100 * (c.balanced_accuracy.value or 0.0)


def _rival(m: Measured) -> str | None:
    """Return who is farthest ahead of this judge among those that cost no more; None where nobody is, or only worse
    than chance, too."""
    rival, lead = None, 0.0
    for name in CHEAPER:
        if name in m.comparisons and (not m.prices or name in m.prices):
            own = _lead(m.comparisons[name])
            if own < lead:
                rival, lead = name, own
    accuracy = m.agreement.balanced_accuracy.value or 0.0
    if not m.in_its_study:
        accuracy -= lead / 100
    return rival if accuracy > _CHANCE else None


def _take(m: Measured, rival: str) -> str:
    c = m.comparisons[rival]
    where = "in its study" if m.in_its_study else f"on these {m.answers}"
    price = f", {m.prices[rival]}," if rival in m.prices else ""
    text = (
        f"take {CHEAPER[rival]}{price} {-_lead(c):.1f} points ahead of this judge{_costing(m)} {where}: "
        f"{_IN_PYTHON[rival]}."
    )
    return text if c.verdict == "worse" else f"{text} Inconclusive{_deciding(c)}."


def _leads_by_luck(m: Measured) -> bool:
    """Tell whether a lead over what is free may be luck."""
    c = m.comparisons.get(LEXICAL)
    return m.asks_lm and c is not None and c.verdict == "inconclusive"


def _until_then(m: Measured) -> str:
    if not _leads_by_luck(m):
        return ""
    return f" Until then choose between this judge{_costing(m)} and {_FREE}."


def _costing(m: Measured) -> str:
    return f" ({m.prices['champion']})" if m.prices else ""


def _deciding(c: Comparison) -> str:
    if c.more_labels is None or c.more_sources is None:
        return ""
    more = f"{roughly(c.more_labels)} more answers over {roughly(c.more_sources)} more contexts"
    return f": {more} would decide a difference of {abs(_lead(c)):.1f} points"
