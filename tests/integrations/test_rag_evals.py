from __future__ import annotations

import asyncio

import pytest
from cases import SUBJECTS

from faith_dspy.integrations.rag_evals import agrade, grade


def test_grade(recorded, case):
    """Per statement whether it is supported, and the share of those that are; a supported one names its chunks."""
    judge, _ = recorded()
    found = grade(case.question, case.answer, case.context, judge=judge)
    assert [(s.statement, s.is_supported) for s in found.statements] == [
        (t, lab == "fully") for t, lab in case.sentences
    ]
    assert found.overall_score == case.share
    for s in found.statements:
        assert bool(s.supporting_chunk_ids) == s.is_supported
        assert all(0 <= i < len(case.context) for i in s.supporting_chunk_ids)
    assert asyncio.run(agrade(case.question, case.answer, case.context, judge=judge)) == found


def test_unknown_ids_are_refused(judge_at):
    """Of the ids 1, 7 and 0 that the LM names, 7 is no chunk: it is refused and counted, the others are kept."""
    _, context, _ = SUBJECTS["refund_policy"]
    judge, _ = judge_at(says="Yes [1, 7, 0]", cite=True)
    found = grade("Refund?", "Unused items are refunded.", context, judge=judge)
    assert (found.statements[0].supporting_chunk_ids, found.refused_chunk_ids) == ((0, 1), 1)


def test_an_answer_without_a_score(judge_at):
    """An empty answer is unscored with a reason, not 0; a judge whose policy says what it is worth is heeded."""
    judge, _ = judge_at()
    found = grade("Refund?", "", ["Unused items are refunded."], judge=judge)
    assert (found.overall_score, found.statements) == (None, ())
    assert found.unscored == "no_statements: the answer has no sentence that states anything"
    judge, _ = judge_at(no_statements=1.0)
    assert grade("Refund?", "", ["Unused items are refunded."], judge=judge).overall_score == 1.0


def test_a_statement_that_could_not_be_judged(judge_at):
    """It is neither supported nor not and says why; it counts in the denominator where the others fail the answer."""
    judge, _ = judge_at(yes={"It is blue.": 0.9, "It is red.": 0.1})
    found = grade(None, "It is blue. It holds 2 litres.", ["It is blue."], judge=judge)
    assert [s.is_supported for s in found.statements] == [True, None]
    assert "nothing recorded" in found.statements[1].reasoning
    assert (found.overall_score, found.unscored[:9]) == (None, "lm_failed")
    found = grade(None, "It is blue. It is red. It holds 2 litres.", ["It is blue."], judge=judge)
    assert found.overall_score == pytest.approx(1 / 3)


def test_prompt_of_ones_own(judge_at):
    """The user's own criteria stand in the prompt."""
    judge, server = judge_at(criteria="Prices must match to the cent.")
    grade(None, "It costs 3 euros.", ["It costs 3 euros."], judge=judge)
    assert "Prices must match to the cent." in server.requests[0]["messages"][0]["content"]


def test_reasoning_is_kept(judge_at):
    """What the judge was asked to give as a reason is in the grade."""
    judge, _ = judge_at(says="No The context names no price.", reasoning="after")
    (statement,) = grade(None, "It costs 3 euros.", ["It is blue."], judge=judge).statements
    assert "The context names no price." in statement.reasoning


def test_strict_and_lenient_reading(judge_at):
    """The lenient reading asks otherwise than the strict one."""
    asked = []
    for strictness in ("strict", "lenient"):
        judge, server = judge_at(strictness=strictness)
        grade(None, "It costs 3 euros.", ["It costs 3 euros."], judge=judge)
        asked.append(server.requests[0]["messages"])
    assert asked[0] != asked[1]


@pytest.mark.parametrize(("granularity", "statements"), [("sentence", 2), ("answer", 1)])
def test_granularity(judge_at, granularity, statements):
    """Statement by statement as written, or the whole answer at once."""
    judge, _ = judge_at(granularity=granularity)
    found = grade(None, "It is blue. It holds 2 litres.", ["It is blue. It holds 2 litres."], judge=judge)
    assert len(found.statements) == statements
    assert found.overall_score == 1.0
