import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from faith_dspy import Judge, Judgment
from faith_dspy.integrations.mlflow_model import RESULT_TYPE, JudgedRow, VerdictCounts, judge_rows
from faith_dspy.schema import Usage

KEY = "sk-test-8c21f5e0aa"
CONTEXT = ["The kettle is blue."]
YES = {"It is blue.": 0.9, "It is red.": 0.2}
BLUE = {"question": "Which colour?", "context": CONTEXT, "answer": "It is blue."}
RED = {"context": CONTEXT, "answer": "It is red."}


@pytest.fixture(scope="module")
def surroundings(registry, lasting_server, tmp_path_factory):
    """Environment of a process that serves: where the registry, the LM and its key are."""
    lasting_server.says = lasting_server._yes(YES)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "MLFLOW_TRACKING_URI": registry,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT": "300",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_BASE": lasting_server.base,
        "OPENAI_API_KEY": KEY,
        "DSPY_CACHEDIR": str(tmp_path_factory.mktemp("cache")),
    }


@pytest.fixture(scope="module")
def served(surroundings, tmp_path_factory):
    """Address of `mlflow models serve`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/faithfulness@champion"]
    command += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=surroundings, stdout=log, stderr=log, start_new_session=True
        )
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1000):
            if process.poll() is not None:
                break
            try:
                if httpx.get(f"{base}/ping").status_code == 200:
                    yield base, folder / "log"
                    break
            except httpx.TransportError:
                time.sleep(0.3)
        else:
            pytest.fail((folder / "log").read_text())
    finally:
        os.killpg(process.pid, 15)
        process.wait(20)


def ask(served, body):
    """Status and reply of a request."""
    reply = httpx.post(f"{served[0]}/invocations", json=body, timeout=300)
    return reply.status_code, reply.json()


@pytest.mark.all
def test_rows_are_judged_over_http(served):
    """A batch comes back in its order, each row with score, verdict counts and usage, or why it is unscored."""
    status, reply = ask(served, {"inputs": [BLUE, RED, {"context": CONTEXT}]})
    assert status == 200, reply
    blue, red, empty = reply["predictions"]
    assert (blue["score"], blue["faithful"], blue["unscored"]) == (1.0, True, None)
    assert (red["score"], red["faithful"], red["unscored"]) == (0.0, False, None)
    assert blue["verdict_counts"]["fully_supported"] == red["verdict_counts"]["not_supported"] == 1
    assert json.loads(red["statements"])[0]["text"] == "It is red."
    assert blue["usage"] == {**blue["usage"], "calls": 1, "prompt_tokens": 100, "cached_tokens": 60}
    assert (empty["score"], empty["faithful"], empty["unscored"]) == (None, None, "parse_failed")
    assert "it has no answer" in empty["detail"]


@pytest.mark.all
@pytest.mark.parametrize(
    "body",
    [
        {"inputs": [{"context": "no list", "answer": 5}]},
        {"inputs": "no rows"},
        {"dataframe_records": [BLUE]},
        {"inputs": [BLUE], "params": {"threads": "many"}},
    ],
)
def test_a_request_of_another_type_is_refused(served, body):
    """What does not fit the signature is a 400 with a message, and nothing is judged."""
    status, reply = ask(served, body)
    assert status == 400
    assert reply["error_code"]
    assert reply["message"]


@pytest.mark.all
def test_the_key_stays_in_the_environment(served, surroundings, lasting_server, registry):
    """The LM was asked with the key of the server's environment; neither the model nor the log holds it."""
    ask(served, {"inputs": [BLUE]})
    assert set(lasting_server.authorization) == {f"Bearer {KEY}"}
    written = [f for f in Path(registry.removeprefix("sqlite:///")).parent.rglob("*") if f.is_file()]
    assert [f for f in [*written, served[1]] if KEY.encode() in f.read_bytes()] == []


def test_it_loads_in_a_new_process(surroundings, tmp_path):
    """`load_judge` of an alias or a version, in a process that knows the registry's address and nothing else."""
    code = """
from faith_dspy import load_judge
judges = [load_judge(f"models:/faithfulness{version}") for version in ("@champion", "/1")]
print(*{j(context=["The kettle is blue."], answer="It is blue.").score for j in judges})"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "1.0", done.stderr


def test_another_lm_can_be_named(registry, lasting_server, monkeypatch):
    """FAITH_DSPY_LM replaces the LM the judge was tuned on."""
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    monkeypatch.setenv("FAITH_DSPY_LM", "openai/other")
    monkeypatch.setenv("OPENAI_API_BASE", lasting_server.base)
    model = mlflow.pyfunc.load_model("models:/faithfulness@champion")
    assert model.unwrap_python_model().judge.lm_name == "openai/other"


def test_every_record_is_a_row(judge_at):
    """What cannot be judged, or whose LM fails, is a row that says why, beside those that are judged."""
    judge, _ = judge_at(yes={"It is blue.": 0.9})
    records = [BLUE, {**BLUE, "answer": None}, {**BLUE, "context": None}, {**BLUE, "answer": "It is odd."}]
    found = judge_rows(judge, records, threads=2)
    assert [r["unscored"] for r in found] == [None, "parse_failed", "no_context", "lm_failed"]
    assert [r["score"] for r in found] == [1.0, None, None, None]
    assert [r["verdict_counts"]["unjudged"] for r in found] == [0, 0, 0, 1]
    assert json.loads(found[0]["statements"])[0]["verdict"] == "fully_supported"
    assert found[0]["usage"]["calls"] == 1
    for row in found:
        JudgedRow.model_validate(row)


def test_an_lm_that_cannot_be_made_fails_no_row(tmp_path):
    """A model file that is not there is said in each row."""
    judge = Judge(f"local:{tmp_path}/no.gguf")
    found = judge_rows(judge, [BLUE, BLUE])
    assert [r["unscored"] for r in found] == ["lm_failed"] * 2
    assert "There is no GGUF file at" in found[0]["detail"]


def test_a_dead_endpoint_fails_no_batch(judge_at):
    """Sixty rows, an endpoint that never answers: sixty rows that say so, and no error after twenty calls."""
    judge, server = judge_at()
    server.status = 500
    found = judge_rows(judge, [{**BLUE, "answer": f"Kettle {i} is blue."} for i in range(60)], threads=1)
    assert [r["unscored"] for r in found] == ["lm_failed"] * 60
    assert len(server.requests) < 60


@pytest.mark.all
def test_a_forked_worker_judges(judge_at):
    """As servers and Spark fork them: a process made after the judge was used in threads judges like its parent."""
    judge, _ = judge_at()
    assert all(r["faithful"] for r in judge_rows(judge, [BLUE] * 8, threads=8))
    worker = os.fork()
    if not worker:
        found = judge_rows(judge, [BLUE, RED] * 4, threads=4)
        os._exit(7 if all(r["faithful"] for r in found) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 7


def test_a_row_is_the_judgment():
    """A row has every field of a judgment but its id; Spark's type names them in order, the nested ones included."""
    assert {"id", *JudgedRow.model_fields} == set(Judgment(score=1.0).to_dict())
    names = re.findall(r"(\w+) (?:double|boolean|string|long|struct)", RESULT_TYPE)
    usage = list(Usage.model_fields)
    nested = {"verdict_counts": list(VerdictCounts.model_fields), "usage": usage, "replayed": usage}
    assert names == ["judgment", *(n for name in JudgedRow.model_fields for n in (name, *nested.get(name, [])))]
