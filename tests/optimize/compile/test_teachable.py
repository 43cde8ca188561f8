"""LMs that can be taught: what each optimizer makes of them, with reasons in the labels and without."""

from contextlib import closing

import pytest

from faith_dspy import Judge
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from tests.support.teachable import CONDITION, ROUNDED, TeachableLM, annotated


def labelled(**how):
    return [parse_example(row) for row in annotated(**how)]


TEST = labelled(sources=40, first=1000)
"""120 answers: 30 of each kind, so that 60 are faithful."""


def share_right(judge, answers):
    """Share of answers about which a judge says what people say."""
    judgments = judge.batch(answers)
    pairs = zip(judgments, answers, strict=True)
    return sum(judgment.faithful is e.label for judgment, e in pairs) / len(answers)


@pytest.fixture(scope="module")
def lm():
    with closing(TeachableLM()) as server:
        yield server


@pytest.mark.parametrize(
    ("told", "share"),
    [
        ("", 0.5),
        (ROUNDED.rule, 0.75),
        (f"{ROUNDED.reasons[0]} {CONDITION.reasons[1]}", 1.0),
        ("Round figures. Mind conditions.", 0.5),
    ],
)
@pytest.mark.parametrize("verification", ["each", "joint"])
def test_it_knows_a_habit_once_its_prompt_states_it(lm, told, share, verification):
    """Two of four kinds of answers it judges as people do; of each rule that it is told it learns a third."""
    judge = Judge(
        make_lm("openai/tiny", api_base=lm.base),
        classifier=None,
        granularity="sentence",
        verification=verification,
        criteria=told,
    )
    assert share_right(judge, TEST) == share
