import pytest

from faith_dspy.program.extraction import assign_statements
from faith_dspy.schema import Sentence

PAIR = ("The kettle is blue and holds 0.9 litres.", "It was made in 1998.")
SPLIT = [
    (0, "The kettle is blue."),
    (0, "The kettle holds 0.9 litres."),
    (1, "The kettle was made in 1998."),
]
WHOLE = list(enumerate(PAIR))


def extracted(lines, *texts, question="", **options):
    """(sentence, statement) of each statement in a reply about these sentences; and how many stand in as written."""
    parts = [
        Sentence(index=i, start=0, end=len(t), text=t) for i, t in enumerate(texts)
    ]
    found = assign_statements(lines, parts, question, **options)
    return [(s.sentence_index, s.text) for s in found.statements], found.fallbacks


FORMS = {
    "lines, each once": "2. The kettle was made in 1998.\n1. The kettle is blue.\n- [1] The kettle holds 0.9 litres.\n"
    "1) The kettle is blue.",
    "by number": '{"1": ["The kettle is blue.", "The kettle holds 0.9 litres."], '
    '"2": ["The kettle was made in 1998."]}',
    "RAGAS": '```json\n[{"sentence_index": 0, "simpler_statements": ["The kettle is blue.", '
    '"The kettle holds 0.9 litres."]},\n{"sentence_index": 1, "simpler_statements": ["The kettle was made in 1998."]}]'
    "\n```",
    "JSON lines": '{"sentence": 1, "statement": "The kettle is blue."}\n{"sentence": 1, "statement": "The kettle holds '
    '0.9 litres."}\n{"sentence": 2, "statement": "The kettle was made in 1998."}',
    "list": '{"statements": ["The kettle is blue.", "The kettle holds 0.9 litres.", "The kettle was made in 1998."]}',
    "numbers in a list": '["1. The kettle is blue.", "1. The kettle holds 0.9 litres.", '
    '"2. The kettle was made in 1998."]',
    "bullets": "- The kettle is blue.\n- The kettle holds 0.9 litres.\n- The kettle was made in 1998.",
    "from 0": "0: The kettle is blue.\n0: The kettle holds 0.9 litres.\n1: The kettle was made in 1998.",
}


@pytest.mark.parametrize("reply", FORMS.values(), ids=FORMS)
def test_forms_of_a_reply(reply):
    """JSON in its usual shapes, numbered and bare lines say the same; no sentence has to stand in."""
    assert extracted(reply.splitlines(), *PAIR) == (SPLIT, 0)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "The kettle is blue.\nI think so.",  # no numbers
        "3. The kettle is blue.\n0. The kettle was made in 1998.",  # no such sentences
        "1. The kettle is blue.\n2. The pot was designed by Anna.",  # half dropped; invented
        "1. none\n2. none",  # a number or a name is never none
        "1. The kettle is blue and holds 7 litres.\n2. It was built in 1989.",  # changed numbers
    ],
)  # fmt: skip
def test_a_bad_extraction_falls_back_to_the_sentence(reply):
    """Where an LM leaves out or invents content, the sentence stands as written; none is ever lost."""
    assert extracted(reply.splitlines(), *PAIR) == (WHOLE, 2)


OFFSIDE = "The offside rule keeps attackers from waiting near the goal to receive an easy pass."
CAR = "The car was purchased in Berlin."


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (OFFSIDE, ["The offside rule keeps attackers from waiting near the goal."]),
        # New words stand for words of the sentence, but for no name and no number; beside them they are facts.
        (
            "Alice was born in Rome and died in Paris in 1990.",
            ["Alice was born in Rome.", "Alice was at school."],
        ),
        (CAR, ["The red car was purchased in Berlin."]),
        (CAR, ["The car was purchased in Rome."]),
        (CAR, ["The vehicle was acquired somewhat earlier."]),
        # A qualifier that is lost, or new, says something else.
        (CAR, ["The car was not purchased in Berlin."]),
        ("It isn't sold and it never breaks.", ["It isn't sold.", "It breaks."]),
        ("It comes without a plug.", ["It comes with a plug."]),
        ("Only members may enter.", ["Members may enter."]),
        ("Shipping takes approximately a week.", ["Shipping takes a week."]),
        ("Take it before meals.", ["Take it after meals."]),
        ("Die Lampe ist nur drinnen sicher.", ["Die Lampe ist drinnen sicher."]),
    ],
)
def test_what_a_statement_leaves_out_is_judged(sentence, said):
    """What no statement says would go unjudged, so the sentence stands as written in their place, and is counted."""
    lines = [*(f"1. {text}" for text in said), "2. Nobody returned it."]
    assert extracted(lines, sentence, "Nobody returned it.") == (
        [(0, sentence), (1, "Nobody returned it.")],
        1,
    )


@pytest.mark.parametrize(
    ("sentence", "said", "question"),
    [
        (CAR, ["The automobile was bought in Berlin."], ""),
        ("It was widely known.", ["It was known."], ""),
        ("It has no wheels or doors.", ["It has no wheels.", "It has no doors."], ""),
        ("It is.", ["It is not sold."], "Is it not sold?"),
        (
            "It is blue.",
            ["The Brennick kettle is blue."],
            "What colour is the Brennick kettle?",
        ),
    ],
    ids=[
        "synonyms",
        "emphasis",
        "a negation of two things",
        "a negation of the question",
        "a name of the question",
    ],
)
def test_other_words_that_say_the_same_are_kept(sentence, said, question):
    """Synonyms, a negation said twice, and what the question names in place of a pronoun."""
    assert extracted([f"1. {text}" for text in said], sentence, question=question) == (
        [(0, t) for t in said],
        0,
    )


def test_only_none_takes_a_sentence_out():
    """“none” takes out a sentence without number or name; others stay."""
    found, _ = extracted(
        ["1. None.", "2. none", "3. It is blue."],
        "I hope that helps.",
        "Anna Berg owns it.",
        "It is blue.",
    )
    assert found == [(1, "Anna Berg owns it."), (2, "It is blue.")]


def test_statements_as_the_lm_wrote_them():
    """Without the check nothing is compared with the answer; a sentence without statements still stands for itself."""
    lines = ["1. The kettle is blue.", "1. The kettle was made in Kiel.", "none"]
    assert extracted(lines, *PAIR)[0] == WHOLE
    assert extracted(lines, *PAIR, check=False) == (
        [(0, "The kettle is blue."), (0, "The kettle was made in Kiel."), WHOLE[1]],
        1,
    )
