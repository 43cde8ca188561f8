import pytest

from faith_dspy.io.labels import parse_example
from faith_dspy.schema import Statement
from faith_dspy.scoring.matching import locate, match_statements, statement_labels


def labelled(answer, *statements, **more):
    """A labelled answer with (text, supported) statements."""
    verdicts = {True: "fully_supported", False: "no_evidence"}
    rows = [{"text": text, "verdict": verdicts[ok]} for text, ok in statements]
    row = {"context": ["c"], "answer": answer, "statements": rows or None}
    return parse_example(row | more)


def judged(*texts, named=()):
    """A judge's statements; ``named``: the indices of their sentences."""
    return [
        Statement(text=t, sentence_index=i)
        for t, i in zip(texts, named or [None] * len(texts), strict=True)
    ]


def matched(answer, labelled, *said, named=()):
    """What each of the labelled statements matches of those said."""
    return match_statements(labelled, judged(*said, named=named), answer)


def test_a_sentence_with_one_unsupported_statement_is_not_supported():
    e = labelled(
        "The museum opened in 1927 and has 140 clocks. It is free.",
        ("The museum opened in 1927.", True),
        ("The museum has 140 clocks.", False),
        ("The museum is free.", True),
    )
    assert statement_labels(
        judged("The museum opened in 1927 and has 140 clocks.", "It is free."), e
    ) == [False, True]


def test_without_statement_labels_only_the_certain_is_told():
    """That an answer is faithful labels no sentence: all such labels would be of one kind. A lone one is the answer,
    and so is a statement of all of it."""
    two = judged("A b.", "C d.")
    for faithful in (True, False):
        e = labelled("A b. C d.", faithful=faithful)
        assert statement_labels(two, e) == [None, None]
    assert statement_labels(judged("A b."), labelled("A b.", faithful=False)) == [False]
    e = labelled("It rains. It pours.", ("It rains.", True), ("It pours.", False))
    assert statement_labels(judged("It rains. It pours."), e) == [False]
    assert statement_labels([], e) == []


TRAM = "The tram from Lyon is late. It rains. The tram from Nice, which is red, is late and full."


RED = "The tram from Nice, which is red, is late and full."
REWORDED = "Red is the colour of the tram that comes from Nice."
PARTS = ["The tram from Nice is red.", "The tram from Nice is full.", "It rains."]
THREE = ["The tram from Lyon is late.", "It rains.", "The tram from Nice is full."]
BOTH = ["The tram from Nice is late.", "The tram from Nice is red and full."]


@pytest.mark.parametrize(
    ("labels", "said", "named", "found"),
    [
        # Split: both parts stand on words of the label. Without the judge's sentence, too: red and full are only there.
        ([RED], PARTS, [2, 2, 1], [(0, 1)]),
        ([RED], PARTS, [], [(0, 1)]),
        # Merged: rain is told wholly, so the judge's statement is that, too; of the last it has one word in four.
        (THREE, ["It rains and the tram from Lyon is late."], [], [(0,), (0,), ()]),
        (THREE, [TRAM], [], [(0,), (0,), (0,)]),
        # Reworded: of tram, Nice, colour and red three stand in the last sentence.
        (
            [REWORDED],
            ["The tram from Lyon is late.", "From Nice: a red tram."],
            [],
            [(1,)],
        ),
        # Both reworded, with two of three words in common; no other label can be meant.
        (
            ["From Nice comes a red tram."],
            ["It rains.", "A red tram is full."],
            [],
            [(1,)],
        ),
        # The subject alone: tram, Nice and late against tram, Nice, red and full are not enough of either.
        (BOTH[:1], BOTH[1:], [2], [(0,)]),
        (BOTH, BOTH[1:], [2], [(), (0,)]),
        # As much of it is in either sentence; it stands behind the statement before it.
        (["It rains.", "A tram is late."], [*THREE[:2], RED], [], [(1,), (2,)]),
        # Nowhere: nothing without a letter or digit is.
        (
            ["Penguins cannot fly south.", "–", ""],
            ["The tram from Lyon is late."],
            [],
            [(), (), ()],
        ),
        (["It rains."], [], [], [()]),
    ],
)
def test_matches_by_hand(labels, said, named, found):
    assert matched(TRAM, labels, *said, named=named) == found


def test_what_stands_twice_is_told_apart_by_order_or_by_the_judges_sentence():
    """The second label of the same words is the second sentence; a judge that names its sentence is taken at that."""
    answer = "It rains. The bus is red. It rains."
    assert [
        p.sentence
        for p in locate(["It rains.", "The bus is red.", "It rains."], answer)
    ] == [0, 1, 2]
    assert matched(
        answer, ["It rains.", "It rains."], "It rains.", "It rains.", named=[2, 0]
    ) == [(1,), (0,)]


def test_typography_case_and_white_space_do_not_move_a_statement():
    """Other quotes, capitals and line breaks are the same place; a part of a word is not."""
    answer = "She said: “It\u2019s  late”.\nCats sleep."
    assert matched(
        answer, ['she said: "it\'s late".', "Cat"], answer, "cats sleep."
    ) == [(0,), (0, 1)]
    assert locate(["Cats sleep."], answer)[0] == locate(["CATS  SLEEP."], answer)[0]
