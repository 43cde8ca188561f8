"""Figures of a study for its report; MLflow brings scikit-learn and matplotlib along. No pyplot."""

from __future__ import annotations

from itertools import cycle
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.results import LENGTH, costs, have_prices
from faith_dspy.report.tables import with_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import JudgeResult, Row, StudyResult

BLUE, ORANGE, GREY, DARK = "#0072b2", "#d55e00", "#9aa5b1", "#22303c"
"""From Okabe and Ito's palette; where two are beside each other, line or marker differ, too."""


def agreement_by_cost(result: StudyResult) -> Any:
    """Draw agreement against cost: each candidate on the pool with its 95 % interval, and the Pareto front, whose
    candidates are named; None where none costs anything."""
    measured = result.candidates
    if not any(costs(measured)):
        return None
    unit, scale = "tokens an answer", 1
    if have_prices(measured):
        unit, scale = "dollars for 1,000 answers", 1000
    figure, ax = _axes(
        "Agreement against cost, on the pool\nstar: champion; dashed: Pareto front"
    )
    front: list[tuple[float, float]] = []
    markers = cycle("osD^vpXP<>h")
    priced = zip(costs(measured), measured, strict=True)
    for price, judge in sorted(priced, key=itemgetter(0)):
        cost = scale * price
        accuracy = judge.agreement.balanced_accuracy
        if accuracy.value is None:
            continue
        marker, size, color, name = "o", 5, GREY, None
        if not front or accuracy.value > front[-1][1]:
            front.append((cost, accuracy.value))
            marker, size, color, name = next(markers), 7, BLUE, judge.name
        if judge.name == result.champion:
            marker, size, color, name = "*", 14, ORANGE, judge.name
        ax.plot(cost, accuracy.value, marker, markersize=size, color=color, label=name)
        if accuracy.low is not None and accuracy.high is not None:
            ax.vlines(cost, accuracy.low, accuracy.high, color=GREY, linewidth=1)
    if front:
        ax.step(*zip(*front, strict=True), "--", where="post", color=BLUE)
    ax.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    ax.set_xlabel(unit)
    ax.set_ylabel("balanced accuracy (dotted: chance)")
    ax.legend(loc="lower right", frameon=False, fontsize=7)
    return figure


def _scored(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Return label and probability of those answers that have one."""
    return [(int(r.label), r.probability) for r in rows if r.probability is not None]


def calibration(judge: JudgeResult) -> Any:
    """Draw a judge's calibration; None where its scores are no probabilities."""
    from sklearn.calibration import CalibrationDisplay

    pairs = _scored([r for r in judge.rows if r.predicted is not None])
    if not pairs or not all(0 <= p <= 1 for _, p in pairs):
        return None
    labels, probabilities = zip(*pairs, strict=True)
    error = with_interval(judge.agreement.ece)
    figure, ax = _axes(f"Calibration of the champion\nECE {error}")
    CalibrationDisplay.from_predictions(
        labels,
        probabilities,
        n_bins=10,
        strategy="quantile",
        ax=ax,
        name="the judge",
        color=BLUE,
    )
    ax.set_xlabel("probability of being faithful, by the judge")
    ax.set_ylabel("share labelled faithful")
    ax.set_aspect("equal")
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def roc(judges: Sequence[JudgeResult]) -> Any:
    """Draw how well judges rank faithful answers above unfaithful ones; None where there is one label."""
    from sklearn.metrics import RocCurveDisplay

    figure, ax = _axes("Ranking of the answers")
    for judge in judges:
        pairs = _scored(judge.rows)
        if len({label for label, _ in pairs}) < 2 or judge.name == LENGTH:
            continue
        labels, scores = zip(*pairs, strict=True)
        is_first = not ax.lines
        RocCurveDisplay.from_predictions(
            labels, scores, name=judge.name, ax=ax, plot_chance_level=is_first
        )
    if not ax.lines:
        return None
    ax.set_xlabel("share of the unfaithful answers passed")
    ax.set_ylabel("share of the faithful answers passed")
    ax.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 4.6), dpi=120, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, fontsize=10, loc="left", color=DARK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return figure, ax
