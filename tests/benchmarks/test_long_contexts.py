from __future__ import annotations

import pytest

from benchmarks.long_contexts import document, laws, recorded
from benchmarks.prefix_server import PrefixServer, tokens


def test_cost_is_linear():
    """A call a window and statement; every token of the context is computed once, whatever the statements' number.

    The law fits within 5 %: context · about 1 (a little more, for the numbers of chunks and the instructions of each
    window), and under 60 tokens a call.
    """
    points = [p for p in recorded([1024], [500, 2000, 4000], [1, 4]) if p.focus is None]
    assert all(p.calls == p.windows * p.statements for p in points)
    assert {p.windows for p in points if p.statements == 1} == {p.windows for p in points if p.statements == 4}
    (law,) = laws(points)
    assert 1.0 <= law.context < 1.15
    assert law.call < 60
    assert law.worst < 0.05


def test_cost_with_focus_does_not_know_the_context():
    """One call a statement, of as many tokens over 4,000 tokens of context as over 500, give or take a tenth."""
    points = [p for p in recorded([1024], [500, 4000], [1, 4]) if p.focus]
    assert [p.calls for p in points] == [1, 4, 1, 4]
    for short, long in zip(points[:2], points[2:], strict=True):
        assert long.computed_tokens == pytest.approx(short.computed_tokens, rel=0.1)


def test_document_has_the_size_asked_for():
    """At least so many tokens, and at most a chunk more; no line occurs twice."""
    chunks = document(1000, lambda text: len(tokens(text)))
    assert 1000 <= len(tokens("\n".join(chunks))) < 1400
    lines = "\n".join(chunks).split(". ")
    assert len(set(lines)) == len(lines)


@pytest.fixture
def server():
    """A recorded endpoint with a window of 60 tokens."""
    made = PrefixServer(60)
    yield made
    made.close()


def ask(server, *contents):
    """What it reports for prompts given one after the other: (prompt, cached) of each."""
    told = []
    for content in contents:
        status, body = server.answer({"model": "tiny", "messages": [{"role": "user", "content": content}]})
        assert status == 200
        usage = body["usage"]
        told.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
    return told


def test_prefix_cache(server):
    """“user: a b c” is 5 tokens. The same again: all but the last from the cache; another ending: what is before it."""
    assert ask(server, "a b c", "a b c", "a b d e", "x b") == [(5, 0), (5, 4), (6, 4), (4, 2)]


def test_prompts_beyond_the_window_are_refused(server):
    """As llama.cpp refuses them, in its words."""
    status, body = server.answer({"model": "tiny", "messages": [{"role": "user", "content": "a " * 60}]})
    assert status == 400
    assert "exceeds the available context size (60 tokens)" in body["error"]["message"]
