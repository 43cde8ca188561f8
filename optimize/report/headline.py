"""The three lines that every result begins with: how far the judge agrees, what it gained, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from faith_dspy.errors import counted, priced
from faith_dspy.io.labels import whose_labels
from faith_dspy.judge import Judge
from faith_dspy.lm.function import PREFIX
from faith_dspy.optimize.results import (
    BASELINES,
    CHEAPER,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    Cost,
    JudgeResult,
    StudyResult,
    current_name,
)
from faith_dspy.optimize.select.comparison import (
    CHANCE,
    better_than_chance,
    few_sources,
)
from faith_dspy.report.tables import Table, points, with_interval
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM

PROCEDURE = (
    "Cross-validated: fit and choose were repeated without each fold, so these figures are of the procedure; the "
    "exported judge is fitted on all labels."
)
_FREE = "free"
_MEASURED_BY = {"test": "on your test", "cross-validation": "cross-validated"}


class Headline(NamedTuple):
    """What the three lines are made from."""

    agreement: Agreement
    comparisons: Mapping[str, Comparison]
    """The judge against those of `BASELINES`, by name; empty for a judge that was not tuned."""
    judge: str
    """What ``--judge`` takes; of a recorded one, ``--scores``."""
    measured_by: str = "on these labels"
    on_others: Collection[str] = ()
    """Which of the comparisons were made on other answers, those of its study."""
    price: str = ""
    """What an answer costs, in words; nothing where nobody knows."""
    seen: int = 0
    """How many of these answers had a part in the study that tuned it."""
    columns: Sequence[str] = ()
    """Columns that every answer has to have."""
    lm: str = ""
    """What ``--lm`` takes, of a judge that was not tuned."""
    labelled_by: Mapping[str, int] = MappingProxyType({})
    """Labels by who gave them."""
    recorded: str = ""
    """How the column of a recorded judge was read; empty for any other."""
    metric: str = ""
    """What gains are measured in, unless that is balanced accuracy."""


def three_lines(headline: Headline) -> Table:
    """Say agreement in plain counts, gain, and next step, a sentence each."""
    second = f"Gain: {_gain_line(headline)}"
    if headline.recorded:
        second = f"Column: {headline.recorded}."
    lines = (_agreement(headline), second, f"Next: {_next_step(headline)}")
    return Table("In three lines", notes=lines)


def of_study(result: StudyResult) -> Table:
    """Return the three lines of a study."""
    measured, chosen = result.measured, result.chosen
    return three_lines(
        Headline(
            measured.champion.agreement,
            measured.comparisons,
            _with_function(result.judge_dir, chosen.function),
            measured_by=_MEASURED_BY[result.measured_by],
            price=price_of(chosen),
            columns=chosen.columns,
            labelled_by=result.labelled_by,
            metric=_metric(result.operating_point),
        )
    )


def _metric(operating_point: str) -> str:
    is_cost = operating_point.startswith("cost=")
    return f" of accuracy at {operating_point}" if is_cost else ""


def of_judge(
    judge: Judge,
    source: str | None,
    result: JudgeResult,
    *,
    seen: int,
    against_words: Comparison | None,
    labelled_by: Mapping[str, int],
) -> Table:
    """Return the three lines of a judge, whose export says what it gained in its study.

    Args:
        judge: an exported judge, or one that was not tuned.
        source: where it was loaded from.
        result: what it reached on labelled answers.
        seen: how many of these had a part in its study.
        against_words: the judge against its study's lexical baseline on the same answers.
        labelled_by: the labels by who gave them.
    """
    comparisons = {}
    for stored_name, fields in judge.manifest.get("comparison", {}).items():
        name = current_name(stored_name)
        if name in BASELINES:
            # Without the fields that only other versions have.
            comparisons[name] = Comparison.model_validate(fields, extra="ignore")
    on_others = set(comparisons)
    if against_words is not None:
        comparisons[LEXICAL] = against_words
        on_others.discard(LEXICAL)
    function = next((j.lm_name for j in judge.cascade if j.function), None)
    return three_lines(
        Headline(
            result.agreement,
            comparisons,
            _with_function(source, function) if source else "",
            on_others=on_others,
            price=price_of(result),
            seen=seen,
            columns=judge.columns,
            lm="" if judge.lm_name == "local" else f" --lm {judge.lm_name}",
            labelled_by=labelled_by,
            metric=_metric(judge.manifest.get("operating_point", "")),
        )
    )


def _with_function(source: str, function: str | None) -> str:
    """Return what ``--judge`` takes, with the function that a judge asks."""
    if function is None:
        return source
    return f"{source} --function {function.removeprefix(PREFIX)}"


def price_of(cost: Cost) -> str:
    """Return what an answer costs, in words, and how many the LM never sees."""
    if not cost.lm_share:
        return _FREE
    price = _price_of(cost)
    if cost.lm_share == 1:
        return price
    return f"{price}, {1 - cost.lm_share:.0%} of them decided without the LM"


def _price_of(cost: Cost) -> str:
    if cost.price is not None:
        return f"{priced(1000 * cost.price)} for 1,000 answers"
    if cost.tokens:
        return f"{cost.tokens:,.0f} tokens an answer"
    seconds = cost.usage.seconds / cost.judged  # a function counts no tokens
    shown = f"{seconds:.2g}" if seconds >= 0.01 else "under 0.01"
    return f"{shown} s an answer"


def notes_of(result: StudyResult, reason: str) -> list[str]:
    """Say what a reader must know beside the figures, a sentence each; ``reason``: why the champion was chosen."""
    rows = result.chosen.rows
    sources = len({r.source for r in rows})
    notes = [
        f"Chosen on {counted(len(rows), 'answer')} over {counted(sources, 'source')}: {reason}."
    ]
    prompts = result.chosen.prompts
    if prompts is not None and prompts.learned == "one half":
        notes.append(
            "Its prompts learned from one half of the sources and were judged on the other alone."
        )
    if _lead(result.measured.comparisons[LENGTH]) <= 0:
        notes.append(
            "Counting words agrees as well: it may have learned length, which is no evidence."
        )
    if result.operating_point != "balanced":
        notes.append(_operating_point_note(result))
    return notes + [f"Held back: {why}" for why in result.held_back]


def _operating_point_note(result: StudyResult) -> str:
    """Return what a threshold that is not for balanced accuracy reaches, beside the untuned judge."""
    champion = result.measured.champion.agreement
    untuned = result.measured.judge(UNTUNED)

    def share(label: str) -> str:
        recall = f"recall_{label}"
        text = f"{with_interval(getattr(champion, recall))} of the {label} answers"
        if untuned is None:
            return text
        return f"{text} (untuned: {with_interval(getattr(untuned.agreement, recall))})"

    return (
        f"The threshold is for the operating point “{result.operating_point}”, not for balanced accuracy: it catches "
        f"{share('unfaithful')} and passes {share('faithful')}."
    )


def shortfalls(result: StudyResult) -> list[str]:
    """Return a sentence for each of chance, the untuned judge and what is free that the champion is not shown better
    than. A champion that asks no LM is free itself."""
    champion = result.measured.champion
    sentences = []
    if not better_than_chance(champion.agreement):
        accuracy = with_interval(champion.agreement.balanced_accuracy)
        sentences.append(
            f"the champion is not significantly better than chance: {accuracy}."
        )
    rivals = (UNTUNED, LEXICAL) if champion.lm_share else (UNTUNED,)
    for name in rivals:
        comparison = result.measured.comparisons.get(name)
        if comparison is not None and comparison.verdict != "better":
            sentences.append(comparison.sentence)
    return sentences


def _agreement(headline: Headline) -> str:
    """Say with whose labels the judge agrees, and how far, in plain counts."""
    a = headline.agreement
    counts = a.confusion
    rejected = counts["unfaithful_failed"] + counts["unfaithful_passed"]
    accepted = counts["faithful_failed"] + counts["faithful_passed"]
    about = f"Agreement with {whose_labels(headline.labelled_by)}"
    if a.balanced_accuracy.value is None:
        return f"{about}: cannot be measured on {counted(a.n, 'answer')}: {a.balanced_accuracy.why}."
    unscored = f"; {a.n - a.scored} more unscored" if a.scored < a.n else ""
    over = f" over {counted(a.sources, 'source')}" if a.sources is not None else ""
    return (
        f"{about}: of {counted(rejected, 'answer')} labelled unfaithful it catches {counts['unfaithful_failed']:,}; of "
        f"{accepted:,} labelled faithful it passes {counts['faithful_passed']:,}{unscored} (balanced accuracy "
        f"{with_interval(a.balanced_accuracy)}, {headline.measured_by}{over}; chance is .50)."
    )


def _gain_line(headline: Headline) -> str:
    gains: dict[bool, list[str]] = {False: [], True: []}
    for name in CHEAPER:
        c = headline.comparisons.get(name)
        if c is not None:
            gains[name in headline.on_others].append(_gain(c, BASELINES[name]))
    sentences = []
    if gains[False]:
        sentences.append(f"in points{headline.metric}, {'; '.join(gains[False])}.")
    if gains[True]:
        start = "In" if sentences else "in"
        sentences.append(
            f"{start} its study{headline.metric} {'; '.join(gains[True])}."
        )
    return " ".join(sentences) or "none measured; this judge comes from no study."


def _gain(c: Comparison, baseline: str) -> str:
    d = c.balanced_accuracy
    if d.low == d.high == 0:
        return f"none over {baseline} on these {counted(c.n, 'answer')}"
    gain = f"{points(d)} over {baseline}"
    return gain if c.verdict == "better" else f"{gain}, {c.verdict}"


def _next_step(headline: Headline) -> str:
    """Return one of: measure elsewhere, label more, use it."""
    a, accuracy = headline.agreement, headline.agreement.balanced_accuracy
    if headline.seen:
        seen = f"{headline.seen} of {counted(a.n, 'answer')} had a part in the study that tuned this judge"
        return f"label other answers to measure it on: {seen}."
    if not a.scored:
        return "fix what kept the answers from being scored, then measure again."
    if accuracy.value is None or accuracy.low is None:
        return "label more answers of both kinds, over more contexts."
    if accuracy.value <= CHANCE:
        if 1.0 in (a.recall_unfaithful.value, a.recall_faithful.value):
            same = "fails" if a.recall_unfaithful.value == 1 else "passes"
            return f"it {same} every answer: ask for another operating point, or label more answers."
        if headline.recorded:
            return "if its column is read the wrong way round, put ! before its name; else do not use it."
        return (
            "label more answers like these and tune on them; until then do not use it."
        )
    if not headline.comparisons and not headline.judge:
        return f"use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl{headline.lm}"
    cost = f" ({headline.price})"
    if headline.columns:
        names = " and ".join(map(repr, headline.columns))
        cost = f" on answers that have {names}{cost.replace(f' ({_FREE})', '')}"
    step = f"use it{cost}: faith-dspy judge ANSWERS.jsonl --judge {headline.judge}."
    if headline.recorded:
        step = f"tune with it: faith-dspy tune LABELS --scores {headline.judge}; or measure another beside it."
    return f"{step} {_doubt(headline)}".rstrip()


def _doubt(headline: Headline) -> str:
    """Return what may be luck, once: that it is better than chance, or than what is free."""
    a = headline.agreement
    if few_sources(a):
        return f"Inconclusive: it takes {SIGNIFICANT_FROM} sources of each label to decide anything; label over more."
    if not better_than_chance(a):
        return "Inconclusive: it is not significantly better than chance; label more answers."
    c = headline.comparisons.get(LEXICAL)
    is_free = headline.price == _FREE and not headline.columns
    if is_free or c is None or c.verdict == "better":
        return ""
    lead = round(_lead(c), 1)
    if lead > 0:
        return f"Its lead over {BASELINES[LEXICAL]}, free, is inconclusive."
    agrees = "agrees as often"
    if lead < 0:
        agrees = f"is {-lead:.1f} points ahead on these answers, {c.verdict}"
    return (
        f"It is chosen by its probabilities, which tell more than verdicts do; in verdicts {BASELINES[LEXICAL]}, free, "
        f"{agrees}."
    )


def _lead(c: Comparison) -> float:
    """Return the points by which the champion is ahead."""
    return 100 * (c.balanced_accuracy.value or 0.0)
