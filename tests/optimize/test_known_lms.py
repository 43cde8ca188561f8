"""Tuning LMs of known strength: a strong one is never tuned down, a weak one is lifted, labels alone are enough."""

from contextlib import closing
from statistics import mean

import pytest

from faith_dspy.optimize.data.pool import with_sources
from tests.benchmarks.known_lm import BADLY_PLACED
from tests.benchmarks.known_lms import (
    Strength,
    draw,
    one,
    replies_of,
    synthetic,
)
from tests.benchmarks.studied import unasked_answers

STRONG, WEAK = (
    Strength(f"{auroc}", "openai/gpt-4o-mini", auroc, 0.0, True)
    for auroc in (0.97, 0.65)
)


@pytest.fixture(scope="module")
def towns():
    """Answers that words tell apart in half of the cases, over 60 sources."""
    return with_sources(synthetic(sources=60))


@pytest.fixture(scope="module")
def unasked(towns):
    return unasked_answers(towns)


def studies(lm, towns, unasked, labels):
    """Rows of the bench: what champion, LM and words reach on the answers of other sources, with so many labels.

    Another LM each draw. Of a draw the difference varies by 3 points: ten draws tell -1 from +1.
    """
    rows = []
    for seed in range(10):
        with closing(lm.serve(towns, seed)) as server:
            replies = replies_of(server, lm.model, towns, unasked)
        asked = [shape for shape in replies if shape.name in ("answer", "sentence")]
        rows.append(one(asked, unasked.lexical, *draw(towns, labels, seed)))
    return rows


def gain(rows, other):
    """Points of balanced accuracy by which the champion is ahead, in the mean over draws."""
    return 100 * mean(
        row["champion"]["balanced_accuracy"] - row[other]["balanced_accuracy"]
        for row in rows
    )


@pytest.mark.parametrize(
    "told",
    [
        {"probabilities": False},
        pytest.param({"offset": BADLY_PLACED}, marks=pytest.mark.all),
    ],
)
def test_a_strong_lm_is_never_tuned_down(told, towns, unasked):
    """By 24 labels: neither where it is badly placed at .5, nor where it tells labels only."""
    rows = studies(STRONG._replace(**told), towns, unasked, 24)
    assert gain(rows, "LM calibrated") > -1
    assert gain(rows, "lexical") > 15


def test_a_weak_lm_is_lifted_to_what_is_free(towns, unasked):
    rows = studies(WEAK, towns, unasked, 60)
    assert gain(rows, "LM calibrated") > 5
    assert gain(rows, "lexical") > -1
