from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.agreement import PARTS, answer_draws, best_part, macro, parts_table
from benchmarks.learning_curve import learning
from benchmarks.public_labels import ask, read_replies
from faith_dspy import Judge
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.schema import Judgment, RawJudgment, RawVerdict
from faith_dspy.scoring.classifier import AnswerClassifier, Classifier
from faith_dspy.scoring.statistics import Estimate

ANSWERS = {"The kettle is red. It holds two litres.": True, "The kettle is blue.": False, "I don't know.": False}
EXAMPLES = [
    parse_example({"id": f"{i}", "context": ["A red kettle.", "It holds two litres."], "answer": a, "faithful": label})
    for i, (a, label) in enumerate(ANSWERS.items())
]
SAYS = {"The kettle is red.": 0.9, "It holds two litres.": 0.8} | dict.fromkeys(ANSWERS, 0.3)


def test_what_the_lm_says_is_kept_without_text(chat_server, tmp_path):
    """The file has ids and numbers; with the labelled answers it is what was said. Nothing is asked twice."""
    server, path = chat_server(yes=SAYS), tmp_path / "kept.jsonl"
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    ask({"kettles": EXAMPLES[:1]}, lm, path)
    assert len(server.requests) == 3
    ask({"kettles": EXAMPLES}, lm, path)
    assert len(server.requests) <= 5, (
        "one sentence is the whole answer, mostly the same call; declining is not asked about"
    )
    text = path.read_text(encoding="utf-8")
    assert not any(word in text for word in ("kettle", "litres", "know"))
    assert {json.loads(line)["id"] for line in text.splitlines()} == {"0", "1", "2"}
    for granularity in ("answer", "sentence"):
        judge = Judge(lm, granularity=granularity, classifier=None)
        kept = read_replies(path, EXAMPLES, granularity)
        for e, (said, _) in zip(EXAMPLES, judge.verify_all(EXAMPLES), strict=True):
            assert kept[e.id].raw.without_usage().model_dump() == said.without_usage().model_dump()


def test_what_the_lm_fails_on_is_asked_again(chat_server, tmp_path):
    """A reply that could not be had is not kept."""
    server, path = chat_server(yes={}), tmp_path / "kept.jsonl"
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    ask({"kettles": EXAMPLES[1:2]}, lm, path)
    assert not path.read_text(encoding="utf-8")
    server.says = "Yes"
    ask({"kettles": EXAMPLES[1:2]}, lm, path)
    assert read_replies(path, EXAMPLES, "answer").keys() == {"1"}


def draws(balanced_accuracy, auroc, sign=1):
    """A figure, then 1,001 resamples evenly from a tenth below it to a tenth above it, or the other way round."""
    around = sign * np.concatenate([[0.0], np.linspace(-0.1, 0.1, 1001)])
    return {"balanced_accuracy": balanced_accuracy + around, "auroc": auroc + around}


def test_the_mean_of_sets_has_the_interval_of_independent_figures():
    """.6 ± .1 and .8 ± .2: .7 ± √(.01 + .04) / 2; what could not be measured is left out."""
    found = macro([Estimate(value=0.6, low=0.5, high=0.7), None, Estimate(value=0.8, low=0.6, high=1.0)])
    assert found.value == pytest.approx(0.7)
    assert (found.low, found.high) == pytest.approx((0.7 - 0.1118, 0.7 + 0.1118), abs=1e-4)
    assert macro([None]).value is None


def test_the_champion_is_compared_with_its_best_part():
    """The part with the best sum of both figures; differences are draw by draw; a set of few answers is in no mean."""
    parts = (draws(0.7, 0.9), draws(0.8, 0.7), draws(0.6, 0.6))
    found = dict(zip(PARTS, parts, strict=True)) | {"champion": draws(0.75, 0.8, -1)}
    assert best_part(found) == PARTS[0]
    text = parts_table({"kettles": found, "few": found}, {"kettles": 20, "few": 19})
    assert "| kettles | LM calibrated | +5.0 [-14.0, +24.0] | -10.0 [-29.0, +9.0] |" in text
    assert "mean of 1" in text


def test_auroc_is_of_answers_of_one_fold():
    """.4 above .2, .8 above .6, each in a fold of its own: 1, though .4, of a faithful answer, is below .6."""
    judged = []
    for i, p in enumerate((0.4, 0.2, 0.8, 0.6)):
        row = {"id": f"{i}", "context": [f"Kettle {i}."], "answer": "It is red.", "faithful": i % 2 == 0}
        said = RawVerdict(text="It is red.", verdict="fully_supported", probability=p)
        bare = JudgedAnswer.of(parse_example(row), RawJudgment(raw_verdicts=(said,)), Judgment(score=0.0))
        judged.append(bare.by(Judge("openai/kept", classifier=None)))
    found = answer_draws(judged, {"0": 0, "1": 0, "2": 1, "3": 1})
    assert (found["balanced_accuracy"][0], found["auroc"][0]) == (0.5, 1.0)
    assert answer_draws(judged, dict.fromkeys("0123", 0))["auroc"][0] == 0.75


def test_the_curve_begins_with_what_nothing_was_fitted_to():
    """0 labels: the prior itself, on a third of the contexts; here it is always right. All: the other two thirds."""
    known = []
    for i in range(36):
        row = {"id": f"{i}", "context": [f"Kettle {i}."], "answer": "It is red.", "faithful": i % 2 == 0}
        made = JudgedAnswer.of(parse_example(row), RawJudgment(), Judgment(score=0.0))
        known.append(made.model_copy(update={"features": ({"novel_run": float(i % 2)},), "labels": (None,)}))
    one = {"means": (0.5,), "scales": (0.5,), "intercept": 0.0}
    prior = Classifier(
        statement={"names": ("novel_run",), "weights": (-2.0,), **one},
        answer=AnswerClassifier(names=("weakest",), weights=(1.0,), means=(0.0,), scales=(1.0,), intercept=0.0),
        threshold=0.5,
    )
    found = learning(known, ["novel_run"], prior)
    assert found.keys() == {0, 10, -1}
    assert found[0] == [[1.0, 1.0]] * len(found[0])
