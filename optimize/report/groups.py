"""A judge's agreement by kind of test answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from faith_dspy.optimize.results import GroupResult, JudgedAnswer
from faith_dspy.scoring.agreement import Agreement, measure_agreement
from faith_dspy.text.words import language_of

MIN_CLASS = 8
"""Scored answers of each label that a group needs to be measured; below, one answer moves its figure by six points."""
_READ = 2_000
"""Characters from which a language is guessed."""


def by_group(answers: Sequence[JudgedAnswer]) -> tuple[GroupResult, ...]:
    """Agreement of one judge by kind of test answer: each value of each tag of the labels file, and each language.

    The language is guessed from answer and context where the labels file does not say. In each facet the largest group
    comes first; those with too few answers to be measured are counted in one row. Facets with fewer than two groups, or
    none to measure, are left out. Intervals are those of `measure`: the lowest of many groups is low by chance, too.
    """
    facets: defaultdict[str, defaultdict[str, list[JudgedAnswer]]] = defaultdict(lambda: defaultdict(list))
    for a in answers:
        texts, tags = [a.example.answer, *(c.text for c in a.example.context)], a.example.tags
        language = tags.get("language") or language_of(" ".join(texts)[:_READ])
        for facet, name in {**tags, "language": language}.items():
            facets[facet][" ".join(name.split())].append(a)  # a name is one line of a table
    found = []
    for facet, groups in facets.items():
        measured = {name: part for name, part in groups.items() if _enough(part)}
        small = [part for part in groups.values() if not _enough(part)]
        if not measured or len(groups) < 2:
            continue
        found += [
            GroupResult(facet=facet, name=name, n=len(part), agreement=_agreement(part))
            for name, part in sorted(measured.items(), key=lambda i: -len(i[1]))
        ]
        if small:
            found.append(GroupResult(facet=facet, name=f"({len(small)} too small)", n=sum(map(len, small))))
    return tuple(found)


def _agreement(part: Sequence[JudgedAnswer]) -> Agreement | None:
    return measure_agreement([a.example for a in part], [a.judgment for a in part]).answers


def _enough(part: Sequence[JudgedAnswer]) -> bool:
    labels = [r.label for r in part if r.predicted is not None]
    return min(sum(labels), len(labels) - sum(labels)) >= MIN_CLASS
