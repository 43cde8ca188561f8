from __future__ import annotations

import pytest

from benchmarks.default_classifier import ENOUGH, Default
from benchmarks.public_labels import read
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.select.evaluate import without_lm
from faith_dspy.text.features import CLASSIFIER_FEATURES


def family(n, invented="Captain Morris paid 900 dollars."):
    """Answers of which every second is invented."""
    rows = [
        {"id": f"{i}", "context": [f"Kettle {i} is red and holds two litres."], "faithful": i % 2 == 0}
        | {"answer": f"Kettle {i} holds two litres." if i % 2 == 0 else f"{invented} {i}."}
        for i in range(n)
    ]
    return without_lm(map(parse_example, rows))


def test_families_weigh_alike():
    """A family of twice as many answers of the same kinds weighs what it did; without it the numbers are others."""
    one, other = family(ENOUGH), family(ENOUGH, "The kettle weighs 30 pounds")
    fitted = Default({"a": one, "b": other}, CLASSIFIER_FEATURES).fit()
    twice = Default({"a": [*one, *one], "b": other}, CLASSIFIER_FEATURES)
    assert twice.fit().answer.intercept == pytest.approx(fitted.answer.intercept, abs=0.2)
    assert fitted.fitted_to == "default"
    assert twice.fit("a") == Default({"b": other}, CLASSIFIER_FEATURES).fit() != fitted


def test_an_answer_in_two_files_counts_once(tmp_path):
    """Families are told by the source that the labels name; files may share answers."""
    row = '{"context": ["The kettle is red."], "answer": "It is red.", "faithful": true, "source": "%s"}\n'
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(row % "expertqa_answers", encoding="utf-8")
    found = read(sorted(tmp_path.iterdir()))
    assert {name: len(examples) for name, examples in found.items()} == {"expertqa_claims": 1}
