"""Lexical features: numbers about a statement that need no LM – what of it the context lacks, and how the rest agrees.

A feature is one function here, with its direction in `DIRECTIONS`. Classifiers use it once it is in
`CLASSIFIER_FEATURES`; exported judges store the names of theirs. Shares lie in [0, 1], logarithms of counts start at 0.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, KeysView, Sequence
from copy import copy
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from faith_dspy.schema import Chunk
from faith_dspy.text.derived import is_bounded, source_of
from faith_dspy.text.identifiers import (
    Identifier,
    identifiers_in,
    link_targets,
    searchable,
)
from faith_dspy.text.languages import (
    VALUES,
    antonyms,
    language_of,
    light_stems,
    stem,
    word_lists,
)
from faith_dspy.text.sentences import gap_words, sentence_texts
from faith_dspy.text.words import (
    Token,
    begins_list_item,
    comparable,
    content_tokens,
    number_of,
    tokenize,
    without_markers,
)


class IndexedSentence(NamedTuple):
    """A sentence of the context; ``content`` has the keys of its content tokens in order, ``keys`` each once."""

    chunk: int
    """Position of its chunk."""
    tokens: list[Token]
    content: list[str]
    keys: set[str]
    """With what its tokens may stand for, too."""


class IndexedContext:
    """A tokenised context; made by `index_context`. What only some features need is computed when first asked for."""

    def __init__(self, context: Sequence[Chunk], language: str | None = None) -> None:
        texts = _texts(tuple(context))
        self.text = " ".join(texts)
        self.chunks = context
        self.language = language or language_of(self.text)
        self.chunk_ids = [chunk.id for chunk in context]
        self.sentences: list[IndexedSentence] = []
        self.places: dict[str, list[int]] = {}
        """By content key, the positions of the sentences that have it."""
        for number, text in enumerate(texts):
            for _, sentence in sentence_texts(text):
                self._add(number, sentence)

    def _add(self, chunk: int, sentence: str) -> None:
        tokens = tokenize(sentence, self.language)
        content = [token.key for token in content_tokens(tokens)]
        keys = set(content)
        for token in tokens:
            keys.update(token.also)
            if "_" in token.raw or "," in token.raw:
                keys.update(_parts(token.raw, self.language))
        position = len(self.sentences)
        for key in keys:
            self.places.setdefault(key, []).append(position)
        indexed = IndexedSentence(chunk, tokens, content, keys)
        self.sentences.append(indexed)

    @property
    def keys(self) -> KeysView[str]:
        return self.places.keys()

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Keys of plain numbers with their values."""
        numbers = {key: number_of(key) for key in self.keys}
        return {key: number for key, number in numbers.items() if number is not None}

    @cached_property
    def searchable(self) -> str:
        """The texts as written, and the sources, in lower case."""
        texts = [f"{chunk.text} {chunk.source or ''}" for chunk in self.chunks]
        return searchable("\n".join(texts))

    @cached_property
    def chunk_keys(self) -> list[set[str]]:
        keys: list[set[str]] = [set() for _ in self.chunk_ids]
        for sentence in self.sentences:
            keys[sentence.chunk] |= sentence.keys
        return keys

    @cached_property
    def pairs(self) -> set[tuple[str, str]]:
        """Content keys that are neighbours in a sentence."""
        pairs = (pairwise(sentence.content) for sentence in self.sentences)
        return set(chain.from_iterable(pairs))


_BOUND = re.compile(rf"\b({'|'.join(VALUES.bounds)})\s(?:[$€£¥]\s?)?$", re.IGNORECASE)
"""What says of a number behind it that the exact one is above or below."""
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")


def _parts(text: str, language: str) -> list[str]:
    """Return the keys of what is put together: “5,2” in a list, “price_eur”."""
    if _GROUPED.fullmatch(text):
        return []
    apart = re.sub("[_,]", " ", text)
    return [token.key for token in tokenize(apart, language)]


def index_context(
    context: Sequence[Chunk], question: str | None = None
) -> IndexedContext:
    """Return the index of a context, kept for the next statement, and for the next answer and question about it.

    The question only helps to guess the language: what it says is no evidence.
    """
    chunks = tuple(context)
    texts = (*_texts(chunks), question or "")
    language = language_of(" ".join(texts))
    return _indexed(chunks, language)


_KEPT = 16
"""Contexts; more than a batch has threads. The index of a long document takes megabytes."""


@lru_cache(maxsize=_KEPT)
def _texts(context: tuple[Chunk, ...]) -> tuple[str, ...]:
    return tuple(comparable(chunk.text) for chunk in context)


_indexed = lru_cache(maxsize=_KEPT)(IndexedContext)
CLASSIFIER_FEATURES = (
    "novel_run",
    "novel_in_window",
    "novel_pairs",
    "novel_name_count",
    "novel_number_count",
    "contradictions",
    "admits_gap",
)
"""What a study fits a classifier on. More features separated no better on any of our sets (optimize/LOG.md); the others
serve the matching of statements and the default classifier without an LM."""


class Comparison:
    """A statement beside a context, and what several features need of the two."""

    def __init__(self, statement: str, context: IndexedContext) -> None:
        self.context = context
        text = comparable(statement)
        self.is_list_item = begins_list_item(text)
        self.text = without_markers(text)
        self.missing_identifiers: list[Identifier] = []
        self.derived_count = 0
        """Numbers that the context has but for rounding, or as a sum or a difference."""
        tokens = tokenize(self.text, context.language)
        self.take([self._resolved(token) for token in tokens])
        self._look_up_identifiers(statement)
        if self.novel_numbers:
            self._derive()

    def take(self, tokens: list[Token]) -> None:
        """Let the statement consist of these tokens."""
        self.tokens = tokens
        self.content = [token.key for token in content_tokens(self.tokens)]
        self.keys = set(self.content)
        places = (self.context.places.get(key, ()) for key in self.keys)
        self.shared = Counter(chain.from_iterable(places))
        """By sentence of the context, how many content keys it shares; sentences that share none are left out."""

    def _resolved(self, token: Token) -> Token:
        """Return the token with that of its keys which the context has, if it has one.

        A function word is no content, whatever language a short context seems to be in.
        """
        for key in (token.key, *token.also):
            if key in self.context.keys:
                return token._replace(key=key)
        if token.kind == "word" and token.raw.lower() in self._function_words:
            return token._replace(kind="function")
        return token

    @cached_property
    def _function_words(self) -> frozenset[str]:
        language = language_of(self.text)
        if language == self.context.language:  # names that are written like one
            return frozenset()
        return word_lists(language).function_words

    def _look_up_identifiers(self, statement: str) -> None:
        """Note which identifiers the context lacks; no part of one that it has is missing."""
        known = self.context.keys
        links = link_targets(statement) if "](" in statement else []
        for one in (*identifiers_in(self.text), *links):
            text = self.context.searchable
            if one.is_in(text):
                tokens = self.tokens
                self.take(
                    [t for t in tokens if t.key in known or not one.holds(t.start)]
                )
            elif one not in links or "://" in text:
                self.missing_identifiers.append(one)

    def _derive(self) -> None:
        """Take each number that the context lacks as the one that it is derived from, without “over” before it."""
        tokens: list[Token] = []
        for token in self.tokens:
            value = number_of(token.key)
            if value is not None and token.key not in self.context.keys:
                bound = _BOUND.search(self.text, 0, token.start)
                source = self._source_of(value, bound)
                if source is not None:
                    token = token._replace(key=source)
                    self.derived_count += bound is None
                if source is not None and bound:
                    tokens = [t for t in tokens if t.start < bound.start()]
            tokens.append(token)
        self.take(tokens)

    def _source_of(self, value: float, bound: re.Match[str] | None) -> str | None:
        """Return the key of the number that one is derived from: behind “over” one of a similar sentence just above."""
        numbers = self.context.numbers
        similar: set[str] = set()
        other_count = len(self.keys) - (bound is not None)
        for i, shared in self.shared.items():
            if shared >= _ALIKE * other_count:
                similar |= numbers.keys() & self.context.sentences[i].keys
        if bound is None:
            return source_of(value, numbers, similar)
        direction = VALUES.bounds[bound[1].lower()]
        for key in sorted(similar):
            if is_bounded(value, numbers[key], direction):
                return key
        return None

    @cached_property
    def novel(self) -> set[str]:
        """Content keys that the context lacks, light words aside."""
        light = light_stems(self.context.language)
        return self.keys - self.context.keys - light

    @cached_property
    def gap(self) -> Literal["there", "denied"] | None:
        """Whether the context does not tell what the statement says that it does not tell: no sentence has its words;
        None where the statement says something else, too."""
        language = self.context.language
        words = gap_words(self.text, language)
        if words is None:
            return None
        telling = {token.key for token in tokenize(words, language)}
        about = self.keys - telling - light_stems(language)
        is_told = any(about <= sentence.keys for sentence in self.context.sentences)
        return "denied" if about and is_told else "there"

    @cached_property
    def names(self) -> set[str]:
        """Capitalised words that do not begin a sentence, and words with two capitals anywhere."""
        names = set()
        for token in self.tokens:
            if token.kind != "word" or not token.raw[0].isupper():
                continue
            capitals = sum(map(str.isupper, token.raw))
            before = self.text[: token.start].rstrip(" \"'(*-")
            is_first = token is self.tokens[0] or before[-1:] in ".!?:\n"
            is_name = token.raw in VALUES.given_names
            if capitals >= 2 or is_name or not is_first:
                names.add(token.key)
        return names

    def without_missing_values(self) -> Comparison:
        """Return the rest of the statement: what it says is not changed by a value that the context lacks."""
        rest = copy(self)
        tokens = [t for t in self.tokens if t.key not in self.novel_numbers]
        for one in self.missing_identifiers:
            tokens = [t for t in tokens if not one.holds(t.start)]
        rest.take(tokens)
        return rest

    @property
    def novel_numbers(self) -> set[str]:
        """Keys of the numbers that the context lacks."""
        return self.numbers - self.context.keys

    @property
    def numbers(self) -> set[str]:
        """Keys of the numbers."""
        return {token.key for token in self.tokens if token.kind == "number"}


def novel_words(c: Comparison) -> float:
    """Share of the different content words that are nowhere in the context."""
    return len(c.novel) / len(c.keys)


def novel_run(c: Comparison) -> float:
    """log(1 + the longest run of novel words without a known content word between)."""
    longest = run = 0
    for key in c.content:
        run = run + 1 if key in c.novel else 0
        longest = max(longest, run)
    return math.log1p(longest)


def novel_in_window(c: Comparison) -> float:
    """Share of the content words that are not in the two neighbouring sentences that have most of them."""
    most = 0
    for i in c.shared:
        for first in (i - 1, i):
            if c.shared[first] + c.shared[first + 1] <= most:
                continue
            window = c.context.sentences[max(first, 0) : first + 2]
            shared: set[str] = set()
            for sentence in window:
                shared |= c.keys & sentence.keys
            most = max(most, len(shared))
    return 1 - most / len(c.keys)


def novel_pairs(c: Comparison) -> float:
    """Share of neighbouring content words that are neighbours nowhere in the context."""
    pairs = list(pairwise(c.content))
    if not pairs:
        return 0.0
    novel = [pair for pair in pairs if pair not in c.context.pairs]
    return len(novel) / len(pairs)


def novel_name_count(c: Comparison) -> float:
    """log(1 + how many capitalised words and acronyms the context lacks)."""
    novel = c.names - c.context.keys
    return math.log1p(len(novel))


def novel_number_count(c: Comparison) -> float:
    """log(1 + how many numbers and identifiers the context lacks, however written)."""
    return math.log1p(len(c.novel_numbers) + len(c.missing_identifiers))


def contradictions(c: Comparison) -> float:
    """log(1 + how often the statement says otherwise than the sentences that are most like it).

    Counted are content words that one of the two negates and the other does not, words whose antonym is there, and
    names, numbers or phrases that have changed places (“A bought B”, “B bought A”), the passive aside. So is a gap in
    the context that is none.
    """
    if c.gap:
        return math.log1p(c.gap == "denied")
    alike = [c.context.sentences[i] for i in closest_sentences(c)]
    if not alike:
        return 0.0
    count = _negated_otherwise(c, alike)
    count += _opposites(c, alike)
    count += any(_swapped(c, sentence) for sentence in alike)
    return math.log1p(count)


_ALIKE = 0.5
"""Share of a statement's content words that a sentence must have to say the same or the opposite."""
_CLOSE = 0.8
"""Sentences with that share of the words that the most similar one shares are as similar."""


def closest_sentences(c: Comparison) -> list[int]:
    """Return the positions of the sentences most like the statement; none where all share less than half of it."""
    most = max(c.shared.values(), default=0)
    if most < _ALIKE * len(c.keys):
        return []
    return sorted(i for i, shared in c.shared.items() if shared >= _CLOSE * most)


def _negated_otherwise(c: Comparison, alike: Sequence[IndexedSentence]) -> int:
    """Count words of the statement that are negated here and not there, or there and not here, or there nowhere."""
    negated = set(_negations(c.tokens))
    shared: set[str] = set()
    agreed: set[str] = set()
    for sentence in alike:
        keys = c.keys & sentence.keys
        negations = _negations(sentence.tokens)
        differing = negated.symmetric_difference(negations)
        shared |= keys
        agreed |= keys - differing
    return len(shared - agreed) + len(negated & c.novel)


def _opposites(c: Comparison, alike: Sequence[IndexedSentence]) -> int:
    """Count words of the statement that no similar sentence has, and whose antonym or negated form one has."""
    language = c.context.language
    theirs: set[str] = set()
    for sentence in alike:
        theirs |= _forms(sentence.tokens)
    others = theirs - _forms(c.tokens)
    count = 0
    for token in c.tokens:
        forms = _forms([token])
        if token.kind == "number" or token.negates or forms & theirs:
            continue
        against: set[str] = set()
        for form in forms:
            against.update(antonyms(language).get(form, ()))
        if language == "english" and token.kind == "word":
            against |= _negated_forms(token.raw.lower())
        count += not against.isdisjoint(others)
    return count


def _forms(tokens: Sequence[Token]) -> set[str]:
    """Return the tokens' keys, and the words as written."""
    return {form for token in tokens for form in (token.key, token.raw.lower())}


def _negated_forms(word: str) -> set[str]:
    """Return the stems of an English word with a negating prefix, and without it."""
    stems = set()
    for prefix in _NEGATING:
        stems.add(stem(prefix + word, "english"))
        bare = word.removeprefix(prefix)
        if 3 < len(bare) < len(word):
            stems.add(stem(bare, "english"))
    return stems


_NEGATING = ("un", "in", "im", "ir", "il", "non", "dis")


def _swapped(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether the statement is the sentence with two phrases exchanged around what stands between them."""
    mine = [key for key in c.content if key in sentence.keys]
    theirs = [key for key in sentence.content if key in c.keys]
    is_half = len(mine) >= _ALIKE * len(c.content)
    if not is_half or sorted(mine) != sorted(theirs):
        return False
    agents = word_lists(c.context.language).agents
    is_active = agents.isdisjoint(_forms(c.tokens))
    other_is_active = agents.isdisjoint(_forms(sentence.tokens))
    if is_active != other_is_active:
        return False
    for end in (0, -1):
        while mine and mine[end] == theirs[end]:
            mine.pop(end)
            theirs.pop(end)
    for i in range(1, _PHRASE):
        for j in range(1, _PHRASE):
            first = mine[:i]
            between = mine[i:-j]
            last = mine[-j:]
            exchanged = last + between + first
            if i + j < len(mine) and exchanged == theirs:
                return True
    return False


_PHRASE = 6
"""Content words of a phrase that may change places."""


def says_opposite(c: Comparison) -> float:
    """Return 1 if the context says the opposite in the same words, else 0.

    The opposite is the same sentence with or without a negation, with an antonym in place of a word (not both), or
    with two phrases exchanged; the same words are four of five of both together, or, where the statement negates, all
    of the statement's in their order. A sentence that says the same as the statement settles it.
    """
    if c.gap:
        return float(c.gap == "denied")
    relations = set()
    c = c.without_missing_values()
    for i, shared in c.shared.items():
        if shared >= _ALIKE * len(c.keys):
            relation = _relation(c, c.context.sentences[i])
            relations.add(relation)
    return float("opposite" in relations and "same" not in relations)


def _relation(c: Comparison, sentence: IndexedSentence) -> str:
    """Return whether a sentence says the same as the statement, the opposite, or neither."""
    words = _stated(c.tokens)
    others = _stated(sentence.tokens)
    negations = _negations(c.tokens, c.text)
    others_negations = _negations(sentence.tokens)
    common = words & others
    antonym_count = _opposites(c, [sentence])
    same_count = len(common) + antonym_count
    is_same = same_count >= _SAME * (len(words | others) - antonym_count)
    is_all = same_count == len(words) > 1
    negates = negations or others_negations
    is_part = negates and is_all and _is_in_order(c, sentence)
    if not is_same and not is_part:
        return "neither"
    if antonym_count:
        is_opposite = len(negations) == len(others_negations)
    else:
        one_negates = bool(negations) != bool(others_negations)
        about = {*negations, *others_negations}
        is_negated = one_negates and not about.isdisjoint({*common, ""})
        is_opposite = is_negated or _is_exchanged(c, sentence)
    if is_opposite:
        return "opposite"
    return "same" if is_same else "neither"


_SAME = 0.8
"""Share of the different content words of two sentences that both have, if they say the same or the opposite."""


def _stated(tokens: Sequence[Token]) -> set[str]:
    """Return the keys of content tokens that do not negate."""
    return {token.key for token in content_tokens(tokens) if not token.negates}


def _negations(tokens: Sequence[Token], text: str = "") -> list[str]:
    """Return the key of the word that each negation is about; a “No,” that answers a question does not count."""
    keys = []
    for i, token in enumerate(tokens):
        is_answer = i == 0 and text.startswith(",", token.end)
        if token.negates and not is_answer:
            keys.append(_negated_key(tokens, i))
    return keys


def _negated_key(tokens: Sequence[Token], i: int) -> str:
    """Return the key of the content word behind a negation, or of the one before; empty in scripts without spaces."""
    if tokens[i].kind == "word":
        return ""
    nearest_first = chain(tokens[i + 1 : i + 6], reversed(tokens[:i]))
    for token in nearest_first:
        if token.kind != "function":
            return token.key
    return ""


def _is_in_order(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether the statement's words come in a sentence in the same order."""
    rest = iter(sentence.content)
    return all(key in rest for key in c.content)


def _is_exchanged(c: Comparison, sentence: IndexedSentence) -> bool:
    """Tell whether a statement has exactly the words of a sentence, two phrases of which have changed places."""
    words = Counter(token.raw.lower() for token in c.tokens)
    others = Counter(token.raw.lower() for token in sentence.tokens)
    return words == others and _swapped(c, sentence)


def doubts(c: Comparison) -> float:
    """Return 1 if there is reason to doubt the statement that words alone do not settle, else 0.

    A number that the context has but for rounding or a sum, or the other way round (“3-1”), or not by that unit (“per
    hour”), a qualifier (“must”, “only”, “first”) that no similar sentence has or that the statement leaves out, a
    clause that the context tells nothing of, or a bare answer: what it answers is not told.
    """
    is_changed = _is_turned(c) or bool(_changed_qualifiers(c)) or _has_other_rate(c)
    return float(c.derived_count > 0 or is_changed or _adds_clause(c) or _is_bare(c))


def _is_turned(c: Comparison) -> bool:
    """Tell whether two numbers side by side stand only the other way round in the context."""
    pairs = c.context.pairs
    return any(
        pair not in pairs and pair[::-1] in pairs and None not in map(number_of, pair)
        for pair in pairwise(c.content)
    )


def _has_other_rate(c: Comparison) -> bool:
    """Tell whether a number is said to be per something that no sentence with the number names."""
    numbers: set[str] = set()
    for before, token in pairwise(c.tokens):
        if before.is_value:
            numbers = {before.key}
        if _PAUSE.search(c.text, before.end, token.start):
            numbers = set()
        unit = _per(before, token, c.text)
        if not numbers or not unit:
            continue
        sentences = [s for s in c.context.sentences if numbers <= s.keys]
        if not any(unit in _units(s.tokens) for s in sentences):
            return True
    return False


_PAUSE = re.compile(r"[,:;]\s")


def _per(before: Token, token: Token, text: str) -> str | None:
    """Return what something is said to be per: “per kg”, “/kg”, “a month”, “monthly”; None where nothing says so."""
    per = before.raw.lower()
    low = token.raw.lower()
    if before.is_unit and low in VALUES.rates:
        return VALUES.rates[low]
    is_unit = low in VALUES.units
    is_per = VALUES.rates.get(per) == "" and token.kind != "function"
    is_each = is_unit and per in ("a", "an") and before.kind == "function"
    is_share = is_unit and text[token.start - 1] == "/"
    if token.is_value or not (is_per or is_each or is_share):
        return None
    return _unit_name(token)


def _unit_name(token: Token) -> str:
    low = token.raw.lower()
    return VALUES.rates.get(low) or VALUES.units.get(low, token.key)


def _units(tokens: Sequence[Token]) -> set[str]:
    """Return what a sentence's tokens name, units behind a number aside."""
    pairs = pairwise(tokens)
    return {_unit_name(token) for before, token in pairs if not before.is_value}


def _adds_clause(c: Comparison) -> bool:
    """Tell whether the context has no word of a clause of the statement, of which it has half.

    A clause has a verb, or three new words; two do that are not both names where one ends in “-ed”, or a comma or
    semicolon sets it off.
    """
    if not c.novel or 2 * len(c.novel) > len(c.keys):
        return False
    lists = word_lists(c.context.language)
    light = light_stems(c.context.language)
    clauses = _clauses(c, lists.conjunctions)
    for between, tokens in clauses if len(clauses) > 1 else ():
        keys = {token.key for token in content_tokens(tokens)} - light
        words = {token.raw.lower() for token in tokens}
        is_apart = "," in between or ";" in between
        is_clause = is_apart or any(word.endswith("ed") for word in words)
        least = 2 if is_clause and not keys <= c.names else 3
        if not lists.stating_verbs.isdisjoint(words):
            least = 1
        if keys <= c.novel and len(keys) >= least:
            return True
    return False


def _clauses(
    c: Comparison, conjunctions: Collection[str]
) -> list[tuple[str, list[Token]]]:
    """Return what stands between conjunctions and semicolons, each behind the signs before it."""
    clauses: list[tuple[str, list[Token]]] = [("", [])]
    end = 0
    for token in c.tokens:
        between = c.text[end : token.start]
        if ";" in between or token.raw.lower() in conjunctions:
            clauses.append((between, []))
        clauses[-1][1].append(token)
        end = token.end
    return clauses


def _is_bare(c: Comparison) -> bool:
    """Tell whether a statement has no more than two words, or says little behind a “Yes,”."""
    if not c.tokens:
        return False
    first = c.tokens[0]
    answers = first.kind == "function" and c.text.startswith(",", first.end)
    is_item = c.is_list_item and bool(c.content)
    is_short = len(c.tokens) <= _BARE and not is_item
    return is_short or (answers and len(c.keys) <= 1)


_BARE = 2
"""Words that do not make a sentence: “Yes.”, a name."""


def _changed_qualifiers(c: Comparison) -> set[str]:
    """Return the qualifiers that tell the statement from each of the sentences with all of its other content words.

    One that the statement leaves out counts if the word behind it is there.
    """
    qualifiers = word_lists(c.context.language).qualifiers | _SIGNS | _ORDINALS
    mine = _forms(c.tokens) & qualifiers
    others = {t.key for t in content_tokens(c.tokens) if t.raw.lower() not in mine}
    changes = []
    for sentence in c.context.sentences:
        if others and others <= sentence.keys:
            added = mine - _forms(sentence.tokens)
            lost = _qualifying(sentence.tokens, qualifiers, others) - mine
            changes.append(added | lost)
    return min(changes, key=len, default=set())


def _qualifying(
    tokens: Sequence[Token], qualifiers: Collection[str], keys: Collection[str]
) -> set[str]:
    """Return the qualifiers behind which one of these words stands, function words aside."""
    qualifying: set[str] = set()
    before: set[str] = set()
    for token in tokens:
        if token.raw.lower() in qualifiers:
            before.add(token.raw.lower())
        elif token.kind != "function":
            if token.key in keys:
                qualifying |= before
            before = set()
    return qualifying


_SIGNS = {"<", ">", "≤", "≥", "<=", ">="}
_ORDINALS = {word for word, key in VALUES.aliases.items() if number_of(key) is not None}


def admits_gap(c: Comparison) -> float:
    """Return 1 if the statement says no more than that the context does not tell something, and it does not, else 0."""
    return float(c.gap == "there")


_FEATURES = {
    feature.__name__: feature
    for feature in (
        novel_words,
        novel_run,
        novel_in_window,
        novel_pairs,
        novel_name_count,
        novel_number_count,
        contradictions,
        says_opposite,
        doubts,
        admits_gap,
    )
}
DIRECTIONS = dict.fromkeys(_FEATURES, -1) | {"admits_gap": 1}
"""The direction of each feature, by its name: -1 for novelty, which never speaks for a statement; +1 for support."""


def lexical_features(
    compared: Comparison, names: Collection[str] = DIRECTIONS.keys()
) -> dict[str, float]:
    """Return features of a statement beside a context: those of ``names``, all by default.

    A statement without any content word (a list marker, “So it is.”) gets the values of a fully supported one, and so
    does one that only says what the context does not tell.
    """
    features = dict.fromkeys(names, 0.0)
    for name in features:
        has_value = name == "doubts" or compared.content
        if name == "admits_gap" or (has_value and compared.gap != "there"):
            features[name] = _FEATURES[name](compared)
    return features


def best_chunks(compared: Comparison) -> tuple[int, ...]:
    """Return ids, ascending, of at most two chunks that together have most of the statement's content words.

    Chosen one after the other; a chunk that adds no word is left out.
    """
    indexed = compared.context
    uncovered = compared.keys & indexed.keys
    chosen: list[int] = []
    for _ in range(2):
        gains = [len(uncovered & keys) for keys in indexed.chunk_keys]
        most = max(gains, default=0)
        if not most:
            break
        best = gains.index(most)
        chosen.append(indexed.chunk_ids[best])
        uncovered -= indexed.chunk_keys[best]
    return tuple(sorted(chosen))


def missing_words(compared: Comparison) -> tuple[str, ...]:
    """Return the words, names and numbers of a statement that the context does not contain, as written, each once."""
    identifiers = compared.missing_identifiers
    words = []
    for token in content_tokens(compared.tokens):
        is_part = any(one.holds(token.start) for one in identifiers)
        if token.key in compared.novel and not is_part:
            words.append(token.raw)
    words += [one.raw for one in identifiers]
    return tuple(dict.fromkeys(words))
