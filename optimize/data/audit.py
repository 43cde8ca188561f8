"""Check a labels file before anything is spent on it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, counted
from faith_dspy.io.labels import label_set_hash, rating, read_labels, vote
from faith_dspy.optimize.data.imports import by_annotator, majority
from faith_dspy.optimize.data.splits import MIN_PER_CLASS, PARTS, PER_PART, split
from faith_dspy.report.tables import FEW, few, roughly
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, label_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

_DIFFER = 1 / 3
"""Share of the answers that a tuned and an untuned judge call differently, as `shown` expects it."""


def audit_labels(path: Any) -> dict[str, Any]:
    """Return whether there are enough labels, counts, contradictions inside the labels, the split they would get, and
    how far their annotators agree. `InputError` when the file cannot be read or holds no label."""
    everything = read_labels(path, require_label=False)
    examples = [e for e in everything if e.label is not None]
    if not examples:
        read_labels(path)  # raises, and says what a usable label is
    verdicts = Counter(
        s.verdict.value for e in examples for s in e.statements if s.verdict is not None
    )
    words = sorted(sum(len(c.text.split()) for c in e.context) for e in examples)
    at_odds = [e.id for e in examples if _contradicts_statements(e)]
    report: dict[str, Any] = {
        "answers": len(everything),
        "without_label": len(everything) - len(examples),
        "faithful": sum(bool(e.label) for e in examples),
        "unfaithful": sum(not e.label for e in examples),
        "statement_verdicts": dict(verdicts),
        "contexts": len({e.context_key for e in examples}),
        "words_of_context_median": words[len(words) // 2],
        "words_of_context_most": words[-1],
        "labels_at_odds": len(at_odds),
        "first_at_odds": ", ".join(at_odds[:5]),
        "label_set_hash": label_set_hash(examples),
    }
    try:
        splits = split(examples)
    except InputError as exc:
        report["split"] = f"cannot be tuned on: {exc}"
        report["enough"] = {"to tune": f"no: {exc}."}
    else:
        report["split"] = {
            name: part["n"] for name, part in splits.report["parts"].items()
        }
        if not splits.test:
            report["split"] = (
                f"too few for a test part: all {len(examples)} are cross-fitted"
            )
        report["enough"] = _enough(splits.test, [*splits.pool, *splits.test])
    people = annotator_agreement(
        everything
    )  # those without a label are where annotators are split
    if people is not None and people.balanced_accuracy.value is not None:
        report["annotators_balanced_accuracy"] = round(
            people.balanced_accuracy.value, 3
        )
    return report


def _contradicts_statements(e: LabelledExample) -> bool:
    """Whether ``faithful`` contradicts the verdicts on all of its statements: one of the two is wrong."""
    supported = [s.verdict.is_supported for s in e.statements if s.verdict is not None]
    complete = bool(supported) and len(supported) == len(e.statements)
    return e.faithful is not None and complete and e.faithful != all(supported)


def _enough(
    test: Sequence[LabelledExample], examples: Sequence[LabelledExample]
) -> dict[str, str]:
    """What the labels are enough for, in words."""
    least = (
        f"a test takes {MIN_PER_CLASS} answers of each label over {PER_PART * len(PARTS)} sources each, a fair one "
        f"{FEW} answers"
    )
    to_test = f"no: {least}."
    if test:
        warning = few(len(test))
        to_test = f"{'hardly' if warning else 'yes'}, {counted(len(test), 'answer')} that tuning does not see.{warning}"
    return {
        "to tune": "yes",
        "to test": to_test,
        "to show": f"{_power(examples, test)}.",
    }


def _power(examples: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> str:
    """What gain in balanced accuracy these labels would show at even odds, and how many more show two thirds of it."""
    subject = f"{counted(len(examples), 'answer')} from {counted(len({e.group_key for e in examples}), 'source')}"
    sources = _least_sources(test)
    if sources < SIGNIFICANT_FROM:
        return f"{subject}: no gain yet; it takes {SIGNIFICANT_FROM} sources in the test part, these have {sources}"
    points = 100 * shown(test)
    aim = round(points * 2 / 3)
    more = math.ceil(len(examples) * ((points / aim) ** 2 - 1))
    return f"{subject}: a gain of about {points:.0f} points would be seen, at even odds; {roughly(more)} more for {aim}"


def _least_sources(test: Sequence[LabelledExample]) -> int:
    """Return the number of sources of the rarer label."""
    sources = label_sources([bool(e.label) for e in test], [e.group_key for e in test])
    return min(sources.values())


def shown(tested: Sequence[LabelledExample]) -> float:
    """Return the difference in balanced accuracy that has even odds to be shown on these answers (paired, 95 %).

    Half the interval of a paired difference, 1.96 · √(d/4 · (1/n₊ + 1/n₋)), where the judges differ on a share d of the
    answers (`_DIFFER`) and answers over one context tell as much as others: an estimate on the bold side.
    """
    faithful = sum(bool(e.label) for e in tested)
    return 1.96 * math.sqrt(_DIFFER / 4 * (1 / faithful + 1 / (len(tested) - faithful)))


def annotator_agreement(examples: Sequence[LabelledExample]) -> Agreement | None:
    """Measure one annotator against the majority of the others, as a ceiling for a judge; None without a usable label.

    `vote` reads each label; the highest rating in the set (at least 1) means faithful. Labels it cannot read, and
    opinions where the others tie, are left out; `n` counts opinions. Intervals are over sources.
    """
    people = [list(by_annotator(e.annotators).values()) for e in examples]
    ratings = [rating(label) for labels in people for label in labels]
    top = max([1.0, *(r for r in ratings if r is not None)])
    by_others, by_one, sources = [], [], []
    for example, labels in zip(examples, people, strict=True):
        votes = [v for v in (vote(label, top) for label in labels) if v is not None]
        for i, own in enumerate(votes):
            others = majority(votes[:i] + votes[i + 1 :])
            if others is not None:
                by_others.append(others)
                by_one.append(own)
                sources.append(example.group_key)
    return (
        measure(by_others, by_one, [None] * len(by_one), groups=sources)
        if by_one
        else None
    )
