"""What a study learned about the champion's classifier and prompts, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.reporting.tables import INTERVALS
from faith_dspy.report.numbers import estimate, number, percent, points
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from faith_dspy.optimize.results import Diagnosis, StudyResult, VariantResult

_VISIBLE = 0.005
"""A weight that is not written as .00."""


def classifier_table(result: StudyResult, most: int | None = None) -> Table | None:
    """What the classifier uses, the strongest feature first; None without a classifier."""
    weights = [
        (f"{name} (answer)" if stage == "answer" and result.classifier.get("statement") else name, weight)
        for stage in ("statement", "answer")
        if (found := result.classifier.get(stage))
        for name, weight in zip(found["names"], found["weights"], strict=True)
        if abs(weight) >= _VISIBLE
    ]
    if not weights:
        return None
    weights.sort(key=lambda item: -abs(item[1]))
    return table_of(
        "What the classifier uses",
        {"feature": lambda w: w[0], "weight": lambda w: f"{w[1]:+.2f}"},
        weights[:most],
        caption="Weight: log-odds of support for each standard deviation of the feature.",
        notes=tuple(_diagnosis_in_words(result.diagnosis)) if result.diagnosis else (),
    )


def _diagnosis_in_words(d: Diagnosis) -> list[str]:
    t, s = d.threshold, d.shortcuts
    out = [
        f"The threshold is {number(t.threshold)}, for the operating point “{t.operating_point}”. Cross-fitted, it "
        f"stops {percent(t.recall_unfaithful)} of the unfaithful answers and passes {percent(t.recall_faithful)} "
        "of the faithful." + (f" {t.note}" if t.note else "")
    ]
    out += [
        f"Calibration error ({part}): {estimate(c.before)} of the LM's own probability, {estimate(c.after)} of the "
        "classifier's."
        for part, c in d.calibration.items()
    ]
    out += [f"Needs review ({part}): {r}" for part, r in d.review_range.items()]
    alone = ", ".join(f"{name} alone {estimate(e)}" for name, e in s.alone.items())
    out.append(
        f"Length is not evidence: the classifier's AUROC is {estimate(s.auroc)}, among answers of about the same "
        f"length {estimate(s.within)}; {alone}."
    )
    return out


def ablation_table(result: StudyResult) -> Table | None:
    """What the classifier loses without a feature; None where that was not measured."""
    if result.diagnosis is None or not result.diagnosis.ablation:
        return None
    columns = {
        "without": lambda a: a.without,
        "AUROC lost": lambda a: points(a.auroc),
        "balanced\naccuracy lost": lambda a: points(a.balanced_accuracy),
    }
    caption = f"In points, cross-fitted on train and dev. {INTERVALS}"
    return table_of("What the classifier loses without a feature", columns, result.diagnosis.ablation, caption=caption)


def instructions_table(v: VariantResult) -> Table | None:
    """The instructions of the bank that a variant tried; None where it searched none."""
    if not v.search:
        return None
    columns = {
        "instruction": lambda s: str(s["name"]),
        "n": lambda s: str(s["n"]),
        "AUROC": lambda s: number(s["auroc"]),
        "balanced\naccuracy": lambda s: number(s["balanced_accuracy"]),
    }
    return table_of("Instructions that were tried", columns, v.search, caption="On n labelled statements of train.")
