"""Pictures of a study, as matplotlib figures. Drawn without pyplot: no window, no state shared between threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.diagnostics.reliability import bins
from faith_dspy.optimize.reporting.wording import figure as words
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.checks import Bin, CalibrationCheck, CostPoint
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.scoring.agreement import Agreement
    from faith_dspy.scoring.statistics import Estimate

BLUE, RED, GREY, DARK = "#2563a8", "#c0392b", "#9aa5b1", "#22303c"


def confusion(a: Agreement, title: str) -> Any:
    """People against the judge, in answers and as a share of what people said."""
    fig, ax = _figure(4.6, 4.0, title)
    c = a.confusion
    rows = [
        [c["faithful_passed"], c["faithful_failed"]],
        [c["unfaithful_passed"], c["unfaithful_failed"]],
    ]
    shares = [[n / max(1, sum(row)) for n in row] for row in rows]
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for y, row in enumerate(rows):
        for x, n in enumerate(row):
            ink = "white" if shares[y][x] > 0.55 else DARK
            ax.text(x, y - 0.06, f"{n}", ha="center", va="center", color=ink, fontsize=18)
            ax.text(x, y + 0.2, f"{shares[y][x]:.0%} of row", ha="center", va="center", color=ink, fontsize=9)
    ax.set_xticks([0, 1], ["passes", "fails"])
    ax.set_yticks([0, 1], ["faithful", "unfaithful"], rotation=90, va="center")
    ax.set_xlabel(f"the judge (scored {a.scored} of {a.n} answers)")
    ax.set_ylabel("people")
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    return fig


def calibration(rows: Sequence[PredictionRow], ece: Estimate, title: str) -> Any | None:
    """Share of faithful answers against the judge's probability, in equally full bins; None without probabilities.

    The bins are those of `Agreement.ece`; bars are 95 % Wilson intervals.
    """
    known = sorted((r.probability, r.label) for r in rows if r.probability is not None and r.predicted is not None)
    if not known or known[0][0] < 0 or known[-1][0] > 1:
        return None
    fig, ax = _figure(4.8, 4.6, f"{title}\nECE {words(ece)}")
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="perfectly calibrated")
    _draw_bins(ax, bins([p for p, _ in known], [y for _, y in known]), BLUE, None)
    ax.plot([p for p, _ in known], [-0.03] * len(known), "|", color=GREY, markersize=5, alpha=0.5)
    return _probability_axes(fig, ax)


def calibration_change(check: CalibrationCheck, title: str) -> Any:
    """The LM's own probability and the classifier's on the same answers, with the calibration error of each."""
    fig, ax = _figure(4.8, 4.6, title)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="perfectly calibrated")
    _draw_bins(ax, check.bins_before, RED, f"before, ECE {words(check.before)}")
    _draw_bins(ax, check.bins_after, BLUE, f"after, ECE {words(check.after)}")
    return _probability_axes(fig, ax)


def _draw_bins(ax: Any, found: Sequence[Bin], colour: str, label: str | None) -> None:
    for i, b in enumerate(found):
        ax.plot([b.mean, b.mean], [b.low, b.high], color=colour, linewidth=1, alpha=0.6)
        named = None if i else label or f"about {b.n} answers each"
        ax.plot(b.mean, b.share, "o", color=colour, markersize=6, label=named)


def _probability_axes(fig: Any, ax: Any) -> Any:
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.06, 1.04)
    ax.set_aspect("equal")
    ax.set_xlabel("probability of being faithful, by the judge")
    ax.set_ylabel("share people call faithful")
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return fig


def weights(found: Mapping[str, float], title: str, most: int = 15) -> Any | None:
    """The classifier's strongest features; None when every weight is 0."""
    strongest = sorted(((n, w) for n, w in found.items() if w), key=lambda item: abs(item[1]))[-most:]
    if not strongest:
        return None
    fig, ax = _figure(6.4, 1.4 + 0.3 * len(strongest), title)
    values = [w for _, w in strongest]
    ax.barh([n for n, _ in strongest], values, color=[BLUE if w > 0 else RED for w in values], height=0.65)
    ax.axvline(0, color=DARK, linewidth=0.8)
    ax.set_xlabel("log-odds of support per standard deviation of the signal")
    ax.margins(x=0.15)
    for y, w in enumerate(values):
        ax.annotate(
            f"{w:+.2f}", (w, y), xytext=(4 if w > 0 else -4, 0), textcoords="offset points", va="center",
            ha="left" if w > 0 else "right", fontsize=8,
        )  # fmt: skip
    return fig


def intervals(found: Sequence[tuple[str, Estimate]], title: str, highlight: str) -> Any | None:
    """One line per judge: its value and 95 % interval; None without any value."""
    known = [(name, e) for name, e in found if e.value is not None]
    if not known:
        return None
    fig, ax = _figure(6.4, 1.2 + 0.36 * len(known), title)
    for y, (name, e) in enumerate(reversed(known)):
        colour = BLUE if name == highlight else DARK
        if e.low is not None and e.high is not None:
            ax.plot([e.low, e.high], [y, y], color=colour, linewidth=2, alpha=0.6)
        ax.plot(e.value, y, "o", color=colour)
        ax.annotate(f"{e.value:.2f}", (e.value, y), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)
    ax.axvline(0.5, color=GREY, linewidth=1, linestyle="--")
    ax.set_yticks(range(len(known)), [name for name, _ in reversed(known)])
    ax.set_ylim(-0.5, len(known) - 0.3)
    ax.set_xlabel("balanced accuracy (dashed: chance)")
    return fig


def frontier(found: Sequence[CostPoint]) -> Any | None:
    """Agreement against computed tokens and against seconds an answer; None without any value.

    The line joins what no cheaper one equals. Marked: the champion, and the cheapest that is not shown worse.
    """
    known = [p for p in found if p.balanced_accuracy.value is not None]
    if not known:
        return None
    matplotlib = need("matplotlib.figure", "Plots of a study")
    fig = matplotlib.Figure(figsize=(11, 4), dpi=110, layout="constrained")
    fig.suptitle("What agreement costs: cross-fitted, to choose by", fontsize=10, x=0.01, ha="left", color=DARK)
    champion, cheapest = (next((p.name for p in found if getattr(p, k)), None) for k in ("exported", "cheapest"))
    *axes, names = fig.subplots(1, 3, width_ratios=[1, 1, 0.7])
    axes[1].sharey(axes[0])
    number = {p.name: i for i, p in enumerate(known, 1)}  # names would hide each other: many points lie close together
    for ax, what, cost in ((axes[0], "computed tokens", "computed_tokens"), (axes[1], "seconds", "seconds")):
        spots = sorted((float(getattr(p, cost)), -float(p.balanced_accuracy.value or 0), p.name) for p in known)
        spots = [(x, -y, name) for x, y, name in spots]
        edge = [(x, y) for i, (x, y, _) in enumerate(spots) if all(y > before for _, before, _ in spots[:i])]
        ax.step(*zip(*edge, strict=True), where="post", color=GREY, linewidth=1)
        for x, y, name in spots:
            colour = BLUE if name == champion else RED if name == cheapest else DARK
            marker = "*" if name == champion else "D" if name == cheapest else "o"
            size, layer = (13, 4) if marker == "*" else (6, 3)
            ax.plot(x, y, marker, color=colour, markersize=size, zorder=layer, mec="white")
        _numbered(ax, spots, number)
        ax.set_xlabel(f"{what} an answer")
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
        ax.margins(x=0.1, y=0.35)
        ax.set_xlim(left=-0.06 * spots[-1][0] - 1e-9)
    axes[0].set_ylabel("balanced accuracy")
    names.axis("off")
    mark = {cheapest: "  ◆", champion: "  ★"}
    lines = [f"{i}  {name}{mark.get(name, '')}" for name, i in number.items()]
    lines += ["", "★ champion"] + ["◆ cheapest not shown worse"] * (cheapest not in (None, champion))
    if cheapest is not None and cheapest == champion:
        lines.append("no cheaper one that is not shown worse")
    names.text(0, 1, "\n".join(lines), va="top", fontsize=8, linespacing=1.6, color=DARK, transform=names.transAxes)
    return fig


def _numbered(ax: Any, spots: Sequence[tuple[float, float, str]], number: Mapping[str, int]) -> None:
    """Numbers over their points, those of equal points together."""
    together: dict[tuple[float, float], list[str]] = {}
    for x, y, name in spots:
        together.setdefault((round(x, 6), round(y, 6)), []).append(str(number[name]))
    for i, ((x, y), numbers) in enumerate(together.items()):
        up = i % 2 == 0  # neighbours are mostly equal in height
        ax.annotate(
            ", ".join(numbers),
            (x, y),
            xytext=(0, 7 if up else -7),
            textcoords="offset points",
            fontsize=8,
            ha="center",
            va="bottom" if up else "top",
            color=DARK,
        )


def _figure(width: float, height: float, title: str) -> tuple[Any, Any]:
    matplotlib = need("matplotlib.figure", "Plots of a study")
    figure = matplotlib.Figure(figsize=(width, height), dpi=120, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, fontsize=10, loc="left", color=DARK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return figure, ax
