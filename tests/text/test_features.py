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
from faith_dspy.text.sentences import sentences
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
    assert [
        found[name] for name in ("novel_words", "novel_run", "novel_in_window")
    ] == [0.5, math.log1p(2), 0.5]


@pytest.mark.parametrize(
    ("statement", "covered"),
    [
        ("The tower stands in Paris.", True),
        (
            "Paris stands in the tower.",
            False,
        ),  # the words of the context, with places changed
        ("In Paris the tower stands.", True),
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
    assert (
        is_covered(
            statement, index_context([Chunk(id=0, text="The tower stands in Paris.")])
        )
        is covered
    )


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
            "The bridge of 330 cars opened.",
            "moved_numbers",
            1.0,
        ),  # the context has 330, near other words
        ("It is 330 metres tall.", "moved_numbers", 0.0),
        (
            "Tower of Paris and Rome.",
            "novel_name_count",
            math.log1p(1),
        ),  # “Tower” begins the sentence
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


@pytest.mark.parametrize(
    "statement", [COPY, "1.", "*", "12)", "- ", "So it is.", "", "[3]", "Passage 2:"]
)
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
    assert (found["novel_words"], found["novel_in_window"], found["novel_pairs"]) == (
        0.0,
        0.5,
        1.0,
    )


def test_elided_articles_are_split_off():
    assert [t.kind for t in tokenize("l'accord", "french")] == ["function", "word"]
    assert [t.key for t in tokenize("company's", "english")] == [
        t.key for t in tokenize("company", "english")
    ]
    assert tokenize(tidy("isn’t"), "english")[0].negates


def test_best_chunks_are_ids_in_order():
    """The chunk with most shared words, and what adds to it; ids as given, not positions; none if nothing fits."""
    context = [
        Chunk(id=7, text=BRIDGE),
        Chunk(id=3, text="Cats sleep."),
        Chunk(id=5, text=TOWER),
    ]
    indexed = index_context(context)
    assert best_chunks("The Eiffel Tower is tall.", indexed) == (5,)
    assert best_chunks(
        "The tall Eiffel Tower and the Golden Gate Bridge.", indexed
    ) == (5, 7)
    assert best_chunks("Quantum chromodynamics.", indexed) == ()


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


@pytest.mark.parametrize("name", DIRECTIONS)
def test_each_feature_alone(name):
    context = chunks(TOWER, BRIDGE)
    said = 'The Eiffel Tower opened in 1937 for Gustav, "the tall and golden gate", and did not close in Rome.'
    together = lexical_features(said, IndexedContext(context))
    assert set(together) == set(DIRECTIONS)
    assert lexical_features(said, IndexedContext(context), [name]) == {
        name: together[name]
    }


EQUAL = [  # context, equal statement, near miss
    (
        "The company has 5,000,000 users.",
        "The company has **5** million users.",
        "The company has **6** million users.",
    ),
    (
        "The company has 5,000,000 users.",
        "The company has 5m users.",
        "The company has 6m users.",
    ),
    ("It cost 1,500,000 euros.", "It cost 1.5m euros.", "It cost 1.6m euros."),
    ("They sold 5,000 units.", "They sold 5k units.", "They sold 7k units."),
    (
        "They sold 5,000 units.",
        "They sold five thousand units.",
        "They sold six thousand units.",
    ),
    (
        "They sold 250 units.",
        "They sold two hundred and fifty units.",
        "They sold three hundred and fifty units.",
    ),
    (
        "They sold 2.5bn units.",
        "They sold 2.5 billion units.",
        "They sold 2.5 million units.",
    ),
    (
        "Die Stadt hat 5000 Einwohner und das ist viel.",
        "Die Stadt hat 5.000 Einwohner.",
        "Die Stadt hat 6.000 Einwohner.",
    ),
    (
        "Of the users 25 % pay.",
        "Of the users 25 percent pay.",
        "Of the users 35 percent pay.",
    ),
    (
        "Of the users 25 % pay.",
        "A quarter of the users pay.",
        "A third of the users pay.",
    ),
    (
        "Of the users 25 % pay.",
        "25 per cent of the users pay.",
        "52 per cent of the users pay.",
    ),
    ("Half of the users pay.", "50% of the users pay.", "60% of the users pay."),
    (
        "The train leaves at 17:30.",
        "The train leaves at 5:30 pm.",
        "The train leaves at 5:30 am.",
    ),
    (
        "The train leaves at 5 p.m.",
        "The train leaves at 17:00.",
        "The train leaves at 18:00.",
    ),
    (
        "The train leaves at 5:30 pm today.",
        "The train leaves at 5:30.",
        "The train leaves at 6:30.",
    ),
    (
        "Der Zug fährt um 17.30 Uhr ab und hält nicht.",
        "Der Zug fährt um 17:30 Uhr ab.",
        "Der Zug fährt um 16:30 Uhr ab.",
    ),
    (
        "The law passed on 2024-03-05.",
        "The law passed on 5 March 2024.",
        "The law passed on 5 May 2024.",
    ),
    (
        "The law passed on 5 March 2024.",
        "The law passed on 2024-03-05.",
        "The law passed on 2024-05-03.",
    ),
    (
        "The law passed on 5 March 2024.",
        "The law passed on March 5th.",
        "The law passed on May 5th.",
    ),
    (
        "The law passed on March 5, 2024.",
        "The law passed on the 5th of March 2024.",
        "The law passed on the 6th of March 2024.",
    ),
    (
        "The law passed on 03/05/2024.",
        "The law passed on March 5, 2024.",
        "The law passed on April 5, 2024.",
    ),
    (
        "Das Gesetz gilt ab dem 05.03.2024 und ist neu.",
        "Das Gesetz gilt ab dem 5. März 2024.",
        "Das Gesetz gilt ab dem 5. Mai 2024.",
    ),
    (
        "The law passed on 5 Mar 2024.",
        "The law passed in March 2024.",
        "The law passed in May 2024.",
    ),
    ("A ticket costs $5.", "A ticket costs USD 5.", "A ticket costs EUR 5."),
    ("A ticket costs $5.", "A ticket costs 5 dollars.", "A ticket costs 5 euros."),
    ("A ticket costs $5.", "A ticket costs US$5.", "A ticket costs €5."),
    ("A ticket costs £5.", "A ticket costs 5 pounds.", "A ticket costs 5 dollars."),
    (
        "The road is 12 km long.",
        "The road is 12 kilometres long.",
        "The road is 12 miles long.",
    ),
    (
        "The road is 12 kilometers long.",
        "The road is 12km long.",
        "The road is 12 mi long.",
    ),
    (
        "The bag weighs 3 kg.",
        "The bag weighs three kilograms.",
        "The bag weighs three grams.",
    ),
    ("It runs for 14 hours.", "It runs for 14 hrs.", "It runs for 14 minutes."),
    (
        "It is 30 °C outside.",
        "It is 30 degrees Celsius outside.",
        "It is 30 °F outside.",
    ),
    (
        "The “official” results aren’t final.",
        'The "official" results aren\'t final.',
        'The "official" results are final.',
    ),
    (
        "The ﬁnal ofﬁce closed.",
        "The final office closed.",
        "The final 3 offices closed.",
    ),
    (
        "Tom &amp; Jerry won the R&amp;D prize.",
        "Tom & Jerry won the R&D prize.",
        "Tom & Jerry won 2 R&D prizes.",
    ),
    (
        "The <b>blue</b> kettle holds <i>2</i> litres.",
        "The blue kettle holds 2 litres.",
        "The blue kettle holds 3 litres.",
    ),
    (
        "See [the **blue** kettle](https://x.org/a_(b)) with 2 litres.",
        "The blue kettle has 2 litres.",
        "The blue kettle has 3 litres.",
    ),
    ("| Model | Litres |\n|---|---|\n| K4 | 2 |", "K4: 2 litres", "K4: 3 litres"),
    (
        "- The `KEEP` button\n- holds **2** litres",
        "The KEEP button holds 2 litres.",
        "The KEEP button holds 3 litres.",
    ),
    ("It was −5 °C.", "It was minus 5 degrees Celsius.", "It was 5 °C."),
    ("The balance is $300.", "The balance is 300 dollars.", "The balance is -$300."),
    ("It lasts 90 minutes.", "It lasts 1.5 hours.", "It lasts 2.5 hours."),
    ("Returns take 2 weeks.", "Returns take 14 days.", "Returns take 12 days."),
    ("It lasts 24 months.", "It lasts two years.", "It lasts two months."),
    ("It lasts one year.", "It lasts 12 months.", "It lasts 12 weeks."),
    ("It takes half an hour.", "It takes 30 minutes.", "It takes 30 hours."),
    ("The bag weighs 2 kg.", "The bag weighs 2000 g.", "The bag weighs 200 g."),
    ("It is 1.8 m tall.", "It is 180 cm tall.", "It is 18 cm tall."),
    ("It is 100 m² large.", "It is 100 m<sup>2</sup> large.", "It is 100 m³ large."),
    ("Add ½ cup of sugar.", "Add 1/2 cup of sugar.", "Add ¼ cup of sugar."),
    ("Add 1½ cups of sugar.", "Add 1.5 cups of sugar.", "Add 11/2 cups of sugar."),
    ("A dozen eggs are left.", "12 eggs are left.", "Two dozen eggs are left."),
    ("He is twenty-one.", "He is 21.", "He is twenty-two."),
    ("It opens at noon.", "It opens at 12 pm.", "It opens at 12 am."),
    ("It is open Mon–Fri.", "It is open Monday to Friday.", "It is open Mon–Sat."),
    (
        "Return it within [90] days.",
        "Return it within [90] days.",
        "Return it within [30] days.",
    ),
    ("Keep it for day 3.", "Keep it for day 3.", "Keep it for day 4."),
    (
        "The inter\u00adnational team won.",
        "The international team won.",
        "The 2 international teams won.",
    ),
]
"""A context, a statement with the same values written otherwise, and one with another value."""


@pytest.mark.parametrize(
    ("context", "equal", "unequal"), EQUAL, ids=[equal for _, equal, _ in EQUAL]
)
def test_equal_values_are_equal_and_unequal_ones_are_not(context, equal, unequal):
    names = ("novel_words", "novel_number_count", "contradictions")
    found, other = (
        lexical_features(s, IndexedContext(chunks(context)), names)
        for s in (equal, unequal)
    )
    assert found == dict.fromkeys(names, 0.0)
    assert max(other.values()) > 0


OPPOSITE = [
    ("Sale items can be returned.", "Sale items cannot be returned."),
    ("Sale items cannot be returned.", "Sale items can be returned."),
    ("The policy covers water damage.", "The policy does not cover water damage."),
    ("The shop sells no lamps.", "The shop sells lamps."),
    ("She never visited Rome.", "She visited Rome."),
    ("The drug is safe for children.", "The drug is unsafe for children."),
    ("Sales increased in 2023.", "Sales decreased in 2023."),
    ("Prices rose by 5 % in May.", "Prices fell by 5 % in May."),
    ("Acme acquired Beta in 2020.", "Beta acquired Acme in 2020."),
    ("Anna sued Peter over the house.", "Peter sued Anna over the house."),
    ("Germany beat Brazil 7 to 1.", "Brazil beat Germany 7 to 1."),
    ("The museum opens before noon.", "The museum opens after noon."),
    (
        "Model A costs 5 euros and model B costs 7 euros.",
        "Model A costs 7 euros and model B costs 5 euros.",
    ),
    ("The lamp is available in blue.", "The lamp isn't available in blue."),
    ("All rooms have a bath.", "No rooms have a bath."),
    ("Dogs are allowed in the park.", "Dogs are forbidden in the park."),
    (
        "Der Vertrag kann gekündigt werden und gilt lange.",
        "Der Vertrag kann nicht gekündigt werden.",
    ),
]
"""A context, and a statement that says the opposite in its words."""


@pytest.mark.parametrize(
    ("context", "opposite"), OPPOSITE, ids=[opposite for _, opposite in OPPOSITE]
)
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
        ("The red and blue lamp is new.", "The blue and red lamp is new."),
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
    "german": "Die Garantie umfasst die Filter. Das Museum ist montags geöffnet.",
    "french": "La garantie couvre les filtres. Le musée est ouvert le lundi.",
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
        ("english", "Lamps can no longer be returned within 30 days."),
        ("english", "Lamps can never be returned within 30 days."),
        ("english", "The warranty doesn't cover filters."),
        ("english", "The plan excludes evening classes."),
        ("english", "The bridge is closed to cyclists."),
        ("english", "Bolt bought Acme in 1999."),
        ("english", "Sale items are not exchanged."),
        ("german", "Die Garantie umfasst die Filter nicht."),
        ("german", "Das Museum ist montags geschlossen."),
        ("french", "La garantie ne couvre pas les filtres."),
        ("french", "Le musée est fermé le lundi."),
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
        ("The shop is not mentioned in the text.", "The shop is open."),
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


EQUAL_VALUES = [
    ("It has 2bn users.", "It has 2 billion users."), ("Three quarters of users left.", "75 % of users left."),
    ("Half of the users left.", "50 % of the users left."), ("It opens at 9 am.", "It opens at 09:00."),
    ("It opened on March 5, 2024.", "It opened on 05.03.2024."), ("It costs €20.", "It costs 20 euros."),
    ("It weighs 5 kg.", "It weighs five kilograms."), ("It lasts 90 minutes.", "It lasts ninety minutes."),
    ("It fits 64 GB.", "It fits 64 gigabytes."), ("It is 20 °C.", "It is 20 degrees Celsius."),
    ("It has two hundred and fifty rooms.", "It has 250 rooms."), ("It lasts 1,234.50 days.", "It lasts 1234.5 days."),
    ("The ﬁle is new.", "The file is new."), ("Tom &amp; Ann won.", "Tom & Ann won."),
    ("The [kettle](http://x.org) is blue.", "The kettle is blue."), ("- The `kettle` is blue.", "The kettle is blue."),
    ("It is on the 4th floor.", "It is on the fourth floor."), ("It weighs 2 tonnes.", "It weighs 2,000 kg."),
]  # fmt: skip
UNEQUAL_VALUES = [
    ("It has 2bn users.", "It has 2 million users."), ("It has 5k users.", "It has 500 users."),
    ("Half of the users left.", "40 % of the users left."), ("It opens at 5:30 pm.", "It opens at 5:30 am."),
    ("It opened on 2024-03-05.", "It opened on 2023-03-05."), ("It costs £5.", "It costs 5 yen."),
    ("It weighs 5 kg.", "It weighs 5 g."), ("It lasts 90 minutes.", "It lasts 90 hours."),
    ("It fits 64 GB.", "It fits 64 MB."), ("It is 20 °C.", "It is 20 °F."),
    ("It has two hundred and fifty rooms.", "It has two hundred rooms."), ("It is 12 km long.", "It is 12 miles long."),
    ("It does 100 km/h.", "It does 100 mph."), ("It weighs 100 kg.", "It weighs 100 tonnes."),
    ("Three quarters of users left.", "A quarter of users left."),
    ("A quarter of users left.", "Three quarters of users left."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "other"), EQUAL_VALUES)
def test_further_equal_values(text, other):
    assert (
        features(text, other)["novel_words"]
        == features(other, text)["novel_words"]
        == 0
    )


@pytest.mark.parametrize(("text", "other"), UNEQUAL_VALUES)
def test_further_near_misses(text, other):
    assert features(other, text)["novel_words"] > 0
