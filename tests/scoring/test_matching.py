from faith_dspy.io.labels import parse_example
from faith_dspy.schema import Statement
from faith_dspy.scoring.matching import locate, match_statements, statement_labels


def labelled(answer, *statements, **more):
    """A labelled answer with (text, supported) statements."""
    rows = [{"text": t, "verdict": "fully_supported" if ok else "no_evidence"} for t, ok in statements]
    return parse_example({"context": ["c"], "answer": answer, **({"statements": rows} if rows else {}), **more})


def judged(*texts, named=()):
    """A judge's statements; ``named``: the indices of their sentences."""
    return [Statement(text=t, sentence_index=i) for t, i in zip(texts, named or [None] * len(texts), strict=True)]


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
    assert statement_labels(judged("The museum opened in 1927 and has 140 clocks.", "It is free."), e) == [False, True]


def test_statements_follow_the_order_of_the_answer():
    """By words alone the last statement would match the first sentence; the order of statements does not allow it."""
    e = labelled(
        "Rinse the filter after 250 hours. Never rinse it in the dishwasher.",
        ("The filter is rinsed after 250 hours.", True),
        ("The filter must not go in the dishwasher to rinse after use.", False),
    )
    assert statement_labels(judged("Rinse the filter after 250 hours.", "Never rinse it in the dishwasher."), e) == [
        True,
        False,
    ]


def test_without_statement_labels_only_the_certain_is_told():
    """That an answer is faithful labels no sentence: all such labels would be of one kind. A lone one is the answer."""
    assert statement_labels(judged("A b.", "C d."), labelled("A b. C d.", faithful=True)) == [None, None]
    assert statement_labels(judged("A b.", "C d."), labelled("A b. C d.", faithful=False)) == [None, None]
    assert statement_labels(judged("A b."), labelled("A b.", faithful=False)) == [False]


def test_the_whole_answer_has_the_answers_label():
    e = labelled("It rains. It pours.", ("It rains.", True), ("It pours.", False))
    assert statement_labels(judged("It rains. It pours."), e) == [False]
    assert statement_labels(judged(), e) == []


TRAM = "The tram from Lyon is late. It rains. The tram from Nice, which is red, is late and full."


def test_a_split_statement_matches_its_parts():
    """The judge took two statements from the last sentence; both stand on words of the label, which is all of it."""
    label = "The tram from Nice, which is red, is late and full."
    said = ["The tram from Nice is red.", "The tram from Nice is full.", "It rains."]
    assert matched(TRAM, [label], *said, named=[2, 2, 1]) == [(0, 1)]
    # Without the judge's sentence: red and full are only there.
    assert matched(TRAM, [label], *said) == [(0, 1)]


def test_merged_statements_match_the_one_they_went_into():
    """Rain is told wholly, so the judge's statement is that, too; of the last sentence it has one word in four."""
    labels = ["The tram from Lyon is late.", "It rains.", "The tram from Nice is full."]
    assert matched(TRAM, labels, "It rains and the tram from Lyon is late.") == [(0,), (0,), ()]
    assert matched(TRAM, labels, TRAM) == [(0,), (0,), (0,)]


def test_a_reworded_statement_matches_where_its_words_stand():
    """Contained nowhere as a string; of tram, Nice, colour and red three stand in the last sentence."""
    label = "Red is the colour of the tram that comes from Nice."
    assert label not in TRAM
    assert matched(TRAM, [label], "The tram from Lyon is late.", "From Nice: a red tram.") == [(1,)]
    # Both reworded, with two of three words in common; no other label can be meant.
    assert matched(TRAM, ["From Nice comes a red tram."], "It rains.", "A red tram is full.") == [(1,)]


def test_statements_that_share_their_subject_alone_do_not_match():
    """Tram, Nice and late against tram, Nice, red and full: the two that both have are not enough of either."""
    assert matched(TRAM, ["The tram from Nice is late."], "The tram from Nice is red and full.", named=[2]) == [(0,)]
    both = ["The tram from Nice is late.", "The tram from Nice is red and full."]
    assert matched(TRAM, both, both[1], named=[2]) == [(), (0,)]


def test_what_stands_twice_is_told_apart_by_order_or_by_the_judges_sentence():
    """The second label of the same words is the second sentence; a judge that names its sentence is taken at that."""
    answer = "It rains. The bus is red. It rains."
    assert [p.sentence for p in locate(["It rains.", "The bus is red.", "It rains."], answer)] == [0, 1, 2]
    assert matched(answer, ["It rains.", "It rains."], "It rains.", "It rains.", named=[2, 0]) == [(1,), (0,)]


def test_what_stands_nowhere_matches_nothing():
    """Penguins are not in the answer, nor is anything that has no letter or digit; an answer may be empty."""
    assert matched(TRAM, ["Penguins cannot fly south.", "–", ""], "The tram from Lyon is late.") == [(), (), ()]
    assert locate(["It rains."], "") == [(None, frozenset())]
    assert matched(TRAM, ["It rains."]) == [()]


def test_typography_case_and_white_space_do_not_move_a_statement():
    """Other quotes, capitals and line breaks are the same place; a part of a word is not."""
    answer = "She said: “It\u2019s  late”.\nCats sleep."
    assert matched(answer, ['she said: "it\'s late".', "Cat"], answer, "cats sleep.") == [(0,), (0, 1)]
    assert locate(["Cats sleep."], answer)[0] == locate(["CATS  SLEEP."], answer)[0]
