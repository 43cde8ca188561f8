"""Check a labels file before anything is spent on it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, counted
from faith_dspy.io.labels import label_set_hash, rating, read_labels, vote
from faith_dspy.optimize.data.imports import by_annotator, majority
from faith_dspy.optimize.data.splits import MIN_PER_CLASS, PARTS, PER_PART, split, with_sources
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import SHOWN_FROM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

_DIFFER = 1 / 3
"""Share of the answers that a tuned and an untuned judge call differently, as `shown` expects it."""
FEW = 100
"""With fewer answers the interval of balanced accuracy is mostly wider than twenty points."""


def audit(path: Any) -> dict[str, Any]:
    """Whether there are enough labels, counts, contradictions inside the labels, the split they would get, and how far
    their annotators agree. `InputError` when the file cannot be read or holds no label."""
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
        found["enough"] = _enough(splits.test, [*splits.train, *splits.dev, *splits.test])
    except InputError as exc:
        found["split"] = f"cannot be tuned on: {exc}"
        found["enough"] = {"to tune": f"no: {exc}."}
    people = annotator_agreement(everything)  # those without a label are where annotators are split
    if people is not None and people.balanced_accuracy.value is not None:
        found["annotators_balanced_accuracy"] = round(people.balanced_accuracy.value, 3)
    return found


def _enough(test: Sequence[LabelledExample], examples: Sequence[LabelledExample]) -> dict[str, str]:
    """What the labels are enough for, in words."""
    many = PER_PART * len(PARTS)
    least = f"a test takes {MIN_PER_CLASS} answers of each label over {many} sources each, a fair one {FEW} answers"
    told = few(len(test))
    return {
        "to tune": "yes",
        "to test": f"{'hardly' if told else 'yes'}, {counted(len(test), 'answer')} that tuning does not see.{told}"
        if test
        else f"no: {least}.",
        "to show": f"{power(examples, test)}.",
    }


def power(examples: Sequence[LabelledExample], test: Sequence[LabelledExample] | None = None) -> str:
    """What gain in balanced accuracy these labels would show at even odds, and how many more show two thirds of it.

    ``test``: the part that is tested on, where it is known; empty where all are cross-fitted.
    """
    if test is None:
        examples = with_sources(examples)
    these = f"{counted(len(examples), 'answer')} from {counted(len({e.group_key for e in examples}), 'source')}"
    try:
        test = split(examples).test if test is None else test
    except InputError as exc:
        return f"{these}: too few to tune; {exc}"
    if (sources := len({e.group_key for e in test})) < SHOWN_FROM:
        return f"{these}: no gain yet; it takes {SHOWN_FROM} sources in the test part, these have {sources}"
    points = shown(test)
    aim = round(100 * points * 2 / 3)
    more = len(examples) * ((100 * points / aim) ** 2 - 1)
    return (
        f"{these}: a gain of about {100 * points:.0f} points would be seen, at even odds; "
        f"{roughly(math.ceil(more))} more for {aim}"
    )


def shown(tested: Sequence[LabelledExample]) -> float:
    """The difference in balanced accuracy that has even odds to be shown on these answers (paired, 95 %).

    Half the interval of a paired difference, 1.96 · √(d/4 · (1/n₊ + 1/n₋)), where the judges differ on a share d of the
    answers (`_DIFFER`) and answers over one context tell as much as others: an estimate on the bold side.
    """
    faithful = sum(bool(e.label) for e in tested)
    return 1.96 * math.sqrt(_DIFFER / 4 * (1 / faithful + 1 / (len(tested) - faithful)))


def annotator_agreement(examples: Sequence[LabelledExample]) -> Agreement | None:
    """One annotator against the majority of the others, as a ceiling for a judge. None when no label can be used.

    `vote` reads each label; the highest rating in the set (at least 1) means faithful. Labels it cannot read, and
    opinions where the others tie, are left out; `n` counts opinions. Intervals are over sources.
    """
    people = [[*by_annotator(e.annotators).values()] for e in examples]
    top = max([1.0, *(r for labels in people for x in labels if (r := rating(x)) is not None)])
    by_others, by_one, sources = [], [], []
    for example, labels in zip(examples, people, strict=True):
        votes = [v for x in labels if (v := vote(x, top)) is not None]
        for i, one in enumerate(votes):
            if (others := majority(votes[:i] + votes[i + 1 :])) is not None:
                by_others.append(others)
                by_one.append(one)
                sources.append(example.group_key)
    return measure(by_others, by_one, [None] * len(by_one), groups=sources) if by_one else None


def roughly(n: int) -> str:
    """A number of labels that nobody should take literally: ``about 120``, ``a few``."""
    return "a few" if n < 10 else f"about {int(float(f'{n:.1g}' if n < 100 else f'{n:.2g}')):,}"


def few(n: int) -> str:
    """What is said of so few test answers, to be put after a sentence; nothing where they are enough."""
    return " Few answers: read the interval, not the figure." if n < FEW else ""
