"""Check a labels file before anything is spent on it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faith_dspy.errors import InputError
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.optimize.data.splits import split
from faith_dspy.scoring.annotators import annotator_agreement


def audit(path: Any) -> dict[str, Any]:
    """Counts, contradictions inside the labels, the split they would get, and how far their annotators agree.

    Raises `InputError` when the file cannot be read or holds no label.
    """
    everything = read_labels(path, require_label=False)
    examples = [e for e in everything if e.label is not None]
    if not examples:
        read_labels(path)  # raises, and says what a usable label is
    verdicts = Counter(s.verdict.value for e in examples for s in e.statements if s.verdict is not None)
    words = sorted(sum(len(c.text.split()) for c in e.context) for e in examples)
    # `faithful` beside statement verdicts that contradict it: one of the two is wrong.
    at_odds = [
        e.id
        for e in examples
        if e.faithful is not None
        and (known := [s.verdict.is_supported for s in e.statements if s.verdict is not None])
        and len(known) == len(e.statements)
        and e.faithful != all(known)
    ]
    found: dict[str, Any] = {
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
        found["split"] = {name: part["n"] for name, part in splits.report["parts"].items()}
        if not splits.test:
            found["split"] = f"too few for a test part: all {len(examples)} are cross-fitted"
    except InputError as exc:
        found["split"] = f"cannot be tuned on: {exc}"
    people = annotator_agreement(examples)
    if people is not None and people.balanced_accuracy.value is not None:
        found["annotators_balanced_accuracy"] = round(people.balanced_accuracy.value, 3)
    return found
