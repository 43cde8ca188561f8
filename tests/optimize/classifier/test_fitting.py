import random

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from faith_dspy.errors import ConfigError
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.classifier import fitting
from faith_dspy.optimize.classifier.fitting import (
    BALANCED,
    ClassifierData,
    OperatingPoint,
    recalibrate,
    review_range,
    threshold_for,
)
from faith_dspy.optimize.classifier.logistic import fit_logistic, standardized
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.schema import Judgment, RawJudgment
from faith_dspy.text.features import CLASSIFIER_FEATURES

NAMES = ("lm", *CLASSIFIER_FEATURES)


def answer(features, label, source, labels=()):
    """A judged answer with statements of these features; ``labels``: people's of the statements."""
    verdicts = ["fully_supported" if x else "not_supported" for x in labels]
    row = {"id": source, "group": source, "context": ["c"], "answer": "a"}
    row["statements"] = [{"text": "s", "verdict": verdict} for verdict in verdicts]
    example = parse_example(row | {"faithful": label})
    statement_labels = tuple(labels) or (None,) * len(features)
    return JudgedAnswer.judged(example, RawJudgment(), Judgment(score=1.0)).model_copy(
        update={"features": tuple(features), "labels": statement_labels}
    )


def simulate(n, seed, *, lm=0.0, statement_labels=True, base=0.85, per_group=3):
    """Answers of 1–8 statements; a bad statement has one standard deviation more novelty and `lm` less LM logit."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        labels = [rng.random() < base for _ in range(rng.randint(1, 8))]
        statements = []
        for good in labels:
            mean = 1.0 if good else 2.0
            features = {x: max(0.0, rng.gauss(mean, 1.0)) for x in CLASSIFIER_FEATURES}
            if lm:
                features["lm"] = rng.gauss(lm if good else -lm, 1.0)
            statements.append(features)
        told = labels if statement_labels else ()
        out.append(answer(statements, all(labels), f"g{i // per_group}", told))
    return out


def fit_classifier(answers, names, **more):
    """Fitted with folds by source."""
    fold_of = assign_folds([a.example for a in answers], 0)
    return fitting.fit_classifier(answers, names, fold_of, **more)


def auroc(answers, classifier):
    probabilities = [classifier.probability(a.features) for a in answers]
    return roc_auc_score([a.label for a in answers], probabilities)


@pytest.mark.parametrize("statement_labels", [True, False])
def test_learns_from_either_kind_of_label(statement_labels):
    """With labels of statements or of answers alone, unseen answers are told apart."""
    train = simulate(120, 1, statement_labels=statement_labels)
    classifier = fit_classifier(train, CLASSIFIER_FEATURES).classifier
    assert auroc(simulate(400, 2), classifier) > 0.8
    rate = classifier.threshold
    if statement_labels:
        rate = np.mean([x for a in train for x in a.labels])
    assert classifier.statement_threshold == pytest.approx(rate)


def test_without_labels_of_statements_an_answer_passes_where_all_of_its_statements_do():
    """One slope, offset and threshold for both."""
    train = simulate(120, 1, lm=1.0, statement_labels=False)
    classifier = fit_classifier(train, NAMES).classifier
    for a in train:
        passes = classifier.probability(a.features) >= classifier.threshold
        weakest = min(classifier.statement_probabilities(a.features))
        assert passes == (weakest >= classifier.statement_threshold)


def test_the_weights_of_a_fold_have_not_seen_it():
    """All statements of one answer labelled otherwise: the weights without its fold stay, those of others do not."""
    train = simulate(60, 9, per_group=1)
    fold_of = assign_folds([a.example for a in train], 0)
    own = train[0]
    other = answer(own.features, own.label, own.source, [not x for x in own.labels])

    def weights(first):
        answers = [first, *train[1:]]
        fit = fitting.fit_classifier(answers, CLASSIFIER_FEATURES, fold_of)
        own = {k: np.array(c.statement.weights) for k, c in fit.without_fold.items()}
        # Calibration scales all of them alike.
        return {k: values / np.abs(values).max() for k, values in own.items()}

    before, after = weights(own), weights(other)
    same = [k for k in before if np.allclose(before[k], after[k], atol=1e-6)]
    assert (same, len(before)) == ([fold_of[own.source]], 5)


def test_probabilities_are_chances_at_the_base_rate():
    """Though classes weigh the same in fitting, the mean probability is the share of faithful answers."""
    train = simulate(400, 8, base=0.95)
    classifier = fit_classifier(train, CLASSIFIER_FEATURES).classifier
    rate = np.mean([a.label for a in train])
    probabilities = [classifier.probability(a.features) for a in train]
    assert np.mean(probabilities) == pytest.approx(rate, abs=0.03)
    assert classifier.threshold == pytest.approx(rate)


@pytest.mark.parametrize(
    ("labels", "bad", "enough"), [(39, 5, False), (40, 5, True), (60, 4, False)]
)
def test_labels_of_statements_are_learned_from_where_there_are_enough(
    labels, bad, enough
):
    """Forty of them, five of the rarer class."""
    rows = [answer([{}] * labels, False, "g", [i >= bad for i in range(labels)])]
    assert ClassifierData(rows, CLASSIFIER_FEATURES).by_statement is enough


def test_labels_of_answers_are_none_of_statements():
    """Though forty statements of faithful answers are certain, and forty lone ones of the others."""
    bare = answer([{}] * 40, True, "g").model_copy(update={"labels": (True,) * 40})
    lone = answer([{}], False, "h").model_copy(update={"labels": (False,)})
    assert not ClassifierData([bare, *[lone] * 40], CLASSIFIER_FEATURES).by_statement


def test_missing_values_are_the_mean():
    """Of a column that was measured once, and of one that never was."""
    gap = np.nan
    means, scales, z = standardized(np.array([[3.0, gap], [gap, gap], [gap, gap]]))
    assert (means.tolist(), scales.tolist()) == ([3.0, 0.0], [1.0, 1.0])
    assert not z.any()


def test_an_lm_that_separates_is_not_held_at_the_weight_of_one_that_does_not():
    """Its weight has a prior of its own width: with 60 labels it is several times what words weigh together, and with
    that of a poor LM no more than they do."""
    shares = []
    for lm in (2.5, 0.05):
        fit = fit_classifier(simulate(60, 21, lm=lm, statement_labels=False), NAMES)
        weight, *others = fit.classifier.statement.weights
        shares.append(weight / sum(map(abs, others)))
    assert shares[0] > 3
    assert shares[1] < 1


def test_a_recalibrated_classifier_keeps_its_weights():
    """Only slope, offset and threshold are new: that of labels of which three in four are faithful."""
    fitted = fit_classifier(simulate(200, 24), CLASSIFIER_FEATURES).classifier
    shipped = fitted.model_copy(update={"threshold": 0.9})
    other = simulate(80, 25, base=0.97, statement_labels=False)
    anew = recalibrate(shipped, other)
    assert anew.statement == shipped.statement
    assert anew.threshold == pytest.approx(np.mean([a.label for a in other]))


def test_weights_of_other_labels_are_a_prior():
    """A few labels leave them nearly as they are, many do not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    prior = np.array([2.0, -2.0])
    # The first feature weighs 2, the other nothing.
    y = (x[:, 0] + rng.logistic(size=400) / 2 > 0).astype(float)
    few, many = (
        fit_logistic(x[:n], y[:n], [1, -1], width=0.4, prior=prior) for n in (4, 400)
    )
    assert few.weights / few.scales == pytest.approx(prior, abs=0.5)
    assert many.weights[0] / many.scales[0] == pytest.approx(2, abs=0.5)
    assert -0.8 < many.weights[1] <= 0


# Ten answers: unfaithful at .1 .2 .3 .5, faithful at .4 .6 .7 .8 .9 .95.
PROBABILITIES = np.array([0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95])
LABELS = np.array([False] * 4 + [True] * 6)


def test_an_operating_point_is_read_and_written():
    for text, point in (
        ("balanced", BALANCED),
        ("recall=0.9", OperatingPoint("recall", 0.9)),
        (" Cost=2.5 ", OperatingPoint("cost", 2.5)),
    ):
        assert OperatingPoint.parse(text) == OperatingPoint.parse(str(point)) == point


@pytest.mark.parametrize(
    "text",
    ["best", "balanced=1", "recall", "recall=90", "recall=nan", "cost=0", "cost=inf"],
)
def test_a_wrong_operating_point_is_answered_with_a_right_one(text):
    said = f"got operating point '{text}', expected .* balanced; recall=0.9, .* cost=5"
    with pytest.raises(ConfigError, match=said):
        OperatingPoint.parse(text)


@pytest.mark.parametrize(
    ("point", "threshold"),
    [
        ("balanced", 0.6),
        ("cost=4", 0.8),
        ("recall=0.4", 0.25),
        ("recall=0.5", 0.35),
        ("recall=0.8", 0.55),
    ],
)
def test_thresholds_by_hand(point, threshold):
    """The share of faithful answers, 6 of 10; 4 / (1 + 4); of the 4 unfaithful ones the 5 · .4 = second lowest, .2, the
    third, .3, and the fourth, .5: half way from each to the next answer."""
    found = threshold_for(OperatingPoint.parse(point), PROBABILITIES, LABELS)
    assert found == pytest.approx(threshold)


def test_the_review_range_holds_the_answers_nearest_to_the_threshold():
    """Of ten at a distance of .05, .15 … from .5 a fifth: those at .05, and half way on to .15."""
    probabilities = np.arange(0.05, 1, 0.1)
    low, high = review_range(probabilities, 0.5)
    assert sum(low <= p < high for p in probabilities) == 2
    assert 0.5 - low == pytest.approx(high - 0.5)
