from __future__ import annotations

import random
from typing import Any

from faith_dspy.optimize.diagnostics.groups import by_group
from faith_dspy.optimize.results import PredictionRow


def row(i: int, label: bool, predicted: bool | None, **more: Any) -> PredictionRow:
    """An answer of six words, alone in its group, that the judge is fairly sure about."""
    p = None if predicted is None else 0.8 if predicted else 0.2
    fields = {"answer": "The cat sat on the mat.", "context": ["The cat sat on the mat all day."], **more}
    return PredictionRow(
        id=f"a{i}", group=f"g{i}", part="test", label=label, predicted=predicted, probability=p, **fields
    )


def rows(source: str, start: int, right: int, n: int = 20, **more: Any) -> list[PredictionRow]:
    """``n`` answers of a source, every other one faithful, the first ``right`` of each label judged right."""
    out = []
    for k in range(n):
        label, ok = k % 2 == 0, k // 2 < right
        out.append(row(start + k, label, label if ok else not label, tags={"source": source}, **more))
    return out


def test_the_worst_group_is_named_with_what_it_is_behind_the_rest():
    """All right on one source, half right on the other: .5 against 1, which chance does not explain."""
    found = by_group([*rows("good", 0, 10), *rows("bad", 100, 5)])
    worst = found.lowest
    assert worst is not None
    assert (worst.facet, worst.name, worst.n, worst.faithful) == ("source", "bad", 20, 10)
    assert worst.agreement.balanced_accuracy.value == 0.5
    assert worst.behind == -0.5
    assert worst.p_value < 0.05
    assert "'bad'" in found.sentence
    assert "-50 points against the rest: worse than the rest" in found.sentence


def test_the_name_of_a_group_is_one_line():
    """A line break in a tag would end the row of the tables it stands in."""
    found = by_group([*rows("one\n# two", 0, 8), *rows("other", 100, 7)])
    assert {g.name for g in found.groups if g.facet == "source"} == {"one # two", "other"}


def test_the_worst_of_like_groups_is_not_called_worse():
    """Eight of ten right here, seven of ten there: somebody has to be last."""
    found = by_group([*rows("one", 0, 8), *rows("other", 100, 7)])
    assert found.lowest.name == "other"
    assert found.lowest.p_value > 0.05
    assert "not shown worse than the rest" in found.sentence


def test_the_worst_of_many_is_held_against_the_worst_of_as_many():
    """Six sources that differ by chance alone: the lowest is called worse in about one of twenty sets."""
    alarms = 0
    for seed in range(20):
        rng = random.Random(seed)
        found = by_group(
            [
                row(
                    100 * s + k,
                    k % 2 == 0,
                    (k % 2 == 0) if rng.random() < 0.75 else k % 2 == 1,
                    tags={"source": f"{s}"},
                )
                for s in range(6)
                for k in range(30)
            ],
            n_resamples=200,
        )
        alarms += any(g.p_value < 0.05 for g in found.groups if g.p_value is not None)
    assert alarms <= 3


def test_a_small_group_has_no_figure():
    """Fourteen answers, seven of each label, are too few; the group is listed without a number."""
    found = by_group([*rows("big", 0, 10), *rows("small", 100, 7, n=14)])
    small = next(g for g in found.groups if g.name == "small")
    assert (small.n, small.agreement, small.p_value) == (14, None, None)
    assert found.worst is None
    assert "No two groups" in found.sentence


def test_many_small_groups_are_one_line():
    """Five sources of four answers stand as one; where no ``group`` can be measured none is listed."""
    found = by_group([r for s in range(5) for r in rows(f"s{s}", 100 * s, 2, n=4)])
    assert [(g.facet, g.name, g.n) for g in found.groups] == [("source", "5 small ones", 20)]
    named = [
        r.model_copy(update={"tags": {"group": r.tags["source"]}}) for s in range(5) for r in rows(f"{s}", 9 * s, 2, 4)
    ]
    assert by_group(named).groups == ()


def test_languages_are_guessed_and_lengths_divided_by_three():
    """Without tags there is still the language of the text, and short, middle and long answers."""
    german = {"answer": "Die Katze saß auf der Matte und schlief.", "context": ["Die Katze saß den ganzen Tag dort."]}
    found = by_group([*(r.model_copy(update={"tags": {}}) for r in rows("", 0, 10)),
                      *(r.model_copy(update={"tags": {}}) for r in rows("", 100, 9, **german))])  # fmt: skip
    assert {g.name: g.n for g in found.groups if g.facet == "language"} == {"english": 20, "german": 20}
    by_length = [row(i, i % 2 == 0, True, answer=" ".join(["word"] * (i + 1))) for i in range(30)]
    assert {g.name: g.n for g in by_group(by_length).groups if g.facet == "length"} == {
        "≤ 10 words": 10, "11–20 words": 10, "> 20 words": 10,
    }  # fmt: skip


def test_facets_that_divide_alike_are_told_once():
    """A domain that is the source under another name is not a second comparison."""
    both = [
        r.model_copy(update={"tags": {**r.tags, "domain": r.tags["source"].upper()}})
        for r in [*rows("one", 0, 8), *rows("two", 100, 6)]
    ]
    assert {g.facet for g in by_group(both).groups} == {"source"}


def test_unscored_answers_are_in_the_coverage_only():
    """Two of twenty left unscored: balanced accuracy is over eighteen."""
    part = rows("one", 0, 10)
    part[0] = part[0].model_copy(update={"predicted": None, "probability": None})
    part[1] = part[1].model_copy(update={"predicted": None, "probability": None})
    found = by_group([*part, *rows("two", 100, 10)])
    one = next(g for g in found.groups if g.name == "one")
    assert one.agreement.coverage == 0.9
    assert one.agreement.balanced_accuracy.value == 1.0


def test_people_stand_beside_each_group():
    """Each annotator against the other two, on the group's own answers: who dissents is wrong, one time in three."""
    agreed = [r.model_copy(update={"annotators": [r.label] * 3}) for r in rows("one", 0, 10)]
    dissent = [r.model_copy(update={"annotators": [r.label, r.label, not r.label]}) for r in rows("two", 100, 10)]
    ceilings = {g.name: g.ceiling for g in by_group([*agreed, *dissent]).groups}
    assert ceilings["one"].balanced_accuracy.value == 1.0
    # The two who agree see a tie among the others: only the dissenter has a majority to be held against.
    assert ceilings["two"].balanced_accuracy.value == 0.0
    assert ceilings["two"].n == 20
