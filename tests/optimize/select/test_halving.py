from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from test_study import Quiet, Record, knowing, studied

from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.options import Options
from faith_dspy.optimize.report.tables import variants_table
from faith_dspy.optimize.select.halving import rungs
from faith_dspy.optimize.study import run

VARIANTS = ("answer", "sentence", "sentence-few-shot")


def parts(many: Any, size: int, *, cross_fitted: bool = False) -> Any:
    """So many answers of dev."""
    return SimpleNamespace(dev=read_labels(many)[:size], cross_fitted=cross_fitted)


@pytest.mark.parametrize(
    ("variants", "size", "rung_sizes"),
    [(6, 100, [25, 50, 100]), (4, 100, [50, 100]), (2, 100, [100]), (6, 80, [20, 40, 80]), (3, 24, [24])],
)
def test_each_rung_holds_the_one_before_and_is_half_of_the_next(many, variants, size, rung_sizes):
    """Of six variants two halvings leave two; a rung of fewer than twenty answers is left out."""
    found = [{e.id for e in rung} for rung in rungs(parts(many, size), variants, 0)]
    assert [len(rung) for rung in found] == rung_sizes
    assert all(low <= high for low, high in pairwise(found))


def test_where_dev_is_tested_on_all_of_it_is_judged_by_every_variant(many):
    """What is not judged cannot be tested on."""
    assert [len(rung) for rung in rungs(parts(many, 100, cross_fitted=True), 6, 0)] == [100]


def study(many: Any, server: Any, tmp_path: Any, view: Quiet, tracker: Any = Record, **more: Any) -> Any:
    """Three variants on 54 answers of dev: 27 for all of them, then 54 for two."""
    options = Options("openai/tiny", server.base, budget="thorough", variants=VARIANTS, out=tmp_path / "j", **more)
    return run(many, options, view, tracker=tracker)


def test_the_worse_half_is_dropped_and_costs_no_more(many, chat_server, tmp_path):
    """The LM sees through single sentences, hardly through whole answers: those are judged on half of dev.

    Each variant is recorded when it was tried, and anew after each halving.
    """
    view, kept = Quiet(), []

    class Keeping(Record):
        def variant(self, result):
            kept.append((result.name, result.judged, len(view.tasks)))

    result = study(many, chat_server(says=knowing), tmp_path, view, tracker=Keeping)
    tried = {name: result.variant(name) for name in VARIANTS}
    (dropped,) = [v for v in tried.values() if v.status == "dropped"]
    assert sorted((v.status, v.judged) for v in tried.values()) == [("done", 54), ("done", 54), ("dropped", 27)]
    assert dropped.note == "others agreed better on 27 of the 54 answers of dev"
    assert f"{dropped.name}: dropped, {dropped.note}" in view.lines
    assert result.champion != dropped.name
    best = max(v.selection_score for v in tried.values() if v.status == "done")
    assert result.variant(result.champion).selection_score >= best - 0.01
    first = [("answer", 27, 1), ("sentence", 27, 2), ("sentence-few-shot", 27, 4)]  # few-shot is compiled first
    assert [k for k in kept if k[0] in VARIANTS][:3] == first
    assert {k[:2] for k in kept[-3:]} == {(name, v.judged) for name, v in tried.items()}
    assert variants_table(result).notes == (f"{dropped.name}: dropped, {dropped.note}.",)
    assert dropped.name not in [p.name for p in result.costs]  # `--prefer cheapest` does not take it


def test_a_limit_in_a_later_rung_leaves_the_one_before(many, chat_server, tmp_path):
    """27 answers by three variants are 27 + 2 · 54 calls, the test of 54 is kept back, the next rung 81 or more."""
    view = Quiet()
    result = study(many, chat_server(says=knowing), tmp_path, view, limits=Limits(calls=230))
    assert {result.variant(name).judged for name in VARIANTS} <= {0, 27}
    assert result.tested("champion").agreement.n > 0
    assert any("fewer answers of dev" in line for line in view.lines)


def test_a_variant_whose_replies_cannot_be_scored_is_skipped(chat_server, tmp_path):
    """The others are not lost with it; where that is the untuned judge, there is nothing to tune."""

    def whole_only(asked: Any) -> Any:
        return knowing(asked) if asked["messages"][-1]["content"].count(". ") else "?"

    result = studied(tmp_path, chat_server(says=whole_only), "sentence")
    assert result.variant("sentence").status == "skipped"
    assert "none scored" in result.variant("sentence").note
    with pytest.raises(InputError, match="none scored"):
        studied(tmp_path, chat_server(says="?"), "sentence")
