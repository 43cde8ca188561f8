from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.optimize.results import Comparison, Difference, PredictionRow, StudyResult
from faith_dspy.optimize.tracking.registry import Promotion, decide_promotion, register, rollback
from faith_dspy.optimize.tracking.store import client_of, connect
from faith_dspy.scoring.agreement import measure

LABELS = [True, False] * 20
RIGHT = [0.9, 0.1] * 20
WRONG = [0.1, 0.9] * 20
MOSTLY = [*RIGHT[:36], *WRONG[36:]]


def study(study_id: str, probabilities: list[float], verdict: str = "better", first: int = 0) -> Any:
    """A study whose champion gave these probabilities, and was shown this against its untuned judge."""
    rows = [
        PredictionRow(id=f"a{first + i}", group=f"g{i}", part="test", label=y, predicted=p >= 0.5, probability=p)
        for i, (y, p) in enumerate(zip(LABELS, probabilities, strict=True))
    ]
    agreement = measure([r.label for r in rows], [r.predicted for r in rows], probabilities, n_resamples=20)
    against = Comparison(
        n=40,
        balanced_accuracy=Difference(),
        auroc=Difference(),
        verdict=verdict,  # type: ignore[arg-type]
        more_labels=None,
        sentence=".",
    )
    return StudyResult.model_validate(
        {"study_id": study_id, "labels_file": "labels.jsonl", "label_set_hash": "81f2", "lm": {"name": "openai/tiny"},
         "budget": "quick", "seed": 0, "split": {}, "variants": [], "champion": "sentence",
         "comparisons": {"untuned": against},
         "test": [{"name": "champion", "kind": "lm", "agreement": agreement, "predictions": rows}]}
    )  # fmt: skip


# Whether the champion is replaced


def test_better_than_its_baseline_is_enough_where_nothing_is_shared() -> None:
    """Tested on other answers than the champion, a judge must be shown better than its own untuned judge."""
    other = study("b", RIGHT, first=100)
    for present in (None, other):
        assert decide_promotion(study("a", MOSTLY), present) == Promotion(
            True,
            "it is better than its own untuned judge; the present champion was not tested on the same answers",
        )
        found = decide_promotion(study("a", MOSTLY, "not shown better"), present)
        assert found == Promotion(False, "it is not shown better than its own untuned judge")


def test_worse_on_the_same_answers_is_not_promoted() -> None:
    """Nothing else counts then. All right against all wrong: 100 points of balanced accuracy."""
    found = decide_promotion(study("a", WRONG), study("b", RIGHT))
    assert not found.promoted
    assert found.reason.startswith("it is worse than the present champion on the same 40 test answers (-100.0 [")


def test_better_on_the_same_answers_is_promoted() -> None:
    """Although it is not shown better than its own untuned."""
    found = decide_promotion(study("a", RIGHT, "not shown better"), study("b", WRONG))
    assert found.promoted
    assert "it is better than the present champion on the same 40 test answers (+100.0 [" in found.reason


def test_as_good_on_the_same_answers_needs_the_baseline() -> None:
    """Not shown worse than the champion, it has still to be worth its tuning."""
    assert decide_promotion(study("a", RIGHT), study("b", RIGHT)).promoted
    assert "not shown worse than the present champion" in decide_promotion(study("a", RIGHT), study("b", RIGHT)).reason
    assert not decide_promotion(study("a", RIGHT, "not shown better"), study("b", RIGHT)).promoted


def test_other_labels_are_other_answers() -> None:
    """The same answers under labels that were corrected since are no common ground."""
    present = study("b", RIGHT)
    first, *rows = present.test[0].predictions
    test = present.test[0].model_copy(update={"predictions": (first.model_copy(update={"label": False}), *rows)})
    corrected = present.model_copy(update={"test": (test,)})
    assert "not tested on the same answers" in decide_promotion(study("a", WRONG), corrected).reason


# The registry


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
    told, aliases = registered(study("a", MOSTLY, "not shown better"))
    assert told == "Registered as faithfulness version 1 and @champion: there was no champion."
    assert aliases == {"champion": "1"}
    with pytest.raises(InputError, match="no version @previous"):
        rollback(tracking_uri=registered.uri)

    told, aliases = registered(study("b", WRONG), "x" * 4000 + "\n" + "y" * 4000)
    assert told.startswith("Registered as faithfulness version 2, but @champion stays version 1: it is worse than")
    assert aliases == {"champion": "1"}

    third = study("c", RIGHT)
    told, aliases = registered(third)
    assert told.startswith("Registered as faithfulness version 3 and @champion: it is better than the present")
    assert aliases == {"champion": "3", "previous": "1"}

    assert rollback(tracking_uri=registered.uri).startswith("faithfulness version 1 is @champion again; version 3 is")
    told, aliases = registered(third)
    assert told == "Registered before as faithfulness version 3 (@previous)."
    assert aliases == {"champion": "1", "previous": "3"}
    assert "version 3 is @champion again" in rollback(tracking_uri=registered.uri)

    first, second = (registered.client.get_model_version("faithfulness", v) for v in ("1", "2"))
    assert first.description == "The card."
    assert first.tags["promoted"] == "yes: there was no champion"
    assert second.tags["promoted"].startswith("no: it is worse than")
    assert second.description.startswith("x" * 4000 + "\n\n*The rest is in*")


def test_there_may_be_nothing_to_roll_back(tmp_path: Path) -> None:
    """A store that is not there, and one without a model, are named; nothing is made."""
    with pytest.raises(InputError, match=r"there is no MLflow store at sqlite:///nothing\.db"):
        rollback(tracking_uri="sqlite:///nothing.db")
    assert not Path("nothing.db").exists()
    client_of(f"sqlite:///{tmp_path}/empty.db").create_experiment("faithfulness")
    with pytest.raises(InputError, match="no model 'faithfulness' is registered"):
        rollback(tracking_uri=f"sqlite:///{tmp_path}/empty.db")
