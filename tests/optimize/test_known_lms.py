"""Tuning LMs of known strength: a strong one is never tuned down, a weak one is lifted, labels alone are enough."""

from statistics import fmean
from typing import NamedTuple

import pytest

from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import LEXICAL
from faith_dspy.optimize.select.ask import without_lm
from faith_dspy.optimize.select.candidates import as_asked, candidates
from faith_dspy.optimize.select.champion import choose
from tests.support.replies import examples, replies

STRONG, WEAK = 2.66, 0.545
"""Standard deviations between faithful answers and others: AUROCs of .97 and .65, as Φ(d / √2)."""


class Reached(NamedTuple):
    """Percent of balanced accuracy on answers of other sources, in the mean over draws."""

    champion: float
    lexical: float
    calibrated: float
    """The LM with an offset alone."""


def half_told(n, seed):
    """Answers of which words tell every second unfaithful one, and no faithful one wrongly."""
    made = examples(2 * n, known_words=0.5, seed=seed)
    return [e for e in made if not e.label or e.answer == e.context[0].text][:n]


def balanced_accuracy(judge, asked):
    """Percent, of a judge that gets these replies."""
    judged = as_asked(judge, asked, without_lm(a.example for a in asked).answers)
    right = [
        fmean(a.predicted is label for a in judged if a.label is label)
        for label in (True, False)
    ]
    return 100 * fmean(right)


def studied(labels, **lm):
    """What studies of so many labels export, and what is free, on 200 other answers.

    Another LM each draw. Of a draw the difference varies by 3 points: ten draws tell -1 from +1.
    """
    draws = []
    for seed in range(10):
        asked = replies(half_told(labels + 200, seed), seed=100 + seed, **lm)
        pool, test = asked.answers[:labels], asked.answers[labels:]
        labelled = [a.example for a in pool]
        fold_of = assign_folds(labelled, 0)
        learned = asked._replace(answers=pool)
        tried = candidates(without_lm(labelled), [learned], fold_of, BALANCED)
        judges = {candidate.name: candidate.judge for candidate in tried}
        names = (choose(tried).champion.name, LEXICAL, "sentence, LM calibrated")
        draws.append([balanced_accuracy(judges[name], test) for name in names])
    return Reached(*map(fmean, zip(*draws, strict=True)))


@pytest.mark.parametrize(
    "told",
    [
        {"probabilities": False},
        pytest.param({"offset": 2.5}, marks=pytest.mark.all),
    ],
)
def test_a_strong_lm_is_never_tuned_down(told):
    """By 24 labels: neither where it tells labels only, nor where most of its answers pass at .5."""
    reached = studied(24, separation=STRONG, **told)
    assert reached.champion - reached.calibrated > -1
    assert reached.champion - reached.lexical > 15


def test_a_weak_lm_is_lifted_to_what_is_free():
    reached = studied(60, separation=WEAK)
    assert reached.champion - reached.calibrated > 5
    assert reached.champion - reached.lexical > -1
