from pathlib import Path

import pytest

from faith_dspy import Judge
from faith_dspy.optimize.results import Prompts
from faith_dspy.optimize.tracking.registry import (
    decide_promotion,
    register,
    register_prompts,
)
from faith_dspy.optimize.tracking.store import connect
from tests.support.results import candidate, judge, measured, rows, study

RIGHT = rows([0.9, 0.1] * 20)
WRONG = rows([0.1, 0.9] * 20)
MOSTLY, OFTEN = (*RIGHT[:36], *WRONG[36:]), (*RIGHT[:30], *WRONG[30:])
ELSEWHERE = rows([0.9, 0.1] * 20, prefix="b")
CORRECTED = (*rows([0.9], [False]), *RIGHT[1:])
HELD = {"held_back": ("injection, tool results: flipped 1.00 of 2 verdicts.",)}


@pytest.mark.parametrize(
    ("champion", "untuned", "present", "promoted", "reason"),
    [
        # Measured on other answers, under corrected labels too, it must be better than its own untuned judge.
        (
            MOSTLY,
            WRONG,
            None,
            True,
            "it is better than its own untuned judge; the present @champion was not measured on",
        ),
        (
            MOSTLY,
            WRONG,
            CORRECTED,
            True,
            "it is better than its own untuned judge; the present @champion was not",
        ),
        (
            MOSTLY,
            MOSTLY,
            ELSEWHERE,
            False,
            "it is not significantly better than its own untuned judge",
        ),
        # Measured on the same answers, a difference that is shown decides. All right against all wrong: 100 points.
        (
            OFTEN,
            WRONG,
            RIGHT,
            False,
            "it is worse than the present @champion on the same 40 answers (-25.0 [",
        ),
        (
            RIGHT,
            RIGHT,
            WRONG,
            True,
            "it is better than the present @champion on the same 40 answers (+100.0 [",
        ),
        # Where none is shown it has still to be worth its tuning.
        (
            RIGHT,
            WRONG,
            RIGHT,
            True,
            "it is better than its own untuned judge, and not significantly worse than the present",
        ),
        (
            RIGHT,
            RIGHT,
            RIGHT,
            False,
            "it is not significantly better than its own untuned judge",
        ),
        # What no comparison can earn: no better than chance, or worse than what costs less.
        (WRONG, WRONG, None, False, "it is not significantly better than chance"),
        (OFTEN, RIGHT, None, False, "it is worse than the untuned judge"),
    ],
)
def test_who_takes_the_alias(champion, untuned, present, promoted, reason):
    """A champion is replaced by one better on its answers, or else by one better than no tuning."""
    found = decide_promotion(study(champion, untuned), present and study(present))
    assert found.promoted is promoted
    assert found.reason.startswith(reason)


def test_a_champion_that_needs_a_column_replaces_none_that_needs_none():
    """Who loads @champion has no such column; one that reads it already may be replaced."""
    reads = candidate("sentence", RIGHT, lm_share=1.0, columns=("ragas",))
    result = study(RIGHT, WRONG, candidates=(reads,))
    for present in (study(WRONG), None):
        decision = decide_promotion(result, present)
        assert not decision.promoted
        assert decision.reason.startswith("it reads the column 'ragas'")
    present = study(WRONG, candidates=(reads,))
    assert decide_promotion(result, present).promoted


@pytest.mark.parametrize("cheaper", ["lm-calibrated", "lexical-baseline"])
def test_a_champion_that_is_worse_than_what_costs_less_is_none(cheaper):
    """Not even the first: the LM calibrated needs no features, the lexical baseline no LM."""
    result = study(
        OFTEN,
        WRONG,
        cv=measured(
            judge("champion", OFTEN), judge("untuned", WRONG), judge(cheaper, RIGHT)
        ),
    )
    found = decide_promotion(result, None, first=True)
    assert (found.promoted, found.reason.startswith("it is worse than the ")) == (
        False,
        True,
    )


@pytest.fixture
def registered(own_store):
    """Registers studies in a store that is not the process's own: (sentence, aliases)."""
    uri = f"sqlite:///{own_store}/theirs.db"
    (own_store / "theirs.db").write_bytes((own_store / "mlflow.db").read_bytes())
    store = connect(uri)

    def make(result, card="# Faithfulness judge\n\nThe card."):
        run = store.client.create_run(store.experiment_id).info.run_id
        store.client.log_text(run, result.model_dump_json(), "study.json")
        Judge("openai/tiny", granularity="sentence").save("judge")
        Path("judge/CARD.md").write_text(card, encoding="utf-8")
        told, address = register(
            store, run, result.model_copy(update={"judge_dir": "judge"})
        )
        assert address.endswith("@champion") == (
            " and @champion" in told or "(@champion" in told
        )
        aliases = store.client.get_registered_model("faithfulness").aliases
        return told.removeprefix("Registered as faithfulness version "), {
            k: str(v) for k, v in aliases.items()
        }

    make.client = store.client
    return make


def test_the_alias_moves_when_it_is_earned(registered):
    """The first is champion; one shown worse is registered beside it; a better one takes the alias. Set by
    hand, it stays.

    Nobody who is no better than chance, or was held back under stress, is champion, whoever is there.
    """
    nobody = "but not @champion: it"
    assert registered(study(WRONG, study_id="none")) == (
        f"1, {nobody} is not significantly better than chance.",
        {},
    )
    assert registered(study(RIGHT, WRONG, study_id="held", **HELD)) == (
        f"2, {nobody} was held back under stress.",
        {},
    )
    first = registered(study(MOSTLY, study_id="a"))
    assert first == ("3 and @champion: there was none.", {"champion": "3"})
    told, aliases = registered(study(OFTEN, RIGHT, study_id="b"))
    assert told.startswith("4, but @champion stays version 3: it is worse than the")
    assert aliases == {"champion": "3"}

    better = study(RIGHT, WRONG, study_id="c")
    told, aliases = registered(better)
    assert told.startswith("5 and @champion, which was version 3: it is better than ")
    assert aliases == {"champion": "5"}

    registered.client.set_registered_model_alias("faithfulness", "champion", "3")
    again = registered(better)
    assert again == (
        "Registered before as faithfulness version 5.",
        {"champion": "3"},
    )

    fourth = registered.client.get_model_version("faithfulness", "4")
    assert fourth.tags["promoted"].startswith("no: it is worse than")


def test_a_compiled_prompt_is_a_version_after_its_seed(own_store):
    """So that MLflow's page of the prompt compares them; the same prompt again is no version."""
    before, after = ({"verify": {"instructions": i, "demos": []}} for i in ("A?", "B?"))
    compiled = candidate("sentence", RIGHT, prompts=Prompts(now=after, seed=before))
    result, store = study(RIGHT, candidates=(compiled,)), connect()
    run = store.client.create_run(store.experiment_id).info.run_id
    for _ in range(2):
        register_prompts(store, run, result)
    versions = store.client.search_prompt_versions("faithfulness.verify")
    templates = {v.version: v.template for v in versions}
    assert templates == {1: "A?\n", 2: "B?\n"}
