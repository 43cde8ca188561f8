import asyncio
import json

import pytest
from pydantic import BaseModel

from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.rag_evals import (
    Faithfulness,
    FaithfulnessResult,
    StatementEvaluation,
    base,
)

BLUE, LITRES = "The kettle is blue.", "It holds 2 litres."
CONTEXT = ["The kettle is made of steel.", BLUE]


@pytest.fixture
def server(replies):
    """It supports one of two statements, by chunk 1."""
    return replies({BLUE: "Yes [1]", LITRES: "No []"})


@pytest.fixture
def client(server, dspy_lm):
    """The endpoint as an LM."""
    return dspy_lm(server)


def test_basic_usage(client):
    """rag_evals' own call: statements, their chunks, how those were found, and the share that is supported."""
    asked = "What is it like?", f"{BLUE} {LITRES}", CONTEXT, client
    result = Faithfulness.grade(*asked)
    assert result.score == 0.5
    blue, litres = (s.model_dump(exclude={"confidence"}) for s in result.statements)
    assert blue == {
        "statement": BLUE,
        "is_supported": True,
        "supporting_chunk_ids": [1],
        "found_by": ["cited"],
        "reasoning": "So it is.",
    }
    assert (litres["is_supported"], litres["supporting_chunk_ids"]) == (False, [])
    assert all(s.confidence is not None for s in result.statements)
    assert asyncio.run(Faithfulness.agrade(*asked)) == result


@pytest.mark.all
def test_a_batch_of_mixed_contexts(server):
    """As rag_evals' pages have it: with an asynchronous instructor client `grade`, as `agrade`, is awaited. Answers
    are graded at once, each by its own context."""
    import instructor
    import openai

    bare = openai.AsyncOpenAI(base_url=server.base, api_key="none")
    client = instructor.from_openai(bare, model="tiny")
    contexts = [CONTEXT, [{"text": BLUE}], [CONTEXT[0], "", BLUE]]

    async def grade_all(grade):
        tasks = [grade("Which colour?", BLUE, context, client) for context in contexts]
        return await asyncio.gather(*tasks)

    for grade in (Faithfulness.agrade, Faithfulness.grade):
        results = asyncio.run(grade_all(grade))
        assert [result.score for result in results] == [1.0] * 3
        ids = [result.statements[0].supporting_chunk_ids for result in results]
        assert ids == [[1], [0], [1]]


@pytest.mark.parametrize(
    ("reply", "supported", "ids", "found_by", "refused"),
    [
        ("Yes [1, 7, 0]", True, [0, 1], ["cited", "cited"], 1),  # 7 is no chunk
        ("Yes", True, [1], ["shared_words"], 0),  # the LM named none
        ("partly [1]", False, [1], ["cited"], 0),  # what supports a part is named
    ],
)
def test_chunk_ids(judge_at, reply, supported, ids, found_by, refused):
    """They are those of chunks, with how they were found; others are refused and counted."""
    verdicts = "graded" if reply.startswith("partly") else "binary"
    judge, _ = judge_at(says=reply, cite=True, verdicts=verdicts)
    result = Faithfulness.grade(None, BLUE, CONTEXT, judge)
    (one,) = result.statements
    assert (one.is_supported, one.supporting_chunk_ids) == (supported, ids)
    assert (one.found_by, result.refused_chunk_ids) == (found_by, refused)


@pytest.mark.parametrize("answer", ["", "I don't know.", "Sure, happy to help!"])
def test_an_answer_that_states_nothing(client, judge_at, answer):
    """It scores 0.0, as there; a judge of one's own leaves it unscored and says why."""
    assert Faithfulness.grade("Refund?", answer, CONTEXT, client).score == 0.0
    found = Faithfulness.grade("Refund?", answer, CONTEXT, judge_at()[0])
    assert (found.score, found.unscored[:8]) == (None, "unscored")


class Statement(BaseModel):
    """As a user of instructor writes it."""

    statement: str
    is_supported: bool
    reasoning: str
    supporting_chunk_ids: list[int]


class Result(BaseModel):
    """It has no field that could say why there is no score."""

    statements: list[Statement]


def test_response_model_of_ones_own(client, judge_at):
    """It gets the reason of each statement, empty where a judge gives none; where it cannot say that something was not
    judged, that is an error with the reason, and no 0. Our own says what its fields mean."""
    own = base.ContextEvaluation(response_model=Result)
    found = own.grade(None, f"{BLUE} {LITRES}", CONTEXT, client)
    assert [s.is_supported for s in found.statements] == [True, False]
    assert [s.reasoning for s in found.statements] == ["So it is."] * 2
    assert [s.supporting_chunk_ids for s in found.statements] == [[1], []]
    judge, _ = judge_at(yes={"It is red.": 0.1})
    assert own.grade(None, "It is red.", CONTEXT, judge).statements[0].reasoning == ""
    why = r"(?s)nothing recorded for 'It is light\.'.*Result has no field 'unscored'"
    with pytest.raises(FaithDspyError, match=why):
        own.grade(None, "It is red. It is light.", CONTEXT, judge)
    assert FaithfulnessResult(statements=[]).score == 0.0
    by_hand = StatementEvaluation(statement=BLUE, is_supported=True)
    assert by_hand.supporting_chunk_ids is None
    assert FaithfulnessResult(statements=[by_hand]).score == 1.0
    for model in (StatementEvaluation, FaithfulnessResult):
        assert all(field.description for field in model.model_fields.values())


def test_prompt_of_ones_own(client, server, caplog):
    """It takes the place of ours where a statement is verified, extraction is left alone, ours can be read. Examples
    stand in both; a template is not used, and that is said."""
    given = {
        "question": "Which colour?",
        "answer": BLUE,
        "context": CONTEXT,
        "client": client,
    }
    Faithfulness.grade(**given)
    top, _, ask = Faithfulness.prompt.rpartition("\n\n")
    assert server.requests[-1]["messages"][0]["content"] == top
    assert f"\n{ask}\n" in server.requests[-1]["messages"][-1]["content"]
    base.ContextEvaluation(prompt=Faithfulness.prompt).grade(**given)
    assert (
        len(server.requests) == 2
    )  # ours given back sends the same: DSPy's cache has the replies
    own = base.ContextEvaluation(prompt="You check data sheets of kettles.")
    assert own.prompt == "You check data sheets of kettles."
    assert own.grade(**given).score == 1.0
    (asked,) = server.requests[2:]  # extraction is what it was: the cache has it
    assert asked["messages"][0]["content"] == own.prompt
    assert "fully supported" not in str(asked["messages"])
    server.requests.clear()
    example = {"question": "Q", "answer": "A", "expected_result": {"score": 1.0}}
    shown = {"examples": [example], "chunk_template": "{{ context }}"}
    for prompt in (own.prompt, Faithfulness.prompt):
        base.ContextEvaluation(prompt, **shown).grade(**given)
    assert len(server.requests) == 3  # extraction is the same
    tops = [asked["messages"][0]["content"] for asked in server.requests]
    assert all(top.endswith(f"\nExamples:\n{json.dumps(example)}") for top in tops)
    assert "chunk_template is not used" in caplog.text
    with pytest.raises(ConfigError, match="the prompt is no template"):
        base.ContextEvaluation(prompt="Is it in {{ context }}?")
