from __future__ import annotations

from typing import Any

import pytest
from select_points import point

from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize import results
from faith_dspy.optimize.classifier.operating_point import BALANCED
from faith_dspy.optimize.select.evaluate import agreement, fit, judged_rows, scorable, without_lm
from faith_dspy.optimize.select.learning import (
    DRAWS,
    ENOUGH,
    LearningCurve,
    _draws,
    _outlook,
    _sizes,
    learning_curve,
    steps,
)
from faith_dspy.optimize.select.modes import Modes, Replies

ALONE = point("lexical", lm_share=0.0, cheaper_mode=True)
"""The champion that asks no LM."""


def answers(n: int, prefix: str) -> Any:
    """Two answers a context, one with a word that it lacks; of the labels one in five is wrong."""
    colours = ["blue", "green", "red", "white", "black"]
    rows = []
    for i in range(n):
        colour = colours[i % 5]
        text = f"The {prefix}{i // 2} kettle is {colour}."
        wrong = i % 2 == 1
        rows.append(
            parse_example(
                {
                    "id": f"{prefix}{i}",
                    "context": [text, "It holds a litre."],
                    "answer": text.replace(colour, "made of porcelain") if wrong else text,
                    "faithful": wrong == (i % 10 in (3, 4)),
                    "group": f"{prefix}{i // 2}",
                }
            )
        )
    return without_lm(rows)


def curve(known: int) -> tuple[LearningCurve, results.TestsetResult, int]:
    """That of the lexical champion fitted on so many labels, with the champion, and how often it advanced."""
    judged, test = answers(known, "k"), answers(40, "t")
    replies = Replies(judged, fit(scorable(judged), "lexical", 0))
    rows = tuple(judged_rows(test, Judge(NO_LM, classifier=replies.fitted.classifier)))
    champion = results.TestsetResult(name="champion", kind="lm", agreement=agreement(rows), predictions=rows)
    advanced: list[int] = []
    modes = Modes(replies, replies, replies)
    found = learning_curve(modes, ALONE, test, champion, champion, BALANCED, 0, advanced.append)
    return found, champion, len(advanced)


def test_a_curve_goes_from_the_untuned_judge_to_the_champion() -> None:
    """Of 60 labels: none, 10, 30 (a half, in place of 25), 50 and all; ends as they were measured, without draws."""
    found, champion, advanced = curve(60)
    assert [p.labels for p in found.points] == [0, 10, 30, 50, 60]
    assert advanced == steps(60) == 3 * DRAWS
    last = found.points[-1]
    assert (last.draws, last.auroc.value) == (1, champion.agreement.auroc.value)
    assert "one draw" in (last.balanced_accuracy.why or "")
    for p in found.points[1:-1]:
        assert 0 < p.draws <= DRAWS
        assert p.auroc.value is not None
        assert p.auroc.value > 0.6
    assert found == curve(60)[0]


def test_with_few_labels_there_is_no_curve() -> None:
    """It says how many it takes."""
    found, _, advanced = curve(ENOUGH - 2)
    assert found == ((), f"With {ENOUGH - 2} labels to fit on there is no learning curve: it takes {ENOUGH}.")
    assert advanced == steps(ENOUGH - 2) == 0


def test_draws_keep_contexts_together() -> None:
    """Of ten contexts with three answers ten labels are three whole contexts and one answer of a fourth."""
    pool = [(f"{g}-{j}", f"g{g}") for g in range(10) for j in range(3)]
    drawn = list(_draws(pool, 10, 0))
    assert len({frozenset(ids) for ids in drawn}) > DRAWS / 2
    for ids in drawn:
        counts = sorted(sum(i.startswith(f"{g}-") for i in ids) for g in range(10))
        assert counts[-4:] == [1, 3, 3, 3]
    assert drawn == list(_draws(pool[::-1], 10, 0))


@pytest.mark.parametrize(
    ("total", "sizes"), [(29, []), (30, [10, 15, 25]), (100, [10, 25, 50]), (400, [10, 25, 50, 100, 200])]
)
def test_sizes_hold_the_half(total: int, sizes: list[int]) -> None:
    """The last doubling is from half of the labels to all."""
    assert _sizes(total) == sizes


def test_the_outlook_by_hand() -> None:
    """From 50 to 100 labels it rose by 5 points; another 100 are one doubling, beside 300 they are .415."""
    _, champion, _ = curve(60)
    reached = champion.agreement.balanced_accuracy.value
    assert reached is not None
    up = [{"balanced_accuracy": reached - d, "auroc": 0.5} for d in (0.05, 0.05)]
    said = _outlook(100, up, champion)
    assert said.startswith("The next 100 labels would probably bring +5.0 points of balanced accuracy [+5.0, +5.0], ")
    assert "from 50 to 100 labels, brought +5.0 points" in said
    assert "bring +2.1 points" in _outlook(300, up, champion)
    flat = [{"balanced_accuracy": reached - d, "auroc": 0.5} for d in (-0.02, 0.05)]
    assert _outlook(100, flat, champion).startswith("Of the next 100 labels nothing measurable is to be expected:")
    assert "cannot be said" in _outlook(100, [], champion)
