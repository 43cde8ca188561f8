"""LMs that can be taught: what each optimizer makes of them, with reasons in the labels and without."""

from contextlib import closing, suppress

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import ConfigError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS
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


@pytest.mark.parametrize(
    ("optimizer", "granularity", "reasons"),
    [
        *((name, "sentence", 1.0) for name in OPTIMIZERS),
        ("guidelines", "sentence", 0.0),
        ("gepa", "sentence", 0.0),
        ("gepa", "statement", 1.0),
    ],
)
def test_prompts_are_compiled_until_it_judges_as_people_do(
    optimizer, granularity, reasons, tmp_path
):
    """From half of the answers to all of them, with reasons in 96 labelled answers and without; saved and loaded, too.

    The proposer gets the proposals only, the judged LM the verdicts only; the judge that was given stays as it was.
    """
    train = labelled(reasons=reasons)
    with closing(TeachableLM()) as judged, closing(TeachableLM()) as proposing:
        judge = judge_of(judged, granularity)
        proposer = make_lm("openai/tiny", api_base=proposing.base)
        compiled = compile_judge(judge, optimizer, train, proposer=proposer).judge
        compiled.save(tmp_path / "judge")
        loaded = load_judge(tmp_path / "judge", lm=judge.lm)
        judges = judge, compiled, loaded
        assert [share_right(one, TEST) for one in judges] == [0.5, 1.0, 1.0]
        assert judged.reflections == []
        assert len(proposing.reflections) == len(proposing.requests)
        assert bool(proposing.requests) is OPTIMIZERS[optimizer].proposes
    predict = compiled.program.verify.predict
    assert {k for d in predict.demos for k in dict(d)} <= set(predict.signature.fields)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_reflector_of_nonsense_costs_nothing(optimizer):
    """What it writes is compared before it is taken."""
    with closing(TeachableLM(nonsense=True)) as lm:
        judge = judge_of(lm)
        with suppress(ConfigError):
            judge = compile_judge(judge, optimizer, labelled()).judge
        assert share_right(judge, TEST) >= 0.5
        if OPTIMIZERS[optimizer].proposes:
            assert lm.reflections
