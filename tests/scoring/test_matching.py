from __future__ import annotations

from faith_dspy.io.labels import parse_example
from faith_dspy.scoring.matching import match_statements, statement_labels, word_share


def labelled(answer, *statements, **more):
    """A labelled answer with (text, supported) statements."""
    rows = [{"text": t, "verdict": "fully_supported" if ok else "no_evidence"} for t, ok in statements]
    return parse_example({"context": ["c"], "answer": answer, **({"statements": rows} if rows else {}), **more})


def test_statements_that_are_sentences_go_to_themselves():
    """Labels by sentence fit sentences word by word."""
    e = labelled("The tram is late. It rains.", ("The tram is late.", True), ("It rains.", False))
    assert statement_labels(["The tram is late.", "It rains."], e) == [True, False]


def test_a_sentence_with_one_unsupported_statement_is_not_supported():
    """Both statements come from the first sentence; one is wrong, so the sentence is."""
    e = labelled(
        "The museum opened in 1927 and has 140 clocks. It is free.",
        ("The museum opened in 1927.", True),
        ("The museum has 140 clocks.", False),
        ("The museum is free.", True),
    )
    assert statement_labels(["The museum opened in 1927 and has 140 clocks.", "It is free."], e) == [False, True]


def test_statements_follow_the_order_of_the_answer():
    """By words alone the last statement would match the first sentence; the order of statements does not allow it."""
    e = labelled(
        "Rinse the filter after 250 hours. Never rinse it in the dishwasher.",
        ("The filter is rinsed after 250 hours.", True),
        ("The filter must not go in the dishwasher to rinse after use.", False),
    )
    assert statement_labels(["Rinse the filter after 250 hours.", "Never rinse it in the dishwasher."], e) == [
        True,
        False,
    ]


def test_without_statement_labels_only_the_certain_is_told():
    """Every sentence of a faithful answer is supported; of an unfaithful one only a lone sentence is known."""
    assert statement_labels(["A b.", "C d."], labelled("A b. C d.", faithful=True)) == [True, True]
    assert statement_labels(["A b.", "C d."], labelled("A b. C d.", faithful=False)) == [None, None]
    assert statement_labels(["A b."], labelled("A b.", faithful=False)) == [False]


def test_the_whole_answer_has_the_answers_label():
    """One piece that is the answer gets its label, whatever its statements are."""
    e = labelled("It rains. It pours.", ("It rains.", True), ("It pours.", False))
    assert statement_labels(["It rains. It pours."], e) == [False]
    assert statement_labels([], e) == []


def test_matches_by_hand():
    """Literal containment matches all, either way; shared words match in order; too few match nothing."""
    judged = ["The kettle is blue", "it holds one litre.", "The tram is late. The bus is red."]
    split, merged = ["The kettle is blue and it holds one litre."], ["The tram is late.", "The bus is red."]
    assert match_statements(split, judged) == [(0, 1)]
    assert match_statements(merged, judged) == [(2,), (2,)]
    # Of kettle, colour, blue two thirds are in the first; of penguins, fly nothing is anywhere.
    assert match_statements(["The kettle's colour is blue.", "Penguins fly."], judged) == [(0,), ()]
    assert match_statements(["A"], []) == [()]


def test_word_share_by_hand():
    """Of kettle, blue and round two are in the other text; without content words nothing is missing."""
    assert word_share("The kettle is blue and round.", "A blue kettle.") == 1 - 1 / 3
    assert word_share("So it is.", "A blue kettle.") == 1.0
