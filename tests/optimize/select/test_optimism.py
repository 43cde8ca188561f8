from __future__ import annotations

import random

import pytest

from faith_dspy.optimize.checks import Comparison, Difference, McNemar
from faith_dspy.optimize.results import PredictionRow, VariantResult
from faith_dspy.optimize.select.optimism import holm, measure_optimism
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import measure


def variant(name: str, rows: list[PredictionRow], tokens: int = 100) -> VariantResult:
    """A variant that judged dev so."""
    a = measure([r.label for r in rows], [r.predicted for r in rows], [r.probability for r in rows], n_resamples=20)
    figure = (a.balanced_accuracy.value + a.auroc.value) / 2
    return VariantResult(
        name=name, kind="lm", description="", params={}, agreement=a, selection_score=figure, predictions=rows,
        usage=Usage(calls=1, prompt_tokens=tokens), judged=1,
    )  # fmt: skip


def judged(probabilities: list[float]) -> list[PredictionRow]:
    """Dev by these probabilities; every other answer is faithful."""
    return [
        PredictionRow(
            id=str(i), group=str(i), part="dev", label=i % 2 == 0, predicted=p >= 0.5, probability=p
        )
        for i, p in enumerate(probabilities)
    ]  # fmt: skip


def test_the_best_of_many_guesses_owes_its_figure_to_the_choice():
    """Twenty variants that toss coins on forty answers: the winner looks good on dev, and is chance when corrected."""
    rng = random.Random(0)
    coins = [variant(f"v{k}", judged([rng.random() for _ in range(40)])) for k in range(20)]
    champion = max(coins, key=lambda v: v.selection_score).name
    found = measure_optimism(coins, champion, tie=0.0)
    assert found.candidates == 20
    assert found.apparent.value > 0.6
    assert abs(found.corrected.value - 0.5) < 0.07
    assert found.value == pytest.approx(found.apparent.value - found.corrected.value)
    assert found.value > 0.08
    assert sum(found.chosen.values()) == pytest.approx(1)
    assert "corrected for choosing" in found.sentence


def test_a_clear_winner_owes_nothing():
    """One variant always right beside one at chance is chosen every time, and stays at 1."""
    right = [0.9 if i % 2 == 0 else 0.1 for i in range(40)]
    flat = [0.9 if i % 4 < 2 else 0.1 for i in range(40)]
    found = measure_optimism([variant("right", judged(right)), variant("flat", judged(flat))], "right", tie=0.01)
    assert found.chosen == {"right": 1.0, "flat": 0.0}
    assert found.corrected.value == 1.0
    assert found.value == 0.0


def test_ties_go_to_the_cheaper_as_in_the_study():
    """Two variants that judge alike: the one with fewer tokens is chosen in every resample."""
    same = [0.9 if i % 3 else 0.2 for i in range(40)]
    found = measure_optimism(
        [variant("dear", judged(same), 300), variant("cheap", judged(same), 100)], "cheap", tie=0.01
    )
    assert found.chosen == {"dear": 0.0, "cheap": 1.0}


def test_one_variant_alone_was_not_chosen():
    """Without a candidate there is no optimism to tell of; baselines are none."""
    only = variant("only", judged([0.9, 0.1] * 10))
    baseline = only.model_copy(update={"name": "baseline", "kind": "baseline"})
    assert measure_optimism([only, baseline], "only", tie=0.01) is None


def test_a_dev_too_small_says_so():
    """Four answers in two groups, one label each: what is left out has one label, or nothing."""
    rows = [r.model_copy(update={"group": str(i % 2)}) for i, r in enumerate(judged([0.9, 0.1, 0.9, 0.1]))]
    found = measure_optimism([variant("a", rows), variant("b", rows)], "a", tie=0.01)
    assert (found.corrected.value, found.value) == (None, None)
    assert "is unknown" in found.sentence


def against(p: float | None, verdict: str = "better") -> Comparison:
    """A comparison with this p."""
    return Comparison(
        n=100, balanced_accuracy=Difference(value=0.1, low=0.01, high=0.2, p_value=p, standard_error=0.05),
        auroc=Difference(why="not asked"), mcnemar=McNemar(only_a_right=9, only_b_right=2, p_value=0.1),
        verdict=verdict, more_labels=None, sentence="the champion is better than it: +10 points.",
    )  # fmt: skip


def test_holm_by_hand():
    """p = .01, .02, .04: times 3, 2, 1, and never less than the one before; the primary comparison is left alone."""
    given = {"untuned": against(0.049), "a": against(0.04), "b": against(0.01), "c": against(0.02)}
    found = holm(given)
    assert {k: c.p_holm for k, c in found.items()} == {
        "untuned": None, "a": pytest.approx(0.04), "b": pytest.approx(0.03), "c": pytest.approx(0.04),
    }  # fmt: skip
    assert found["untuned"] == given["untuned"]
    assert list(found) == list(given)
    assert "Holm: p = 0.03" in found["b"].sentence


def test_a_verdict_that_does_not_hold_among_several_is_withdrawn():
    """p = .03 twice is .06: not shown better, and the sentence says why."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(0.03)})
    assert found["a"].verdict == "not shown better"
    assert found["a"].sentence.startswith("the champion is not shown to be better than it")
    assert "Holm: p = 0.06" in found["a"].sentence
    assert found["untuned"].verdict == "better"


def test_comparisons_without_p_are_not_counted():
    """A baseline that cannot be compared costs the others nothing."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(None, "not shown better")})
    assert found["a"].verdict == "better"
    assert found["a"].p_holm is None
