"""Lexical features: numbers about a statement that need no LM – what of it the context lacks, and how the rest agrees.

A feature is one function here, with its direction in `DIRECTIONS`. Classifiers use it once it is in
`CLASSIFIER_FEATURES`; exported judges store the names of theirs. Shares lie in [0, 1], logarithms of counts start at 0.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, KeysView, Sequence
from functools import cached_property, lru_cache
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from faith_dspy.schema import Chunk
from faith_dspy.text.languages import (
    antonyms,
    language_of,
    light_stems,
    stem,
    word_lists,
)
from faith_dspy.text.sentences import carries_statement, sentence_texts
from faith_dspy.text.words import (
    Token,
    comparable,
    content_tokens,
    plain_words,
    symbols,
    tidy,
    tokenize,
    without_markers,
)


class IndexedSentence(NamedTuple):
    """A sentence of the context; ``content`` has the keys of its content tokens in order, ``keys`` each once."""

    chunk: int
    """Position of its chunk."""
    tokens: list[Token]
    content: list[str]
    keys: frozenset[str]
    """With what its tokens may stand for, too."""


class IndexedContext:
    """A tokenised context; made by `index_context`. What only some features need is computed when first asked for."""

    def __init__(self, context: Sequence[Chunk], language: str | None = None) -> None:
        texts = [comparable(c.text) for c in context]
        self.text = " ".join(texts)
        self.language = language or language_of(self.text)
        self.chunk_ids = [c.id for c in context]
        self.sentences: list[IndexedSentence] = []
        places: defaultdict[str, list[int]] = defaultdict(list)
        for chunk, text in enumerate(texts):
            for _, sentence in sentence_texts(text):
                tokens = tokenize(sentence, self.language)
                content = [t.key for t in content_tokens(tokens)]
                keys = frozenset(chain(content, *(t.also for t in tokens)))
                for key in keys:
                    places[key].append(len(self.sentences))
                self.sentences.append(IndexedSentence(chunk, tokens, content, keys))
        self.places = dict(places)
        """By content key, the positions of the sentences that have it."""

    @property
    def keys(self) -> KeysView[str]:
        return self.places.keys()

    @cached_property
    def chunk_keys(self) -> list[set[str]]:
        keys: list[set[str]] = [set() for _ in self.chunk_ids]
        for sentence in self.sentences:
            keys[sentence.chunk] |= sentence.keys
        return keys

    @cached_property
    def pairs(self) -> set[tuple[str, str]]:
        """Content keys that are neighbours in a sentence."""
        return {
            pair for sentence in self.sentences for pair in pairwise(sentence.content)
        }

    @cached_property
    def number_neighbours(self) -> dict[str, set[str]]:
        """By number, the words near it."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for sentence in self.sentences:
            for i, token in enumerate(sentence.tokens):
                if token.kind == "number":
                    found[token.key] |= neighbours(sentence.tokens, i)
        return dict(found)

    @cached_property
    def plain(self) -> str:
        return plain_words(self.text)

    @cached_property
    def symbols(self) -> frozenset[str]:
        return symbols(self.text)


def index_context(
    context: Sequence[Chunk], question: str | None = None
) -> IndexedContext:
    """The index of a context, kept for the next statement, and for the next answer and question over the same chunks.

    The question only helps to guess the language: what it says is no evidence.
    """
    chunks = tuple(context)
    return _indexed(chunks, _language(chunks, question))


@lru_cache(maxsize=16)
def _language(context: tuple[Chunk, ...], question: str | None) -> str:
    return language_of(
        " ".join([*(comparable(c.text) for c in context), question or ""])
    )


_indexed = lru_cache(maxsize=16)(
    IndexedContext
)  # more than a batch has threads; a long document takes megabytes


def neighbours(tokens: Sequence[Token], i: int, reach: int = 4) -> set[str]:
    """Keys of the words and units near a token."""
    around = tokens[max(0, i - reach) : i + reach + 1]
    return {t.key for t in around if t.kind == "word" or t.is_unit}


CLASSIFIER_FEATURES = (
    "novel_run", "novel_in_window", "novel_pairs", "novel_name_count", "novel_number_count", "contradictions",
    "admits_gap",
)  # fmt: skip
"""What a study fits a classifier on. More features separated no better on any of our sets (optimize/LOG.md); the others
serve `is_covered`, the matching of statements and the default classifier without an LM."""

_NOVELTY = CLASSIFIER_FEATURES[:5]
"""What `novelty` adds up. It decides what exported judges ask about, so it does not grow with the features."""


class Comparison:
    """A statement beside a context, and what several features need of the two."""

    def __init__(self, statement: str, context: IndexedContext) -> None:
        self.context = context
        self.text, tokens = _tokenized(statement, context.language)
        self.tokens = [_resolved(token, context.keys) for token in tokens]
        self.content = [t.key for t in content_tokens(self.tokens)]
        self.keys = set(self.content)

    @cached_property
    def novel(self) -> set[str]:
        """Content keys that the context lacks, light words aside."""
        return self.keys - self.context.keys - light_stems(self.context.language)

    @cached_property
    def names(self) -> set[str]:
        """Capitalised words that do not begin a sentence, and words with two capitals anywhere."""
        names = set()
        for i, t in enumerate(self.tokens):
            if t.kind == "word" and t.raw[0].isupper():
                before = self.text[max(0, t.start - 12) : t.start].rstrip(" \"'(*-")
                if sum(c.isupper() for c in t.raw) >= 2 or (
                    i > 0 and before and before[-1] not in ".!?:\n"
                ):
                    names.add(t.key)
        return names

    @cached_property
    def numbers(self) -> list[tuple[int, str]]:
        """Place and key of each number."""
        return [(i, t.key) for i, t in enumerate(self.tokens) if t.kind == "number"]

    @cached_property
    def shared(self) -> Counter[int]:
        """By sentence of the context, how many content keys it shares; sentences that share none are left out."""
        places = self.context.places
        return Counter(chain.from_iterable(places[k] for k in self.keys if k in places))


def _resolved(token: Token, known: KeysView[str]) -> Token:
    """Return the token with that of its keys which the context has, if it has one."""
    if token.key in known:
        return token
    return token._replace(
        key=next((key for key in token.also if key in known), token.key)
    )


@lru_cache(maxsize=256)  # its features are computed before its chunks are chosen
def _tokenized(statement: str, language: str) -> tuple[str, list[Token]]:
    text = without_markers(comparable(statement))
    return text, tokenize(text, language)


def novel_words(c: Comparison) -> float:
    """Share of the different content words that are nowhere in the context."""
    return len(c.novel) / len(c.keys)


def novel_run(c: Comparison) -> float:
    """log(1 + the longest run of novel words without a known content word between)."""
    runs = [
        len(list(run))
        for novel, run in groupby(c.content, key=c.novel.__contains__)
        if novel
    ]
    return math.log1p(max(runs, default=0))


def novel_in_window(c: Comparison) -> float:
    """Share of the content words that are not in the two neighbouring sentences that have most of them."""
    best = 0
    for first in chain.from_iterable((i - 1, i) for i in c.shared):
        if c.shared[first] + c.shared[first + 1] > best:
            window = c.context.sentences[max(first, 0) : first + 2]
            keys = chain.from_iterable(sentence.keys for sentence in window)
            best = max(best, len(c.keys.intersection(keys)))
    return 1 - best / len(c.keys)


def novel_pairs(c: Comparison) -> float:
    """Share of neighbouring content words that are neighbours nowhere in the context."""
    pairs = list(pairwise(c.content))
    return sum(pair not in c.context.pairs for pair in pairs) / max(1, len(pairs))


def novel_name_count(c: Comparison) -> float:
    """log(1 + how many capitalised words and acronyms the context lacks)."""
    return math.log1p(len(c.names - c.context.keys))


def novel_number_count(c: Comparison) -> float:
    """log(1 + how many numbers the context lacks, however written)."""
    return math.log1p(len({k for _, k in c.numbers} - c.context.keys))


def moved_numbers(c: Comparison) -> float:
    """Share of numbers that the context has, but near none of the same words."""
    near = [(k, neighbours(c.tokens, i)) for i, k in c.numbers if k in c.context.keys]
    moved = [
        k
        for k, words in near
        if words and not words & c.context.number_neighbours.get(k, set())
    ]
    return len(moved) / max(1, len(c.numbers))


def negation_mismatch(c: Comparison) -> float:
    """Share of the content words in the most similar sentence, where one of the two negates and the other does not."""
    sentences = c.context.sentences
    best = min(
        c.shared, key=lambda i: (-c.shared[i], len(sentences[i].keys), i), default=None
    )
    if best is None or any(t.negates for t in c.tokens) == any(
        t.negates for t in sentences[best].tokens
    ):
        return 0.0
    return c.shared[best] / len(c.keys)


def contradictions(c: Comparison) -> float:
    """log(1 + how often the statement says otherwise than the sentences that are most like it).

    Counted are content words that one of the two negates and the other does not, words whose antonym is there, and
    names, numbers or phrases that have changed places (“A bought B”, “B bought A”), the passive aside.
    """
    alike = [c.context.sentences[i] for i in closest_sentences(c)]
    if not alike:
        return 0.0
    swapped = any(_swapped(c, sentence) for sentence in alike)
    return math.log1p(_negated_otherwise(c, alike) + _opposites(c, alike) + swapped)


_ALIKE = 0.5
"""Share of a statement's content words that a sentence must have to say the same or the opposite."""
_CLOSE = 0.8
"""Sentences with that share of the words that the most similar one shares are as similar."""


def closest_sentences(c: Comparison) -> list[int]:
    """Return the positions of the sentences most like the statement; none where all share less than half of it."""
    most = max(c.shared.values(), default=0)
    if most < _ALIKE * len(c.keys):
        return []
    return [i for i, n in sorted(c.shared.items()) if n >= _CLOSE * most]


def _negated_otherwise(c: Comparison, alike: Sequence[IndexedSentence]) -> int:
    mine = set(_negations(c.tokens))
    theirs = [(sentence.keys, set(_negations(sentence.tokens))) for sentence in alike]
    count = 0
    for key in c.keys:
        states = {key in negated for keys, negated in theirs if key in keys}
        count += bool(states) and (key in mine) not in states
    return count


def _opposites(c: Comparison, alike: Sequence[IndexedSentence]) -> int:
    """Count words of the statement that no similar sentence has, and whose antonym or negated form one has."""
    language = c.context.language
    theirs = _forms(chain.from_iterable(sentence.tokens for sentence in alike))
    others = theirs - _forms(c.tokens)
    count = 0
    for token in c.tokens:
        forms = _forms([token])
        if token.kind == "number" or token.negates or forms & theirs:
            continue
        against = {o for form in forms for o in antonyms(language).get(form, ())}
        if language == "english" and token.kind == "word":
            against |= _negated_forms(token.raw.lower())
        count += not against.isdisjoint(others)
    return count


def _forms(tokens: Iterable[Token]) -> set[str]:
    """Return the tokens' keys, and the words as written."""
    return {form for token in tokens for form in (token.key, token.raw.lower())}


def _negated_forms(word: str) -> set[str]:
    """Return the stems of an English word with a negating prefix, and without it."""
    forms = [prefix + word for prefix in _NEGATING]
    for prefix in _NEGATING:
        bare = word.removeprefix(prefix)
        if bare != word and len(bare) > 3:
            forms.append(bare)
    return {stem(form, "english") for form in forms}


_NEGATING = ("un", "in", "im", "ir", "il", "non", "dis")


def _swapped(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether the statement is the sentence with two phrases exchanged around what stands between them."""
    mine = [key for key in c.content if key in sentence.keys]
    theirs = [key for key in sentence.content if key in c.keys]
    if sorted(mine) != sorted(theirs) or len(mine) < _ALIKE * len(c.content):
        return False
    agents = word_lists(c.context.language).agents
    if agents.isdisjoint(_forms(c.tokens)) != agents.isdisjoint(
        _forms(sentence.tokens)
    ):
        return False  # one is in the passive
    while mine and mine[0] == theirs[0]:
        mine, theirs = mine[1:], theirs[1:]
    while mine and mine[-1] == theirs[-1]:
        mine, theirs = mine[:-1], theirs[:-1]
    for i in range(1, min(len(mine), _PHRASE)):
        for j in range(1, min(len(mine) - i, _PHRASE)):
            first, between, last = mine[:i], mine[i:-j], mine[-j:]
            if theirs == [*last, *between, *first]:
                return True
    return False


_PHRASE = 6
"""Content words of a phrase that may change places."""


def says_opposite(c: Comparison) -> float:
    """1 if the context says the opposite in the same words, else 0.

    The opposite is the same sentence with or without a negation, with an antonym in place of a word (not both), or
    with two phrases exchanged; the same words are four of five of both together, or, where the statement negates, all
    of the statement's in their order. A sentence that says the same as the statement settles it.
    """
    if admits_gap(c):
        return 0.0
    words = _stated(c.tokens)
    negations = _negations(c.tokens, c.text)
    opposite = False
    for i, n in c.shared.items():
        if n < _ALIKE * len(c.keys):
            continue
        sentence = c.context.sentences[i]
        others = _stated(sentence.tokens)
        common = words & others
        antonym_count = _opposites(c, [sentence])
        n_same = len(common) + antonym_count
        is_same = n_same >= _SAME * (len(words | others) - antonym_count)
        is_part = negations and n_same == len(words) > 1 and _is_in_order(c, sentence)
        if not is_same and not is_part:
            continue
        others_negations = _negations(sentence.tokens)
        if antonym_count:
            is_opposite = len(negations) == len(others_negations)
        else:
            one_negates = bool(negations) != bool(others_negations)
            about = {*negations, *others_negations}
            is_negated = one_negates and not about.isdisjoint({*common, ""})
            is_opposite = is_negated or _is_exchanged(c, sentence)
        if is_opposite:
            opposite = True
        elif is_same:
            return 0.0
    return float(opposite)


_SAME = 0.8
"""Share of the different content words of two sentences that both have, if they say the same or the opposite."""


def _stated(tokens: Sequence[Token]) -> set[str]:
    """Return the keys of content tokens that do not negate."""
    return {token.key for token in content_tokens(tokens) if not token.negates}


def _negations(tokens: Sequence[Token], text: str = "") -> list[str]:
    """Return the key of the word that each negation is about; a “No,” that answers a question does not count."""
    answers = bool(tokens) and text[len(tokens[0].raw) :].startswith(",")
    return [
        _negated_key(tokens, i)
        for i, t in enumerate(tokens)
        if t.negates and i >= answers
    ]


def _negated_key(tokens: Sequence[Token], i: int) -> str:
    """Return the key of the content word behind a negation, or of the one before; empty in scripts without spaces."""
    if tokens[i].kind == "word":
        return ""
    following = content_tokens(tokens[i + 1 : i + 6])[:1]
    nearest = following or content_tokens(tokens[:i])[-1:]
    return nearest[0].key if nearest else ""


def _is_in_order(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether the statement's words come in a sentence in the same order."""
    rest = iter(sentence.content)
    return all(key in rest for key in c.content)


def _is_exchanged(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether a statement has exactly the words of a sentence, two phrases of which have changed places."""
    words, others = (
        Counter(token.raw.lower() for token in tokens)
        for tokens in (c.tokens, sentence.tokens)
    )
    return words == others and _swapped(c, sentence)


def admits_gap(c: Comparison) -> float:
    """1 if the statement says that the context does not tell something (English phrases), else 0."""
    return float(bool(_NOT_TOLD.search(c.text) and _SOURCE.search(c.text)))


_SOURCE = re.compile(
    r"\b(?:passages?|documents?|contexts?|sources?|excerpts?|(?:the|these|this|provided|given|available|further|specific"
    r"|enough|sufficient|more)\s+(?:texts?|articles?|information|details?))\b"
    r"|\bunable\s+to\s+(?:answer|provide|determine|say)",
    re.IGNORECASE,
)
_NOT_TOLD = re.compile(
    r"\b(?:not|no|none|nothing|nor|neither|without|unable|cannot|impossible|insufficient|lacks?|unclear|limited)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_FEATURES = {f.__name__: f for f in (
    novel_words, novel_run, novel_in_window, novel_pairs, novel_name_count, novel_number_count, moved_numbers,
    negation_mismatch, contradictions, says_opposite, admits_gap,
)}  # fmt: skip
DIRECTIONS = {name: 1 if name == "admits_gap" else -1 for name in _FEATURES}
"""The direction of each feature, by its name: -1 for novelty, which never speaks for a statement; +1 for support."""


def lexical_features(
    statement: str, indexed: IndexedContext, names: Collection[str] = DIRECTIONS.keys()
) -> dict[str, float]:
    """Features of one statement against a context: those of ``names``, all by default.

    A statement without any content word (a list marker, “So it is.”) gets the values of a fully supported one.
    """
    compared = Comparison(statement, indexed)
    return {
        n: _FEATURES[n](compared) if compared.content or n == "admits_gap" else 0.0
        for n in names
    }


_STEP = re.compile(
    r"\b(?:section|step|étape|schritt|paso|abschnitt)\w*\s+#?\d{1,2}\b", re.IGNORECASE
)


_UNCOVERED = (
    novel_words, novel_name_count, novel_number_count, moved_numbers, negation_mismatch, contradictions,
)  # fmt: skip


def is_covered(statement: str, indexed: IndexedContext) -> bool:
    """Whether the context has everything in a statement, so that no LM need be asked about it.

    Each content word, name, number and quotation occurs in the context, no number is near other words, negation is
    the same, and the context has every symbol (``$``, ``<``, ✗). A statement without content words is not covered.
    Not caught: words of the context rearranged to say something else, and other small words (“after” for “before”).
    """
    parts = [text for _, text in sentence_texts(statement) if carries_statement(text)]
    if len(parts) > 1:
        return all(is_covered(p, indexed) for p in parts)
    compared = Comparison(statement, indexed)
    if not compared.content or not symbols(tidy(statement)) <= indexed.symbols:
        return False
    if any(feature(compared) for feature in _UNCOVERED):
        return False
    literal = [
        *re.findall(r'"([^"]*)"', compared.text),
        *_STEP.findall(tidy(statement)),
    ]
    return all(f" {plain_words(words)} " in f" {indexed.plain} " for words in literal)


def novelty(statement: str, indexed: IndexedContext) -> float:
    """How much of a statement is new to the context, from 0: the sum of five features."""
    return math.fsum(lexical_features(statement, indexed, _NOVELTY).values())


def best_chunks(statement: str, indexed: IndexedContext) -> tuple[int, ...]:
    """Ids, ascending, of at most two chunks that together have most of the statement's content words.

    Chosen one after the other; a chunk that adds no word is left out.
    """
    wanted = Comparison(statement, indexed).keys & indexed.keys
    chosen: list[int] = []
    for _ in range(2):
        gains = [len(wanted & keys) for keys in indexed.chunk_keys]
        best = max(range(len(gains)), key=lambda i: (gains[i], -i), default=None)
        if best is None or not gains[best]:
            break
        chosen.append(indexed.chunk_ids[best])
        wanted -= indexed.chunk_keys[best]
    return tuple(sorted(chosen))


def missing_words(statement: str, indexed: IndexedContext) -> tuple[str, ...]:
    """The words, names and numbers of a statement that the context does not contain, as written, each once."""
    compared = Comparison(statement, indexed)
    tokens = content_tokens(compared.tokens)
    return tuple(dict.fromkeys(t.raw for t in tokens if t.key in compared.novel))
