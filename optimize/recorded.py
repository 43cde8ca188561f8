"""Recorded judges: a column of verdicts or numbers beside people's labels, measured as any judge is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faith_dspy.errors import InputError, counted
from faith_dspy.io.inputs import nearest
from faith_dspy.io.labels import (
    LabelColumn,
    meanings_of,
    named_meaning,
    rating,
)
from faith_dspy.optimize.classifier.fitting import BALANCED, threshold_for
from faith_dspy.optimize.classifier.logistic import (
    platt_scaling,
    probabilities_of,
    standardized,
)
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.report.tables import Table
from faith_dspy.schema import Judgment, LabelledExample, Unscored
from faith_dspy.scoring.classifier import to_logit
from faith_dspy.scoring.statistics import Bools, Floats

_PERCENT = re.compile(r"(-?[\d.]+)\s*%")
_MEASURE = re.compile(r"_(?:scores?|prob(?:ability)?|rate)$")
"""Ends of a column's name that say nothing of its direction."""


class RecordedJudge(NamedTuple):
    """What a judge said of some answers."""

    name: str
    """Of its column."""
    values: Sequence[float | None]
    """In [0, 1], a higher one more faithful; None where the judge said nothing. Of verdicts 0 or 1."""
    is_verdict: bool
    reading: str
    """How the column was read, a sentence."""

    def judgments(
        self, examples: Sequence[LabelledExample], fold_of: Mapping[str, int]
    ) -> list[Judgment]:
        """Return the judgments of labelled answers, the first that it has values of.

        A verdict stands as it is. A number passes from the threshold that is fitted on the other folds of the sources,
        as of the LM calibrated: Platt's slope and offset, then the labels' base rate.
        """
        values = self.values[: len(examples)]
        folds = [fold_of.get(e.group_key, 0) for e in examples]
        thresholds: dict[int, float | None] = dict.fromkeys(folds)
        if not self.is_verdict:
            labels = np.array([bool(e.label) for e in examples])
            x = np.array(values, dtype=np.float64)  # None is NaN
            for fold in thresholds:
                fitted = ~np.isnan(x) & (np.array(folds) != fold)
                thresholds[fold] = _threshold(x[fitted], labels[fitted])
        return [
            self._judgment(value, thresholds[fold])
            for value, fold in zip(values, folds, strict=True)
        ]

    def _judgment(self, value: float | None, threshold: float | None) -> Judgment:
        if value is None:
            return Judgment(
                unscored=Unscored.PARSE_FAILED,
                detail=f"{self.name!r} is empty",
            )
        faithful = bool(value) if threshold is None else value >= threshold
        return Judgment(score=value, faithful=faithful, threshold=threshold)


def judge_columns(
    columns: Sequence[str],
    examples: Sequence[LabelledExample],
    unlabelled: Sequence[LabelledExample],
    file: str,
) -> list[tuple[RecordedJudge, list[Judgment]]]:
    """Read columns, and return each with its judgments of the labelled answers.

    `InputError` where a column cannot be read (`read_column`), or labels are too few to find the threshold of a number.
    """
    judges = [read_column(c, [*examples, *unlabelled], file) for c in columns]
    for judge in judges if unlabelled else ():
        if not any(value is not None for value in judge.values[len(examples) :]):
            raise InputError(
                f"got {counted(len(unlabelled), 'unlabelled answer')} without a value in {judge.name!r}, expected one "
                "of each."
            )
    fold_of: Mapping[str, int] = {}
    if not all(judge.is_verdict for judge in judges):
        fold_of = assign_folds(examples, seed=0)
    return [(judge, judge.judgments(examples, fold_of)) for judge in judges]


def with_own_sources(
    examples: Sequence[LabelledExample],
) -> tuple[list[LabelledExample], int]:
    """Return the answers, those that have neither group nor context as sources of their own, and how many these are."""
    alone = [e for e in examples if not e.group and not e.context]
    own = {e.id: e.model_copy(update={"group": f"answer {e.id}"}) for e in alone}
    return [own.get(e.id, e) for e in examples], len(alone)


def own_sources(alone: int) -> Table:
    """Say that so many answers are sources of their own."""
    note = (
        f"{counted(alone, 'answer')} without a group and a context: each counts as a source of its own. If some are "
        "over one document, the intervals are too narrow; a column source_id tells which."
    )
    return Table("Sources", notes=(note,))


def _threshold(x: Floats, labels: Bools) -> float:
    """Return the value from which an answer passes."""
    if len(set(labels.tolist())) < 2:
        raise InputError(
            "got numbers for answers of one label alone, expected both; fill more cells."
        )
    means, scales, z = standardized(x[:, None])
    slope, shift = platt_scaling(z[:, 0], labels.astype(np.float64))
    probabilities = probabilities_of(slope * z[:, 0] + shift)
    passing = to_logit(threshold_for(BALANCED, probabilities, labels))
    value = float(means[0] + scales[0] * (passing - shift) / slope)
    return min(1.0, max(0.0, value))


def read_column(
    column: str, examples: Sequence[LabelledExample], file: str
) -> RecordedJudge:
    """Read what a judge said of each answer.

    Verdicts are read as labels are; other numbers, and percentages, of any scale are moved into [0, 1]. A column whose
    name says so (``hallucination_score``) is read with a higher value, or a yes, as less faithful; ``!column`` reads
    it the other way round.

    Args:
        column: its name, with ``!`` before it or without.
        examples: `LabelledExample.columns` has the values.
        file: what the answers are called, for the message.

    Raises:
        InputError: the column is not there, or holds neither verdicts nor numbers, or one number alone.
    """
    name = column.removeprefix("!")
    cells = [e.columns.get(name) for e in examples]
    filled = [cell for cell in cells if cell is not None]
    if not filled:
        others = list(
            dict.fromkeys(n for e in examples for n in e.columns if n != name)
        )
        got = ", ".join(others) or "nothing else"
        raise InputError(
            f"{file}: got {got} beside texts and labels, but no values in {name!r} for --scores {name}"
            f"{nearest([name], others) if others else ''}."
        )
    flipped = column.startswith("!")
    upright = _is_upright(name) is not flipped
    numbers = [_number(cell) for cell in cells]
    are_numbers = 2 * sum(n is not None for n in numbers) > len(filled)
    if are_numbers and not {*numbers} <= {0.0, 1.0, None}:
        _check(cells, numbers, f"{file}: {name!r}", "numbers, or 0 % to 100 %")
        reading = (
            f"a higher value is read as {'more' if upright else 'less'} faithful, and its threshold comes from the "
            "other folds"
        )
        return RecordedJudge(name, _scaled(name, numbers, upright), False, reading)
    label = LabelColumn(name, upright, meanings_of(upright, flipped))
    verdicts = [None if cell is None else label.meaning(cell) for cell in cells]
    expected = "numbers, or verdicts: PASS or FAIL, yes or no, supported …"
    _check(cells, verdicts, f"{file}: {name!r}", expected)
    reading = f"a yes is read as {'faithful' if upright else 'unfaithful'}"
    values = [None if verdict is None else float(verdict) for verdict in verdicts]
    return RecordedJudge(name, values, True, reading)


def _is_upright(name: str) -> bool:
    """Return whether a higher value or a yes means more faithful, as far as the name tells."""
    words = _MEASURE.sub("", re.sub(r"\W+", "_", name).casefold()).split("_")
    for start in range(len(words)):  # deepeval_hallucination
        meaning = named_meaning("_".join(words[start:]))
        if meaning is not None:
            return meaning
    return True


def _number(cell: Any) -> float | None:
    """Return a cell as a number; None where it is none, or a share beyond 100 %."""
    percent = _PERCENT.fullmatch(str(cell).strip())
    if percent is None:
        return rating(cell)
    share = (rating(percent[1]) or 0.0) / 100
    return share if 0 <= share <= 1 else None


def _check(
    cells: Sequence[Any], values: Sequence[Any], where: str, expected: str
) -> None:
    """Raise `InputError` naming the most frequent of the cells that have no value."""
    pairs = zip(cells, values, strict=True)
    words = Counter(str(c) for c, value in pairs if c is not None and value is None)
    for word, n in words.most_common(1):
        raise InputError(
            f"{where} is {word!r} in {counted(n, 'row')}, expected {expected}; leave a cell empty where the judge said "
            "nothing."
        )


def _scaled(
    name: str, numbers: Sequence[float | None], upright: bool
) -> list[float | None]:
    """Return numbers in [0, 1], a higher one more faithful."""
    present = [n for n in numbers if n is not None]
    low, high = min(present), max(present)
    if low == high:
        raise InputError(
            f"{name!r} is {low:g} throughout: it tells no answers apart, so that there is nothing to measure."
        )
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if not upright:
        low, high = high, low
    return [None if n is None else (n - low) / (high - low) for n in numbers]
