from __future__ import annotations

from test_selection import judged, variant

from faith_dspy.optimize.frontier import cheapest, points
from faith_dspy.optimize.plots import frontier
from faith_dspy.optimize.results import VariantResult

RIGHT, WRONG = [0.9, 0.1] * 20, [0.1, 0.9] * 20
SLIP = [0.1, *RIGHT[1:]]  # one of forty is wrong


def test_the_cheapest_is_one_not_shown_worse():
    """One slip in forty shows nothing: that variant will do. One that is always wrong is cheaper, and will not."""
    found = [
        variant("best", judged(RIGHT), tokens=300),
        variant("slips", judged(SLIP), tokens=200),
        variant("wrong", judged(WRONG), tokens=100),
    ]
    assert cheapest(found, "best") == "slips"
    assert cheapest(found[:1], "best") == "best"
    assert cheapest(found, "slips") == "slips"


def test_a_floor_is_shown_and_never_chosen():
    """It costs nothing and is no variant one could use."""
    floor = variant("floor", judged(RIGHT), tokens=0).model_copy(update={"kind": "floor"})
    found = [variant("best", judged(RIGHT), tokens=300), floor]
    assert cheapest(found, "best") == "best"
    assert [(p.name, p.tokens) for p in points(found)] == [("best", 300), ("floor", 0)]


def test_what_was_not_measured_is_no_point():
    """A variant that was left out has neither figure nor cost, and without points there is no plot."""
    left_out = VariantResult(name="gepa", kind="lm", description="", params={}, status="skipped")
    assert points([left_out]) == []
    assert frontier([], "best", "best") is None


def test_the_plot_marks_champion_and_cheapest():
    """Both panels name every variant, and the line below says which is which."""
    found = [variant("best", judged(RIGHT), tokens=300), variant("slips", judged(SLIP), tokens=200)]
    figure = frontier(points(found), "best", "slips")
    assert [{t.get_text() for t in ax.texts} for ax in figure.axes] == [{"best", "slips"}] * 2
    assert "champion: best" in figure._supxlabel.get_text()
    assert "not shown worse: slips" in figure._supxlabel.get_text()
