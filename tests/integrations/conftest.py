import os
import re

import pytest

from tests.support.cases import LABELS

os.environ["RAGAS_DO_NOT_TRACK"] = (
    "true"  # before either is imported: tests ask nobody on the network
)
os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"


@pytest.fixture
def endpoint(chat_server, monkeypatch):
    """The one that the environment names. It takes answers apart into their sentences, and says its label of a text, by
    default whether the cases' context supports it, and why."""
    server = chat_server()
    server.labels = {t: "Yes" if of == "fully" else "No" for t, of in LABELS.items()}

    def say(asked):
        prompt = asked["messages"][-1]["content"]
        _, extracts, sentences = prompt.partition("Sentences:\n")
        if extracts:
            return "\n".join(re.findall(r"^\[(\d+\] .*)$", sentences, re.MULTILINE))
        label = server.labels[server.statement(asked)]
        return {"tokens": [(label, {label: 0.9}), ("\nWhy: So it is.", {"x": 1.0})]}

    server.says = say
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return server


@pytest.fixture
def lm(endpoint):
    """A `dspy.LM` that asks it."""
    from faith_dspy.lm.make import make_lm

    return make_lm("openai/tiny", api_base=endpoint.base, num_retries=0)


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Address of an MLflow store in which a judge, asking openai/tiny, is registered as faithfulness@champion."""
    from faith_dspy import Judge
    from faith_dspy.optimize.tracking.registry import register
    from faith_dspy.optimize.tracking.store import client_of, connect
    from tests.support.results import rows, study

    folder = tmp_path_factory.mktemp("registry")
    judge = Judge("openai/tiny", granularity="sentence")
    judge.save(folder / "judge")
    uri = f"sqlite:///{folder}/mlflow.db"
    client_of(uri).create_experiment(
        "faithfulness", artifact_location=str(folder / "artifacts")
    )
    store = connect(uri)
    run = store.client.create_run(store.experiment_id).info.run_id
    result = study(rows([0.9, 0.1] * 12), judge_dir=str(folder / "judge"))
    register(store, run, result)
    return uri
