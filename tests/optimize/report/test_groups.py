from __future__ import annotations

from typing import Any

from made import rows as answers

from faith_dspy.optimize.report.tables import by_group
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.schema import Chunk


def row(i: int, label: bool, predicted: bool | None, **more: Any) -> JudgedAnswer:
    """An answer of six words, alone in its group, that the judge is fairly sure about."""
    p = None if predicted is None else 0.8 if predicted else 0.2
    fields = {"answer": "The cat sat on the mat.", "context": ["The cat sat on the mat all day."], **more}
    fields["context"] = tuple(Chunk(id=k, text=text) for k, text in enumerate([*fields["context"], str(i)]))
    (made,) = answers([p], [label], f"{i}-", id=f"a{i}", group=None, **fields)
    return made


def rows(source: str, start: int, right: int, n: int = 20, **more: Any) -> list[JudgedAnswer]:
    """``n`` answers of a source, every other one faithful, the first ``right`` of each label judged right."""
    out = []
    for k in range(n):
        label, ok = k % 2 == 0, k // 2 < right
        out.append(row(start + k, label, label if ok else not label, tags={"source": source}, **more))
    return out


def test_each_source_has_its_agreement() -> None:
    """All right on one source, half right on the other, each with an interval where there is one."""
    found = {g.name: g for g in by_group([*rows("good", 0, 10), *rows("bad", 100, 5)])}
    assert {(name, g.facet, g.n) for name, g in found.items()} == {("good", "source", 20), ("bad", "source", 20)}
    assert found["good"].agreement.balanced_accuracy.value == 1.0
    assert found["bad"].agreement.balanced_accuracy.value == 0.5
    assert found["bad"].agreement.balanced_accuracy.low < 0.4


def test_the_name_of_a_group_is_one_line() -> None:
    """A line break in a tag would end the row of the tables it stands in."""
    found = by_group([*rows("one\n# two", 0, 8), *rows("other", 100, 7)])
    assert {g.name for g in found} == {"one # two", "other"}


def test_small_groups_are_counted_in_one_row() -> None:
    """Seven answers of each label are too few to be measured; a facet without any larger group is left out."""
    small = [r for s in range(2) for r in rows(f"small{s}", 100 * s, 7, n=14)]
    found = by_group([*rows("big", 300, 10), *small])
    assert [(g.name, g.n, g.agreement is None) for g in found] == [("big", 20, False), ("(2 too small)", 28, True)]
    assert by_group(small) == ()


def test_languages_are_guessed() -> None:
    """Without a tag there is still the language of the text."""
    german = {"answer": "Die Katze saß auf der Matte und schlief.", "context": ["Die Katze saß den ganzen Tag dort."]}
    found = by_group([*rows("", 0, 10), *rows("", 100, 9, **german)])
    assert {g.name: g.n for g in found if g.facet == "language"} == {"english": 20, "german": 20}


def test_unscored_answers_are_in_the_coverage_only() -> None:
    """Two of twenty left unscored: balanced accuracy is over eighteen."""
    part = rows("one", 0, 10)
    unscored = [row(i, i == 0, None, tags={"source": "one"}) for i in range(2)]
    one = next(g for g in by_group([*unscored, *part[2:], *rows("two", 100, 10)]) if g.name == "one")
    assert one.agreement.coverage == 0.9
    assert one.agreement.balanced_accuracy.value == 1.0
