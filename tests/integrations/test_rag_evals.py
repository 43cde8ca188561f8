import asyncio
import json

import pytest
from pydantic import BaseModel

from faith_dspy import Judge
from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.rag_evals import (
    Faithfulness,
    FaithfulnessResult,
    StatementEvaluation,
    base,
)
from tests.support.cases import BLUE, CONTEXT, ICELAND, LANDED

ANSWER = f"{LANDED} {ICELAND}"


def test_basic_usage(endpoint, lm):
    """rag_evals' own call: statements, their chunks, how those were found, and the share that is supported."""
    endpoint.labels = {LANDED: "Yes [0]", ICELAND: "No []"}
    result = Faithfulness.grade("When did it land?", ANSWER, CONTEXT, lm)
    assert result.score == 0.5
    landed, iceland = (s.model_dump(exclude={"confidence"}) for s in result.statements)
    assert landed == {
        "statement": LANDED,
        "is_supported": True,
        "supporting_chunk_ids": [0],
        "found_by": ["cited"],
        "reasoning": "So it is.",
    }
    assert (iceland["is_supported"], iceland["supporting_chunk_ids"]) == (False, [])
    assert all(s.confidence is not None for s in result.statements)


@pytest.mark.all
def test_a_batch_of_mixed_contexts(endpoint):
    """As rag_evals' pages have it: with an asynchronous instructor client `grade`, as `agrade`, is awaited. Answers
    are graded at once, each by its own context."""
    import instructor
    import openai

    bare = openai.AsyncOpenAI(base_url=endpoint.base)
    client = instructor.from_openai(bare, model="tiny")
    endpoint.labels = {BLUE: "Yes"}
    contexts = [["It boils.", BLUE], [{"text": BLUE}], ["It boils.", "", BLUE]]

    async def grade_all(grade):
        tasks = [grade("Which colour?", BLUE, context, client) for context in contexts]
        return await asyncio.gather(*tasks)

    for grade in (Faithfulness.agrade, Faithfulness.grade):
        results = asyncio.run(grade_all(grade))
        assert [result.score for result in results] == [1.0] * 3
        ids = [result.statements[0].supporting_chunk_ids for result in results]
        assert ids == [[1], [0], [2]]


@pytest.mark.parametrize(
    ("reply", "ids", "found_by", "refused"),
    [
        ("Yes [1, 7, 0]", [0, 1], ["cited", "cited"], 1),  # 7 is no chunk
        ("Yes", [1], ["shared_words"], 0),  # the LM named none
        ("partly [1]", [1], ["cited"], 0),  # what supports a part is named
    ],
)
def test_chunk_ids(judge_at, reply, ids, found_by, refused):
    """They are those of chunks, with how they were found; others are refused and counted."""
    verdicts = "graded" if reply.startswith("partly") else "binary"
    judge, _ = judge_at(says=reply, cite=True, verdicts=verdicts)
    result = Faithfulness.grade(None, BLUE, ["It is made of steel.", BLUE], judge)
    (one,) = result.statements
    assert (one.supporting_chunk_ids, one.found_by) == (ids, found_by)
    assert result.refused_chunk_ids == refused


@pytest.mark.parametrize("answer", ["", "I don't know.", "Sure, happy to help!"])
def test_an_answer_that_states_nothing(lm, answer):
    """It scores 0.0, as there; a judge of one's own leaves it unscored and says why."""
    assert Faithfulness.grade("Refund?", answer, CONTEXT, lm).score == 0.0
    result = Faithfulness.grade("Refund?", answer, CONTEXT, Judge(lm))
    assert (result.score, result.unscored[:8]) == (None, "unscored")


class Statement(BaseModel):
    """As a user of instructor writes it."""

    statement: str
    is_supported: bool
    reasoning: str
    supporting_chunk_ids: list[int]


class Result(BaseModel):
    """It has no field that could say why there is no score."""

    statements: list[Statement]


def test_response_model_of_ones_own(lm, judge_at):
    """It gets the reason of each statement, empty where a judge gives none; where it cannot say that something was not
    judged, that is an error with the reason, and no 0. Results can be made by hand, too."""
    own = base.ContextEvaluation(response_model=Result)
    statements = own.grade(None, ANSWER, CONTEXT, lm).statements
    assert [s.is_supported for s in statements] == [True, False]
    assert [s.reasoning for s in statements] == ["So it is."] * 2
    assert [s.supporting_chunk_ids for s in statements] == [[0], []]
    judge, _ = judge_at(yes={"It is red.": 0.1})
    assert own.grade(None, "It is red.", CONTEXT, judge).statements[0].reasoning == ""
    why = r"(?s)nothing recorded for 'It is light\.'.*Result has no field 'unscored'"
    with pytest.raises(FaithDspyError, match=why):
        own.grade(None, "It is red. It is light.", CONTEXT, judge)
    assert FaithfulnessResult(statements=[]).score == 0.0
    by_hand = StatementEvaluation(statement=BLUE, is_supported=True)
    assert by_hand.supporting_chunk_ids is None
    assert FaithfulnessResult(statements=[by_hand]).score == 1.0


def test_prompt_of_ones_own(endpoint, lm, caplog):
    """It takes the place of ours where a statement is verified; extraction is left alone. Ours can be read, and given
    back. Examples stand in both; a template is not used, and that is said."""

    def verification(**settings):
        """What is asked about the statement: the top, and the question at the end."""
        base.ContextEvaluation(**settings).grade("When?", LANDED, CONTEXT, lm)
        messages = endpoint.requests[-1]["messages"]
        return messages[0]["content"], messages[-1]["content"]

    ours = verification()
    top, _, ask = Faithfulness.prompt.rpartition("\n\n")
    assert ours[0] == top
    assert f"\n{ask}\n" in ours[1]
    assert verification(prompt=Faithfulness.prompt) == ours
    own = "You check logs of flights."
    assert base.ContextEvaluation(prompt=own).prompt == own
    top, asked = verification(prompt=own)
    assert top == own
    assert "fully supported" not in asked
    assert len(endpoint.requests) == 3  # extraction is what it was: the cache has it
    example = {"question": "Q", "answer": "A", "expected_result": {"score": 1.0}}
    shown = {"examples": [example], "chunk_template": "{{ context }}"}
    for prompt in (own, Faithfulness.prompt):
        top, _ = verification(prompt=prompt, **shown)
        assert top.endswith(f"\nExamples:\n{json.dumps(example)}")
    assert "chunk_template is not used" in caplog.text
    with pytest.raises(ConfigError, match="the prompt is no template"):
        base.ContextEvaluation(prompt="Is it in {{ context }}?")
