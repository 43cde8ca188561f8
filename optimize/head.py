"""Fit the head on labels: signals of statements → probability per statement → probability per answer → cut.

Leave the LM's signals out of ``names`` and the same function fits the overlap floor; give only `SHORTCUTS` as
``answer_names`` and it fits the shortcut floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold  # type: ignore[import-untyped]  # sklearn ships no types

from faith_dspy.calibration import AGGREGATES, LOGIT_LIMIT, AnswerHead, Head, StatementHead, aggregates, direction
from faith_dspy.errors import InputError
from faith_dspy.optimize.logistic import (
    PRIOR_WIDTHS,
    Fit,
    fit,
    log_losses,
    recalibrate,
    stable_threshold,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

ENOUGH_STATEMENT_LABELS = 40
"""With fewer labelled statements, or fewer than 5 of one class, the statement head learns from the answers' labels."""


class HeadExample(NamedTuple):
    """One labelled answer as the head sees it."""

    statements: Sequence[Mapping[str, float] | None]
    """Signals of each statement; None where it could not be judged."""
    label: bool
    """Whether people call the answer faithful."""
    group: str
    """Examples of one group never stand on both sides of a fold."""
    labels: Sequence[bool | None] = ()
    """People's labels of the statements, as many as `statements`, or none at all."""
    signals: Mapping[str, float] = {}  # noqa: RUF012 - never written to
    """Signals of the whole answer."""


class FittedHead(NamedTuple):
    """A head, and what it says of its own training answers when it has not seen them."""

    head: Head
    probabilities: list[float | None]
    """Cross-fitted probability per answer: the numbers to compare variants by on the devset."""
    statement_probabilities: list[list[float | None]]
    """Cross-fitted probability per statement."""
    learned_from: Literal["statements", "answers", "signals"]
    """Which labels the statement head learned from; ``signals`` when there is no statement head."""
    prior_widths: tuple[float, float]
    """The widths chosen for the statement and the answer head."""


class _Stack(NamedTuple):
    """All judged statements of some examples as rows."""

    x: Floats
    example: Ints
    label: Floats


def fit_head(
    examples: Sequence[HeadExample],
    *,
    names: Sequence[str] | None = None,
    answer_names: Sequence[str] = (),
    learn_from: Literal["auto", "statements", "answers"] = "auto",
    folds: int = 5,
    seed: int = 0,
) -> FittedHead:
    """Fit a head on labelled answers; every choice is made on held-out groups.

    ``names`` are the statement signals to use (default: all that occur; none: no statement head), ``answer_names``
    those of the whole answer. Probabilities are chances at the base rate of the labels given; classes weigh the same
    while fitting. Raises `InputError` when the labels cannot be split: both classes, in two groups each, are needed.
    """
    if names is None:
        names = sorted({n for e in examples for s in e.statements if s for n in s})
    names, answer_names = tuple(names), tuple(answer_names)
    splits = grouped_folds([e.label for e in examples], [e.group for e in examples], folds, seed)
    y = np.array([e.label for e in examples], dtype=np.float64)
    stack = _stack(examples, names)
    if not names or not len(stack.x):
        source: Literal["statements", "answers", "signals"] = "signals"
    elif learn_from == "auto":
        source = "statements" if _enough(stack.label) else "answers"
    else:
        source = learn_from
    width = _choose_width(stack, y, splits, names, source) if source != "signals" else 0.0
    answer_width = 0.0
    all_examples = np.arange(len(examples))
    crossed, unjudged = _cross_statements(stack, y, splits, all_examples, names, source, width)
    features = _features(stack, crossed, examples, answer_names, unjudged)
    columns = (*(AGGREGATES if source != "signals" else ()), *answer_names)
    ways = [direction(c) for c in columns]
    answer_width = _best_width(
        [(np.setdiff1d(all_examples, held), held) for held in splits],
        lambda train, held, w: log_losses(fit(features[train], y[train], ways, w).logits(features[held]), y[held]),
        y,
    )
    # Honest answer probabilities: nothing of a held-out answer is in its own statement or answer head.
    honest = np.zeros(len(examples))
    for held in splits:
        train = np.setdiff1d(all_examples, held)
        inner = [np.intersect1d(train, s) for s in splits if len(np.intersect1d(train, s))]
        inside, doubt = _cross_statements(stack, y, inner, train, names, source, width)
        model = fit(_features(stack, inside, examples, answer_names, doubt)[train], y[train], ways, answer_width)
        honest[held] = model.logits(_features(stack, crossed, examples, answer_names, doubt)[held])
    slope, shift = recalibrate(honest, y)
    statement_head, statement_cut = None, 0.5
    if source != "signals":
        statement_head, statement_cut = _statement_head(stack, y, names, source, width, crossed)
    final = fit(features, y, ways, answer_width)
    answer_head = AnswerHead(**_numbers(final, columns, slope, shift), unjudged=unjudged)
    judged = [any(s is not None for s in e.statements) or any(n in e.signals for n in answer_names) for e in examples]
    probabilities = _sigmoid(slope * honest + shift)
    cut = stable_threshold(probabilities, y)
    head = Head(statement=statement_head, answer=answer_head, threshold=cut, statement_threshold=statement_cut)
    per_statement = _per_statement(examples, crossed if source != "signals" else None)
    return FittedHead(
        head,
        [float(p) if ok else None for p, ok in zip(probabilities, judged, strict=True)],
        per_statement,
        source,
        (width, answer_width),
    )


def grouped_folds(labels: Sequence[bool], groups: Sequence[str], folds: int, seed: int) -> list[Ints]:
    """Held-out indices of each fold, stratified by label, no group in two folds; fewer folds where labels are few."""
    per_class = [len({g for g, label in zip(groups, labels, strict=True) if label is want}) for want in (True, False)]
    n = min(folds, *per_class)
    if n < 2:
        raise InputError(
            f"got faithful answers in {per_class[0]} groups and unfaithful ones in {per_class[1]}; fitting needs both "
            "in at least 2 groups each. Label more answers, over more contexts."
        )
    splitter = StratifiedGroupKFold(n_splits=n, shuffle=True, random_state=seed)
    held = [h for _, h in splitter.split(np.zeros(len(labels)), np.array(labels), np.array(groups))]
    return [h for h in held if len(h)]


def _stack(examples: Sequence[HeadExample], names: Sequence[str]) -> _Stack:
    rows, owner, labels = [], [], []
    for i, e in enumerate(examples):
        if e.labels and len(e.labels) != len(e.statements):
            raise InputError(f"example {i} has {len(e.statements)} statements and {len(e.labels)} labels of them")
        for j, s in enumerate(e.statements):
            if s is not None:
                rows.append([s.get(n, np.nan) for n in names])
                owner.append(i)
                label = e.labels[j] if e.labels else None
                labels.append(np.nan if label is None else float(label))
    x = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return _Stack(x, np.array(owner, dtype=np.int64), np.array(labels))
