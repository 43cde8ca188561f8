import os
import re

import pytest

from tests.support.cases import LABELS, WINDOW

os.environ["RAGAS_DO_NOT_TRACK"] = (
    "true"  # before either is imported: tests ask nobody on the network
)
os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"


@pytest.fixture
def recorded(chat_server, judge_at):
    """Makes a judge whose endpoint says the label of each sentence of the cases: (judge, endpoint)."""

    def make(**options):
        server = chat_server()

        def say(asked):
            label = LABELS[server.statement(asked)]
            return (
                label
                if options.get("verdicts") == "graded"
                else "Yes"
                if label == "fully"
                else "No"
            )

        server.says = say
        return judge_at(server, **options)

    return make


@pytest.fixture
def replies(chat_server):
    """Makes an endpoint that takes answers apart into their sentences and says the label it was given, and why."""

    def make(labels):
        server = chat_server()

        def say(asked):
            prompt = asked["messages"][-1]["content"]
            if "Sentences:\n" in prompt:
                return "\n".join(
                    re.findall(
                        r"^\[(\d+\] .*)$",
                        prompt.partition("Sentences:\n")[2],
                        re.MULTILINE,
                    )
                )
            label = labels[server.statement(asked)]
            return {"tokens": [(label, {label: 0.9}), ("\nWhy: So it is.", {"x": 1.0})]}

        server.says = say
        return server

    return make


@pytest.fixture
def dspy_lm():
    """Makes a `dspy.LM` that asks an endpoint."""
    from faith_dspy.lm.make import make_lm

    return lambda server: make_lm("openai/tiny", api_base=server.base, num_retries=0)


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Address of an MLflow store in which a judge, asking openai/tiny, is registered as faithfulness@champion."""
    from faith_dspy import Judge
    from faith_dspy.optimize.tracking.registry import register
    from faith_dspy.optimize.tracking.store import client_of, connect
    from tests.support.results import rows, study

    folder = tmp_path_factory.mktemp("registry")
    judge = Judge("openai/tiny", granularity="sentence", context_window=WINDOW)
    judge.save(folder / "judge")
    uri = f"sqlite:///{folder}/mlflow.db"
    client_of(uri).create_experiment(
        "faithfulness", artifact_location=str(folder / "artifacts")
    )
    store = connect(uri)
    run = store.client.create_run(store.experiment_id).info.run_id
    register(
        store,
        run,
        study(rows([0.9, 0.1] * 12), judge_dir=str(folder / "judge")),
    )
    return uri
