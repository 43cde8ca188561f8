"""Recorded judges: a column of verdicts or numbers beside people's labels, measured as any judge is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from faith_dspy.errors import InputError, counted
from faith_dspy.io.columns import ScoreColumn
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


class RecordedJudge(NamedTuple):
    """What a judge said of some answers."""

    column: ScoreColumn
    values: Sequence[float | None]
    """A higher one is more faithful; None where the judge said nothing. Of verdicts 0 or 1."""
    scale: tuple[float, float]
    """What becomes 0 and 1 in a score."""
    is_verdict: bool

    @property
    def direction(self) -> str:
        """How the column is read."""
        name, is_upright = self.column.name, self.column.is_upright
        if self.is_verdict:
            meaning = "faithful" if is_upright else "unfaithful"
            return f"a yes in {name!r} is read as {meaning}"
        meaning = "more" if is_upright else "less"
        return f"a higher {name!r} is read as {meaning} faithful"

    def score(self, value: float | None) -> float | None:
        """Return a value in [0, 1]."""
        low, high = self.scale
        return None if value is None else (value - low) / (high - low)

    def judgments(
        self, examples: Sequence[LabelledExample], fold_of: Mapping[str, int]
    ) -> tuple[list[Judgment], str]:
        """Return the judgments of all answers, of which the labelled ones are the first, and how its column was read.

        A verdict stands as it is. A number passes from the threshold that is fitted on the other folds of the sources,
        as of the LM calibrated: Platt's slope and offset, then the labels' base rate; without a label, from the one
        that is fitted on all.
        """
        if self.is_verdict:
            judgments = [self._judgment(value, None) for value in self.values]
            return judgments, self.direction
        labelled, rest = self.values[: len(examples)], self.values[len(examples) :]
        folds = np.array([fold_of[e.group_key] for e in examples])
        labels = np.array([bool(e.label) for e in examples])
        x = np.array(labelled, dtype=np.float64)  # None is NaN
        filled = ~np.isnan(x)
        on_all = _threshold(x[filled], labels[filled])
        thresholds = {}
        for fold in np.unique(folds).tolist():
            fitted = filled & (folds != fold)
            thresholds[fold] = _threshold(x[fitted], labels[fitted])
        judgments = [
            self._judgment(value, thresholds[fold])
            for value, fold in zip(labelled, folds.tolist(), strict=True)
        ]
        judgments += [self._judgment(value, on_all) for value in rest]
        ends = sorted(map(self._own, thresholds.values()))
        side = "above" if self.column.is_upright else "below"
        return judgments, (
            f"{self.direction}, and an answer passes at {self._own(on_all):.3g} or {side} (each was judged by what was "
            f"fitted without its fold: {ends[0]:.3g} to {ends[-1]:.3g})"
        )

    def _own(self, value: float) -> float:
        """Return a value as its column has it."""
        return value if self.column.is_upright else 1 - value

    def _judgment(self, value: float | None, threshold: float | None) -> Judgment:
        if value is None:
            return Judgment(
                unscored=Unscored.PARSE_FAILED, detail=f"{self.column.name!r} is empty"
            )
        is_faithful = value >= (0.5 if threshold is None else threshold)
        return Judgment(
            score=self.score(value),
            faithful=is_faithful,
            threshold=self.score(threshold),
        )


def judge_columns(
    columns: Sequence[str],
    examples: Sequence[LabelledExample],
    unlabelled: Sequence[LabelledExample],
    file: str,
) -> list[tuple[RecordedJudge, list[Judgment], str]]:
    """Read columns, and return each with its judgments, of which the labelled answers' are the first, and how it was
    read. The first column alone is read in the unlabelled answers.

    `InputError` where a column cannot be read (`read_column`), or labels are too few to find the threshold of a number.
    """
    judges: list[RecordedJudge] = []
    for column in columns:
        others = [] if judges else unlabelled
        judge = read_column(column, [*examples, *others], file)
        of_others = judge.values[len(examples) :]
        if others and not any(value is not None for value in of_others):
            raise InputError(
                f"got {counted(len(others), 'unlabelled answer')} without a value in {judge.column.name!r}, "
                "expected one of each."
            )
        judges.append(judge)
    fold_of: Mapping[str, int] = {}
    if not all(judge.is_verdict for judge in judges):
        fold_of = assign_folds(examples, seed=0)
    return [(judge, *judge.judgments(examples, fold_of)) for judge in judges]


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
    return float(np.clip(value, x.min(), x.max()))


def read_column(
    column: str, examples: Sequence[LabelledExample], file: str
) -> RecordedJudge:
    """Read what a judge said of each answer (`faith_dspy.io.columns`): verdicts, or numbers of any scale.

    Args:
        column: its name, with ``!`` before it or without.
        examples: `LabelledExample.columns` has the values.
        file: what the answers are called, for the message.

    Raises:
        InputError: the column is not there, or holds neither verdicts nor numbers, or one number alone.
    """
    read = ScoreColumn.of(column)
    cells = [e.columns.get(read.name) for e in examples]
    filled = [cell for cell in cells if cell is not None]
    if not filled:
        others = list(dict.fromkeys(name for e in examples for name in e.columns))
        others = [name for name in others if name != read.name]
        names = ", ".join(others) or "nothing else beside texts and labels"
        meant = get_close_matches(read.name, others, n=1)
        raise InputError(
            f"{file}: got --scores {read.name}, which no row has a value in; "
            f"{f'did you mean {meant[0]}?' if meant else f'expected one of: {names}.'}"
        )
    numbers = [read.number(cell) for cell in cells]
    values = [read.value(cell) for cell in cells]
    are_few = 2 * sum(number is not None for number in numbers) <= len(filled)
    is_verdict = are_few or {*numbers} <= {0.0, 1.0, None}
    understood = zip(cells, values if is_verdict else numbers, strict=True)
    unread = Counter(str(c) for c, v in understood if c is not None and v is None)
    for word, n in unread.most_common(1):
        raise InputError(
            f"{file}: {read.name!r} is {word!r} in {counted(n, 'row')}, expected numbers with a decimal point, 0 % to "
            "100 %, or verdicts such as PASS and FAIL or yes and no; leave a cell empty where the judge said nothing."
        )
    present = [value for value in values if value is not None]
    low, high = min(present), max(present)
    if low == high and not is_verdict:
        raise InputError(
            f"{file}: {read.name!r} is {filled[0]} throughout: it tells no answers apart, so that there is nothing to "
            "measure."
        )
    scale = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    return RecordedJudge(read, values, scale, is_verdict)
