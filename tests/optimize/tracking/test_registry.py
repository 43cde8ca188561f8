from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made import judge, rows, study

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.optimize.tracking.registry import decide_promotion, register, rollback
from faith_dspy.optimize.tracking.store import client_of, connect

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult

RIGHT = rows([0.9, 0.1] * 20)
WRONG = rows([0.1, 0.9] * 20)
MOSTLY, OFTEN = (*RIGHT[:36], *WRONG[36:]), (*RIGHT[:30], *WRONG[30:])
ELSEWHERE = rows([0.9, 0.1] * 20, prefix="b")
CORRECTED = (*rows([0.9], [False]), *RIGHT[1:])


@pytest.mark.parametrize(
    ("champion", "untuned", "present", "promoted", "reason"),
    [
        # Tested on other answers, under corrected labels too, it must be shown better than its own untuned judge.
        (MOSTLY, WRONG, None, True, "it is better than its own untuned judge; the present champion was not tested on"),
        (MOSTLY, WRONG, ELSEWHERE, True, "it is better than its own untuned judge; the present champion was not"),
        (MOSTLY, WRONG, CORRECTED, True, "it is better than its own untuned judge; the present champion was not"),
        (MOSTLY, MOSTLY, ELSEWHERE, False, "it is not shown better than its own untuned judge"),
        # Tested on the same answers, a difference that is shown decides. All right against all wrong: 100 points.
        (OFTEN, WRONG, RIGHT, False, "it is worse than the present champion on the same 40 test answers (-25.0 ["),
        (RIGHT, RIGHT, WRONG, True, "it is better than the present champion on the same 40 test answers (+100.0 ["),
        # Where none is shown it has still to be worth its tuning.
        (RIGHT, WRONG, RIGHT, True, "it is better than its own untuned judge, and not shown worse than the present"),
        (RIGHT, RIGHT, RIGHT, False, "it is not shown better than its own untuned judge"),
        # What no comparison can earn: no better than chance, or worse than what costs less.
        (WRONG, WRONG, None, False, "it is not shown better than chance"),
        (OFTEN, RIGHT, None, False, "it is worse than the untuned judge"),
    ],
)
def test_who_takes_the_alias(champion: Any, untuned: Any, present: Any, promoted: bool, reason: str) -> None:
    """A champion is replaced by one shown better on its answers, or else by one shown better than no tuning."""
    found = decide_promotion(study(champion, untuned), present and study(present))
    assert found.promoted is promoted
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("cheaper", ["default-judge", "lexical-baseline"])
def test_a_champion_that_is_worse_than_what_costs_less_is_none(cheaper: str) -> None:
    """Not even the first: the default judge needs no labels, the lexical baseline no LM."""
    result = study(OFTEN, WRONG, test=[judge("champion", OFTEN), judge("untuned", WRONG), judge(cheaper, RIGHT)])
    found = decide_promotion(result, None, first=True)
    assert not found.promoted
    assert found.reason.startswith("it is worse than the ")


@pytest.mark.parametrize(("present", "promoted"), [(False, False), (None, False), (True, True)])
def test_one_without_a_test_replaces_none_that_was_tested(present: bool | None, promoted: bool) -> None:
    """A champion that was only cross-fitted takes the alias from its like alone, not from one nobody knows (None)."""
    cross_fitted, tested = {"split": {"cross_fitted": True}}, {"split": {"cross_fitted": False}}
    there = None if present is None else study(WRONG, **(cross_fitted if present else tested))
    found = decide_promotion(study(RIGHT, WRONG, **cross_fitted), there)
    assert found.promoted is promoted
    assert found.reason.startswith("it is better than the present" if promoted else "it was only cross-fitted, for")


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers studies in a store that is not the process's own: (sentence, aliases)."""
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/theirs.db"
    store = connect(uri)
    client = store.client

    def make(result: StudyResult, card: str = "The card.") -> Any:
        run = client.create_run(store.experiment_id).info.run_id
        client.log_text(run, result.model_dump_json(), "study.json")
        Judge("openai/tiny", granularity="sentence").save("judge")
        Path("judge/CARD.md").write_text(card, encoding="utf-8")
        told = register(store, run, result.model_copy(update={"judge_dir": "judge"}), "faithfulness")
        aliases = {k: str(v) for k, v in client.get_registered_model("faithfulness").aliases.items()}
        return told, aliases

    make.uri, make.client = uri, client  # type: ignore[attr-defined]
    return make


def test_the_alias_moves_when_it_is_earned_and_back(registered: Any) -> None:
    """The first is champion; one shown worse is registered beside it; a better one takes the alias until rollback."""
    told, aliases = registered(study(WRONG, study_id="none"))
    assert told.endswith("version 1, but @champion is given to none: it is not shown better than chance.")
    assert aliases == {}

    told, aliases = registered(study(MOSTLY, study_id="a"))
    assert told == "Registered as faithfulness version 2 and @champion: there was no champion."
    assert aliases == {"champion": "2"}
    for told in ("no version is @champion; version 2 is @previous", "version 2 is @champion; no version is @previous"):
        assert rollback(tracking_uri=registered.uri) == f"faithfulness: {told}. Repeat to undo."

    told, aliases = registered(study(OFTEN, RIGHT, study_id="b"), "x" * 8000)
    assert told.startswith("Registered as faithfulness version 3, but @champion stays version 2: it is worse than the")
    assert aliases == {"champion": "2"}

    fourth = study(RIGHT, WRONG, study_id="c")
    told, aliases = registered(fourth)
    assert told.startswith("Registered as faithfulness version 4 and @champion: it is better than ")
    assert aliases == {"champion": "4", "previous": "2"}

    assert rollback(tracking_uri=registered.uri).startswith("faithfulness: version 2 is @champion; version 4 is")
    told, aliases = registered(fourth)
    assert told == "Registered before as faithfulness version 4 (@previous)."
    assert aliases == {"champion": "2", "previous": "4"}

    second, third = (registered.client.get_model_version("faithfulness", v) for v in ("2", "3"))
    assert second.description == "The card."
    assert second.tags["promoted"] == "yes: there was no champion"
    assert third.tags["promoted"].startswith("no: it is worse than")
    assert third.description == "x" * 5000


def test_a_champion_held_back_is_registered_without_the_alias(registered: Any) -> None:
    """Not even where there is no champion yet, and not where it is better than the present one."""
    held = {"held_back": ("injection: tool results: flipped 1.00 of 2 verdicts.",)}
    told, aliases = registered(study(RIGHT, WRONG, study_id="a", **held))
    assert told == (
        "Registered as faithfulness version 1, but @champion is given to none: it was held back under stress."
    )
    assert aliases == {}
    with pytest.raises(InputError, match="no version @champion and none @previous"):
        rollback(tracking_uri=registered.uri)
    told, aliases = registered(study(MOSTLY, WRONG, study_id="b"))
    assert told.endswith("and @champion: there was no champion.")
    assert aliases == {"champion": "2"}
    assert registered(study(RIGHT, WRONG, study_id="c", **held))[1] == {"champion": "2"}


def test_there_may_be_nothing_to_roll_back(tmp_path: Path) -> None:
    """A store that is not there, and one without a model, are named; nothing is made."""
    with pytest.raises(InputError, match=r"there is no MLflow store at sqlite:///nothing\.db"):
        rollback(tracking_uri="sqlite:///nothing.db")
    assert not Path("nothing.db").exists()
    client_of(f"sqlite:///{tmp_path}/empty.db").create_experiment("faithfulness")
    with pytest.raises(InputError, match="no model 'faithfulness' is registered"):
        rollback(tracking_uri=f"sqlite:///{tmp_path}/empty.db")
