"""Judging through a provider's batch interface, on a scripted server with OpenAI's addresses."""

import json
import subprocess
import time
from functools import partial

import dspy
import pytest

from faith_dspy import Judge
from faith_dspy.batch import Batch
from faith_dspy.errors import (
    ConfigError,
    InputError,
    LimitReachedError,
    LMUnavailableError,
    PendingReplyError,
    priced,
)
from faith_dspy.lm import batch as parts
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import Limits
from tests.support.batch_server import BatchServer
from tests.support.chat_server import yes_or_no
from tests.support.files import MAIN, read_lines, write_lines


def says(asked):
    """A probability that tells which lamp it is; sentences as they are, where statements are asked for."""
    prompt = asked["messages"][-1]["content"]
    if "Statement: " not in prompt:
        return prompt.rpartition("Sentences:\n")[2].partition("\n\n")[0]
    _, number, *_ = BatchServer.statement(asked).split()
    return yes_or_no(int(number) / 300)


@pytest.fixture
def server():
    server = BatchServer(says=says)
    yield server
    server.close()


@pytest.fixture
def path(tmp_path):
    """Where what waits is noted."""
    return tmp_path / "b.json"


def lamps(n):
    return [
        {
            "id": f"{i}",
            "context": [f"Lamp {i} is red and heavy."],
            "answer": f"Lamp {i} is red. Lamp {i} costs {i} dollars.",
        }
        for i in range(n)
    ]


LAMPS = lamps(40)


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
    return without_cost(Judge(lm, **options).batch(records))


def without_cost(judgments):
    return [j.model_dump(exclude={"usage", "replayed"}) for j in judgments]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, 1),
        ({"granularity": "statement"}, 2),
        ({"granularity": "sentence", "verification": "joint"}, 2),
    ],
)
def test_the_judgments_are_those_without_a_batch(server, path, options, batches):
    """Extraction comes first, then all statements together; a joint reply that cannot be read, statement by
    statement. The first answer is asked at once; nothing is billed twice."""
    judge = judge_of(server, **options)
    judgments, needed = collect(server, judge, LAMPS, path)
    asked = len(server.requests)
    assert needed == batches
    assert len(server.billed) == len(set(server.billed)) > 30
    assert without_cost(judgments) == asked_live(server, LAMPS, **options)
    assert asked <= 4
    assert not path.exists()
    assert all(j.usage.prompt_tokens == 100 * j.usage.calls for j in judgments)


def test_a_cascade(server, path):
    """The second judge is asked about what the first one is unsure of."""
    second = judge_of(server, granularity="answer")
    judge = Judge("none", escalate_to=second)
    judgments, _ = collect(server, judge, LAMPS, path)
    dspy.cache.reset_memory_cache()
    assert without_cost(judgments) == without_cost(judge.batch(LAMPS))


def test_what_expired_is_asked_once_more_and_what_was_refused_is_unscored(server, path):
    judge = judge_of(server)
    batch = judge.submit(LAMPS, path)
    assert "0 of 78 requests" in batch.status
    assert batch.id == "batch_0"
    server.expires, server.refuses_ids = set(server.billed[:60]), {server.billed[70]}
    server.finish()
    with pytest.raises(PendingReplyError, match="of 138 requests"):
        Batch(judge, LAMPS, path).collect()
    server.finish()
    judgments = Batch(judge, LAMPS, path).collect()
    reasons = [j.detail for j in judgments if j.detail]
    assert len(server.billed) == 138
    assert [reason.endswith("[openai/tiny] no") for reason in reasons] == [True]
    asked = len(server.requests)
    judge.batch(LAMPS)  # DSPy's cache has the others
    assert len(server.requests) == asked + 1


def test_half_the_price(server, tmp_path):
    """40 prompt tokens at .15 dollars a million, 60 cached ones at .075 and 5 output tokens at .60 are 13.5 a call."""
    server.models = []
    judge, path = Judge("openai/gpt-4o-mini", api_base=server.base), tmp_path / "b.json"
    *_, last = collect(server, judge, lamps(40), path)[0]
    assert last.usage.dollars == pytest.approx(last.usage.calls * 13.5e-6 / 2)


def test_small_prices_are_shown(server, path):
    server.models = []
    amounts = (0, 0.000042, 0.0987, 0.5, 1234)
    shown = ["$0.00", "$0.000042", "$0.099", "$0.50", "$1,234.00"]
    assert [priced(dollars) for dollars in amounts] == shown
    batch = Judge("openai/gpt-4o-mini", api_base=server.base).submit(lamps(2), path)
    assert f"{priced(batch.cost)} instead of {priced(2 * batch.cost)}" in batch.status
    assert "$0.00 " not in batch.status


@pytest.mark.parametrize("was_made", [True, False])
def test_parts(server, path, monkeypatch, was_made):
    """Many requests are several batches. One whose id was not written, as after a kill between the provider's reply and
    the note of it, is found by its label; one that was never made is submitted again."""
    monkeypatch.setattr(parts, "MOST_REQUESTS", 30)
    judge = judge_of(server)
    judge.submit(LAMPS, path)
    noted = json.loads(path.read_text())
    noted["parts"][0] |= {"id": None, "status": "submitting"}
    if not was_made:
        noted["parts"][0]["label"] = "never made"
    path.write_text(json.dumps(noted))
    judgments, _ = collect(server, judge, LAMPS, path)
    assert len(server.batches) == (3 if was_made else 4)
    assert without_cost(judgments) == asked_live(server, LAMPS)


def test_a_batch_whose_reply_is_lost_is_not_made_twice(server, path):
    server.loses_reply = True
    with pytest.raises(LMUnavailableError, match="run the same again"):
        judge_of(server).submit(LAMPS, path)
    assert "of 78 requests" in judge_of(server).submit(LAMPS, path).status
    assert len(server.batches) == 1


def test_what_is_noted_holds_no_text_and_no_key(server, path):
    judge = Judge("openai/tiny", api_base=server.base, api_key="sk-secret")
    judge.submit(LAMPS, path)
    text = path.read_text()
    assert not any(word in text for word in ("sk-secret", "Lamp", "heavy", server.base))


def test_limits_hold_before_anything_is_submitted(server, path):
    judge = judge_of(server)
    batch = Batch(judge, LAMPS, path, limits=Limits(tokens=100))
    with pytest.raises(LimitReachedError, match="more than the limit of 100"):
        batch.ready()
    assert not server.batches
    assert not path.exists()


@pytest.fixture
def judge_in_batch(server, tmp_path, cli):
    """Runs the command line on a file of lamps: (exit code, stdout, stderr)."""
    source = write_lines(tmp_path / "a.jsonl", LAMPS)
    at = ["--lm", "openai/tiny", "--api-base", server.base]
    return partial(cli, "judge", source, *at, "--batch", "--out", tmp_path / "b.jsonl")


def test_what_was_refused_is_not_asked_again(server, judge_in_batch, tmp_path):
    """Its row stays unscored with the provider's reason; a finished output buys nothing. One that is not finished buys
    what it lacks, and what failed at its end. LiteLLM's advice is not printed."""
    by_answer, out = ("--set", "granularity=answer"), tmp_path / "b.jsonl"
    assert judge_in_batch(*by_answer)[0] == 3
    server.refuses_ids = {server.billed[20], server.billed[30]}
    server.finish()
    assert judge_in_batch(*by_answer)[:2] == (0, "")
    rows, asked = read_lines(out), len(server.requests)
    first, second = (i for i, row in enumerate(rows) if row["unscored"])
    assert rows[first]["detail"].endswith("[openai/tiny] no")
    assert judge_in_batch(*by_answer)[0] == 0
    assert (read_lines(out), len(server.billed)) == (rows, 39)
    assert len(server.requests) == asked
    write_lines(out, rows[: second + 1])
    assert judge_in_batch(*by_answer)[0] == 3
    assert len(server.billed) == 39 + (40 - second - 1)
    server.finish()
    assert judge_in_batch(*by_answer)[0] == 0
    assert len(read_lines(out)) == 40
    assert not list(tmp_path.glob("*.batch.json"))


def test_what_was_cancelled_is_not_asked(server, path):
    batch = judge_of(server).submit(LAMPS, path)
    batch.cancel()
    asked = len(server.requests), len(server.batches)
    for look in (batch.collect, batch.ready):
        with pytest.raises(LimitReachedError, match="the batch was cancelled"):
            look()
    assert batch.status.startswith("cancelled; 0 of 78 requests")
    assert (len(server.requests), len(server.batches)) == asked
    assert not path.exists()


def test_an_embedded_model_is_refused_before_it_is_fetched(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("FAITH_DSPY_CACHE", str(tmp_path / "models"))
    monkeypatch.setenv("FAITH_DSPY_OFFLINE", "1")
    source = write_lines(tmp_path / "a.jsonl", lamps(1))
    command = ("judge", source, "--batch", "--out", tmp_path / "z.jsonl", "--lm")
    for model in ("local", "local:raw", "local:no.gguf"):
        code, _, said = cli(*command, model)
        assert code == 2
        assert f"{model} has no batch interface" in said


def test_what_has_no_batch(server, path):
    for judge in (Judge("none"), Judge(len), Judge("anthropic/claude-sonnet-4-0")):
        with pytest.raises(ConfigError, match="Leave --batch out"):
            Batch(judge, lamps(1), path)
    with pytest.raises(ConfigError, match="samples"):
        Batch(judge_of(server, confidence="samples"), lamps(1), path)
    with pytest.raises(InputError, match="no records"):
        judge_of(server).submit([], path)
    path.write_text('{"judge": "another", "records": "", "parts": []}')
    judge_of(server).submit(LAMPS, path)
    with pytest.raises(InputError, match="waits for another judge"):
        Batch(judge_of(server, cite=True), lamps(1), path)


def run(server, folder, *arguments):
    command = [*MAIN, *arguments]
    command += ["--lm", "openai/tiny", "--api-base", server.base]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.all
def test_kills_on_the_command_line(server, tmp_path):
    """Killed again and again while it submits and while it collects: the rows are those without a batch, in order, and
    nothing is billed twice. A batch that is at work ends with exit code 3."""
    write_lines(tmp_path / "answers.jsonl", lamps(300))
    command = ("judge", "answers.jsonl")
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
    paid = {"usage": 0, "replayed": 0}
    rows, plain = (
        [row | paid for row in read_lines(tmp_path / name)]
        for name in ("b.jsonl", "plain.jsonl")
    )
    assert rows == plain
    assert len(server.billed) == len(set(server.billed))
