import json
import math
from pathlib import Path

import pytest

from faith_dspy.schema import Chunk
from faith_dspy.text.features import (
    DIRECTIONS,
    Comparison,
    IndexedContext,
    best_chunks,
    index_context,
    lexical_features,
)
from faith_dspy.text.sentences import sentences

TOWER = "The Eiffel Tower in Paris was built in 1889. It is 330 metres tall and does not close in winter."
PAIRS = json.loads(Path(__file__).with_name("pairs.json").read_bytes())
"""Texts with equal values, written otherwise, and with others: a context, an equal statement and a near miss; and a
context with a statement that says the opposite in its words."""
BRIDGE = "The Golden Gate Bridge opened in 1937 in San Francisco."


def chunks(*texts):
    return [Chunk(id=i, text=t) for i, t in enumerate(texts)]


def beside(statement, *context):
    """The statement beside these texts."""
    return Comparison(statement, IndexedContext(chunks(*context)))


def features(statement, *context):
    """The features of a statement against these texts."""
    return lexical_features(beside(statement, *context))


SUPPORTED = dict.fromkeys(DIRECTIONS, 0.0)
"""What a literal copy of the context gets."""


def test_novel_words_by_hand():
    """Of four content words (tower, paris, pink, marble) two are novel, side by side: share 1/2, run log 3."""
    found = features("The tower in Paris is pink marble.", TOWER)
    assert [
        found[name] for name in ("novel_words", "novel_run", "novel_in_window")
    ] == [0.5, math.log1p(2), 0.5]


@pytest.mark.parametrize(
    ("statement", "feature", "value"),
    [
        ("Towers closing", "novel_words", 0.0),  # stems are compared
        (
            "Additionally, the tower typically helps.",
            "novel_words",
            0.0,
        ),  # words that say little
        (
            "5. According to Passage 1 and 3, the tower is tall [4].",
            "novel_number_count",
            0.0,
        ),  # layout
        ("The tower was built in 1888.", "novel_number_count", math.log1p(1)),
        ("The bridge of 330 cars opened.", "novel_number_count", 0.0),
        (
            "Tower of Paris and Rome.",
            "novel_name_count",
            math.log1p(1),
        ),  # “Tower” begins the sentence
        ("NASA built it.", "novel_name_count", math.log1p(1)),
        ("The passages do not say how old it is.", "admits_gap", 1.0),
        ("The passages do not say how tall it is.", "admits_gap", 0.0),  # they do
        ("The passages say it is in Paris.", "admits_gap", 0.0),  # no negation
    ],
)
def test_feature_by_hand(statement, feature, value):
    assert features(statement, TOWER, BRIDGE)[feature] == value


COPY = "The Eiffel Tower in Paris was built in 1889."


@pytest.mark.parametrize(
    "statement", [COPY, "12)", "- ", "So it is.", "", "[3]", "Passage 2:"]
)
def test_nothing_new_is_full_support(statement):
    """A literal copy has no novelty at all, nor have list markers, references and bare function words."""
    assert features(statement, TOWER) == SUPPORTED


def test_words_known_but_never_together():
    """Words of two chunks are all known, but the pair is new, and no two neighbouring sentences have both."""
    found = features("Eiffel opened", TOWER, "Cats sleep.", BRIDGE)
    assert (found["novel_words"], found["novel_in_window"], found["novel_pairs"]) == (
        0.0,
        0.5,
        1.0,
    )


@pytest.mark.parametrize(
    ("statement", "context", "says_gap"),
    [
        ("There is no information about a fee in the passages.", "It is red.", True),
        ("I am unable to answer from the context.", "It is red.", True),
        (
            "Ein Preis wird nicht genannt.",
            "Der Kessel ist blau und fasst zwei Liter.",
            True,
        ),
        ("No price was found in the sources.", "The price is 40 euros.", False),
        ("No documents are required.", "Documents are required.", False),
        ("Cancel within 14 days of your documents, used or not.", "It is red.", False),
    ],
)
def test_what_says_that_the_context_does_not_tell(statement, context, says_gap):
    """Nothing is hidden by it that only speaks of documents, or is told after all: the context says the opposite."""
    values = features(statement, context)
    assert values["admits_gap"] == says_gap
    assert values["says_opposite"] == any(
        word in context for word in ("required", "price")
    )


def test_best_chunks_are_ids_in_order():
    """The chunk with most shared words, and what adds to it; ids as given, not positions; none if nothing fits."""
    context = [
        Chunk(id=7, text=BRIDGE),
        Chunk(id=3, text="Cats sleep."),
        Chunk(id=5, text=TOWER),
    ]
    indexed = index_context(context)
    statements = [
        "The Eiffel Tower is tall.",
        "The tall Eiffel Tower and the Golden Gate Bridge.",
        "Quantum chromodynamics.",
    ]
    best = [best_chunks(Comparison(statement, indexed)) for statement in statements]
    assert best == [(5,), (5, 7), ()]


def test_a_context_is_indexed_once_for_all_questions():
    """What is asked does not belong to the context; only another language does."""
    context = chunks(TOWER, BRIDGE)
    indexed = {
        id(index_context(context, question))
        for question in (None, "How tall?", "Where is it?")
    }
    assert len(indexed) == 1


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 20_000,
        " " * 20_000 + "x",
        "A. " * 5_000,
        '"' * 20_000,
        "word " * 20_000,
        "1," * 9_000,
    ],
)
def test_hostile_layout_is_survived(text):
    """Text made to be slow or to break a tokenizer is read like any other."""
    assert all(math.isfinite(v) for v in features(text, text, TOWER).values())


@pytest.mark.parametrize(("context", "equal", "unequal"), PAIRS["equal_and_near_miss"])
def test_equal_values_are_equal_and_unequal_ones_are_not(context, equal, unequal):
    names = ("novel_words", "novel_number_count", "contradictions")
    found, other = (
        lexical_features(beside(s, context), names) for s in (equal, unequal)
    )
    assert found == dict.fromkeys(names, 0.0)
    assert max(other.values()) > 0


@pytest.mark.parametrize(("context", "opposite"), PAIRS["opposite"])
def test_the_opposite_in_the_same_words_is_a_contradiction(context, opposite):
    """Negations, antonyms, names and numbers that have changed places, in either direction; a copy is none."""
    for said, known in ((opposite, context), (context, opposite)):
        assert features(said, known)["contradictions"] > 0
        assert features(known, known)["contradictions"] == 0


@pytest.mark.parametrize(
    ("statement", "context"),
    [
        ("Beta was acquired by Acme in 2020.", "Acme acquired Beta in 2020."),
        ("In 2020 Acme acquired Beta.", "Acme acquired Beta in 2020."),
        (
            "The tower is 330 metres tall.",
            TOWER,
        ),  # another clause of the sentence negates
        ("It is open on weekdays.", "It is open on weekdays. It is closed on Sundays."),
        ("Prices rose in May.", "Prices rose in May and fell in June."),
    ],
)
def test_what_says_the_same_is_no_contradiction(statement, context):
    assert features(statement, context)["contradictions"] == 0


SAID = {
    "english": (
        "Lamps can be returned within 30 days, with the receipt. The warranty covers filters. The plan includes evening"
        " classes. The bridge is open to cyclists. Acme bought Bolt in 1999. Sale items are exchanged only."
    ),
    "german": "Die Garantie umfasst die Filter.",
    "french": "La garantie couvre les filtres.",
    "spanish": "La garantía cubre los filtros. El museo abre los lunes.",
    "italian": "La lampada può essere restituita entro 30 giorni. La garanzia copre i filtri.",
    "portuguese": "A lâmpada pode ser devolvida em 30 dias. A garantia cobre os filtros.",
    "dutch": "De lamp kan binnen 30 dagen worden teruggebracht. De garantie dekt de filters.",
    "chinese": "灯可以在30天内退货。保修涵盖滤芯。",
    "japanese": "ランプは30日以内に返品できます。",
    "hindi": "लैंप 30 दिनों के भीतर लौटाया जा सकता है।",
    "arabic": "يمكن إرجاع المصباح خلال 30 يوما.",
}


@pytest.mark.parametrize(
    ("language", "opposite"),
    [
        ("english", "The lamp cannot be returned within 30 days."),
        ("english", "Lamps can never be returned within 30 days."),
        ("english", "The plan excludes evening classes."),
        ("english", "The bridge is closed to cyclists."),
        ("english", "Bolt bought Acme in 1999."),
        ("german", "Die Garantie umfasst die Filter nicht."),
        ("french", "La garantie ne couvre pas les filtres."),
        ("spanish", "La garantía no cubre los filtros."),
        ("spanish", "El museo cierra los lunes."),
        ("italian", "La garanzia non copre i filtri."),
        ("portuguese", "A garantia não cobre os filtros."),
        ("dutch", "De garantie dekt de filters niet."),
        ("chinese", "保修不涵盖滤芯。"),
        ("japanese", "ランプは30日以内に返品できません。"),
        ("hindi", "लैंप 30 दिनों के भीतर नहीं लौटाया जा सकता है।"),
        ("arabic", "لا يمكن إرجاع المصباح خلال 30 يوما."),
    ],
)
def test_the_opposite_of_a_sentence_is_plain(language, opposite):
    """In every language with a word list; the sentences themselves, and what they say in part, are not opposites."""
    context = SAID[language]
    assert features(opposite, context)["says_opposite"] == 1
    for sentence in sentences(context):
        assert features(sentence.text, context)["says_opposite"] == 0


@pytest.mark.parametrize(
    ("statement", "context"),
    [
        ("No, the warranty covers filters.", "The warranty covers filters."),
        (
            "Do not sign if you are uncomfortable.",
            "If you are not comfortable, do not sign.",
        ),
        (
            "The tower is tied to weight rather than height.",
            "The tower is tied to weight, not height.",
        ),
        (
            "Filters are replaced without charge.",
            "Filters are replaced free of charge.",
        ),
        ("The price is not mentioned in the text.", "The shop is open."),
        (
            "Copper is softer than iron.",
            "Copper is softer than iron. Iron is not softer than copper.",
        ),
        (
            "Filters are cheap.",
            "The warranty does not cover filters, which are cheap and easy to find.",
        ),
    ],
)
def test_what_is_not_plainly_the_opposite(statement, context):
    """Two reversals, “No,” in front, other words for a negation, and a negation of something else."""
    assert features(statement, context)["says_opposite"] == 0


DOSE = "Give 5 mg per kg and 3 times a day for a monthly fee of $5. She weighs 70 lb."


@pytest.mark.parametrize(
    ("statement", "context", "doubt"),
    [
        ("Give 5 mg/kg.", DOSE, 0),
        ("Give 5 mg per lb.", DOSE, 1),
        ("Give 5 mg for a fee of $5 per month.", DOSE, 0),
        ("The fee of $5 is monthly.", DOSE, 0),
        ("It is 3 times a week.", DOSE, 1),
        ("Give 5 mg per kg.", "Give 5 mg.", 1),
        ("The tower was built in 1889 and customers receive vouchers.", TOWER, 1),
        ("The tower was built in 1889, but pupils cheer.", TOWER, 1),
        ("The tower was built in 1889 in Paris and opened.", TOWER, 0),
        ("The hall seats over 1,100 people.", "The hall seats 1,180 people.", 0),
        ("The hall seats 1,200 people.", "The hall seats 1,180 people.", 1),
    ],
)
def test_what_is_in_doubt(statement, context, doubt):
    """Another unit behind “per”, a clause that the context tells nothing of, a number that is rounded unsaid."""
    assert features(statement, context)["doubts"] == doubt
