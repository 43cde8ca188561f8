"""Planted secrets: no command writes a key or a password to any file, nor to its output."""

import base64
import time

import dspy
import pytest

from faith_dspy.errors import ConfigError, redact_secrets, short_message
from faith_dspy.lm.make import make_lm, to_metered_lm
from tests.support import files
from tests.support.studies import knowing, labels

PLANTED = [f"planted-{i}b4d6f8a" for i in range(4)]
KEY, PASSWORD, QUERY, DOTENV = PLANTED
SECRETS = [secret.encode() for secret in PLANTED]
SECRETS.append(base64.b64encode(f"me:{PASSWORD}".encode()))


@pytest.fixture
def command(tmp_path):
    """Runs the command line with the key in its environment: (exit code, output)."""

    def run(*words):
        cache = str(tmp_path / "cache")
        env = {"DSPY_CACHEDIR": cache, "OPENAI_API_KEY": KEY, "NO_COLOR": "1"}
        done = files.run(*words, cwd=tmp_path, **env)
        return done.returncode, done.stdout + done.stderr

    return run


def leaks(folder, *outputs, inputs=()):
    """Where a secret stands: of files, all but the inputs."""
    written = [p for p in folder.rglob("*") if p.is_file() and p not in inputs]
    texts = {str(p): p.read_bytes() for p in written}
    texts |= {out.decode()[-300:]: out for out in outputs}
    return [(name, s) for name, text in texts.items() for s in SECRETS if s in text]


@pytest.mark.all
def test_a_working_endpoint(command, chat_server, tmp_path):
    """Tune, judge, agree and stress with a key, beside an .env: no secret is in what they write, MLflow's included."""
    server = chat_server(says=knowing)
    at = ["--lm", "openai/tiny", "--api-base", server.base]
    source = labels(tmp_path / "cities.jsonl")
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / ".env").write_text(f"OPENAI_API_KEY={DOTENV}\n")
    outputs = []
    for words in (
        ["tune", source, *at, "--variants", "sentence", "--out", "judge"],
        ["judge", source, "--judge", "judge", "--out", "out.jsonl", "--html", "x.html"],
        ["agree", source, "--judge", "judge", "--json", "--track"],
        ["stress", source, "--judge", "judge", "--json", "--answers", 4],
    ):
        code, said = command(*words)
        assert code == 0, said
        outputs.append(said)
    assert (tmp_path / "judge" / "CARD.md").is_file()
    assert any(
        "judge.json" in str(p) for p in (tmp_path / "mlruns").rglob("*") if p.is_file()
    )
    assert leaks(tmp_path, *outputs, inputs=[tmp_path / "judge" / ".env"]) == []


def test_an_endpoint_that_echoes(command, chat_server, tmp_path):
    """An endpoint that fails with key, address and password in its message: none of them is in rows, page or output."""
    message = f"Incorrect API key {KEY} for http://me:{PASSWORD}@ss@host/v1?key={QUERY} or api_key={QUERY}"
    refuse = {"status": 400, "text": message}
    server = chat_server(
        says=lambda asked: "Yes" if "fine" in server.statement(asked) else refuse
    )
    rows = [
        {"context": ["All is fine."], "answer": a}
        for a in ("It is fine.", "It is bad.", "It is fine. It is bad.")
    ]
    files.write_lines(tmp_path / "in.jsonl", rows)
    at = ["--lm", "openai/tiny", "--api-base", server.base]
    code, said = command(
        "judge", "in.jsonl", *at, "--out", "out.jsonl", "--html", "out.html"
    )
    assert code == 0, said
    assert b"Incorrect API key" in (tmp_path / "out.jsonl").read_bytes()
    assert leaks(tmp_path, said) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "abcd+wxyz"),
        ("PGPASSWORD", "open sesame"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example/T1"),
    ],
)
def test_secrets_by_their_names(name, value, monkeypatch):
    """A value of the environment whose name says that it is secret is in no message; other values may be."""
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("SORT_KEY", "name")
    said = redact_secrets(f"got {value} for the name")
    assert said == "got *** for the name"


def test_keys_given_in_code():
    """Of an LM made with a key or a header of its own, no message says either, whatever failed; nor does an error that
    we raise."""
    headers = {"Authorization": "Bearer plain-in-code-7"}
    make_lm("openai/tiny", api_base="http://127.0.0.1:9", api_key="plain-in-code-5")
    to_metered_lm(
        dspy.LM("openai/tiny", api_key="plain-in-code-6", extra_headers=headers)
    )
    for number in (5, 6, 7):
        echoed = f"no account for plain-in-code-{number}"
        assert short_message(ValueError(echoed)) == "ValueError: no account for ***"
        assert short_message(ConfigError(echoed)) == "no account for ***"


def test_a_long_message_is_redacted_in_linear_time():
    """Eight times the text takes at most about eight times as long, not sixty-four."""
    seconds = []
    for n in (20_000, 160_000):
        text = "me:you " * (n // 14) + "a:b@" * (n // 8)
        started = time.process_time()
        redact_secrets(text)
        seconds.append(time.process_time() - started)
    assert seconds[1] < 24 * seconds[0] + 0.05
