import json
import re
import socket
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command

from faith_dspy.cli import app, main
from faith_dspy.cli.tune import pages
from faith_dspy.eval_sets.catalog import SETS, load
from faith_dspy.io.inputs import as_chunks
from faith_dspy.io.labels import answer_key, read_labels
from faith_dspy.optimize.tracking import store
from tests.support.files import write_lines
from tests.support.results import rows, study

CONTEXT = ["The kettle is blue.", "It holds 0.9 litres."]
YES = {"It is blue.": 0.9, "It holds much.": 0.4, "It is red.": 0.2, "It is new.": 0.3}
RECORDS = [
    {"context": CONTEXT, "answer": "It is blue."},
    {"context": CONTEXT, "answer": "It is red."},
]
LABELS = [
    {"context": CONTEXT, "answer": "It is blue.", "faithful": True},
    {"context": CONTEXT, "answer": "It holds much.", "faithful": True},
    {"context": CONTEXT, "answer": "It is red.", "faithful": False},
    {"context": CONTEXT, "answer": "It is new.", "faithful": False},
]


@pytest.fixture(autouse=True)
def working_folder(monkeypatch, tmp_path):
    """A wide terminal without colours, in a folder with records and labels; no store in sight."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    write_lines("in.jsonl", RECORDS)
    write_lines("labels.jsonl", LABELS)


@pytest.fixture
def server(chat_server):
    """An endpoint that knows the answers used here."""
    return chat_server(yes=YES)


@pytest.fixture
def at(server):
    """The options that name that endpoint."""
    return ["--lm", "openai/tiny", "--api-base", server.base]


def output(result, code, *parts):
    """What a command wrote on stdout: it ended with this exit code, and stderr holds the parts."""
    ended, out, err = result
    assert ended == code, err
    for part in parts:
        assert part in err.replace("\n", " "), err
    return out


def refused(result, *parts):
    """Exit 2, one message on stderr that holds the parts, nothing on stdout."""
    assert output(result, 2, *parts) == ""


def commands(command, path=()):
    """Every command and group, with the words that call it."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize(
    ("words", "command"),
    [pytest.param(*c, id=" ".join(c[0])) for c in commands(get_command(app))],
)
def test_help_of_every_command(cli, words, command, monkeypatch):
    """At 80 columns every option and argument is explained, and no list of values cut."""
    monkeypatch.setenv("COLUMNS", "80")
    out = output(cli(*words, "--help"), 0)
    assert command.help
    assert all(word.endswith(">") for word in re.findall(r"<\S*\|\S*", out))
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name


# --- judge -------------------------------------------------------------------------------------------------------


def test_a_run_that_scored_nothing_fails_and_says_why(cli, at):
    """A file that is no JSON lines is wrong input."""
    source = write_lines("one.jsonl", [{"context": [" "], "answer": "It is blue."}])
    why = "no answer could be scored; the first: there is no context"
    output(cli("judge", source, *at), 1, why)
    source.write_text("It is blue.\n")
    output(cli("judge", source, *at), 2, "line 1: is not JSON")


def test_judge_writes_csv(cli, tmp_path, caplog):
    """The input's columns come back, ours after them, in one file."""
    row = {"ticket": "7", "answer": CONTEXT[0], "context": json.dumps(CONTEXT)}
    row["faithful"] = "yes"
    frame = pd.DataFrame([row, row | {"answer": "It weighs 3 kg."}])
    frame.to_csv("tickets.csv", index=False)
    before = {*tmp_path.iterdir()}
    more = ("--judge", "none", "--out", "judged.csv", "--html", "p.html")
    output(cli("judge", "tickets.csv", *more), 0)
    assert caplog.messages[0].endswith("'ticket'")  # the page shows the label
    made = {path.name for path in {*tmp_path.iterdir()} - before}
    assert made == {"judged.csv", "p.html"}
    rows = pd.read_csv("judged.csv", dtype=str, keep_default_na=False)
    ours = ("score", "faithful", "probability", "unscored", "reason", "details")
    assert [*rows.columns] == [*frame.columns, *(f"judge_{name}" for name in ours)]
    first, second = rows.to_dict("records")
    assert first | row == first
    assert (first["judge_faithful"], second["judge_faithful"]) == ("True", "False")
    missing = "It weighs 3 kg. – not in the context: weighs, 3, kg"
    assert (first["judge_reason"], second["judge_reason"]) == ("", missing)


def test_nothing_of_the_users_is_overwritten(cli, tmp_path):
    """A page or a table that would replace the input, or a table that is another's, is refused."""
    table = tmp_path / "in.csv"
    table.write_text("context,answer,faithful\nThe kettle is blue.,It is blue.,yes\n")
    kept = table.read_text()
    for *options, said in (
        ["judge", "in.csv", "--out", table, "is the input itself"],
        ["judge", table, "--html", table, "is the input itself"],
        ["agree", table, "--html", table, "is the input itself"],
        ["judge", "in.jsonl", "--out", table, "row 1 has other columns"],
    ):
        refused(cli(*options, "--judge", "none"), said)
        assert table.read_text() == kept


def test_judge_one_answer(cli, at, tmp_path):
    context = ("--context", "The kettle is blue.", "--context", "It is old.")
    blue = ["judge", "--answer", "It is blue.", *context, *at]
    red = ["judge", "--answer", "It is red.", "--context", "It is blue.", *at]
    assert "It is blue." in output(cli(*blue), 0)
    out = output(cli(*blue, "--json", "--fail-on", "unfaithful"), 0)
    assert json.loads(out)["score"] == 1.0
    for command in (["judge", "in.jsonl", *at], red):
        output(cli(*command), 0)
        failing = cli(*command, "--fail-on", "unfaithful")
        output(failing, 1, "failed: 1 answer is not faithful.")
    options = [], ["--no-reasons"], ["--json"], ["--json", "--reasons"]
    outs = [cli(*red, *more)[1] for more in options]
    why = ["The context does not say it." in out for out in outs]
    assert why == [True, False, False, True]  # where somebody reads it
    alone = cli("judge", "--answer", "It is blue.", *at)
    output(alone, 1, "the answer could not be scored")
    output(cli(*blue, "--html", "page.html"), 0)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Judge: untuned judge · openai/tiny" in page


def test_options_are_set(cli, at, server):
    """--set takes any option, as often as one likes; what it takes is what is asked and judged by."""
    settings = "--set", "criteria=Be strict = fair.", "--set", "confidence=none"
    cli("judge", "in.jsonl", *at, *settings)
    assert server.requests[0]["messages"][0]["content"].endswith("\nBe strict = fair.")
    assert "logprobs" not in server.requests[0]


# --- agree, labels -----------------------------------------------------------------------------------------------


def test_agree(cli, at, tmp_path):
    """Two faithful at .9 and .4, two not at .2 and .3: balanced accuracy (1/2 + 1)/2, κ (.75 − .5)/.5, AUROC 1.

    As JSON; in three lines with what people and judge call differently; as a page.
    """
    found = json.loads(output(cli("agree", "labels.jsonl", *at, "--json"), 0))
    metrics = "balanced_accuracy", "cohen_kappa", "auroc"
    assert [found[name]["value"] for name in metrics] == [0.75, 0.5, 1]
    assert (found["coverage"], found["usage"]["calls"]) == (1.0, 4)
    (disagreement,) = found["disagreements"]
    assert disagreement["faithful"] is True

    out = cli("agree", "labels.jsonl", *at, "--html", "wrong.html")[1]
    rejected = "of 2 answers labelled unfaithful it catches 2"
    assert out.startswith(f"In three lines\n• Agreement with people: {rejected}")
    assert re.search(r"1 disagreement\n.*\nfaithful +\.40 +It holds much\.", out)
    text = (tmp_path / "wrong.html").read_text(encoding="utf-8")
    assert text.count('"people":true') == text.count('"people"') == 1

    details = cli("agree", "labels.jsonl", *at, "--details")[1]
    assert ("Cohen" in out, "Cohen" in details) == (False, True)


def test_agree_names_what_it_could_not_score_and_what_the_study_knew(
    cli, judge_at, server
):
    """Reasons with their counts, and how many of the answers were in the study, whatever else the file holds."""
    judge, _ = judge_at(server)
    keys = [answer_key(None, as_chunks(CONTEXT), row["answer"]) for row in LABELS[:2]]
    judge.copy(manifest={"answer_keys": keys}).save("judge")
    bare = {"context": ["---"], "answer": "It is blue.", "faithful": True}
    source = write_lines("more.jsonl", [*LABELS, bare])
    command = ("agree", source, "--judge", "judge", "--api-base", server.base)
    found = json.loads(cli(*command, "--json")[1])
    assert found["unscored"] == {"no_context": 1}
    assert (found["tuned_on_these_labels"], found["answers_of_its_study"]) == (True, 2)


def test_labels_show(cli, monkeypatch):
    """The first answers at 80 columns: chunks with their ids, label, and each statement's verdict, chunk ids and
    reason; no command of a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    said = {"text": "It is red.", "verdict": "contradictory"}
    said |= {"supporting_chunk_ids": [0, 1], "reason": "It is blue."}
    hostile = {"id": "\x1b[2Ja", "statements": [said], "question": "Which?"}
    hostile |= {"answer": "It is \x1b]0;t\x07\x9b31mred.\n\u202eIt is new."}
    rows = [hostile | {"context": CONTEXT}, *LABELS]
    write_lines("hostile.jsonl", rows)
    out = cli("labels", "show", "hostile.jsonl", "-n", 2)[1]
    first = [" ".join(line.split()) for line in out.partition("\n\n")[0].splitlines()]
    assert first == [
        "1 of 5: [2Ja",
        "question Which?",
        "[0] The kettle is blue.",
        "[1] It holds 0.9 litres.",
        "answer It is ]0;t31mred.",
        "It is new.",
        "label not faithful",
        "! It is red.",
        "contradicted ← [0] [1]: It is blue.",
    ]
    assert "2 of 5: " in out


@pytest.mark.parametrize("name", SETS)
def test_labels_get(cli, tmp_path, name):
    """The file that is written has the set's labels; one that is there stays as it is."""
    assert output(cli("labels", "get", name), 0, f"tune {name}.jsonl") == ""
    assert read_labels(tmp_path / f"{name}.jsonl") == load(name)
    kept = Path("in.jsonl").read_bytes()
    refused(cli("labels", "get", name, "--out", "in.jsonl"), "in.jsonl: exists already")
    assert Path("in.jsonl").read_bytes() == kept
    refused(cli("labels", "get", "in.jsonl"), "no shipped set; those are quickstart")


# --- studies -----------------------------------------------------------------------------------------------------


def test_study_compare(cli, tmp_path):
    for seed in (0, 1):
        answers = rows([0.9, 0.1] * 3 + [0.9, 0.9 * seed])
        found = study(answers, study_id=f"s{seed}", seed=seed)
        (tmp_path / f"judge{seed}").mkdir()
        (tmp_path / f"judge{seed}" / "study.json").write_text(found.model_dump_json())
    compare = ("study", "compare", "judge0", "judge1")
    assert "Study 1 against study 2: inconclusive" in cli(*compare)[1]
    found = json.loads(cli(*compare, "--json")[1])
    assert [s["study_id"] for s in found["studies"]] == ["s0", "s1"]
    refused(cli("study", "compare", "judge0"), "at least two studies")


def test_a_champion_that_is_held_back_or_not_better_fails(cli, monkeypatch):
    """It ends with the study's own address and what serves it, unless the store is a server."""
    page = "http://127.0.0.1:5000/#/1"
    why = "injection: flattery: flipped 0.50 of 4 verdicts."
    held = study(rows([0.9, 0.1] * 4), held_back=(why,), page=page)
    asked = {}
    monkeypatch.setattr(
        "faith_dspy.optimize.tune", lambda *_, **how: asked.update(how) or held
    )
    code, out, err = cli("tune", "labels.jsonl", "--scores", "a,b", "--scores", "c")
    assert asked["scores"] == "a,b,c"
    assert code == 1
    assert "On MLflow's pages: faith-dspy ui" in out
    assert err == f"failed: {why}\n"
    said = cli("tune", "labels.jsonl", "--require-better")[2]
    assert "failed: the champion against untuned: inconclusive" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(store, "PORT", port)
        monkeypatch.setattr(store, "UI", f"http://127.0.0.1:{port}")
        Path("a.db").touch()
        refused(
            cli("ui", "--port", port, "--tracking-uri", "sqlite:///a.db"),
            f"port {port} is taken by another program",
        )
        served = rf"faith-dspy ui --tracking-uri sqlite:///a.db --port (?!{port})(\d+)"
        page = pages(f"{store.UI}/#/1", "sqlite:///a.db")
        assert re.fullmatch(rf"{served}, then http://127.0.0.1:\1/#/1", page)
    elsewhere = "https://mlflow.example/#/1"
    assert pages(elsewhere, "https://mlflow.example") == elsewhere


def test_tune_finds_bad_input_before_anything_is_made(cli, tmp_path):
    """Labels that are none end a study before it makes a store; no folder that it made stays behind, and no other
    goes."""
    (tmp_path / "oops.jsonl").write_text("{oops\n")
    (tmp_path / "mine").mkdir()
    before = {*tmp_path.iterdir()}
    for more in ((), ("--out", "a/b/c"), ("--out", "mine")):
        refused(cli("tune", "oops.jsonl", *more), "oops.jsonl, line 1: is not JSON")
    assert {*tmp_path.iterdir()} == before


def test_reading_makes_no_store(cli, tmp_path):
    before = {*tmp_path.iterdir()}
    ui = "ui", "ui --tracking-uri sqlite:///other.db"
    for command in ("study show 51d1", "study list", "labels pull", *ui):
        refused(cli(*command.split()), "there is no ", "--tracking-uri")
        assert {*tmp_path.iterdir()} == before


# --- wrong input -------------------------------------------------------------------------------------------------


NOT_JUDGED = {
    "": "give either INPUT, a file of answers, or --answer",
    "in.jsonl --json {at}": "--json goes with --answer",
    "--answer red --turns all {at}": "--turns with it",
    "- --batch {at}": "give a file, not -",
    "in.jsonl --lm openai/tiny --api-base http://127.0.0.1:9/v1": "at http://127.0.0.1:9/v1 does not .* refused",
    "in.jsonl --lm openai/huge --api-base {base}": "openai/huge at .* does not answer: .*model not found",
    "in.jsonl --lm local:no.gguf": "There is no GGUF file at",
    "in.jsonl --judge nowhere": "nowhere/judge.json: cannot be read .*A judge is a folder with judge.json",
    "in.jsonl {at} --judge judge --set cite=true": "--set cite=true is for a judge that is not loaded",
    "in.jsonl {at} --set verdicts": "'verdicts': expected option=value, e.g. verdicts=graded",
    "in.jsonl {at} --set verdict=graded": "verdict: there is no such field.*abstention, citations_from, cite",
    "in.jsonl {at} --set granularity=word": "'statement', 'sentence' or 'answer' .*got 'word'",
    "in.jsonl {at} --set verdict_scores={{1": "is not valid JSON",
    "in.jsonl {at} --out no/such/folder/out.jsonl": "no/such/folder",
    "in.jsonl {at} --html no/page.html": "no/page.html",
    "in.jsonl {at} --out .": "cannot be written",
    "in.jsonl {at} --out out.parquet": "out.parquet: .parquet is not written. Name a .csv",
}


@pytest.mark.parametrize("words", NOT_JUDGED)
def test_what_is_refused_before_any_work(cli, judge_at, at, server, words):
    """An option without effect, a dead endpoint, a model it does not have, a file or folder that is none."""
    judge_at(server)[0].save("judge")
    before = {*Path().rglob("*")}
    options = words.format(base=server.base, at=" ".join(at)).split()
    _, _, err = result = cli("judge", *options)
    refused(result)
    assert re.search(NOT_JUDGED[words], " ".join(err.split())), err
    assert (server.requests, {*Path().rglob("*")}) == ([], before)


def test_a_crash_is_no_verdict(cli, monkeypatch, capsys):
    """A package that is missing is exit 2 with what to install; a fault of the program is 70, with its place."""
    faults = [ModuleNotFoundError(name="scipy.optimize"), ZeroDivisionError("on purpose")]  # fmt: skip

    def fail(*args, **kwargs):
        raise faults.pop(0)

    monkeypatch.setattr("faith_dspy.optimize.tune", fail)
    refused(cli("tune", "labels.jsonl"), "needs the package 'scipy'")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    assert "ZeroDivisionError: on purpose" in capsys.readouterr().err
