from __future__ import annotations

from typing import Any

from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.select.evaluate import DRAWS, ENOUGH, fit, learning_curve, measure, without_lm


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


def test_a_curve_has_a_quarter_half_and_all_of_the_labels() -> None:
    """Of 60: 15, 30 and all, the last as it was measured, without draws; with few labels there is none."""

    def build(known: Any) -> Judge:
        return Judge(NO_LM, classifier=fit(Judge(NO_LM), known, 0).classifier)

    known, advanced = answers(60, "k"), []
    champion = measure("champion", "lm", [a.by(build(known)) for a in answers(40, "t")])
    curve = learning_curve(known, build, champion, 0, advanced.append)
    assert [p.labels for p in curve] == [15, 30, 60]
    assert len(advanced) == 2 * DRAWS
    assert (curve[-1].draws, curve[-1].auroc.value) == (1, champion.agreement.auroc.value)
    for p in curve[:-1]:
        assert 0 < p.draws <= DRAWS
        assert p.auroc.value is not None
        assert p.auroc.value > 0.6
    assert curve == learning_curve(known, build, champion, 0)
    assert learning_curve(known[: ENOUGH - 1], build, champion, 0) == ()
