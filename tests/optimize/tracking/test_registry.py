import json

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
OWN = "better than its own untuned judge"
HELD = {"held_back": ("injection, tool results: flipped 1.00 of 2 verdicts.",)}


@pytest.mark.parametrize(
    ("champion", "untuned", "present", "reason"),
    [
        # Measured on other answers, under corrected labels too, it must be better than its own untuned judge.
        (MOSTLY, WRONG, None, f"{OWN}; the present @champion was not measured on the same answers"),
        (MOSTLY, WRONG, CORRECTED, f"{OWN}; the present @champion was not measured on the same answers"),
        (MOSTLY, MOSTLY, ELSEWHERE, f"not significantly {OWN}"),
        # Measured on the same answers, a difference that is shown decides. All right against all wrong: 100 points.
        (OFTEN, WRONG, RIGHT, "worse than the present @champion on the same 40 answers (-25.0 ["),
        (RIGHT, RIGHT, WRONG, "better than the present @champion on the same 40 answers (+100.0 ["),
        # Where none is shown it has still to be worth its tuning.
        (RIGHT, WRONG, RIGHT, f"{OWN}, and not significantly worse than the present"),
        # What no comparison can earn: no better than chance, or worse than what costs less.
        (WRONG, WRONG, None, "not significantly better than chance"),
        (OFTEN, RIGHT, None, "worse than the untuned judge"),
    ],
)  # fmt: skip
def test_who_takes_the_alias(champion, untuned, present, reason):
    """A champion is replaced by one better on its answers, or else by one better than no tuning."""
    found = decide_promotion(study(champion, untuned), present and study(present))
    assert found.promoted is reason.startswith("better")
    assert found.reason.startswith(f"it is {reason}")


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


def test_a_champion_that_is_worse_than_what_costs_less_is_none():
    """Not even the first: the LM calibrated needs no features."""
    judges = judge("champion", OFTEN), judge("lm-calibrated", RIGHT)
    result = study(OFTEN, cv=measured(*judges))
    found = decide_promotion(result, None, first=True)
    assert not found.promoted
    assert found.reason.startswith("it is worse than the ")


@pytest.fixture
def registered(own_store):
    """Registers studies in a store that is not the process's own: (sentence, aliases)."""
    uri = f"sqlite:///{own_store}/theirs.db"
    (own_store / "theirs.db").write_bytes((own_store / "mlflow.db").read_bytes())
    store = connect(uri)

    Judge("openai/tiny", granularity="sentence").save("judge")

    def make(study_id, *rows, **more):
        result = study(*rows, study_id=study_id, judge_dir="judge", **more)
        run = store.client.create_run(store.experiment_id).info.run_id
        store.client.log_text(run, result.model_dump_json(), "study.json")
        told, address = register(store, run, result)
        assert address.endswith("@champion") == (" and @champion" in told)
        aliases = store.client.get_registered_model("faithfulness").aliases
        champion = str(aliases.get("champion", ""))
        return told.removeprefix("Registered as faithfulness version "), champion

    make.client = store.client
    return make


def test_the_alias_moves_when_it_is_earned(registered):
    """One held back under stress is not champion, whoever is there; the first other is; one shown worse is registered
    beside it; a better one takes the alias. Set by hand, it stays."""
    held = "1, but not @champion: it was held back under stress."
    assert registered("held", RIGHT, WRONG, **HELD) == (held, "")
    first = registered("a", MOSTLY)
    assert first == ("2 and @champion: there was none.", "2")
    told, champion = registered("b", OFTEN, RIGHT)
    assert told.startswith("3, but @champion stays version 2: it is worse than the")
    assert champion == "2"
    told, champion = registered("c", RIGHT, WRONG)
    assert told.startswith("4 and @champion, which was version 2: it is better than ")
    assert champion == "4"
    registered.client.set_registered_model_alias("faithfulness", "champion", "2")
    again = registered("c", RIGHT, WRONG)
    assert again == ("Registered before as faithfulness version 4.", "2")
    third = registered.client.get_model_version("faithfulness", "3")
    assert third.tags["promoted"].startswith("no: it is worse than")


def test_a_compiled_prompt_is_a_version_after_its_seed(own_store):
    """So that MLflow's page of the prompt compares them; the same prompt again is no version. The run links it."""
    before, after = ({"verify": {"instructions": i, "demos": []}} for i in ("A?", "B?"))
    compiled = candidate("sentence", RIGHT, prompts=Prompts(now=after, seed=before))
    result, store = study(RIGHT, candidates=(compiled,)), connect()
    run = store.client.create_run(store.experiment_id).info.run_id
    for _ in range(2):
        register_prompts(store, run, result)
    seed, prompt = (
        store.client.get_prompt_version("faithfulness.verify", v) for v in "12"
    )
    assert (seed.template, prompt.template) == ("A?\n", "B?\n")
    assert prompt.tags["variant"] == "sentence"
    linked = json.loads(store.client.get_run(run).data.tags["mlflow.linkedPrompts"])
    assert linked == [{"name": "faithfulness.verify", "version": "2"}]
