"""How often no difference is called one, how often intervals hold the truth, and what an operating point catches.

``python -m tests.benchmarks.significance [--draws 1000] [--card SHOWN.md]``

Simulations with the functions that studies and reports use, on labels and verdicts of a known truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import typer

from faith_dspy.optimize.classifier.fitting import OperatingPoint, threshold_for
from faith_dspy.optimize.pass_rate import estimate_share
from faith_dspy.optimize.results import Row
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.scoring.agreement import measure

from . import HERE

CARD = HERE / "SHOWN.md"
DESIGNS = ((10, 4), (20, 4), (50, 3))
"""Sources, and answers over each."""
RARE = ((30, 2), (30, 3), (30, 5), (30, 10), (30, 20))
"""Sources of five answers, and how many of them have an unfaithful one."""
RECALLS = ((10, 0.9), (20, 0.9), (40, 0.9), (40, 0.8), (100, 0.95))
"""Unfaithful answers that a threshold rests on, and the share of others that it is to catch."""
TRAFFIC = ((20, 3), (40, 3), (100, 3))
"""Sources of labelled traffic, and answers over each."""
CLUSTERING = 0.2
"""Intraclass correlation of verdicts on answers of one source."""


def verdicts(
    rng: np.random.Generator,
    right: float,
    labels: Sequence[bool],
    sources: Sequence[int],
) -> list[Row]:
    """Draw a judge that is right with that chance on average, and with a chance of its own on each source (beta)."""
    both = (1 - CLUSTERING) / CLUSTERING
    chance = rng.beta(right * both, (1 - right) * both, size=max(sources) + 1)
    rows = []
    for i, (label, source) in enumerate(zip(labels, sources, strict=True)):
        margin = float(chance[source] - rng.random())
        predicted = label if margin > 0 else not label
        probability = 0.5 + (abs(margin) if predicted else -abs(margin)) / 2
        rows.append(
            Row(
                id=str(i),
                source=str(source),
                label=label,
                predicted=predicted,
                probability=probability,
            )
        )
    return rows


def differences(
    sources: int, answers: int, draws: int, right: float = 0.7
) -> Counter[str]:
    """Shares of draws in which one of two judges of the same strength is called better or worse; and the coverage."""
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(sources), answers).tolist()
    counts = Counter[str]()
    for _ in range(draws):
        labels = (rng.random(len(source)) < 0.5).tolist()
        one, other = (verdicts(rng, right, labels, source) for _ in range(2))
        comparison = compare(one, other)
        counts[comparison.verdict] += 1
        d = comparison.balanced_accuracy
        if d.low is not None and d.high is not None:
            counts["intervals"] += 1
            counts["covers"] += d.low <= 1e-12 and d.high >= -1e-12
    return counts


def rare_label(
    sources: int, unfaithful: int, draws: int, right: float = 0.75
) -> Counter[str]:
    """How often the interval of one judge's balanced accuracy holds the truth, where a label is in few sources."""
    rng = np.random.default_rng(1)
    source = np.repeat(np.arange(sources), 5).tolist()
    counts = Counter[str]()
    for _ in range(draws):
        labels = [not (s < unfaithful and rng.random() < 0.6) for s in source]
        if all(labels):
            continue
        rows = verdicts(rng, right, labels, source)
        agreement = measure(
            labels,
            [r.predicted for r in rows],
            [r.probability for r in rows],
            groups=[r.source for r in rows],
        )
        e = agreement.balanced_accuracy
        counts["draws"] += 1
        if e.low is not None and e.high is not None:
            counts["intervals"] += 1
            counts["covers"] += e.low <= right <= e.high
    return counts


def caught(unfaithful: int, recall: float, draws: int) -> list[float]:
    """Share of new unfaithful answers below the threshold, draw by draw; scores are uniform, so it is the threshold."""
    rng = np.random.default_rng(2)
    point = OperatingPoint("recall", recall)
    shares = []
    for _ in range(draws):
        scores = rng.random(2 * unfaithful)
        labels = np.arange(2 * unfaithful) >= unfaithful
        shares.append(threshold_for(point, scores, labels))
    return shares


def traffic(
    sources: int, answers: int, draws: int, unlabelled: int = 1000
) -> Counter[str]:
    """How often the interval of the share of faithful traffic holds the truth; labels are alike by source."""
    rng = np.random.default_rng(3)
    both = (1 - CLUSTERING) / CLUSTERING
    counts = Counter[str]()

    def scores(labels: np.ndarray) -> list[float]:
        return (
            1
            / (
                1
                + np.exp(-(rng.normal(size=len(labels)) + np.where(labels, 1.0, -1.0)))
            )
        ).tolist()

    def drawn(n: int) -> tuple[np.ndarray, list[str]]:
        source = np.repeat(np.arange(n), answers)
        return rng.random(len(source)) < rng.beta(0.7 * both, 0.3 * both, size=n)[
            source
        ], source.astype(str).tolist()

    for _ in range(draws):
        labels, source = drawn(sources)
        others, other_sources = drawn(unlabelled // answers)
        rows = [
            Row(id=str(i), source=s, label=bool(y), predicted=p >= 0.5, probability=p)
            for i, (y, s, p) in enumerate(
                zip(labels, source, scores(labels), strict=True)
            )
        ]
        share = estimate_share(rows, scores(others), other_sources).powered
        counts["intervals"] += share.low is not None
        counts["covers"] += share.low is not None and share.low <= 0.7 <= share.high
    return counts


def tables(draws: int) -> str:
    """All simulations, as Markdown."""
    lines = [
        "| sources × answers | better | worse | interval holds 0 |",
        "|---|--:|--:|--:|",
    ]
    for sources, answers in DESIGNS:
        c = differences(sources, answers, draws)
        cells = [f"{c[verdict] / draws:.1%}" for verdict in ("better", "worse")]
        lines.append(f"| {sources} × {answers} | {' | '.join(cells)} | {_share(c)} |")
    lines += [
        "",
        "| sources, with an unfaithful answer | has an interval | it holds the truth |",
        "|---|--:|--:|",
    ]
    for sources, unfaithful in RARE:
        c = rare_label(sources, unfaithful, draws)
        lines.append(
            f"| {sources}, {unfaithful} | {c['intervals'] / c['draws']:.1%} | {_share(c)} |"
        )
    lines += [
        "",
        "| unfaithful labels | recall asked for | of new ones, mean | 5 % of draws below |",
        "|---|--:|--:|--:|",
    ]
    for unfaithful, recall in RECALLS:
        shares = caught(unfaithful, recall, draws)
        lines.append(
            f"| {unfaithful} | {recall} | {np.mean(shares):.3f} | {np.quantile(shares, 0.05):.3f} |"
        )
    lines += [
        "",
        "| labelled traffic, sources × answers | interval holds the share of faithful answers |",
        "|---|--:|",
    ]
    for sources, answers in TRAFFIC:
        lines.append(
            f"| {sources} × {answers} | {_share(traffic(sources, answers, draws))} |"
        )
    return "\n".join(lines)


def _share(c: Counter[str]) -> str:
    return f"{c['covers'] / c['intervals']:.1%}" if c["intervals"] else "–"


def main(draws: int = 1000, card: Path = CARD) -> None:
    """Write the tables below the page's text."""
    prose = card.read_text(encoding="utf-8").partition("\n| sources")[0].rstrip()
    made = f"{draws:,} draws, made on {date.today():%-d %B %Y}."
    card.write_text(f"{prose}\n\n{made}\n\n{tables(draws)}\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
