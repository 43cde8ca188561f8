"""Citations: the chunks that each statement of an answer cites, and how far they support it.

Precision and recall follow ALCE (Gao, Yen, Yu, Chen: “Enabling Large Language Models to Generate Text with Citations”,
EMNLP 2023, arXiv:2305.14627, section 4): recall is the share of statements that the chunks they cite, taken together,
support; precision is the share of citations that belong to such a statement and support it themselves. A citation of a
chunk that does not exist supports nothing, and is named apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import PurePath

from faith_dspy.schema import (
    Chunk,
    Citations,
    Sentence,
    Statement,
    StatementVerdict,
)
from faith_dspy.text.words import (
    CITED_KINDS,
    begins_with_citation,
    citations_in,
    has_words,
    tidy,
)

_NUMBERS = re.compile(r"[S#^]?\d{1,3}(?:(?:[\s,;&–-]|and)*[S#^]?\d{1,3})*")
_NUMBER = re.compile(r"\d+")
_RANGE = re.compile(r"(\d{1,3})\s*[–-]\s*(\d{1,3})(?!\d)")
_KIND = re.compile(rf"{CITED_KINDS}(?:\s*[:._#\s-]\s*|(?=\d))", re.IGNORECASE)
_ASIDE = re.compile(
    r"<[^<>]*>|\]\([^()]*\)|†.*|(?<=【\d):\d+|,?\s*\bpp?\.?\s*\d[\d–-]*|:contentReference|\{[^{}]*\}|(?<=\d):\s+\D.*"
)
"""What stands in a citation beside its numbers: tags, addresses, titles, pages."""
_ENDS = (".", "!", "?", "。", "！", "？", "।")


def citations_by_sentence(sentences: Sequence[Sentence]) -> dict[int, list[str]]:
    """Return by sentence its citations as written.

    One right after a full stop belongs to the sentence before it; in an answer that begins with a citation, to the
    sentence behind it.
    """
    leads = bool(sentences) and begins_with_citation(sentences[0].text)
    markers: dict[int, list[str]] = {}
    before: int | None = None
    for sentence, following in zip_longest(sentences, sentences[1:]):
        text = sentence.text
        matches = list(citations_in(text))
        starts = [match.start() for match in matches]
        ends = [match.end() for match in matches]
        between = [
            text[i:j] for i, j in zip([0, *ends], [*starts, len(text)], strict=True)
        ]
        stating = [i for i, words in enumerate(between) if has_words(words)]
        first = min(stating, default=len(between))
        last = max(stating, default=0)
        for i, match in enumerate(matches):
            index = sentence.index
            if leads:
                ends_a_sentence = between[i].rstrip().endswith(_ENDS)
                if ends_a_sentence and following and last <= i:
                    index = following.index
            elif before is not None and i < first:
                index = before
            markers.setdefault(index, []).append(match[0])
        if stating:
            before = sentence.index
    return dict(sorted(markers.items()))


def _resolve(
    marker: str,
    by_number: Mapping[int, int],
    by_source: Mapping[str, Sequence[int]],
) -> tuple[list[int], list[str]]:
    """Return the ids of the chunks that a citation stands for, and what of it stands for none."""
    ids = _ids_of_sources(marker, by_source)
    if ids:
        return ids, []
    numbers = _numbers_in(marker)
    if not numbers:
        return [], [_label(marker)]
    ids = [by_number[number] for number in numbers if number in by_number]
    return ids, [str(number) for number in numbers if number not in by_number]


def _ids_of_sources(marker: str, by_source: Mapping[str, Sequence[int]]) -> list[int]:
    ids: dict[int, None] = {}
    for part in re.split(r"[,;|†]|\]\(", marker):
        label = _label(part)
        without_kind = _KIND.sub("", label, count=1)
        file_name = PurePath(label).name
        for form in (label, without_kind, file_name):
            if form in by_source:
                ids.update(dict.fromkeys(by_source[form]))
                break
    return list(ids)


def _names_of(source: str | None) -> set[str]:
    """Return the ways to write a chunk's source: whole, its file name, and that without its ending."""
    if not source:
        return set()
    name = _label(source)
    path = PurePath(name)
    return {name, path.name, path.stem} - {""}


def _label(text: str) -> str:
    return tidy(text).strip("[]()【】<>^ \n\t").casefold()


def _numbers_in(marker: str) -> list[int]:
    """Return the numbers that a citation names; ``1-3`` names three, ``EU Directive 3`` none."""
    text = tidy(_ASIDE.sub(" ", marker))
    text = _KIND.sub(" ", text).strip("[](){}【】<>: \n\t")
    if not _NUMBERS.fullmatch(text):
        return []
    numbers = {int(number) for number in _NUMBER.findall(text)}
    for pair in _RANGE.findall(text):
        first, last = map(int, pair)
        numbers.update(range(first, min(last, first + 20)))
    return sorted(numbers)


def resolve_citations(
    statements: Sequence[Statement],
    sentences: Sequence[Sentence],
    context: Sequence[Chunk],
    start: int | None = None,
) -> tuple[list[tuple[int, ...]], tuple[str, ...] | None]:
    """Return the ids of the chunks that each statement cites, and the citations of chunks that do not exist.

    A statement about the whole answer has all citations of it. None where the answer cites nothing. ``start``: number
    of the first chunk; without it 0 where the answer cites that, else 1.
    """
    by_sentence = citations_by_sentence(sentences)
    if not by_sentence:
        return [() for _ in statements], None
    if start is None:
        markers = chain.from_iterable(by_sentence.values())
        start = 0 if any(0 in _numbers_in(marker) for marker in markers) else 1
    by_number = {start + chunk.id: chunk.id for chunk in context}
    by_source: defaultdict[str, list[int]] = defaultdict(list)
    for chunk in context:
        for name in _names_of(chunk.source):
            by_source[name].append(chunk.id)
    cited: defaultdict[int | None, set[int]] = defaultdict(set)
    unknown: list[str] = []
    for sentence, markers_of_sentence in by_sentence.items():
        for marker in markers_of_sentence:
            ids, names = _resolve(marker, by_number, by_source)
            cited[sentence].update(ids)
            cited[None].update(ids)
            unknown += names
    of_statements = [tuple(sorted(cited[s.sentence_index])) for s in statements]
    return of_statements, tuple(unknown)


def measure_citations(
    statements: Sequence[StatementVerdict],
    alone: Sequence[Collection[int]],
    unknown: Sequence[str],
) -> Citations:
    """Measure precision and recall (see above) of statements that know whether their citations support them.

    Args:
        statements: The statements.
        alone: For each, those of the chunks it cites that have most of its words.
        unknown: Citations of chunks that do not exist.
    """
    good = supported = unchecked = 0
    cites = checked = len(unknown)
    for statement, closest in zip(statements, alone, strict=True):
        cited = statement.cited_chunk_ids
        cites += len(cited)
        if cited and statement.citations_support is None:
            unchecked += 1
            continue
        checked += len(cited)
        if not statement.citations_support:
            continue
        supported += 1
        supporting = set(statement.supporting_chunk_ids).intersection(cited)
        # Without any, by the verdict on the cited chunks alone.
        good += len(supporting) or len(closest) or 1
    in_recall = len(statements) - unchecked
    return Citations(
        precision=good / checked if checked else None,
        recall=supported / in_recall if in_recall else None,
        cited=cites,
        unknown=tuple(dict.fromkeys(unknown)),
        unchecked=unchecked,
    )
