"""LMs that can be taught: what each optimizer makes of them, with reasons in the labels and without."""

from contextlib import closing, suppress

import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS, Effort
from tests.support.teachable import TeachableLM, annotated


def labelled(**how):
    return [parse_example(row) for row in annotated(**how)]


TEST = labelled(sources=40, first=1000)
"""120 answers: 30 of each kind, so that 60 are faithful."""


def share_right(judge, answers):
    """Share of answers about which a judge says what people say."""
    judgments = judge.batch(answers)
    pairs = zip(judgments, answers, strict=True)
    return sum(judgment.faithful is e.label for judgment, e in pairs) / len(answers)


def judge_of(lm, granularity="sentence"):
    model = make_lm("openai/tiny", api_base=lm.base)
    return Judge(model, classifier=None, granularity=granularity)


@pytest.fixture(scope="module")
def lm():
    with closing(TeachableLM()) as server:
        yield server


@pytest.mark.parametrize(
    ("optimizer", "granularity", "reasons"),
    [
        ("mistakes", "sentence", False),
        ("guidelines", "sentence", True),
        ("guidelines", "sentence", False),
        ("gepa", "sentence", False),
        ("gepa", "statement", True),
    ],
)
def test_prompts_are_compiled_until_it_judges_as_people_do(
    lm, optimizer, granularity, reasons
):
    """From half of the answers to all of them, with reasons in 96 labelled answers and without; it reflects itself."""
    judge = judge_of(lm, granularity)
    train = labelled(reasons=reasons)
    compiled = compile_judge(judge, optimizer, train, Effort(), 0)
    assert share_right(judge, TEST) == 0.5
    assert share_right(compiled.judge, TEST) == 1.0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_reflector_of_nonsense_costs_nothing(optimizer):
    """What it writes is compared before it is taken."""
    with closing(TeachableLM(nonsense=True)) as lm:
        judge = judge_of(lm)
        with suppress(ConfigError):
            judge = compile_judge(judge, optimizer, labelled(), Effort(), 0).judge
        assert share_right(judge, TEST) >= 0.5
        if OPTIMIZERS[optimizer].proposes:
            assert lm.reflections
