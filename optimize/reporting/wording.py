"""Figures in words: values with their intervals, and what a classifier's report says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.optimize.checks import Diagnosis, Difference
    from faith_dspy.optimize.classifier.operating_point import OperatingPoint
    from faith_dspy.scoring.agreement import Agreement
    from faith_dspy.scoring.statistics import Estimate


def figure(e: Estimate) -> str:
    """A value with its 95 % interval, or a dash."""
    if e.value is None:
        return "–"
    if e.low is None or e.high is None:
        return f"{e.value:.3f}"
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"


def head_sentences(report: Diagnosis) -> list[str]:
    """What a reader should take from it, a sentence or two each; AUROC and errors as numbers in [0, 1]."""
    out = [
        f"Threshold {report.threshold.threshold:.2f} for the operating_point “{report.threshold.operating_point}”: cross-fitted it stops "
        f"{percent(report.threshold.recall_unfaithful)} of the unfaithful answers and passes "
        f"{percent(report.threshold.recall_faithful)} of the faithful."
        + (f" {report.threshold.note}" if report.threshold.note else "")
    ]
    for part, check in report.calibration.items():
        out.append(
            f"Calibration error ({part}): {figure(check.before)} as the LM says it, {figure(check.after)} by the classifier."
        )
    for part, review_range in report.review_range.items():
        out.append(f"Too close to call, for a person ({part}): {review_range.sentence}")
    if report.ablation:
        told = "; ".join(f"{a.without} {points(a.auroc)}" for a in report.ablation[:4])
        out.append(f"What the classifier would lose without, in points of AUROC (cross-fitted): {told}.")
    short = report.shortcuts
    out.append(
        f"Shortcuts: the classifier's AUROC is {figure(short.auroc)}, among answers of about the same length "
        f"{figure(short.within)}; " + ", ".join(f"{k} alone {figure(v)}" for k, v in short.alone.items()) + "."
    )
    return out


def operating_point_sentence(
    operating_point: OperatingPoint, champion: Agreement, untuned: Agreement, auroc: Difference
) -> str:
    """What a threshold that is not for balanced accuracy reaches on test, and what can be compared all the same."""
    sides = (champion, untuned)
    stops, passes = ([percent(getattr(a, k)) for a in sides] for k in ("recall_unfaithful", "recall_faithful"))
    text = (
        f"The threshold is for the operating_point “{operating_point}”, not for balanced accuracy: on test it stops {stops[0]} of the "
        f"unfaithful answers (untuned: {stops[1]}) and passes {passes[0]} of the faithful (untuned: {passes[1]})."
    )
    if operating_point.kind == "cost" and operating_point.value is not None:
        told = [
            (operating_point.value * a.confusion["unfaithful_passed"] + a.confusion["faithful_failed"])
            / max(1, a.scored)
            for a in sides
        ]
        text += f" An answer then costs {told[0]:.2f} faithful ones stopped (untuned: {told[1]:.2f})."
    if auroc.value is not None:
        text += f" AUROC, which no threshold changes: {points(auroc)} points against the untuned judge."
    return text


def ablation_table(report: Diagnosis) -> list[dict[str, str]]:
    """Rows of text: what is left out, and what that costs with its 95 % interval."""
    return [
        {
            "without": a.without,
            "AUROC lost": points(a.auroc),
            "balanced accuracy lost": points(a.balanced_accuracy),
            "log loss gained": _loss(a.log_loss),
        }
        for a in report.ablation
    ]


def percent(e: Estimate) -> str:
    """As `figure`, in per cent."""
    if e.value is None:
        return "–"
    return f"{e.value:.0%}" + (f" [{e.low:.0%}, {e.high:.0%}]" if e.low is not None and e.high is not None else "")


def points(d: Difference) -> str:
    """A difference in percentage points with its interval, or a dash."""
    if d.value is None or d.low is None or d.high is None:
        return "–"
    return f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def _loss(d: Difference) -> str:
    if d.value is None or d.low is None or d.high is None:
        return "–"
    return f"{-d.value:+.3f} [{-d.high:+.3f}, {-d.low:+.3f}]"
