"""Citations: the chunks that each statement of an answer cites, and how far they support it.

Precision and recall follow ALCE (Gao, Yen, Yu, Chen: “Enabling Large Language Models to Generate Text with Citations”,
EMNLP 2023, arXiv:2305.14627, section 4): recall is the share of statements that the chunks they cite, taken together,
support; precision is the share of citations that belong to such a statement and support it themselves. A citation of a
chunk that does not exist supports nothing, and is named apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import PurePath

from faith_dspy.schema import Chunk, Citations, Sentence, StatementVerdict
from faith_dspy.text.features import best_chunks, index_context
from faith_dspy.text.words import (
    CITATION,
    CITED_KINDS,
    has_words,
    tidy,
    without_citations,
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
    leading = bool(sentences) and CITATION.match(sentences[0].text) is not None
    markers: dict[int, list[str]] = {s.index: [] for s in sentences}
    before: int | None = None
    for s, following in zip_longest(sentences, sentences[1:]):
        for match in CITATION.finditer(s.text):
            said, left = s.text[: match.start()], s.text[match.end() :]
            ends_a_sentence = leading and said.rstrip().endswith(_ENDS)
            if not leading and before is not None and not _states(said):
                markers[before].append(match[0])
            elif ends_a_sentence and following and not _states(left):
                markers[following.index].append(match[0])
            else:
                markers[s.index].append(match[0])
        if _states(s.text):
            before = s.index
    return {index: cited for index, cited in markers.items() if cited}


def _states(text: str) -> bool:
    """Tell whether there are words beside the citations."""
    return has_words(without_citations(text))


class CitationIndex:
    """What the citations of one answer stand for."""

    def __init__(
        self, context: Sequence[Chunk], markers: Sequence[str], start: int | None = None
    ) -> None:
        """Index the chunks of a context.

        Args:
            context: the chunks.
            markers: all citations of the answer, as written; they tell whether its numbers begin at 0 or 1.
            start: number of the first chunk, where the user says it.
        """
        self.ids = {chunk.id for chunk in context}
        self.sources: dict[str, list[int]] = {}
        for chunk in context:
            for name in _names_of(chunk.source):
                self.sources.setdefault(name, []).append(chunk.id)
        numbers = [number for marker in markers for number in _numbers_in(marker)]
        self.start = (0 if 0 in numbers else 1) if start is None else start

    def resolve(self, marker: str) -> tuple[list[int], list[str]]:
        """Return the ids of the chunks that a citation stands for, and what of it stands for none."""
        named = self._by_source(marker)
        if named:
            return named, []
        numbers = _numbers_in(marker)
        ids = [number - self.start for number in numbers]
        unknown = [
            str(number)
            for number, i in zip(numbers, ids, strict=True)
            if i not in self.ids
        ]
        return [i for i in ids if i in self.ids], unknown if numbers else [
            _label(marker)
        ]

    def _by_source(self, marker: str) -> list[int]:
        named: dict[int, None] = {}
        for part in re.split(r"[,;|†]|\]\(", marker):
            label = _label(part)
            forms = (label, _KIND.sub("", label, count=1), PurePath(label).name)
            ids = next(
                (self.sources[form] for form in forms if form in self.sources), []
            )
            named.update(dict.fromkeys(ids))
        return [*named]


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
    text = _KIND.sub(" ", tidy(_ASIDE.sub(" ", marker))).strip("[](){}【】<>: \n\t")
    if not _NUMBERS.fullmatch(text):
        return []
    numbers = [int(n) for n in _NUMBER.findall(text)]
    for first, last in _RANGE.findall(text):
        numbers += range(int(first) + 1, min(int(last), int(first) + 20))
    return list(dict.fromkeys(sorted(numbers)))


def cite(
    statements: Sequence[StatementVerdict],
    sentences: Sequence[Sentence],
    context: Sequence[Chunk],
    start: int | None = None,
) -> tuple[list[StatementVerdict], list[str]] | None:
    """Return the statements with the ids of the chunks they cite, and the citations of chunks that do not exist.

    A statement about the whole answer has all citations of it. None where the answer cites nothing.
    """
    by_sentence = citations_by_sentence(sentences)
    markers = list(chain.from_iterable(by_sentence.values()))
    if not markers:
        return None
    index = CitationIndex(context, markers, start)
    ids_by_sentence: dict[int | None, set[int]] = {None: set()}
    unknown: list[str] = []
    for sentence, cited in by_sentence.items():
        ids_by_sentence[sentence] = set()
        for marker in cited:
            chunk_ids, names = index.resolve(marker)
            ids_by_sentence[sentence].update(chunk_ids)
            unknown += names
        ids_by_sentence[None] |= ids_by_sentence[sentence]
    citing = []
    for statement in statements:
        ids = tuple(sorted(ids_by_sentence.get(statement.sentence_index, ())))
        citing.append(statement.model_copy(update={"cited_chunk_ids": ids}))
    return citing, unknown


def needs_verdict(statement: StatementVerdict) -> bool:
    """Tell whether only another verdict says if what a statement cites supports it: that is not what supports it."""
    cited, supporting = (
        set(statement.cited_chunk_ids),
        set(statement.supporting_chunk_ids),
    )
    return bool(
        statement.is_supported and cited and not (supporting and supporting <= cited)
    )


def measure_citations(
    statements: Sequence[StatementVerdict],
    unknown: Sequence[str],
    context: Sequence[Chunk],
    question: str | None,
) -> Citations:
    """Measure precision and recall (see above) of statements that know whether their citations support them."""
    chunks = {chunk.id: chunk for chunk in context}
    good = 0
    total = len(unknown)
    for statement in statements:
        cited = statement.cited_chunk_ids
        total += len(cited)
        if not statement.citations_support:
            continue
        supporting = set(statement.supporting_chunk_ids) & {*cited}
        if not supporting:  # by the verdict on the cited chunks alone
            supporting = set(
                best_chunks(
                    statement.text, index_context([chunks[i] for i in cited], question)
                )
            )
        good += len(supporting) or 1
    supported = sum(bool(statement.citations_support) for statement in statements)
    return Citations(
        precision=good / total if total else None,
        recall=supported / len(statements) if statements else None,
        cited=total,
        unknown=tuple(dict.fromkeys(unknown)),
    )
