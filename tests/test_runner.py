import csv
import json
import os
import resource
import signal
import subprocess
import time
import tracemalloc
from itertools import repeat

import dspy
import pytest

from faith_dspy import Judge
from faith_dspy.errors import InputError, LMUnavailableError
from faith_dspy.report.judgment import write_html
from faith_dspy.runner import run
from tests.support.files import MAIN, read_lines

CONTEXT = ["The kettle is blue."]
GOOD = {"context": CONTEXT, "answer": "It is blue."}


def kettles(n):
    """Records whose answers tell which they are."""
    return [
        {"id": i, "context": CONTEXT, "answer": f"Kettle {i} is blue."}
        for i in range(n)
    ]


def put(path, *lines):
    """A file of lines: objects as JSON, bytes as they are."""
    path.write_bytes(
        b"".join(
            x if isinstance(x, bytes) else json.dumps(x).encode() + b"\n" for x in lines
        )
    )
    return path


@pytest.fixture
def files(tmp_path):
    """Writes the input of a run: its path, and that of the output."""

    def write(*lines, out="out.jsonl"):
        return put(tmp_path / "in.jsonl", *lines), tmp_path / out

    return write


def test_each_turn_of_a_conversation_has_a_row(files, tmp_path):
    """With its number, as in Python; a run goes on between two of them, and the page names them."""
    asks = {"role": "user", "content": "Which colour?"}
    says = {"role": "assistant", "content": "The kettle is blue."}
    messages = []
    for colour in ("blue", "red"):
        result = {"role": "tool", "content": f"The kettle is {colour}."}
        messages += [asks, result, says]
    judge = Judge("none")
    source, out = files({"id": "a", "messages": messages}, GOOD)
    run(judge, source, out, all_turns=True)
    whole = out.read_bytes()
    turns = [(row.get("turn"), row["faithful"]) for row in read_lines(out)]
    assert turns == [(2, True), (5, False), (None, True)]
    in_python = judge.batch(source, turns="all")
    assert [(one.turn, one.faithful) for one in in_python] == turns
    called = judge(conversation=messages, turns="all")
    assert [one.turn for one in called] == [2, 5]
    out.write_bytes(whole[: whole.index(b"\n") + 1])
    tally = run(judge, source, out, all_turns=True, show=True)
    assert (tally.resumed, out.read_bytes()) == (1, whole)
    write_html(tally.shown, tmp_path / "page.html")
    assert '"a, turn 5"' in (tmp_path / "page.html").read_text()
    run(judge, source, tmp_path / "out.csv", all_turns=True)
    with (tmp_path / "out.csv").open(newline="") as table:
        turns = [row["judge_turn"] for row in csv.DictReader(table)]
    assert turns == ["2", "5", ""]


def test_memory_is_flat(judge_at, tmp_path):
    """4,000 lines of 4 kB, 16 MB, come out within 4 MB of memory."""
    judge, _ = judge_at()
    source = tmp_path / "in.jsonl"
    with source.open("wb") as handle:
        handle.writelines(repeat(json.dumps("x" * 4000).encode() + b"\n", 4_000))
    run(judge, put(tmp_path / "first", GOOD), tmp_path / "out0")
    tracemalloc.start()
    tally = run(judge, source, tmp_path / "out", threads=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tally.unreadable == 4_000
    assert peak < 4 * 2**20


def test_an_endpoint_that_goes_ends_the_run(judge_at, files):
    def say(asked):
        if "Kettle 3" in server.statement(asked):
            server.status = 503
        return "Yes"

    judge, server = judge_at(says=say)
    source, out = files(*kettles(6))
    with pytest.raises(LMUnavailableError):
        run(judge, source, out, threads=1)
    assert [r["id"] for r in read_lines(out)] == [0, 1, 2]


def test_what_is_not_this_runs_output_is_left_alone(judge_at, files):
    """Rows of other options, of another LM or of something else are refused as they are."""
    judge, server = judge_at()
    source, out = files(GOOD)
    run(judge, source, out)
    row = out.read_bytes()
    lenient, _ = judge_at(server, criteria="Be lenient.")
    another = "was judged by another judge or with other options"
    cases = [(other, row, another) for other in (lenient, Judge("openai/other"))]
    resumed = r".*, so this run cannot be resumed from it\. Give another --out"
    odd = b"[]", b"\x00", b"[" * 100_000
    cases += [(judge, line + b"\n", resumed) for line in odd]
    for other, row, said in cases:
        out.write_bytes(row)
        with pytest.raises(InputError, match=f"row 1 {said}"):
            run(other, source, out)
        assert out.read_bytes() == row


@pytest.mark.parametrize("replaced", [False, True])
def test_an_output_that_goes_meanwhile_is_missed(files, replaced):
    """Rows that went to a file that is no longer there are not called done."""
    source, out = files(*kettles(3))

    def remove(lines):
        out.unlink(missing_ok=True)
        if replaced:
            out.touch()

    with pytest.raises(InputError, match="was removed or replaced"):
        run(Judge("none"), source, out, advance=remove)


def test_a_run_goes_on_at_the_first_row_that_the_lm_failed_on(judge_at, files):
    """The file is cut there; a line that holds no record, and a reply that cannot be read, are rows like any other.
    Once it is finished it needs no endpoint."""
    source, out = files(*kettles(2), b"oops\n", *kettles(6)[2:])
    fails = {1: "Perhaps.", 3: {"status": 400, "text": "no"}, 5: "I cannot say."}

    def says(asked):
        return fails.get(int(server.statement(asked).split()[1]), "Yes")

    judge, server = judge_at(says=says)
    run(judge, source, out, threads=2)
    unscored = ["" if row["faithful"] else row["unscored"] for row in read_lines(out)]
    assert unscored == ["", *["parse_failed"] * 2, "", "lm_failed", "", "parse_failed"]
    fails.clear()
    dspy.configure_cache(enable_disk_cache=False)  # forget the replies
    server.requests.clear()
    tally = run(judge, source, out, threads=2, show=True)
    assert sorted({int(s.split()[1]) for s in server.statements}) == [3, 4, 5]
    assert [row["id"] for row, _ in tally.shown] == [0, 1, "line 3", 2, 3, 4, 5]
    assert "line 3: is not JSON in UTF-8" in read_lines(out)[2]["detail"]
    assert tally.usage.calls == 3
    said = "7 judged: 5 faithful, 0 not faithful, 2 unscored (2 parse_failed)"
    assert str(tally).startswith(f"{said} · 4 of them by an earlier run")
    server.close()
    again = run(judge, source, out, show=True)
    assert again.shown == tally.shown
    assert (again.rows, again.resumed, again.scored, again.unreadable) == (7, 7, 5, 1)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_a_run_goes_on_wherever_its_output_was_cut_off(files, name):
    """Inside a header, a quoted cell or a line end, too: the rows before it stay. Columns that only later records have
    are in a table's details."""
    answers = [{**row, "note": 'of "two"\nlines, ü'} for row in kettles(20)]
    answers += [{**row, "page": 7} for row in kettles(2)]
    source, out = files(*answers, out=name)
    run(Judge("none"), source, out)
    whole = out.read_bytes()
    if name == "out.csv":
        *_, last = csv.DictReader(whole.decode().splitlines())
        assert json.loads(last["judge_details"])["further_columns"] == {"page": 7}
    resumed = []
    for end in (0, 9, 300, *range(4000, 4100, 7), len(whole) - 1, len(whole)):
        out.write_bytes(whole[:end])
        resumed.append(run(Judge("none"), source, out).resumed)
        assert out.read_bytes() == whole
    assert (resumed[:3], resumed[-2:]) == ([0, 0, 0], [21, 22])


# The command, as a process of its own


@pytest.fixture
def command(tmp_path):
    """Starts the command line in the folder, with a cache of replies of its own each time."""
    started = []

    def start(server, *args, **how):
        at = ("--lm", "openai/tiny", "--api-base", server.base)
        words = [*MAIN, "judge", *args, *at]
        cache = str(tmp_path / f"cache{len(started)}")
        env = os.environ | {"DSPY_CACHEDIR": cache, "NO_COLOR": "1"}
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        how = {**pipes, "preexec_fn": heed_ctrl_c, "cwd": tmp_path, "env": env} | how
        started.append(subprocess.Popen(words, **how))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def heed_ctrl_c():
    """A background job ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def small_disk():
    """A disk of 20 kB, for a process that is started with this."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize("to", ["out.jsonl", None])
def test_a_full_disk(command, chat_server, tmp_path, to):
    """A disk that is full ends the run at once, with one sentence and exit code 2; with room it goes on."""
    server = chat_server(says="Yes")
    put(tmp_path / "in.jsonl", *kettles(100))
    where = ["--out", to] if to else []
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        how = {"preexec_fn": small_disk} if to else {"stdout": full}
        process = command(server, "in.jsonl", *where, **how)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said
    name = f"--out {to}" if to else "standard output"
    assert f"error: {name}: cannot be" in said.decode()
    assert len(server.requests) < 100
    if to:
        assert command(server, "in.jsonl", *where).wait(60) == 0
        assert [r["id"] for r in read_lines(tmp_path / to)] == list(range(100))


def test_ctrl_c_begins_nothing_and_loses_nothing(command, chat_server, tmp_path):
    """The calls in flight are waited for, and their replies are there when the same command is run again."""
    reply = {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}}
    server = chat_server(says=lambda asked: {**reply, "delay": 2})
    put(tmp_path / "in.jsonl", *kettles(20))
    process = command(server, "in.jsonl", "--out", "out.jsonl")
    while len(server.requests) < 8:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert (process.returncode, b"Traceback" in said) == (130, False)
    assert b"run the same command again to continue" in said
    server.says = reply
    (tmp_path / "cache0").rename(tmp_path / "cache1")  # the next command's
    assert command(server, "in.jsonl", "--out", "out.jsonl").wait(300) == 0
    assert len(set(server.statements)) == len(server.statements) == 20


def test_a_closed_pipe_ends_quietly(command, chat_server, tmp_path):
    """`faith-dspy judge … | head -1`: whoever reads has enough."""
    server = chat_server(says=lambda asked: {"text": "Yes", "delay": 0.05})
    put(tmp_path / "in.jsonl", *kettles(60))
    process = command(server, "in.jsonl", "--threads", "1")
    assert json.loads(process.stdout.readline())["line"] == 1
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(60), said.strip()) == (0, b"")
