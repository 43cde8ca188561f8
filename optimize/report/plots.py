"""Figures of a study for MLflow, which brings scikit-learn and matplotlib along. No window, no state of pyplot's."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.results import LENGTH, costs
from faith_dspy.report.tables import estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import Row, StudyResult
    from faith_dspy.scoring.agreement import Agreement

BLUE, ORANGE, GREY, DARK = "#0072b2", "#d55e00", "#9aa5b1", "#22303c"
"""From Okabe and Ito's palette; where two are beside each other, line or marker differ, too."""
_BINS = 10


def study_figures(result: StudyResult) -> dict[str, Any]:
    """Draw Matplotlib figures of a whole study, by file name, without those that have nothing to show."""
    figures = {"cost.png": agreement_by_cost(result)}
    judges = _ranking(result)
    if judges:
        figures["roc.png"] = _roc(judges)
    rows = result.tested("champion").rows
    if "champion" in judges:
        threshold = result.classifier.threshold if result.classifier else None
        figures["recall.png"] = recall_by_threshold(rows, threshold)
        figures["differences.png"] = differences(rows, threshold)
    return figures


def agreement_by_cost(result: StudyResult) -> Any:
    """Draw agreement against cost: each candidate on the pool with its 95 % interval, and the Pareto front."""
    measured = [v for v in result.variants if v.levels.answers is not None]
    priced = all(v.price is not None for v in measured if v.lm_share)
    unit, scale = (
        ("dollars for 1,000 answers", 1000) if priced else ("tokens an answer", 1)
    )
    figure, ax = _axes(5.6, 3.4, "Agreement against cost, on the pool")
    front: list[tuple[float, float]] = []
    order = sorted(zip(costs(measured), measured, strict=True), key=_by_cost)
    for (each, judge), marker in zip(order, cycle("osD^vpXP<>h"), strict=False):
        cost = scale * each
        accuracy = judge.agreement.balanced_accuracy
        if accuracy.value is None:
            continue
        if not front or accuracy.value > front[-1][1]:
            front.append((cost, accuracy.value))
        if accuracy.low is not None and accuracy.high is not None:
            interval = [accuracy.low, accuracy.high]
            ax.plot([cost, cost], interval, color=GREY, linewidth=1, zorder=1)
        if judge.name == result.champion:
            look = {"marker": "*", "markersize": 14, "color": ORANGE, "zorder": 4}
        else:
            look = {"marker": marker, "markersize": 7, "color": BLUE, "zorder": 3}
        ax.plot(cost, accuracy.value, linestyle="", label=judge.name, **look)
    if front:
        ax.step(*zip(*front, strict=True), where="post", color=BLUE, linestyle="--")
    ax.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    ax.set(
        xlabel=f"{unit} (star: champion; dashed: Pareto front)",
        ylabel="balanced accuracy (dotted: chance)",
    )
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=7)
    return figure


def _by_cost(priced: tuple[float, Any]) -> float:
    return priced[0]


def recall_by_threshold(rows: Sequence[Row], threshold: float | None = None) -> Any:
    """Draw, over the threshold, the shares of the unfaithful answers that are caught and of the faithful that pass."""
    import numpy as np

    pairs = sorted(_scored(rows), key=lambda pair: pair[1])
    labels = np.array([label for label, _ in pairs], dtype=bool)
    values = np.array([probability for _, probability in pairs])
    # At a threshold just above a value all answers up to it fail.
    caught = np.cumsum(~labels) / max(1, (~labels).sum())
    passed = 1 - np.cumsum(labels) / max(1, labels.sum())
    figure, ax = _axes(5.0, 3.4, "Recall over the threshold, on the testset")
    for shares, start, name, color, line in (
        (caught, 0.0, "unfaithful answers caught", ORANGE, "-"),
        (passed, 1.0, "faithful answers passed", BLUE, "--"),
    ):
        ys = np.concatenate([[start], shares])
        xs = np.concatenate([[min(0.0, values[0])], values])
        ax.step(xs, ys, where="post", color=color, linestyle=line, label=name)
    _mark(ax, threshold)
    ax.set(xlabel="threshold", ylabel="share", ylim=(-0.02, 1.02))
    ax.legend(loc="lower center", frameon=False, fontsize=8)
    return figure


def differences(rows: Sequence[Row], threshold: float | None = None) -> Any:
    """Draw where judge and people differ: each answer by the judge's probability, a row for each label of people."""
    figure, ax = _axes(5.0, 3.4, "Where judge and people differ, on the testset")
    for right, marker, color, name in (
        (True, "o", BLUE, "agree"),
        (False, "x", ORANGE, "differ"),
    ):
        shown = [
            r
            for r in rows
            if r.probability is not None and (r.predicted == r.label) is right
        ]
        xs = [r.probability for r in shown]
        ys = [r.label + _offset(i) for i, r in enumerate(shown)]
        label = f"{name}: {len(shown)}"
        ax.plot(xs, ys, marker, color=color, label=label, alpha=0.75, markersize=6)
    _mark(ax, threshold)
    ax.set(xlabel="probability of being faithful, by the judge", ylabel="people")
    ax.set_yticks([0, 1], ["unfaithful", "faithful"])
    ax.set_ylim(-0.5, 1.5)
    ax.legend(loc="center right", frameon=True, framealpha=0.9, fontsize=8)
    return figure


def _offset(index: int) -> float:
    """Move points that would lie on each other apart, the same way every time."""
    return 0.08 * (index % 7 - 3)


def _mark(ax: Any, threshold: float | None) -> None:
    if threshold is not None:
        ax.axvline(threshold, color=DARK, linestyle=":", linewidth=1.2)
        ax.annotate(
            f"threshold {threshold:.2f}",
            (threshold, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -9),
            textcoords="offset points",
            fontsize=8,
            color=DARK,
        )


def has_roc(result: StudyResult) -> bool:
    """Return whether a study has ROC curves."""
    return bool(_ranking(result))


def _ranking(result: StudyResult) -> dict[str, list[tuple[int, float]]]:
    """Label and probability of each test answer, by the name of each judge whose ranking can be shown."""
    judges = {}
    for t in result.test:
        pairs = _scored(t.rows)
        if t.name != LENGTH and len({label for label, _ in pairs}) == 2:
            judges[t.name] = pairs
    return judges


def _scored(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Label and probability of each answer that has one."""
    return [(int(r.label), r.probability) for r in rows if r.probability is not None]


def judge_figures(
    rows: Sequence[Row], agreement: Agreement, title: str
) -> dict[str, Any]:
    """Draw Matplotlib figures of one judge on one part, by file name: its calibration, where its scores are
    probabilities."""
    from sklearn.calibration import CalibrationDisplay

    pairs = _scored([r for r in rows if r.predicted is not None])
    if not pairs or not all(0 <= p <= 1 for _, p in pairs):
        return {}
    labels, probabilities = zip(*pairs, strict=True)
    calibration, ax = _axes(4.8, 4.6, f"{title}\nECE {estimate(agreement.ece)}")
    CalibrationDisplay.from_predictions(
        labels,
        probabilities,
        n_bins=_BINS,
        strategy="quantile",
        ax=ax,
        name="the judge",
        color=BLUE,
    )
    ax.set(
        xlabel="probability of being faithful, by the judge",
        ylabel="share people call faithful",
        aspect="equal",
    )
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return {"calibration.png": calibration}


def _roc(judges: Mapping[str, Sequence[tuple[int, float]]]) -> Any:
    """How well each judge ranks faithful answers above unfaithful ones."""
    from sklearn.metrics import RocCurveDisplay

    fig, ax = _axes(4.8, 4.6, "Ranking of the test answers")
    for name, pairs in judges.items():
        labels, scores = zip(*pairs, strict=True)
        RocCurveDisplay.from_predictions(
            labels, scores, name=name, ax=ax, plot_chance_level=name == "champion"
        )
    ax.set(
        xlabel="share of the unfaithful answers passed",
        ylabel="share of the faithful answers passed",
    )
    ax.legend(loc="lower right", frameon=False, fontsize=8)
    return fig


def _axes(width: float, height: float, title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, fontsize=10, loc="left", color=DARK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return figure, ax
