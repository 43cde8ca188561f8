"""How far annotators agree with each other: Cohen's κ of each pair, and Krippendorff's α of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import import_optional
from faith_dspy.io.meanings import by_annotator, label_meaning, rating
from faith_dspy.report.tables import Table, number, table_of
from faith_dspy.schema import LabelledExample

ENOUGH_COMMON = 10
"""Answers that a pair must have in common."""
_MOST = 10
"""Pairs in the table."""


class Pair(BaseModel):
    """Two annotators on the answers that both labelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    annotators: tuple[str, str]
    answers: int
    cohen_kappa: float | None
    """Of ratings with linear weights; None where both gave one and the same label throughout."""


class Annotators(BaseModel):
    """Agreement between annotators."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scale: Literal["binary", "ordinal"]
    """``ordinal``: ratings of more than two levels."""
    answers: int
    """With labels of at least two annotators."""
    krippendorff_alpha: float | None
    """None where all labels are the same."""
    pairs: tuple[Pair, ...]
    """With at least `ENOUGH_COMMON` common answers, the lowest κ first; none where annotators have no names."""


def between_annotators(examples: Sequence[LabelledExample]) -> Annotators | None:
    """Measure the agreement between annotators; None where no answer has two of their labels.

    Numbers of more than two values are ratings, an ordinal scale; else a label counts as `label_meaning` reads it. What
    cannot be read is left out. α (Krippendorff 2011) takes any number of annotators and missing labels.
    """
    labels_of = [by_annotator(e.annotators) for e in examples]
    values = [rating(x) for labels in labels_of for x in labels.values()]
    is_ordinal = None not in values and len(set(values)) > 2
    read = rating if is_ordinal else label_meaning
    pandas = import_optional("pandas", "Agreement of annotators")
    rows = [{who: read(x) for who, x in labels.items()} for labels in labels_of]
    table = pandas.DataFrame(rows).astype(float)
    table = table[table.count(axis=1) > 1]
    if table.empty:
        return None
    has_names = any(isinstance(e.annotators, Mapping) for e in examples)
    return Annotators(
        scale="ordinal" if is_ordinal else "binary",
        answers=len(table),
        krippendorff_alpha=_alpha(table, is_ordinal),
        pairs=tuple(_pairs(table, is_ordinal)) if has_names else (),
    )


def _levels(table: Any) -> list[float]:
    return sorted(table.melt()["value"].dropna().unique())


def _alpha(table: Any, is_ordinal: bool) -> float | None:
    krippendorff = import_optional("krippendorff", "Agreement of annotators")
    if len(_levels(table)) < 2:
        return None
    level = "ordinal" if is_ordinal else "nominal"
    return float(krippendorff.alpha(table.to_numpy().T, level_of_measurement=level))


def _pairs(table: Any, is_ordinal: bool) -> list[Pair]:
    """Return the pairs of a table of labels, a row an answer and a column an annotator."""
    metrics = import_optional("sklearn.metrics", "Agreement of annotators")
    levels = _levels(table)
    pairs = []
    for names in combinations(table.columns, 2):
        both = table[[*names]].dropna()
        if len(both) < ENOUGH_COMMON:
            continue
        kappa = None
        if len(_levels(both)) > 1:
            a, b = (both[name].map(levels.index) for name in names)
            weights = "linear" if is_ordinal else None
            kappa = float(metrics.cohen_kappa_score(a, b, weights=weights))
        pairs.append(Pair(annotators=names, answers=len(both), cohen_kappa=kappa))
    return sorted(
        pairs, key=lambda pair: -1 if pair.cohen_kappa is None else pair.cohen_kappa
    )


def annotators_table(between: Annotators) -> Table:
    """Show κ of each pair, and α."""
    columns = {
        "annotators": lambda pair: " and ".join(pair.annotators),
        "answers": lambda pair: f"{pair.answers:,}",
        "Cohen's κ": lambda pair: number(pair.cohen_kappa),
    }
    alpha = number(between.krippendorff_alpha)
    notes = [
        f"Krippendorff's α of all: {alpha} ({between.scale}, {between.answers:,} answers with two labels or more)."
    ]
    hidden = len(between.pairs) - _MOST
    if hidden > 0:
        notes.append(f"{hidden} more pairs agree more.")
    if not between.pairs:
        notes.append(f"No two named annotators have {ENOUGH_COMMON} answers in common.")
        return Table("Between annotators", notes=tuple(notes))
    return table_of(
        "Between annotators",
        columns,
        between.pairs[:_MOST],
        caption="The lowest first. Chance is 0, perfect agreement 1; ratings have linear weights.",
        notes=tuple(notes),
    )
