from __future__ import annotations

import pytest

from faith_dspy import Judge, JudgeConfig
from faith_dspy.errors import ConfigError
from faith_dspy.schema import Chunk
from faith_dspy.text.focus import focused

CONTEXT = [
    Chunk(id=3, text="Kettles boil water. The Brennick kettle is blue. It holds two litres."),
    Chunk(id=5, text="Lamps give light. Returns take thirty days."),
    Chunk(id=8, text="The Brennick kettle has a warranty of two years."),
]


def texts(statement: str, k: int) -> list[tuple[int, str]]:
    """What is left of the context, by chunk id."""
    return [(c.id, c.text) for c in focused(CONTEXT, statement, k)]


def test_the_sentence_that_shares_most_is_shown():
    """It keeps its chunk's id."""
    assert texts("The Brennick kettle is blue.", 1) == [(3, "The Brennick kettle is blue.")]
    assert texts("Returns take thirty days.", 1) == [(5, "Returns take thirty days.")]


def test_each_further_sentence_is_chosen_by_what_it_adds():
    """The warranty has “years”, “two” and “warranty”, which outweigh a second mention of the kettle; order is kept."""
    found = texts("The blue Brennick kettle has a warranty of two years.", 2)
    assert found == [(3, "The Brennick kettle is blue."), (8, "The Brennick kettle has a warranty of two years.")]


def test_a_statement_of_two_sentences_gets_twice_as_many():
    """One for each of its sentences."""
    assert [i for i, _ in texts("The Brennick kettle is blue. Returns take thirty days.", 1)] == [3, 5]


def test_where_words_tell_nothing_the_context_begins():
    """The first sentences stand in."""
    assert texts("Zebras juggle.", 2) == [(3, "Kettles boil water. The Brennick kettle is blue.")]


def test_a_short_context_is_shown_as_it_is():
    """Nothing is left out, so nothing is changed."""
    assert focused(CONTEXT, "Anything.", 6) == CONTEXT


def test_the_lm_reads_nothing_else_and_ids_are_those_of_the_context(judge_at):
    """Two statements, each with a sentence of its own; the LM's [0] is the chunk that sentence is from."""
    judge, server = judge_at(says="Yes [0]", focus=1, cite=True)
    context = [c.text for c in CONTEXT]
    found = judge(context=context, answer="The Brennick kettle is blue. Returns take thirty days.")
    assert [s.supporting_chunk_ids for s in found.statements] == [(0,), (1,)]
    first, second = ("".join(m["content"] for m in r["messages"]) for r in server.requests)
    assert ("is blue" in first, "boil" in first, "thirty" in first) == (True, False, False)
    assert ("Lamps" in second, "[0] Returns take thirty days." in second) == (False, True)


def test_it_does_not_go_with_a_joint_verdict():
    """All statements in one call have one context."""
    with pytest.raises(ConfigError, match="set one of them"):
        Judge(focus=3, verification="joint")
    with pytest.raises(ConfigError, match="focus"):
        JudgeConfig.make(focus=0)
