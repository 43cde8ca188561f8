"""The exported judge's card: what it is, what it was measured to be worth, and what it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.reporting.wording import figure, head_sentences
from faith_dspy.optimize.select.pareto import ASKED_ABOUT

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult, TestResult, VariantResult

_ROWS = (
    ("balanced accuracy", "balanced_accuracy"),
    ("AUROC", "auroc"),
    ("Cohen's κ", "cohen_kappa"),
    ("MCC", "mcc"),
    ("recall of unfaithful answers", "recall_unfaithful"),
    ("calibration error (ECE)", "ece"),
)


def write_card(result: StudyResult) -> str:
    """Markdown."""
    champion = result.variant(result.champion)
    tested = result.test
    classifier = result.classifier.get("statement") or result.classifier.get("answer") or {}
    weights = sorted(
        zip(classifier.get("names", ()), classifier.get("weights", ()), strict=True), key=lambda w: -abs(w[1])
    )[:8]
    n = tested[0].agreement.n
    lines = [
        "# Faithfulness judge",
        "",
        f"{_way(result, champion)} Tuned on `{result.labels_file}` (label set {result.label_set_hash}).",
        "",
        f"## Agreement with people on {n} answers it was not tuned on",
        "",
        "| | " + " | ".join(t.name for t in tested) + " |",
        "|---|" + "---|" * len(tested),
        *(f"| {title} | " + " | ".join(_cell(t, field) for t in tested) + " |" for title, field in _ROWS),
        f"| answers scored | {' | '.join(f'{t.agreement.coverage:.0%}' for t in tested)} |",
        f"| computed tokens an answer | {' | '.join(_each(t, t.usage.computed_tokens) for t in tested)} |",
        f"| seconds an answer | {' | '.join(_each(t, t.usage.seconds, 2) for t in tested)} |",
        "",
        "In brackets: 95 % intervals from resampling contexts. That of the calibration error takes off what a small "
        "sample adds to it, and so lies mostly below the figure.",
        "",
        *(f"- {c.sentence}" for c in result.comparisons.values()),
        *([f"- {result.groups.sentence}"] if result.groups else []),
        *(f"- {sentence}" for sentence in result.notes),
        "",
        "## What it goes by",
        "",
        "Log-odds of support per standard deviation of each signal, the strongest first:",
        "",
        *(f"- `{name}` {weight:+.2f}" for name, weight in weights if weight),
        "",
        *(f"- {sentence}" for sentence in (head_sentences(result.diagnosis) if result.diagnosis else [])),
        "",
        *_frontier(result),
        "## What it is not",
        "",
        "It stands in for the people who labelled its set, on answers like those. On other traffic measure it again: "
        "`faith-dspy agree LABELS --judge DIR`.",
    ]
    if result.ceiling is not None:
        lines.insert(
            -4,
            f"- People among themselves: one annotator against the majority of the others has balanced accuracy "
            f"{figure(result.ceiling.balanced_accuracy)}.",
        )
    if not result.finished:
        lines.append("\nThe study was stopped early; this is the best of the variants that were finished.")
    return "\n".join(lines) + "\n"


def _way(result: StudyResult, champion: VariantResult) -> str:
    """How it judges, in a sentence."""
    form = next((p for p in result.costs if p.exported and p.cheaper_mode), None)
    if form is not None and not form.lm_share:
        return "Judges an answer sentence by sentence, by its lexical features alone; no LM is asked."
    each = f"{champion.params['granularity']} by {champion.params['granularity']} ({champion.description})"
    told = f"Judges an answer {each}, asked of `{champion.params['lm']}`"
    if form is None:
        return f"{told}."
    where = f", where words leave it open: {form.lm_share:.0%} of the answers" if form.escalates_within else ""
    what = f" Of an answer it is asked about {ASKED_ABOUT[form.ask_about]}."
    return f"{told}{where}.{what}"


def _frontier(result: StudyResult) -> list[str]:
    if len(result.costs) < 2:
        return []
    return [
        "## What agreement costs",
        "",
        "Cross-fitted on the answers it was tuned on, other variants on those of dev: to choose by, not agreement with "
        "people.",
        "",
        "| | n | LM asked about | balanced accuracy | AUROC | calls | computed tokens | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {p.name}{' (this judge)' if p.exported else ''} | {p.n} | {p.lm_share:.0%} | {figure(p.balanced_accuracy)} "
            f"| {figure(p.auroc)} | {p.calls:.1f} | {p.computed_tokens:.0f} | {p.seconds:.2f} |"
            for p in result.costs
        ),
        "",
        *(f"- {sentence}" for sentence in result.costs_in_words),
        "",
    ]


def _cell(t: TestResult, field: str) -> str:
    return figure(getattr(t.agreement, field))


def _each(t: TestResult, total: float, digits: int = 0) -> str:
    return f"{total / max(1, t.agreement.n):.{digits}f}"
