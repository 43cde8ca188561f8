"""The three lines that every result begins with: how far the judge agrees, what it gained, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import counted
from faith_dspy.optimize.data.audit import few, roughly
from faith_dspy.optimize.results import CHEAPER, SAID, Comparison
from faith_dspy.report.tables import Table, estimate, points
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import SHOWN_FROM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import StudyResult

_CHANCE = 0.5
_SHOWN = {"better": "", "not shown better": ", not shown", "worse": ", worse"}


class Measured(NamedTuple):
    """What the three lines are made from."""

    agreement: Agreement
    comparisons: Mapping[str, Comparison]
    """The judge against the others of `CHEAPER`, by name; empty for a judge that was not tuned."""
    judge: str
    """What ``--judge`` takes."""
    answers: str = "test answers"
    """What it was measured on."""
    compared: str = ""
    """Where it was compared, if elsewhere: words before the gain."""
    keep: str = "this judge or the untuned one"
    """The cheapest of this judge and those it is not shown better than, where it is known which."""
    seen: int = 0
    """How many of these answers had a part in the study that tuned it."""
    asks_lm: bool = True


def three_lines(m: Measured) -> Table:
    """Agreement with its interval and n, gain, and next step, a sentence each."""
    return Table("In three lines", notes=(f"Agreement: {_agrees(m)}", f"Gain: {_gained(m)}", f"Next: {_next(m)}"))


def of_study(result: StudyResult) -> Table:
    """The three lines of a study."""
    champion = result.tested("champion")
    level = [n for n in ("untuned", "lexical-baseline") if n in result.comparisons]
    level = [n for n in level if result.comparisons[n].verdict != "better"]
    costs = [(champion.cost, "this judge"), *((result.tested(n).cost, CHEAPER[n]) for n in level)]
    return three_lines(
        Measured(
            champion.agreement,
            result.comparisons,
            result.judge_dir,
            "cross-fitted answers (no test)" if result.split.get("cross_fitted") else "test answers",
            keep=min(costs, key=lambda cost: cost[0])[1],
            asks_lm=champion.lm_share > 0,
        )
    )


def of_judge(judge: Judge, source: str | None, agreement: Agreement | None = None, *, seen: int = 0) -> Table:
    """The three lines of a judge: what its export says of its study, or ``agreement`` on other labels.

    ``source``: where it was loaded from. ``seen``: how many of these answers had a part in its study.
    """
    # Exported objects without the fields that only other versions have.
    exported = judge.manifest.get("comparison", {})
    made = {name: Comparison.model_validate(exported[name], extra="ignore") for name in CHEAPER if name in exported}
    if agreement is None:
        tested = Agreement.model_validate(judge.manifest["agreement"], extra="ignore")
        return three_lines(Measured(tested, made, source or ""))
    return three_lines(Measured(agreement, made, source or "", "labelled answers", "in its study ", seen=seen))


def not_shown(result: StudyResult) -> str:
    """``not shown better than chance``, or than its own untuned judge; nothing of a champion that is both."""
    if not better_than_chance(result.tested("champion").agreement):
        return "not shown better than chance"
    return "" if result.comparisons["untuned"].verdict == "better" else "not shown better than its own untuned judge"


def better_than_chance(a: Agreement) -> bool:
    """Whether so many sources show it; a judge that is right about all answers has no interval."""
    accuracy = a.balanced_accuracy
    return not few_sources(a) and (accuracy.value == 1 or (accuracy.low is not None and accuracy.low > _CHANCE))


def few_sources(a: Agreement) -> bool:
    """Whether they are too few to show anything."""
    return a.sources is not None and a.sources < SHOWN_FROM


def _agrees(m: Measured) -> str:
    a = m.agreement
    on = f"{a.n:,} {m.answers}" + (f", {a.scored:,} of them scored" if a.scored < a.n else "")
    if a.balanced_accuracy.value is None:
        return f"unknown on {on}: {a.balanced_accuracy.why}."
    over = "" if a.sources is None else f"{',' * (a.scored < a.n)} over {counted(a.sources, 'source')}"
    return f"balanced accuracy {estimate(a.balanced_accuracy)} on {on}{over} (chance is .50).{few(a.n)}"


def _gained(m: Measured) -> str:
    known = [(name, m.comparisons[name]) for name in CHEAPER if name in m.comparisons]
    if not known:
        return "none yet; this judge was not tuned on labels."
    parts = [
        f"{points(c.balanced_accuracy)} points over {CHEAPER[name]}" + (_SHOWN[c.verdict] if name in SAID else "")
        for name, c in known
    ]
    return f"{m.compared}{'; '.join(parts)}."


def _next(m: Measured) -> str:
    """One of three: use it, label more, or keep the cheaper one."""
    accuracy, untuned = m.agreement.balanced_accuracy, m.comparisons.get("untuned")
    if m.seen:
        seen = f"{m.seen} of {counted(m.agreement.n, 'answer')} had a part in the study that tuned this judge"
        return f"label other answers to measure it on: {seen}. This is no agreement with people."
    if accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return "label more answers of both kinds, over more contexts."
    if accuracy.value <= _CHANCE:
        return "label more answers like these and tune on them; until then do not use it."
    if few_sources(m.agreement):
        return f"label answers over more sources to test on: it takes {SHOWN_FROM} to show anything."
    if not better_than_chance(m.agreement):
        half = (accuracy.high - accuracy.low) / 2
        more = m.agreement.n * ((half / (accuracy.value - _CHANCE)) ** 2 - 1)
        return f"label {roughly(max(1, round(more)))} more answers to test on: it is not shown better than chance."
    if untuned is None:
        return "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl"
    if worse := [CHEAPER[name] for name, c in m.comparisons.items() if name in CHEAPER and c.verdict == "worse"]:
        return f"label more answers to tune on; until then keep {worse[0]}."
    cheaper = f"keep the cheaper one, {m.keep}."
    if untuned.verdict != "better":
        n = untuned.more_labels
        return f"label {roughly(n)} more answers to test on; until then {cheaper}" if n else cheaper
    free = "" if m.asks_lm else ", your labels need no LM"
    return f"use it{free}: faith-dspy judge ANSWERS.jsonl --judge {m.judge}"
