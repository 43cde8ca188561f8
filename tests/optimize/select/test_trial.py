import pytest
from recorded import Quiet, Record, knowing, quick_study

from faith_dspy.errors import InputError
from faith_dspy.optimize.plan import BUDGETS, Options
from faith_dspy.optimize.report.tables import variants_table
from faith_dspy.optimize.study import run

VARIANTS = ("answer", "sentence", "sentence-few-shot")


def race(many, server, folder, view, **more):
    """Three variants on 54 answers of dev: 27 for all of them, then 54 for two."""
    given = {"lm": "openai/tiny", "api_base": server.base, "budget": "thorough", "variants": VARIANTS}
    return run(many, Options(**given, out=folder / "j", **more), view, tracker=Record)


def test_the_worse_half_is_dropped_and_costs_no_more(many, chat_server, tmp_path, monkeypatch):
    """The untuned judge goes on whatever it reached; of the other two the worse one was judged on half of dev."""
    reached = {"answer": 0.5, "sentence": 0.6}
    monkeypatch.setattr("faith_dspy.optimize.select.trial.score", lambda found: reached.get(found.name, 0.7))
    view = Quiet()
    result = race(many, chat_server(says=knowing), tmp_path, view)
    tried = {name: result.variant(name) for name in VARIANTS}
    (dropped,) = [v for v in tried.values() if v.status == "dropped"]
    assert sorted((v.status, v.judged) for v in tried.values()) == [("done", 54), ("done", 54), ("dropped", 27)]
    assert dropped.note == "others agreed better on 27 of the 54 answers of dev"
    assert f"{dropped.name}: dropped, {dropped.note}" in view.lines
    assert dropped.name == "sentence"
    assert variants_table(result).notes == (f"{dropped.name}: dropped, {dropped.note}.",)
    assert dropped.behind is None


def test_a_limit_in_the_second_half_of_dev_leaves_the_first(many, chat_server, tmp_path):
    """27 answers by three variants are 27 + 2 · 54 calls, more than six tenths of 200; the rest is for the test."""
    result = race(many, chat_server(says=knowing), tmp_path, Quiet(), calls=200)
    assert {result.variant(name).judged for name in VARIANTS} <= {0, 27}
    assert result.tested("champion").agreement.n > 0


def test_a_variant_whose_replies_cannot_be_scored_is_skipped(chat_server, tmp_path):
    """The others are not lost with it; where that is the untuned judge, there is nothing to tune."""

    def whole_only(asked):
        return knowing(asked) if asked["messages"][-1]["content"].count(". ") else "?"

    skipped = quick_study(tmp_path, chat_server(says=whole_only), "sentence").variant("sentence")
    assert (skipped.status, "none scored" in skipped.note) == ("skipped", True)
    with pytest.raises(InputError, match="none scored"):
        quick_study(tmp_path, chat_server(says="?"), "sentence")


def test_a_slow_machine_tries_the_cheapest_shape_all_the_same(chat_server, tmp_path, monkeypatch):
    """The minutes are over at once: the untuned judge and sentences are tried, and nothing else."""
    monkeypatch.setitem(BUDGETS, "quick", BUDGETS["quick"].model_copy(update={"minutes": 0}))
    result = quick_study(tmp_path, chat_server(says=knowing), *VARIANTS)
    assert [result.variant(name).status for name in VARIANTS] == ["done", "done", "skipped"]
    assert "minutes for trying variants were over" in result.variant(VARIANTS[2]).note
