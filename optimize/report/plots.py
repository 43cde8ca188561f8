"""Figures of a study for MLflow, which brings scikit-learn and matplotlib along. No window, no state of pyplot's."""

from __future__ import annotations

from itertools import cycle
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.results import LENGTH, costs, have_prices
from faith_dspy.report.tables import with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import Row, StudyResult
    from faith_dspy.scoring.agreement import Agreement

BLUE, ORANGE, GREY, DARK = "#0072b2", "#d55e00", "#9aa5b1", "#22303c"
"""From Okabe and Ito's palette; where two are beside each other, line or marker differ, too."""
_BINS = 10
_PAIRS = list[tuple[int, float]]
"""Label and probability of answers."""


def study_figures(result: StudyResult) -> dict[str, Any]:
    """Draw Matplotlib figures of a whole study, by file name, without those that have nothing to show."""
    figures = {"cost.png": agreement_by_cost(result)}
    judges: dict[str, _PAIRS] = {}
    for judge in result.test:
        pairs = _scored(judge.rows)
        has_both_labels = len({label for label, _ in pairs}) == 2
        if judge.name != LENGTH and has_both_labels:
            judges[judge.name] = pairs
    if judges:
        figures["roc.png"] = _roc(judges)
    if "champion" in judges:
        rows = result.tested("champion").rows
        threshold = result.classifier.threshold if result.classifier else None
        figures["recall.png"] = recall_by_threshold(rows, threshold)
        figures["differences.png"] = differences(rows, threshold)
    return figures


def agreement_by_cost(result: StudyResult) -> Any:
    """Draw agreement against cost: each candidate on the pool with its 95 % interval, and the Pareto front."""
    measured = [v for v in result.variants if v.levels.answers is not None]
    unit, scale = "tokens an answer", 1
    if have_prices(measured):
        unit, scale = "dollars for 1,000 answers", 1000
    figure, ax = _axes(5.6, 3.4, "Agreement against cost, on the pool")
    front: list[tuple[float, float]] = []
    markers = cycle("osD^vpXP<>h")
    priced = zip(costs(measured), measured, strict=True)
    for price, judge in sorted(priced, key=itemgetter(0)):
        cost = scale * price
        marker = next(markers)
        accuracy = judge.agreement.balanced_accuracy
        if accuracy.value is None:
            continue
        if not front or accuracy.value > front[-1][1]:
            front.append((cost, accuracy.value))
        if accuracy.low is not None and accuracy.high is not None:
            ax.vlines(cost, accuracy.low, accuracy.high, color=GREY, linewidth=1)
        look = {"marker": marker, "markersize": 7, "color": BLUE, "zorder": 3}
        if judge.name == result.champion:
            look = {"marker": "*", "markersize": 14, "color": ORANGE, "zorder": 4}
        ax.plot(
            cost,
            accuracy.value,
            linestyle="",
            label=judge.name,
            **look,
        )
    if front:
        ax.step(
            *zip(*front, strict=True),
            where="post",
            color=BLUE,
            linestyle="--",
        )
    ax.axhline(
        0.5,
        color=GREY,
        linestyle=":",
        linewidth=1,
    )
    ax.set_xlabel(f"{unit} (star: champion; dashed: Pareto front)")
    ax.set_ylabel("balanced accuracy (dotted: chance)")
    ax.legend(
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        fontsize=7,
    )
    return figure


def recall_by_threshold(rows: Sequence[Row], threshold: float | None = None) -> Any:
    """Draw, over the threshold, the shares of the unfaithful answers that are caught and of the faithful that pass."""
    import numpy as np

    pairs = sorted(_scored(rows), key=itemgetter(1))
    labels = np.array([label for label, _ in pairs], dtype=bool)
    values = np.array([probability for _, probability in pairs])
    # At a threshold just above a value all answers up to it fail.
    caught = np.cumsum(~labels) / max(1, (~labels).sum())
    passed = 1 - np.cumsum(labels) / max(1, labels.sum())
    figure, ax = _axes(5.0, 3.4, "Recall over the threshold, on the testset")
    xs = np.append(min(0.0, values[0]), values)
    for shares, color, line, name in (
        (np.append(0.0, caught), ORANGE, "-", "unfaithful answers caught"),
        (np.append(1.0, passed), BLUE, "--", "faithful answers passed"),
    ):
        ax.step(
            xs,
            shares,
            where="post",
            color=color,
            linestyle=line,
            label=name,
        )
    _mark(ax, threshold)
    ax.set(
        xlabel="threshold",
        ylabel="share",
        ylim=(-0.02, 1.02),
    )
    ax.legend(
        loc="lower center",
        frameon=False,
        fontsize=8,
    )
    return figure


def differences(rows: Sequence[Row], threshold: float | None = None) -> Any:
    """Draw where judge and people differ: each answer by the judge's probability, a row for each label of people."""
    figure, ax = _axes(5.0, 3.4, "Where judge and people differ, on the testset")
    scored = [r for r in rows if r.probability is not None]
    agreed = [r for r in scored if r.predicted == r.label]
    differing = [r for r in scored if r.predicted != r.label]
    for shown, marker, color, name in (
        (agreed, "o", BLUE, "agree"),
        (differing, "x", ORANGE, "differ"),
    ):
        xs = [r.probability for r in shown]
        # Points that would lie on each other are moved apart, the same way every time.
        ys = [r.label + 0.08 * (i % 7 - 3) for i, r in enumerate(shown)]
        label = f"{name}: {len(shown)}"
        ax.plot(
            xs,
            ys,
            marker,
            color=color,
            label=label,
            alpha=0.75,
            markersize=6,
        )
    _mark(ax, threshold)
    ax.set(xlabel="probability of being faithful, by the judge", ylabel="people")
    ax.set_yticks([0, 1], ["unfaithful", "faithful"])
    ax.set_ylim(-0.5, 1.5)
    ax.legend(
        loc="center right",
        frameon=True,
        framealpha=0.9,
        fontsize=8,
    )
    return figure


def _mark(ax: Any, threshold: float | None) -> None:
    if threshold is None:
        return
    ax.axvline(
        threshold,
        color=DARK,
        linestyle=":",
        linewidth=1.2,
    )
    ax.annotate(
        f"threshold {threshold:.2f}",
        (threshold, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3, -9),
        textcoords="offset points",
        fontsize=8,
        color=DARK,
    )


def _scored(rows: Sequence[Row]) -> _PAIRS:
    """Return those of the answers that have a probability."""
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
    figure, ax = _axes(4.8, 4.6, f"{title}\nECE {with_interval(agreement.ece)}")
    CalibrationDisplay.from_predictions(
        labels,
        probabilities,
        n_bins=_BINS,
        strategy="quantile",
        ax=ax,
        name="the judge",
        color=BLUE,
    )
    ax.set_xlabel("probability of being faithful, by the judge")
    ax.set_ylabel("share people call faithful")
    ax.set_aspect("equal")
    ax.legend(
        loc="upper left",
        frameon=False,
        fontsize=8,
    )
    return {"calibration.png": figure}


def _roc(judges: Mapping[str, _PAIRS]) -> Any:
    """Return how well each judge ranks faithful answers above unfaithful ones."""
    from sklearn.metrics import RocCurveDisplay

    figure, ax = _axes(4.8, 4.6, "Ranking of the test answers")
    for name, pairs in judges.items():
        labels, scores = zip(*pairs, strict=True)
        is_first = name == "champion"
        RocCurveDisplay.from_predictions(
            labels,
            scores,
            name=name,
            ax=ax,
            plot_chance_level=is_first,
        )
    ax.set_xlabel("share of the unfaithful answers passed")
    ax.set_ylabel("share of the faithful answers passed")
    ax.legend(
        loc="lower right",
        frameon=False,
        fontsize=8,
    )
    return figure


def _axes(width: float, height: float, title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(width, height),
        dpi=120,
        layout="constrained",
    )
    ax = figure.subplots()
    ax.set_title(
        title,
        fontsize=10,
        loc="left",
        color=DARK,
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return figure, ax
