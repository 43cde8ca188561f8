"""Several judges on the same labels: what each reached and costs, how far it is from the first, where they differ."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from faith_dspy.errors import counted
from faith_dspy.optimize.report.tables import by_lm
from faith_dspy.optimize.results import Comparison, JudgeResult, have_prices
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import (
    NONE,
    WORST,
    Table,
    number,
    table_of,
    with_interval,
)
from faith_dspy.schema import LabelledExample

_MARK = {True: "✓", False: "✗", None: NONE}


def differences(judges: Sequence[JudgeResult]) -> list[Comparison]:
    """Compare each of the other judges with the first, paired."""
    first, *others = judges
    return [compare(o.rows, first.rows, (o.name, first.name)) for o in others]


def side_by_side(
    judges: Sequence[JudgeResult],
    pairs: Sequence[Comparison],
    notes: Sequence[str] = (),
) -> Table:
    """Show a row a judge, each difference to the first in a sentence, and ``notes``."""
    columns: dict[str, Callable[[JudgeResult], str]] = {
        "": lambda j: str([j is one for one in judges].index(True) + 1),
        "judge": lambda j: j.name,
        "scored": lambda j: f"{j.agreement.coverage:.0%}",
        "balanced\naccuracy": lambda j: with_interval(j.agreement.balanced_accuracy),
        "AUROC": lambda j: number(j.agreement.auroc.value),
        "Cohen's\nκ": lambda j: number(j.agreement.cohen_kappa.value),
    }
    caption = "In brackets 95 % intervals, over sources."
    if any(judge.lm_share for judge in judges):
        if have_prices(judges):
            unit = "by LiteLLM's price list"
            columns["$ for\n1,000"] = lambda j: (
                NONE if j.price is None else f"{1000 * j.price:.2f}"
            )
        else:
            unit = "computed prompt tokens and three times the completion"
            columns["tokens"] = lambda j: f"{j.tokens:,.0f}" if j.lm_share else NONE
        columns["s"] = lambda j: by_lm(j, "seconds")
        caption += f" Cost ({unit}) and seconds of an answer, where an LM was asked."
    return table_of(
        "Judges side by side",
        columns,
        judges,
        caption=caption,
        notes=(*(pair.sentence for pair in pairs), *notes),
    )


def where_they_differ(
    examples: Sequence[LabelledExample], judges: Sequence[JudgeResult]
) -> Table:
    """Show the answers that the judges call differently, those first that most are wrong about."""
    differing = []
    alike = 0
    for example, *rows in zip(examples, *(j.rows for j in judges), strict=True):
        verdicts = [row.predicted for row in rows]
        if len(set(verdicts)) == 1:
            alike += verdicts[0] is (not example.label)
            continue
        wrong = sum(verdict is not example.label for verdict in verdicts)
        text = textwrap.shorten(example.answer, 80, placeholder=" …")
        marks = [_MARK[verdict] for verdict in (example.label, *verdicts)]
        differing.append((wrong, (example.id, text, *marks)))
    differing.sort(key=lambda answer: -answer[0])
    numbers = [str(i) for i, _ in enumerate(judges, 1)]
    title = f"Where the judges differ: {counted(len(differing), 'answer')}"
    if len(differing) > WORST:
        title += f", the {WORST} that most are wrong about"
    agree = len(examples) - len(differing)
    note = f"All judges agree on {agree:,} of {counted(len(examples), 'answer')}"
    if alike:
        note += f"; on {alike:,} of these the label is the other one: look at it"
    return Table(
        title,
        ("id", "answer", "label", *numbers),
        tuple(row for _, row in differing[:WORST]),
        caption=f"{_MARK[True]} faithful, {_MARK[False]} unfaithful, {NONE} unscored.",
        notes=(f"{note}.",),
    )
