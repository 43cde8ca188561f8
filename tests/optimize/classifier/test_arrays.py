from __future__ import annotations

import random

import numpy as np
import pytest

from faith_dspy.optimize.classifier.fitting import fit_head
from faith_dspy.optimize.classifier.arrays import HeadData, HeadExample
from faith_dspy.text.features import HEAD_SIGNALS


def examples(n: int, lm: float, words: float, seed: int = 0) -> list[HeadExample]:
    """Answers of one statement; the LM's logit and the words lie that far apart between the labels.

    Signals of words say much the same, as they do of real answers.
    """
    rng = random.Random(seed)
    out = []
    for i in range(n):
        side = 1 if i % 2 else -1
        novelty = rng.gauss(-side * words / 2, 1)
        signals = {name: novelty + rng.gauss(0, 0.5) for name in HEAD_SIGNALS if name != "admits_gap"}
        signals["lm:supported"] = rng.gauss(side * lm / 2, 1)
        out.append(HeadExample(statements=[signals], label=side > 0, group=str(i)))
    return out


def test_an_lm_is_presumed_to_weigh_as_much_as_three_signals_of_words():
    """Under one instruction 3, under two 1.5 each; of words 1 in their direction."""
    rows = [HeadExample(statements=[{"lm:a": 1.0, "lm:b": 1.0, "novel_run": 1.0}], label=True, group="g")]
    assert HeadData(rows, ("lm:a", "novel_run", "admits_gap"), ()).presumed == [3, -1, 1]
    assert HeadData(rows, ("lm:a", "lm:b"), ()).presumed == [1.5, 1.5]
    assert HeadData(rows, ("novel_run",), ()).presumed == [-1]


def test_words_do_not_outvote_an_lm_that_knows_more():
    """Forty answers, an LM twice as far apart as words that five signals repeat: its weight is the largest."""
    head = fit_head(examples(40, lm=2.0, words=0.3)).head.statement
    weights = dict(zip(head.names, np.abs(head.weights), strict=True))
    assert weights.pop("lm:supported") > sum(weights.values())


@pytest.mark.parametrize("seed", [0, 1])
def test_words_that_know_more_than_the_lm_are_heard(seed):
    """A weak LM beside words that tell more: together they weigh more than it does."""
    head = fit_head(examples(200, lm=0.3, words=1.5, seed=seed)).head.statement
    weights = dict(zip(head.names, np.abs(head.weights), strict=True))
    assert weights.pop("lm:supported") < sum(weights.values())
