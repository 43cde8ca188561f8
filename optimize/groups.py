"""Agreement per group – topic, language, model –, and whether the worst one may be chance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.results import Row
from faith_dspy.report.tables import NONE, Table, table_of, with_interval
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, Floats, Ints

MOST_GROUPS = 50
"""Values of a column that may be one of groups."""
_SHUFFLES = 1_999


class Group(BaseModel, extra="forbid", frozen=True):
    """Agreement on the answers of one group."""

    name: str
    right: int
    """Answers on which judge and people agree; an unscored one is none of them."""
    agreement: Agreement


class Groups(BaseModel, extra="forbid", frozen=True):
    """Agreement per value of a column."""

    column: str
    groups: tuple[Group, ...]
    """The worst share of agreement first."""
    p: float | None
    """How often the worst group is as far below all answers when groups are shuffled; None of a single group."""


def group_columns(examples: Sequence[LabelledExample]) -> dict[str, dict[str, str]]:
    """Return the columns that may hold groups, each with the value by answer: those with 2 to `MOST_GROUPS` values."""
    columns: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for e in examples:
        for name, value in {**e.tags, **e.columns}.items():
            columns[name][e.id] = str(value)
    return {
        name: values
        for name, values in columns.items()
        if 2 <= len(set(values.values())) <= min(MOST_GROUPS, len(examples) // 2)
    }


def groups_of(
    columns: Mapping[str, Mapping[str, str]], column: str
) -> Mapping[str, str]:
    """Return the groups in a column by answer; `InputError` where the answers have no such column, or one with too many
    values to be groups."""
    if column not in columns:
        have = ", ".join(columns) or "none"
        raise InputError(
            f"got --by {column}, expected a column with 2 to {MOST_GROUPS} different values; these answers have: "
            f"{have}."
        )
    return columns[column]


def agreement_by_group(
    rows: Sequence[Row], group_of: Mapping[str, str], column: str
) -> Groups:
    """Measure a judge per value of a column.

    Groups of fewer than `SIGNIFICANT_FROM` sources count together as one. Whether the worst may be chance is one
    permutation test over all groups: they are shuffled over the sources, or, where a source has answers of several
    groups, among its answers. What is compared is the largest shortfall of a group's share of agreement, in standard
    errors: that the worst of many is looked at is accounted for.

    Args:
        rows: the answers as the judge judged them.
        group_of: the group of each that has one (`groups_of`).
        column: what the groups are called.
    """
    rows_of: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        rows_of[group_of.get(row.id, f"no {column}")].append(row)
    small = []
    for name, own in rows_of.items():
        if len({row.source for row in own}) < SIGNIFICANT_FROM:
            small.append(name)
    if len(small) > 1:
        together = [row for name in small for row in rows_of.pop(name)]
        rows_of[f"{len(small)} small groups together"] = together
    groups = [_measure(name, own) for name, own in rows_of.items()]
    groups.sort(key=lambda group: group.right / group.agreement.n)
    name_of = {row.id: name for name, own in rows_of.items() for row in own}
    p = _chance(rows, name_of) if len(groups) > 1 else None
    return Groups(column=column, groups=tuple(groups), p=p)


def _measure(name: str, rows: Sequence[Row]) -> Group:
    agreement = measure(
        [row.label for row in rows],
        [row.predicted for row in rows],
        [row.probability for row in rows],
        groups=[row.source for row in rows],
    )
    counts = agreement.confusion
    right = counts["faithful_passed"] + counts["unfaithful_failed"]
    return Group(name=name, right=right, agreement=agreement)


def _chance(rows: Sequence[Row], name_of: Mapping[str, str]) -> float:
    """Return the p-value of the worst group's shortfall."""
    rows = sorted(rows, key=lambda row: row.source)
    group = np.unique([name_of[row.id] for row in rows], return_inverse=True)[1]
    source = np.unique([row.source for row in rows], return_inverse=True)[1]
    right = np.array([row.predicted == row.label for row in rows], dtype=np.float64)
    size = np.ones(len(rows))
    stratum = source
    pairs = np.unique(np.column_stack([source, group]), axis=0)
    if len(pairs) == len(np.unique(source)):  # whole sources change places
        group = pairs[:, 1]
        right = np.bincount(source, right).astype(np.float64)
        size = np.bincount(source).astype(np.float64)
        stratum = np.zeros_like(group)
    rng = np.random.default_rng(0)
    observed = _shortfall(right, size, group)
    reached = 1
    for _ in range(_SHUFFLES):
        shuffled = group[np.lexsort((rng.random(len(group)), stratum))]
        reached += _shortfall(right, size, shuffled) >= observed - 1e-9
    return float(reached / (_SHUFFLES + 1))


def _shortfall(right: Floats, size: Floats, group: Ints) -> float:
    """Return by how many standard errors (but for one factor) the worst group is below all answers."""
    n = np.bincount(group, size)
    shares = np.bincount(group, right) / n
    return float(np.max((right.sum() / size.sum() - shares) * np.sqrt(n)))


def groups_table(groups: Groups) -> Table:
    """Show a row a group, and what may be said of the worst."""

    def caught(group: Group, label: str, right: str) -> str:
        counts = group.agreement.confusion
        total = counts[f"{label}_passed"] + counts[f"{label}_failed"]
        return f"{counts[f'{label}_{right}']} of {total}" if total else NONE

    columns = {
        groups.column: lambda g: g.name,
        "agrees": lambda g: f"{g.right} of {g.agreement.n}",
        "sources": lambda g: str(g.agreement.sources),
        "unfaithful\ncaught": lambda g: caught(g, "unfaithful", "failed"),
        "faithful\npassed": lambda g: caught(g, "faithful", "passed"),
        "balanced\naccuracy": lambda g: with_interval(g.agreement.balanced_accuracy),
    }
    worst = groups.groups[0]
    note = f"No two groups have {SIGNIFICANT_FROM} sources each: label more to compare them."
    shares = {group.right / group.agreement.n for group in groups.groups}
    if groups.p is not None and len(shares) == 1:
        note = "No group differs: judge and label agree equally often in each."
    elif groups.p is not None:
        chance = "inconclusive" if groups.p >= 0.05 else "significant"
        note = (
            f"The worst is {worst.name}: judge and label agree on {worst.right} of "
            f"{counted(worst.agreement.n, 'answer')}. {chance.capitalize()}: a worst group as far below all answers "
            f"comes about in {100 * groups.p:.3g} % of the cases where groups are shuffled over sources (one "
            "permutation test over all groups)."
        )
    return table_of(
        f"Agreement by {groups.column}",
        columns,
        groups.groups,
        caption="The worst share of agreement first; an unscored answer is no agreement. Groups of fewer than "
        f"{SIGNIFICANT_FROM} sources count together. In brackets 95 % intervals, over sources.",
        notes=(note,),
    )
