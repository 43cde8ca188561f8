import json
import os
import re
import sys
from pathlib import Path

import httpx
import mlflow
import pandas as pd
import pytest

from faith_dspy import Judge, Judgment, load_judge
from faith_dspy.integrations import mlflow_model
from faith_dspy.integrations.mlflow_model import RESULT_TYPE, judge_rows
from tests.support.cases import CITES
from tests.support.classifiers import by_weakest, linear
from tests.support.studies import free_port, serving

KEY = "sk-test-8c21f5e0aa"
CONTEXT = ["The kettle is blue."]
YES = {"It is blue.": 0.9, "It is blue [2].": 0.9, "It is red.": 0.2}
BLUE = {"question": "Which colour?", "context": CONTEXT, "answer": "It is blue."}
RED = {"context": CONTEXT, "answer": "It is red."}


@pytest.fixture
def served(registry, chat_server, tmp_path, monkeypatch):
    """`mlflow models serve` in a process that knows where the registry, the LM and its key are: (address, LM)."""
    server, port = chat_server(yes=YES), free_port()
    programs = str(Path(sys.executable).parent)
    for name, value in {
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "MLFLOW_TRACKING_URI": registry,
        "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT": "300",
        "OPENAI_API_BASE": server.base,
        "OPENAI_API_KEY": KEY,
        "DSPY_CACHEDIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    words = f"mlflow models serve --env-manager local --host 127.0.0.1 --port {port}"
    words += " -m models:/faithfulness@champion"
    with serving([sys.executable, "-m", *words.split()], tmp_path, port):
        yield f"http://127.0.0.1:{port}/invocations", server


@pytest.mark.all
def test_rows_are_judged_over_http(served, registry, tmp_path):
    """A batch comes back in its order, each row with score and usage, or why it is unscored; what an answer cites is
    checked. Rows come in any of MLflow's forms. The LM is asked with the key of the server's environment; neither the
    model nor the log has it."""
    address, server = served

    def ask(rows, form="inputs"):
        reply = httpx.post(address, json={form: rows}, timeout=300)
        assert reply.status_code == 200, reply.text
        return reply.json()["predictions"]

    blue, red, empty, cites = ask([BLUE, RED, {"context": CONTEXT}, CITES])
    assert (blue["score"], red["score"]) == (1.0, 0.0)
    assert (empty["score"], empty["unscored"]) == (None, "parse_failed")
    assert json.loads(red["statements"])[0]["text"] == "It is red."
    usage = blue["usage"]
    counts = usage["calls"], usage["prompt_tokens"], usage["cached_tokens"]
    assert counts == (1, 100, 60)
    assert json.loads(cites["citations"])["precision"] == 1.0
    assert json.loads(cites["statements"])[0]["cited_chunk_ids"] == [1]
    odd = [RED | {"context": CONTEXT[0]}, {"context": 5, "answer": 5}]
    rows = [{"question": None, **row} for row in (BLUE, *odd)]
    split = pd.DataFrame(rows, dtype=object).to_dict("split")
    for form, body in (("dataframe_split", split), ("dataframe_records", rows)):
        rows = ask(body, form)
        assert [row["score"] for row in rows] == [1.0, 0.0, None]
        assert "context is int" in rows[-1]["detail"]
    assert set(server.keys) == {f"Bearer {KEY}"}
    for folder in (Path(registry.removeprefix("sqlite:///")).parent, tmp_path):
        for file in folder.rglob("*"):
            assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_another_lm_can_be_named(registry, monkeypatch):
    """A judge loads by its alias; behind MLflow's own call, FAITH_DSPY_LM replaces the LM it was tuned on."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    assert load_judge("models:/faithfulness@champion").lm_name == "openai/tiny"
    monkeypatch.setenv("FAITH_DSPY_LM", "openai/other")
    model = mlflow.pyfunc.load_model("models:/faithfulness@champion")
    assert model.unwrap_python_model().judge.lm_name == "openai/other"


@pytest.fixture
def predict(tmp_path):
    """Saves a judge as a model, or takes the one that is there, and asks it by MLflow's own call."""

    def predict(rows, judge=None):
        if judge is not None:
            judge.save(tmp_path / "judge")
            mlflow.pyfunc.save_model(
                path=tmp_path / "model",
                python_model=mlflow_model.__file__,
                artifacts={"judge": str(tmp_path / "judge")},
                pip_requirements=["faith_dspy"],
                signature=mlflow_model.signature(judge.columns),
            )
        return mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows)

    return predict


def test_a_column_reaches_the_judge_that_reads_it(predict):
    """A row without it is unscored."""
    by_column = by_weakest(linear({"column hhem": 1}))
    judge = Judge("none", scores=["hhem"], classifier=by_column)
    rows = predict([BLUE | {"hhem": 0.9}, BLUE | {"hhem": -0.9}, BLUE], judge)
    assert [row["faithful"] for row in rows] == [True, False, None]


def test_a_function_is_the_servers_own(predict, monkeypatch):
    """A judge of a function asks the one that the environment names; the name in the model is not imported."""
    name = "tests.support.judges:blue"
    row, _ = predict([BLUE, BLUE | RED], Judge(f"python:{name}"))
    assert row["unscored"] == "lm_failed"
    assert f"the function {name}" in row["detail"]
    assert "FAITH_DSPY_FUNCTION=" in row["detail"]
    monkeypatch.setenv("FAITH_DSPY_FUNCTION", name)
    rows = predict([BLUE, BLUE | RED])
    assert [row["faithful"] for row in rows] == [True, False]


def test_every_record_is_a_row(judge_at, tmp_path):
    """What cannot be judged, or whose LM fails or cannot be made, is a row that says why, beside those that are judged.
    An endpoint that never answers ends no batch: it is asked a few times."""
    judge, _ = judge_at(yes={"It is blue.": 0.9})
    changes = ({}, {"answer": None}, {"context": None}, {"answer": "It is odd."})
    records = [BLUE | change for change in changes]
    rows = judge_rows(judge, records, threads=2)
    reasons = [None, "parse_failed", "no_context", "lm_failed"]
    assert [row["unscored"] for row in rows] == reasons
    assert judge_rows(judge, []) == []

    rows = judge_rows(Judge(f"local:{tmp_path}/no.gguf"), [BLUE, BLUE])
    assert [row["unscored"] for row in rows] == ["lm_failed"] * 2
    assert "There is no GGUF file at" in rows[0]["detail"]

    judge, server = judge_at()
    server.status = 500
    records = [{**BLUE, "answer": f"Kettle {i} is blue."} for i in range(60)]
    rows = judge_rows(judge, records, threads=1)
    assert [row["unscored"] for row in rows] == ["lm_failed"] * 60
    assert len(server.requests) < 60


def test_a_row_is_the_judgment():
    """Spark's type names every field of a judgment but its id and turn, the nested ones included."""
    fields = Judgment(score=1.0).to_dict()
    del fields["id"], fields["turn"]
    names = ["judgment"]
    for name, value in fields.items():
        names += [name, *(value if isinstance(value, dict) else [])]
    told = re.findall(r"(\w+) (?:double|boolean|string|long|struct)", RESULT_TYPE)
    assert sorted(told) == sorted(names)
