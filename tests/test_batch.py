"""Judging through a provider's batch interface, on a scripted server with OpenAI's addresses."""

import hashlib
import json
import subprocess
import time

import dspy
import pytest

from faith_dspy import Judge
from faith_dspy.batch import Batch
from faith_dspy.errors import (
    ConfigError,
    InputError,
    LimitReachedError,
    PendingReplyError,
)
from faith_dspy.lm import batch as parts
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import Limits
from tests.support.batch_server import BatchServer
from tests.support.chat_server import yes_or_no
from tests.support.files import MAIN


def says(asked):
    """A verdict that depends on the prompt alone; sentences as they are, where statements are asked for."""
    prompt = asked["messages"][-1]["content"]
    if "Statement: " not in prompt:
        return prompt.rpartition("Sentences:\n")[2].partition("\n\n")[0]
    statement = BatchServer.statement(asked)
    return yes_or_no(
        int(hashlib.sha256(statement.encode()).hexdigest()[:4], 16) / 65536
    )


@pytest.fixture
def server():
    server = BatchServer(says=says)
    yield server
    server.close()


def lamps(n):
    return [
        {
            "id": f"{i}",
            "context": [f"Lamp {i} is red and heavy."],
            "answer": f"Lamp {i} is red. Lamp {i} costs {i} dollars.",
        }
        for i in range(n)
    ]


def judge_of(server, **options):
    return Judge("openai/tiny", api_base=server.base, **options)


def collect(server, judge, records, path):
    """Collect, the batches being answered one after the other, and each look by a process of its own."""
    for batches in range(10):
        try:
            return Batch(judge, records, path).collect(), batches
        except PendingReplyError:
            server.finish()
    raise AssertionError("it never ends")


def asked_live(server, records, **options):
    """What is judged without a batch, and without what a batch has left in DSPy's cache."""
    lm = make_lm("openai/tiny", api_base=server.base, cache=False)
    return told(Judge(lm, **options).batch(records))


def told(judgments):
    return [j.model_dump(exclude={"usage", "replayed"}) for j in judgments]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"granularity": "sentence"}, 1),
        ({"granularity": "statement"}, 2),
        ({"granularity": "sentence", "verification": "joint"}, 2),
    ],
)
def test_the_judgments_are_those_without_a_batch(server, tmp_path, options, batches):
    """Extraction comes first, then all statements together; a joint reply that cannot be read, statement by
    statement. The first answer is asked at once; nothing is billed twice."""
    judge = judge_of(server, **options)
    judgments, needed = collect(server, judge, lamps(40), tmp_path / "b.json")
    asked = len(server.requests)
    assert needed == batches
    assert len(server.billed) == len(set(server.billed)) > 30
    assert told(judgments) == asked_live(server, lamps(40), **options)
    assert asked <= 4
    assert not (tmp_path / "b.json").exists()
    assert all(j.usage.prompt_tokens == 100 * j.usage.calls for j in judgments)


def test_a_cascade(server, tmp_path):
    """The second judge is asked about what the first one is unsure of."""
    second = judge_of(server, granularity="answer")
    judge = Judge("none", escalate_to=second)
    judgments, _ = collect(server, judge, lamps(40), tmp_path / "b.json")
    dspy.cache.reset_memory_cache()
    assert told(judgments) == told(judge.batch(lamps(40)))


def test_what_expired_is_asked_once_more_and_what_was_refused_is_unscored(
    server, tmp_path
):
    judge, path = judge_of(server, granularity="sentence"), tmp_path / "b.json"
    batch = judge.submit(lamps(40), path)
    assert "0 of 78 requests" in batch.status
    assert batch.id == "batch_0"
    server.expires, server.refuses_ids = set(server.billed[:60]), {server.billed[70]}
    server.finish()
    with pytest.raises(PendingReplyError, match="of 138 requests"):
        Batch(judge, lamps(40), path).collect()
    server.finish()
    judgments = Batch(judge, lamps(40), path).collect()
    reasons = [j.detail for j in judgments if j.detail]
    assert len(server.billed) == 138
    assert [reason.endswith("[openai/tiny] no") for reason in reasons] == [True]
    asked = len(server.requests)
    judge.batch(lamps(40))  # DSPy's cache has the others
    assert len(server.requests) == asked + 1


@pytest.mark.parametrize("was_made", [True, False])
def test_parts(server, tmp_path, monkeypatch, was_made):
    """Many requests are several batches. One whose id was not written, as after a kill between the provider's reply and
    the note of it, is found by its label; one that was never made is submitted again."""
    monkeypatch.setattr(parts, "MOST_REQUESTS", 30)
    judge, path = judge_of(server, granularity="sentence"), tmp_path / "b.json"
    judge.submit(lamps(40), path)
    noted = json.loads(path.read_text())
    noted["parts"][0] |= {"id": None, "status": "submitting"}
    if not was_made:
        noted["parts"][0]["label"] = "never made"
    path.write_text(json.dumps(noted))
    judgments, _ = collect(server, judge, lamps(40), path)
    assert len(server.batches) == (3 if was_made else 4)
    assert told(judgments) == asked_live(server, lamps(40), granularity="sentence")


def test_what_is_noted_holds_no_text_and_no_key(server, tmp_path):
    judge = Judge("openai/tiny", api_base=server.base, api_key="sk-secret")
    judge.submit(lamps(40), tmp_path / "b.json")
    text = (tmp_path / "b.json").read_text()
    assert not any(word in text for word in ("sk-secret", "Lamp", "heavy", server.base))


def test_limits_hold_before_anything_is_submitted(server, tmp_path):
    judge = judge_of(server, granularity="sentence")
    batch = Batch(judge, lamps(40), tmp_path / "b.json", limits=Limits(tokens=100))
    with pytest.raises(LimitReachedError, match="more than the limit of 100"):
        batch.ready()
    assert not server.batches
    assert not (tmp_path / "b.json").exists()


def test_rows_that_are_there_are_not_submitted(server, tmp_path, cli):
    """A finished output buys nothing; one that lacks rows, those alone. LiteLLM's advice is not printed."""
    source, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text("\n".join(map(json.dumps, lamps(40))))
    command = ["judge", str(source), "--lm", "openai/tiny", "--api-base", server.base]
    command += ["--set", "granularity=sentence", "--out", str(out), "--batch"]
    assert cli(*command)[0] == 3
    server.finish()
    assert cli(*command)[:2] == (0, "")
    rows = out.read_bytes().splitlines(keepends=True)
    assert (len(rows), cli(*command)[0], len(server.billed)) == (40, 0, 78)
    out.write_bytes(b"".join(rows[:30]))
    assert cli(*command)[0] == 3
    assert len(server.billed) == 78 + 18
    server.finish()
    assert cli(*command)[:2] == (0, "")
    assert len(out.read_bytes().splitlines()) == 40
    assert not list(tmp_path.glob("*.batch.json"))


def test_what_was_refused_is_not_asked_again(server, tmp_path, cli):
    """Its row stays unscored with the provider's reason, and those behind it are not bought again."""
    source, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text("\n".join(map(json.dumps, lamps(40))))
    command = ["judge", str(source), "--lm", "openai/tiny", "--api-base", server.base]
    command += ["--set", "granularity=answer", "--out", str(out)]
    assert cli(*command, "--batch")[0] == 3
    server.refuses_ids = {server.billed[20]}
    server.finish()
    assert cli(*command, "--batch")[0] == 0
    rows = out.read_bytes()
    unscored = [row for row in map(json.loads, rows.splitlines()) if row["unscored"]]
    assert [row["detail"].endswith("[openai/tiny] no") for row in unscored] == [True]
    billed, asked = len(server.billed), len(server.requests)
    assert cli(*command, "--batch")[0] == 0
    assert out.read_bytes() == rows
    assert (len(server.billed), len(server.requests)) == (billed, asked)


def test_what_has_no_batch(server, tmp_path):
    path = tmp_path / "b.json"
    for judge in (Judge("none"), Judge(len), Judge("anthropic/claude-sonnet-4-0")):
        with pytest.raises(ConfigError, match="Leave --batch out"):
            Batch(judge, lamps(1), path)
    with pytest.raises(ConfigError, match="samples"):
        Batch(judge_of(server, confidence="samples"), lamps(1), path)
    with pytest.raises(InputError, match="no records"):
        judge_of(server).submit([], path)
    path.write_text('{"judge": "another", "records": "", "parts": []}')
    judge_of(server).submit(lamps(40), path)
    with pytest.raises(InputError, match="waits for another judge"):
        Batch(judge_of(server, granularity="sentence"), lamps(1), path)


def run(server, folder, *arguments):
    command = [*MAIN, *arguments]
    command += ["--lm", "openai/tiny", "--api-base", server.base]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.all
def test_kills_on_the_command_line(server, tmp_path):
    """Killed again and again while it submits and while it collects: the rows are those without a batch, in order, and
    nothing is billed twice. A batch that is at work ends with exit code 3."""
    lines = [json.dumps(record) for record in lamps(300)]
    (tmp_path / "answers.jsonl").write_text("\n".join(lines))
    command = ("judge", "answers.jsonl", "--set", "granularity=sentence")
    assert run(server, tmp_path, *command, "--out", "plain.jsonl").wait() == 0
    for phase in ("submit", "collect"):
        for seconds in (3.0, 3.5, 4.0, 4.5, 5.0):
            process = run(server, tmp_path, *command, "--out", "b.jsonl", "--batch")
            time.sleep(seconds)
            process.kill()
            process.wait()
        process = run(server, tmp_path, *command, "--out", "b.jsonl", "--batch")
        _, said = process.communicate()
        assert process.returncode == (3 if phase == "submit" else 0), said
        server.finish()
    judged = ("id", "score", "faithful", "statements", "unscored")

    def rows(name):
        text = (tmp_path / name).read_text()
        return [[json.loads(row)[n] for n in judged] for row in text.splitlines()]

    assert rows("b.jsonl") == rows("plain.jsonl")
    assert len(server.billed) == len(set(server.billed))
