from __future__ import annotations

import random

import numpy as np

from faith_dspy.optimize.classifier.arrays import ClassifierData, ClassifierExample
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.text.features import CLASSIFIER_FEATURES


def examples(n: int, lm: float, words: float, seed: int = 0) -> list[ClassifierExample]:
    """Answers of one statement; the LM's logit and the lexical features lie that far apart between the labels.

    Lexical features repeat each other, as they do on real answers.
    """
    rng = random.Random(seed)
    out = []
    for i in range(n):
        side = 1 if i % 2 else -1
        novelty = rng.gauss(-side * words / 2, 1)
        features = {name: novelty + rng.gauss(0, 0.5) for name in CLASSIFIER_FEATURES if name != "admits_gap"}
        features["lm"] = rng.gauss(side * lm / 2, 1)
        out.append(ClassifierExample(statements=[features], label=side > 0, group=str(i)))
    return out


def test_the_lm_has_the_prior_weight_of_three_lexical_features():
    """3 for the LM; 1 for lexical features, in their direction."""
    rows = [ClassifierExample(statements=[{"lm": 1.0, "novel_run": 1.0}], label=True, group="g")]
    assert ClassifierData(rows, ("lm", "novel_run", "admits_gap"), ()).prior_directions == [3, -1, 1]
    assert ClassifierData(rows, ("novel_run",), ()).prior_directions == [-1]


def test_lexical_features_do_not_outvote_an_lm_that_knows_more():
    """Forty answers, an LM that separates far better than five features that repeat each other: it weighs most."""
    classifier = fit_classifier(examples(40, lm=2.0, words=0.3)).classifier.statement
    weights = dict(zip(classifier.names, np.abs(classifier.weights), strict=True))
    assert weights.pop("lm") > sum(weights.values())
