"""Agreement between annotators."""

import pytest

from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.data.annotators import annotators_table, between_annotators


def labelled(votes):
    """An answer a line, each with what its annotators said."""
    row = {"context": ["Tea is hot."], "answer": "Tea is hot."}
    return [
        parse_example(row | {"id": i, "annotators": said})
        for i, said in enumerate(votes)
    ]


def test_two_annotators_by_hand():
    """9 of 12 alike, by chance 6: κ is (.75 - .5) / (1 - .5). Of 24 labels 13 are yes, so that two differ by chance
    with 2 · 13 · 11 / (24 · 23): α is 1 - .25 / .518."""
    ann = [True] * 6 + [False] * 6
    bea = [True] * 5 + [False] * 5 + [True] * 2
    votes = [{"ann": a, "bea": b} for a, b in zip(ann, bea, strict=True)]
    between = between_annotators(labelled([*votes, {"ann": True, "cem": True}]))
    (pair,) = between.pairs
    assert (pair.annotators, pair.answers) == (("ann", "bea"), 12)
    assert pair.cohen_kappa == pytest.approx(0.5)
    assert between.scale == "binary"
    alone = between_annotators(labelled(votes))
    assert alone.krippendorff_alpha == pytest.approx(
        1 - 0.25 / (2 * 13 * 11 / (24 * 23))
    )
    assert "Krippendorff's α of all: .52" in annotators_table(alone).notes[0]


def test_ratings_are_ordinal():
    """One level off on a scale of five costs less than the far end."""
    near = [{"ann": 1 + i % 5, "bea": min(5, 2 + i % 5)} for i in range(20)]
    far = [{"ann": 1 + i % 5, "bea": 5 - i % 5} for i in range(20)]
    good, poor = (between_annotators(labelled(votes)) for votes in (near, far))
    assert good.scale == poor.scale == "ordinal"
    assert good.krippendorff_alpha > 0.7 > 0 > poor.krippendorff_alpha
    assert good.pairs[0].cohen_kappa > 0 > poor.pairs[0].cohen_kappa


def test_annotators_without_names_have_no_pairs():
    """Who is first in a list differs from answer to answer: α is of all, κ of nobody."""
    between = between_annotators(labelled([[True, i % 2 == 0] for i in range(12)]))
    assert (between.pairs, between.answers) == ((), 12)
    assert annotators_table(between).columns == ()
    assert between_annotators(labelled([{"ann": True}])) is None
