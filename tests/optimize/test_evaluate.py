from __future__ import annotations

import random

import pytest

from faith_dspy.optimize.evaluate import fit_best, to_loss
from faith_dspy.optimize.head_data import HeadExample
from faith_dspy.signals import HEAD_SIGNALS


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


def uses_words(rows: list[HeadExample]) -> bool:
    """Whether the head that is chosen reads words."""
    return any(n in HEAD_SIGNALS for n in fit_best(rows, 0).head.statement.names)


def test_the_lm_alone_is_heard_where_words_are_noise():
    """Sixty answers, an LM four standard deviations apart, and six signals of words that tell nothing."""
    assert not uses_words(examples(60, lm=4.0, words=0.0))


@pytest.mark.parametrize(("lm", "words"), [(1.0, 1.0), (0.3, 1.0)])
def test_words_stay_where_they_help_or_nothing_is_shown(lm, words):
    """A weak LM beside words that tell as much, or more."""
    assert uses_words(examples(60, lm=lm, words=words))


def test_without_an_lm_there_is_only_one_head():
    """An LM that tells no probabilities gives no signal: words are all there is."""
    rows = [
        e._replace(statements=[{k: v for k, v in s.items() if k in HEAD_SIGNALS} for s in e.statements])
        for e in examples(40, lm=1.0, words=1.0)
    ]
    assert uses_words(rows)


def test_log_loss_of_an_answer():
    """ln 4 for a faithful answer at .25, ln 4/3 for an unfaithful one."""
    assert to_loss(0.25, True) == pytest.approx(1.3863, abs=1e-4)
    assert to_loss(0.25, False) == pytest.approx(0.2877, abs=1e-4)
