from faith_dspy.optimize.report.tables import by_group
from faith_dspy.schema import Chunk
from tests.support.results import rows as answers


def rows(
    source,
    start,
    right,
    n=20,
    unscored=0,
    answer="The cat sat on the mat.",
    context="The cat sat there all day.",
):
    """``n`` answers of a source, by turns faithful: the first ``right`` of each label judged right, or ``unscored``."""
    out = []
    for k in range(n):
        passes = (k % 2 == 0) is (k // 2 < right)
        p = None if k < unscored else 0.8 if passes else 0.2
        text = (Chunk(id=0, text=context), Chunk(id=1, text=f"{start + k}"))
        out += answers(
            [p],
            [k % 2 == 0],
            f"{start + k}-",
            answer=answer,
            context=text,
            tags={"source": source},
        )
    return out


def test_each_source_has_its_agreement():
    """All right on one source, half right on the other, each with an interval where there is one; unscored answers are
    in the coverage only. A line break in a tag would end the row of the tables it stands in."""
    found = {
        g.name: g
        for g in by_group(
            [*rows("good", 0, 10, unscored=2), *rows("bad\n# one", 100, 5)]
        )
    }
    assert {(name, g.facet, g.n) for name, g in found.items()} == {
        ("good", "source", 20),
        ("bad # one", "source", 20),
    }
    good, bad = (found[name].agreement for name in ("good", "bad # one"))
    assert (good.balanced_accuracy.value, good.coverage) == (1.0, 0.9)
    assert (bad.balanced_accuracy.value, bad.coverage) == (0.5, 1.0)
    assert bad.balanced_accuracy.low < 0.4


def test_small_groups_are_counted_in_one_row():
    """Seven answers of each label are too few to be measured; a facet without any larger group is left out."""
    small = [r for s in range(2) for r in rows(f"small{s}", 100 * s, 7, n=14)]
    found = by_group([*rows("big", 300, 10), *small])
    assert [(g.name, g.n, g.agreement is None) for g in found] == [
        ("big", 20, False),
        ("(2 too small)", 28, True),
    ]
    assert by_group(small) == ()


def test_languages_are_guessed():
    """Without a tag there is still the language of the text."""
    german = (
        "Die Katze saß auf der Matte und schlief.",
        "Die Katze saß den ganzen Tag dort.",
    )
    found = by_group([*rows("", 0, 10), *rows("", 100, 9, 20, 0, *german)])
    assert {g.name: g.n for g in found if g.facet == "language"} == {
        "english": 20,
        "german": 20,
    }
