import math

import pytest

from faith_dspy.schema import Chunk
from faith_dspy.text.features import (
    DIRECTIONS,
    IndexedContext,
    best_chunks,
    index_context,
    is_covered,
    lexical_features,
)
from faith_dspy.text.words import number_value, tidy, tokenize

TOWER = "The Eiffel Tower in Paris was built in 1889. It is 330 metres tall and does not close in winter."
BRIDGE = "The Golden Gate Bridge opened in 1937 in San Francisco."


def chunks(*texts):
    return [Chunk(id=i, text=t) for i, t in enumerate(texts)]


def features(statement, *context):
    """The features of a statement against these texts."""
    return lexical_features(statement, IndexedContext(chunks(*context)))


SUPPORTED = dict.fromkeys(DIRECTIONS, 0.0)
"""What a literal copy of the context gets."""


def test_novel_words_by_hand():
    """Of four content words (tower, paris, pink, marble) two are novel, side by side: share 1/2, run log 3."""
    found = features("The tower in Paris is pink marble.", TOWER)
    assert [found[name] for name in ("novel_words", "novel_run", "novel_in_window")] == [0.5, math.log1p(2), 0.5]


@pytest.mark.parametrize(
    ("statement", "covered"),
    [
        ("The tower stands in Paris.", True),
        ("Paris stands in the tower.", True),  # the words of the context, put together otherwise
        ("The tower stands in Rome.", False),
        ("The tower stands not in Paris.", False),
        ("The tower has 3 floors.", False),
        ("The tower stands before Paris.", True),  # small words are not compared
        ("The tower ($5) stands in Paris.", False),
        ("No.", False),
        ("The tower stands in Paris. The tower does not stand in Paris.", False),
        ('The "tower in" Paris stands.', False),  # quoted, and not so in the context
    ],
)
def test_what_a_context_covers(statement, covered):
    """A statement is covered when the context has its words, names, numbers, symbols and quotations, negated alike."""
    assert is_covered(statement, index_context([Chunk(id=0, text="The tower stands in Paris.")])) is covered


@pytest.mark.parametrize(
    ("statement", "feature", "value"),
    [
        ("Towers closing", "novel_words", 0.0),  # stems are compared
        ("Additionally, the tower typically helps.", "novel_words", 0.0),  # words that say little
        ("5. According to Passage 1 and 3, the tower is tall [4].", "novel_number_count", 0.0),  # layout
        ("The tower was built in 1888.", "novel_number_count", math.log1p(1)),
        ("The bridge of 330 cars opened.", "novel_number_count", 0.0),
        ("The bridge of 330 cars opened.", "moved_numbers", 1.0),  # the context has 330, near other words
        ("It is 330 metres tall.", "moved_numbers", 0.0),
        ("Tower of Paris and Rome.", "novel_name_count", math.log1p(1)),  # “Tower” begins the sentence
        ("NASA built it.", "novel_name_count", math.log1p(1)),
        ("It closes in winter.", "negation_mismatch", 1.0),
        ("It doesn't close in winter.", "negation_mismatch", 0.0),
        ("The passages do not say how tall it is.", "admits_gap", 1.0),
        ("I am unable to answer that.", "admits_gap", 1.0),
        ("The passages say it is in Paris.", "admits_gap", 0.0),  # no negation
        ("The tower is not in London.", "admits_gap", 0.0),  # no word for the context
    ],
)
def test_feature_by_hand(statement, feature, value):
    assert features(statement, TOWER, BRIDGE)[feature] == value


COPY = "The Eiffel Tower in Paris was built in 1889."


@pytest.mark.parametrize("statement", [COPY, "1.", "*", "12)", "- ", "So it is.", "", "[3]", "Passage 2:"])
def test_nothing_new_is_full_support(statement):
    """A literal copy has no novelty at all, nor have list markers, references and bare function words."""
    assert features(statement, TOWER) == SUPPORTED


@pytest.mark.parametrize(
    ("raw", "language", "value"),
    [
        ("1,234.50", "english", "1234.5"), ("1.234,5", "german", "1234.5"), ("1.234", "german", "1234"),
        ("1.234", "english", "1.234"), ("1,5", "french", "1.5"), ("1,234,567", "english", "1234567"),
        ("007", "english", "7"),
    ],
)  # fmt: skip
def test_number_value(raw, language, value):
    """A separator means what it means in the language; one that repeats groups thousands."""
    assert number_value(raw, language) == value


@pytest.mark.parametrize(
    ("statement", "context", "novel"),
    [
        ("It cost 1,200 dollars.", "It cost 1200 dollars.", 0), ("It cost five dollars.", "It cost 5 dollars.", 0),
        ("There are twenty-five dogs.", "There are 25 dogs.", 0), ("The 3rd dog cost 2.50.", "Dog 3 cost 2.5", 0),
        ("It cost 3.2 million dollars.", "It cost 3,200,000 dollars.", 0),
        ("Die Stadt hat 1.200 Einwohner.", "Der Ort ist eine Stadt und hat 1200 Einwohner.", 0),
        ("La ville a 12 500 habitants dans le nord.", "La ville a 12500 habitants dans le nord.", 0),
        ("It cost 3.2 million dollars.", "It cost 3.2 dollars.", 1),
    ],
)  # fmt: skip
def test_numbers_compare_by_value(statement, context, novel):
    """Separators, number words, ordinals and magnitudes are ways to write one value."""
    assert features(statement, context)["novel_number_count"] == math.log1p(novel)


def test_words_known_but_never_together():
    """Words of two chunks are all known, but the pair is new, and no two neighbouring sentences have both."""
    found = features("Eiffel opened", TOWER, "Cats sleep.", BRIDGE)
    assert (found["novel_words"], found["novel_in_window"], found["novel_pairs"]) == (0.0, 0.5, 1.0)


def test_elided_articles_are_split_off():
    assert [t.kind for t in tokenize("l'accord", "french")] == ["function", "word"]
    assert [t.key for t in tokenize("company's", "english")] == [t.key for t in tokenize("company", "english")]
    assert tokenize(tidy("isn’t"), "english")[0].negates


def test_best_chunks_are_ids_in_order():
    """The chunk with most shared words, and what adds to it; ids as given, not positions; none if nothing fits."""
    context = [Chunk(id=7, text=BRIDGE), Chunk(id=3, text="Cats sleep."), Chunk(id=5, text=TOWER)]
    indexed = index_context(context)
    assert best_chunks("The Eiffel Tower is tall.", indexed) == (5,)
    assert best_chunks("The tall Eiffel Tower and the Golden Gate Bridge.", indexed) == (5, 7)
    assert best_chunks("Quantum chromodynamics.", indexed) == ()


def test_a_context_is_indexed_once_for_all_questions():
    """What is asked does not belong to the context; only another language does."""
    context = chunks(TOWER, BRIDGE)
    indexed = {id(index_context(context, question)) for question in (None, "How tall?", "Where is it?")}
    assert len(indexed) == 1


@pytest.mark.parametrize(
    "text", ["\n" * 20_000, " " * 20_000 + "x", "A. " * 5_000, '"' * 20_000, "word " * 20_000, "1," * 9_000]
)
def test_hostile_layout_is_survived(text):
    """Text made to be slow or to break a tokenizer is read like any other."""
    assert all(math.isfinite(v) for v in features(text, text, TOWER).values())


@pytest.mark.parametrize("name", DIRECTIONS)
def test_each_feature_alone(name):
    context = chunks(TOWER, BRIDGE)
    said = 'The Eiffel Tower opened in 1937 for Gustav, "the tall and golden gate", and did not close in Rome.'
    together = lexical_features(said, IndexedContext(context))
    assert set(together) == set(DIRECTIONS)
    assert lexical_features(said, IndexedContext(context), [name]) == {name: together[name]}
