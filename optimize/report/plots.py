"""Figures of a study for MLflow, which brings scikit-learn and matplotlib along. No window, no state of pyplot's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.results import LENGTH
from faith_dspy.report.tables import estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import Row, StudyResult
    from faith_dspy.scoring.agreement import Agreement

BLUE, DARK = "#2563a8", "#22303c"
_BINS = 10


def study_figures(result: StudyResult) -> dict[str, Any]:
    """Draw Matplotlib figures of a whole study, by file name; empty where there is nothing to show."""
    judges = _ranking(result)
    return {"roc.png": _roc(judges)} if judges else {}


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
    """Draw Matplotlib figures of one judge on one part, by file name; calibration where its scores are
    probabilities."""
    import numpy as np
    from sklearn.calibration import CalibrationDisplay
    from sklearn.metrics import ConfusionMatrixDisplay

    confusion, ax = _axes(4.6, 4.0, title)
    counts = np.array(list(agreement.confusion.values())).reshape(2, 2)
    matrix = ConfusionMatrixDisplay(counts, display_labels=["faithful", "unfaithful"])
    matrix.plot(ax=ax, cmap="Blues", colorbar=False)
    ax.set(
        xlabel=f"the judge (scored {agreement.scored} of {agreement.n} answers)",
        ylabel="people",
    )
    pairs = _scored([r for r in rows if r.predicted is not None])
    if not pairs or not all(0 <= p <= 1 for _, p in pairs):
        return {"confusion.png": confusion}
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
    return {"confusion.png": confusion, "calibration.png": calibration}


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
