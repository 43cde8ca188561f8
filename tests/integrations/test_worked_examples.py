import pytest

pytest.importorskip("strands_evals")

from tests.benchmarks.worked_examples import (
    AXION,
    STRANDS,
    axion_results,
    strands_results,
)

pytestmark = pytest.mark.all


@pytest.fixture
def documented(chat_server, dspy_lm):
    """An LM that says of every answer and claim what the pages say."""
    claims, labels = {}, {}
    for example in AXION.values():
        claims[example.answer] = "\n".join(example.replies)
        for line, label in example.replies.items():
            labels[line.partition(" ")[2]] = label
    labels |= {e.answer: e.replies[""] for e in STRANDS.values()}

    def say(asked):
        statement = server.statement(asked)
        if statement:
            return f"{labels[statement]}\nWhy: The page says so."
        prompt = asked["messages"][-1]["content"]
        questions = {e.question: claims[e.answer] for e in AXION.values()}
        return next(lines for asked, lines in questions.items() if asked in prompt)

    server = chat_server(says=say)
    return dspy_lm(server)


def test_twelve_of_twelve(documented):
    """With an LM that says what the pages say, every documented score and verdict comes out."""
    results = strands_results(documented) + axion_results(documented)
    assert len(results) == 12
    assert [(r.name, r.score) for r in results] == [
        (r.name, r.documented) for r in results
    ]
