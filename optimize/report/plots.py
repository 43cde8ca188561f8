"""Figures of a study for MLflow, which brings scikit-learn and matplotlib along. No window, no state of pyplot's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from faith_dspy.report.tables import estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import Row, StudyResult
    from faith_dspy.scoring.agreement import Agreement

BLUE, DARK = "#2563a8", "#22303c"
_BINS = 10
LEARNING_CURVE = "learning_curve.png"


def study_figures(result: StudyResult) -> dict[str, Any]:
    """Matplotlib figures of a whole study, by file name; those that have nothing to show are left out."""
    found = {
        "roc.png": _roc({t.name: t.rows for t in result.test if t.kind != "baseline" or "lexical" in t.name}),
        LEARNING_CURVE: learning_curve(result),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def judge_figures(rows: Sequence[Row], agreement: Agreement, title: str) -> dict[str, Any]:
    """Matplotlib figures of one judge on one part, by file name; calibration where its scores are probabilities."""
    import numpy as np
    from sklearn.calibration import CalibrationDisplay
    from sklearn.metrics import ConfusionMatrixDisplay

    confusion, ax = _axes(4.6, 4.0, title)
    counts = np.array(list(agreement.confusion.values())).reshape(2, 2)
    ConfusionMatrixDisplay(counts, display_labels=["faithful", "unfaithful"]).plot(ax=ax, cmap="Blues", colorbar=False)
    ax.set(xlabel=f"the judge (scored {agreement.scored} of {agreement.n} answers)", ylabel="people")
    known = [(int(r.label), r.probability) for r in rows if r.probability is not None and r.predicted is not None]
    if not known or not all(0 <= p <= 1 for _, p in known):
        return {"confusion.png": confusion}
    calibration, ax = _axes(4.8, 4.6, f"{title}\nECE {estimate(agreement.ece)}")
    CalibrationDisplay.from_predictions(
        *zip(*known, strict=True), n_bins=_BINS, strategy="quantile", ax=ax, name="the judge", color=BLUE
    )
    ax.set(xlabel="probability of being faithful, by the judge", ylabel="share people call faithful", aspect="equal")
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return {"confusion.png": confusion, "calibration.png": calibration}


def _roc(judges: Mapping[str, Sequence[Row]]) -> Any | None:
    """How well each judge ranks faithful answers above unfaithful ones."""
    known = {
        name: [(int(r.label), r.probability) for r in rows if r.probability is not None]
        for name, rows in judges.items()
    }
    known = {name: found for name, found in known.items() if len({y for y, _ in found}) == 2}
    if not known:
        return None
    from sklearn.metrics import RocCurveDisplay

    fig, ax = _axes(4.8, 4.6, "Ranking of the test answers")
    for name, found in known.items():
        labels, scores = zip(*found, strict=True)
        RocCurveDisplay.from_predictions(labels, scores, name=name, ax=ax, plot_chance_level=name == "champion")
    ax.set(xlabel="share of the unfaithful answers passed", ylabel="share of the faithful answers passed")
    ax.legend(loc="lower right", frameon=False, fontsize=8)
    return fig


def learning_curve(result: StudyResult) -> Any | None:
    """Agreement on the testset against the number of labels fitted on, each doubling as wide as the others."""
    points = result.learning_curve
    if not points:
        return None
    fig, ax = _axes(6.4, 3.8, "Agreement on the testset by number of labels")
    labels = [p.labels for p in points]
    for metric, colour, name in (("balanced_accuracy", BLUE, "balanced accuracy"), ("auroc", DARK, "AUROC")):
        found = [getattr(p, metric) for p in points]
        values, lows, highs = (
            [math.nan if (v := getattr(e, end)) is None else v for e in found] for end in ("value", "low", "high")
        )
        ax.plot(labels, values, "o-", color=colour, markersize=4, linewidth=1, label=name)
        ax.vlines(labels, lows, highs, color=colour, linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(labels, [str(n) for n in labels])
    ax.minorticks_off()
    ax.set(xlabel="labels to fit on", ylabel="agreement; bars: 95 % of the draws")
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
