import io
import json
import re
import sys

import pytest
import typer

from faith_dspy.cli import app, main
from faith_dspy.cli.tune import pages
from faith_dspy.eval_sets.catalog import SETS, load
from faith_dspy.io.labels import answer_key, read_labels
from faith_dspy.io.records import as_chunks

CONTEXT = ["The kettle is blue.", "It holds 0.9 litres."]
YES = {"It is blue.": 0.9, "It holds much.": 0.4, "It is red.": 0.2, "It is new.": 0.3}
YES["Sie fasst 0,9 Liter – für Öl."] = 0.6
RECORDS = [
    {"id": "a", "question": "Which?", "context": CONTEXT, "answer": "It is blue."},
    {"context": CONTEXT, "answer": "It is red."},
    {"id": 3, "context": CONTEXT, "answer": "Sie fasst 0,9 Liter – für Öl."},
]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch, tmp_path):
    """Wide and without colours, in a folder of its own."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the command line as its entry point does: (exit code, stdout, stderr)."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["faith-dspy", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as exc:
            code = exc.code or 0
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture
def server(chat_server):
    """An endpoint that knows the answers used here."""
    return chat_server(yes=YES)


@pytest.fixture
def at(server):
    """The options that name that endpoint."""
    return ["--lm", "openai/tiny", "--api-base", server.base]


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def lines(text):
    return [json.loads(line) for line in io.StringIO(text)]


def commands(command, path=()):
    """Every command and group, as the words that call it."""
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_of_every_command(run, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert "Usage: faith-dspy" in out
    assert all(word.endswith(">") for word in out.split() if word.startswith("<") and "|" in word)
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name
        if parameter.param_type_name == "option":
            assert parameter.opts[0] in out


# --- judge -------------------------------------------------------------------------------------------------------


def test_judge_writes_a_line_per_record(run, at, tmp_path):
    code, out, err = run("judge", jsonl(tmp_path / "in.jsonl", *RECORDS), *at, "--threads", 8)
    assert (code, "Traceback" in err) == (0, False)
    found = lines(out)
    assert [f.get("id") for f in found] == ["a", None, 3]
    assert "id" not in found[1]
    assert [f["line"] for f in found] == [1, 2, 3]
    assert [f["answer"] for f in found] == [r["answer"] for r in RECORDS]
    assert [f["score"] for f in found] == [1.0, 0.0, 1.0]
    assert [f["faithful"] for f in found] == [True, False, True]
    assert found[0]["statements"][0]["verdict"] == "fully_supported"
    assert found[0]["usage"]["prompt_tokens"] == 100
    assert all(f["unscored"] is None for f in found)


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [
        (
            '{"context": [" "], "answer": "It is blue."}\n',
            1,
            "no answer could be scored; the first: there is no context",
        ),
        ("It is blue.\n", 2, "line 1: is no JSON"),
    ],
)
def test_a_run_that_scored_nothing_says_why(run, at, tmp_path, content, code, told):
    """It fails, and a file that is no JSON lines is wrong input."""
    (tmp_path / "in.jsonl").write_text(content, encoding="utf-8")
    found = run("judge", tmp_path / "in.jsonl", *at)
    assert (found[0], told in found[2]) == (code, True)


def test_judge_one_answer(run, at, tmp_path):
    given = ["judge", "--answer", "It is blue.", "--context", "The kettle is blue.", "--context", "It is old."]
    code, out, _ = run(*given, *at)
    assert (code, "faithful" in out, "It is blue." in out) == (0, True, True)
    code, out, _ = run(*given, *at, "--json")
    assert (code, json.loads(out)["score"]) == (0, 1.0)
    code, _, err = run("judge", "--answer", "It is blue.", *at)
    assert (code, "the answer could not be scored" in err) == (1, True)
    assert run("judge", *at)[0] == run("judge", "in.jsonl", "--answer", "x", *at)[0] == 2
    assert run(*given, *at, "--html", "no/page.html")[0] == 2
    assert run(*given, *at, "--html", "page.html")[0] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert "Judge: untuned judge · openai/tiny" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "uri", "said"),
    [
        ("http://127.0.0.1:5000/#/1", None, "faith-dspy ui, then http://127.0.0.1:5000/#/1"),
        ("http://127.0.0.1:5000/#/1", "sqlite:///a.db", "faith-dspy ui --tracking-uri sqlite:///a.db, then http://"),
        ("https://mlflow.example/#/1", "https://mlflow.example", "https://mlflow.example/#/1"),
    ],
)
def test_where_a_study_is_seen(page, uri, said):
    """`tune` ends with the study's own address, and with what serves it, unless the store is a server."""
    assert pages(page, uri).startswith(said)


def test_ui_needs_a_store(run, tmp_path):
    """Where no study ran there is nothing to show, and no store is made by looking."""
    code, _, err = run("ui")
    assert (code, "there is no mlflow.db in" in err) == (2, True)
    assert run("ui", "--tracking-uri", "sqlite:///other.db")[0] == 2
    assert list(tmp_path.iterdir()) == []


# --- agree, audit, info ------------------------------------------------------------------------------------------

LABELS = [
    {"context": CONTEXT, "answer": "It is blue.", "faithful": True},
    {"context": CONTEXT, "answer": "It holds much.", "faithful": True},
    {"context": CONTEXT, "answer": "It is red.", "faithful": False},
    {"context": CONTEXT, "answer": "It is new.", "faithful": False},
]


def test_agree_as_json(run, at, tmp_path):
    """Two faithful at .9 and .4, two not at .2 and .3: balanced accuracy (1/2 + 1)/2, κ (.75 − .5)/.5, AUROC 1."""
    code, out, err = run("agree", jsonl(tmp_path / "labels.jsonl", *LABELS), *at, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["balanced_accuracy"]["value"] == pytest.approx(0.75)
    assert found["cohen_kappa"]["value"] == pytest.approx(0.5)
    assert found["auroc"]["value"] == pytest.approx(1.0)
    for name in ("balanced_accuracy", "cohen_kappa", "auroc", "mcc", "f1_unfaithful"):
        assert {"value", "low", "high"} <= found[name].keys()
    assert (found["n"], found["scored"], found["coverage"]) == (4, 4, 1.0)
    assert found["usage"]["calls"] == 4
    assert found["tuned_on_these_labels"] is False


def test_agree_lists_the_disagreements(run, at, tmp_path):
    """Three lines, then what people and judge call differently; the same as a page; the metrics with --details."""
    source, page = jsonl(tmp_path / "labels.jsonl", *LABELS), tmp_path / "wrong.html"
    code, out, err = run("agree", source, *at, "--html", page)
    assert code == 0, err
    assert out.startswith("In three lines\n• Agreement: balanced accuracy .75")
    assert re.search(r"1 disagreement\n.*\nfaithful +\.40 +It holds much\.", out)
    assert "Cohen" not in out
    text = page.read_text(encoding="utf-8")
    assert "1 disagreement with labels.jsonl, worst first" in text
    assert '"people":true' in text
    assert "It is red." not in text.partition('id="data"')[2].partition("</script>")[0]
    found = json.loads(run("agree", source, *at, "--json")[1])
    assert [(d["faithful"], round(d["probability"], 2)) for d in found["disagreements"]] == [(True, 0.4)]
    assert len(found["in_three_lines"]) == 3
    assert (found["usage"]["calls"], found["replayed"]["calls"]) == (0, 4)
    assert "Cohen" in run("agree", source, *at, "--details")[1]


def test_agree_names_what_it_could_not_score_and_what_the_study_knew(run, judge_at, server, tmp_path):
    """Reasons with their counts, and how many of the answers were in the study, whatever else the file holds."""
    judge, _ = judge_at(server)
    keys = [answer_key(None, as_chunks(row["context"]), row["answer"]) for row in LABELS[:2]]
    judge.copy(manifest={"answer_keys": keys}).save(tmp_path / "judge")
    source = jsonl(tmp_path / "labels.jsonl", *LABELS, {"context": ["---"], "answer": "It is blue.", "faithful": True})
    command = ("agree", source, "--judge", tmp_path / "judge", "--api-base", server.base)
    found = json.loads(run(*command, "--json")[1])
    assert found["unscored"] == {"no_context": 1}
    assert (found["tuned_on_these_labels"], found["answers_of_its_study"]) == (True, 2)
    out = run(*command)[1]
    assert "1 no context" in out
    assert "2 of 5 answers had a part in the study that tuned this judge" in out


@pytest.mark.parametrize(("bar", "code"), [(0.7, 0), (0.75, 0), (0.8, 1)])
def test_agree_fails_its_bar(run, at, tmp_path, bar, code):
    """Exit 1 when balanced accuracy, .75 here, is below what was asked for, and the table is shown all the same."""
    got, out, _ = run("agree", jsonl(tmp_path / "labels.jsonl", *LABELS), *at, "--min", bar)
    assert got == code
    assert "balanced accuracy" in out
    assert ".75" in out


def test_labels_audit(run, tmp_path):
    statement = {"text": "It is blue.", "verdict": "contradictory"}
    rows = [
        *LABELS,
        {"context": ["x"], "answer": "y"},
        {"id": "odd", "context": ["x y"], "answer": "z", "faithful": True, "statements": [statement]},
    ]
    source = jsonl(tmp_path / "labels.jsonl", *rows)
    code, out, _ = run("labels", "audit", source, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["answers"], found["without_label"], found["faithful"], found["unfaithful"]) == (6, 1, 3, 2)
    assert (found["contexts"], found["labels_at_odds"], found["first_at_odds"]) == (2, 1, "odd")
    assert found["statement_verdicts"] == {"contradictory": 1}
    assert "cannot be tuned on" in found["split"]
    code, out, _ = run("labels", "audit", source)
    assert code == 0
    assert out.startswith("In three lines\n• Enough to tune: no: got 2 sources")
    assert "labels at odds" in out


def test_labels_show(run, tmp_path, monkeypatch):
    """The first answers at 80 columns: chunks with their ids, label, and each statement's verdict, chunk ids and
    reason; no command of a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    said = {"text": "It is red.", "verdict": "contradictory", "supporting_chunk_ids": [0, 1], "reason": "It is blue."}
    hostile = {"id": "\x1b[2Ja", "answer": "It is \x1b]0;t\x07\x9b31mred.\n\u202eIt is new.", "statements": [said]}
    rows = [{"question": "Which?", "context": CONTEXT, **hostile}, *LABELS]
    source = jsonl(tmp_path / "labels.jsonl", *rows)
    code, out, _ = run("labels", "show", source, "-n", 2)
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == [
        "1 of 5: [2Ja",
        "question  Which?",
        "[0]       The kettle is blue.",
        "[1]       It holds 0.9 litres.",
        "answer    It is ]0;t31mred.",
        "          It is new.",
        "label     not faithful",
        "!         It is red.",
        "          contradicted ← [0] [1]: It is blue.",
        "",
        "2 of 5: " + answer_key(None, as_chunks(CONTEXT), "It is blue."),
        "[0]     The kettle is blue.",
        "[1]     It holds 0.9 litres.",
        "answer  It is blue.",
        "label   faithful",
    ]
    assert max(map(len, run("labels", "show", "assistants", "-n", 332)[1].splitlines())) <= 80


@pytest.mark.parametrize("name", SETS)
def test_labels_get(run, tmp_path, name):
    """The file that is written has the set's labels; one that is there stays as it is."""
    code, out, err = run("labels", "get", name)
    assert (code, out, f"faith-dspy tune {name}.jsonl" in err) == (0, "", True)
    assert read_labels(tmp_path / f"{name}.jsonl") == load(name)
    kept = jsonl(tmp_path / "kept.jsonl", *LABELS)
    before = kept.read_bytes()
    refused(run("labels", "get", name, "--out", kept), "kept.jsonl: exists already. Give another --out")
    assert kept.read_bytes() == before
    refused(run("labels", "get", "kept.jsonl"), "kept.jsonl: no shipped set; those are quickstart, assistants")


def test_study_compare(monkeypatch, run, tmp_path):
    monkeypatch.chdir(tmp_path)  # a store in the working folder would be looked into
    from made import rows, study

    for seed in (0, 1):
        found = study(rows([0.9, 0.1] * 3 + [0.9, 0.9 * seed]), study_id=f"s{seed}", seed=seed)
        (tmp_path / f"judge{seed}").mkdir()
        (tmp_path / f"judge{seed}" / "study.json").write_text(found.model_dump_json())
    both = ("study", "compare", tmp_path / "judge0", tmp_path / "judge1")
    code, out, _ = run(*both)
    assert code == 0
    assert "2 seeds of labels.jsonl" in out
    found = json.loads(run(*both, "--json")[1])
    assert [s["study_id"] for s in found["studies"]] == ["s0", "s1"]
    assert "Champion: sentence 2 of 2" in found["sentences"][0]
    assert len(found["pairs"]) == 1
    assert not (tmp_path / "mlflow.db").exists()
    refused(run("study", "compare", tmp_path / "judge0"), "at least two studies")
    refused(run("study", "compare", "nope", tmp_path / "judge0"), "nope: neither a folder", "no mlflow.db")
    refused(run("study", "compare", "--experiment", "some"), "no mlflow.db", "--tracking-uri")


# --- wrong input -------------------------------------------------------------------------------------------------


def refused(result, *parts):
    """Exit 2, one message on stderr that holds the parts, nothing on stdout, no traceback."""
    code, out, err = result
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    for part in parts:
        assert str(part) in err.replace("\n", " "), err


@pytest.mark.parametrize("command", [["judge"], ["agree"], ["labels", "audit"], ["labels", "show"]])
def test_files_that_cannot_be_read(run, at, server, tmp_path, command):
    """Missing, empty and broken files, and folders, are named, before anything is asked of the LM."""
    options = [] if command[0] == "labels" else at
    refused(run(*command, tmp_path / "nothing.jsonl", *options), "error: ", "nothing.jsonl: cannot be read (no such")
    refused(run(*command, tmp_path, *options), "cannot be read (is a directory)")
    empty = jsonl(tmp_path / "empty.jsonl")
    refused(run(*command, empty, *options), empty, "One JSON object a line" if command != ["judge"] else "no records")
    if command != ["judge"]:
        broken = jsonl(tmp_path / "broken.jsonl", RECORDS[0] | {"faithful": True})
        broken.write_text(broken.read_text() + '{"context": [\n')
        refused(run(*command, broken, *options), f"{broken}, line 2: is no JSON")
    assert server.requests == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--lm openai/tiny --api-base http://127.0.0.1:9/v1", "at http://127.0.0.1:9/v1 does not answer: .* refused"),
        ("--lm openai/huge --api-base {base}", "openai/huge at .* does not answer: .*model not found"),
        ("--lm local:no.gguf", "There is no GGUF file at"),
        ("--lm local:labels.jsonl", "There is no GGUF file at"),
        ("--judge nowhere", "judge.json: cannot be read .* A judge is a folder"),
        ("--judge none", "none/judge.json: cannot be read .*A judge is a folder with judge.json"),
    ],
)
def test_a_judge_or_lm_that_is_not_there(run, server, tmp_path, options, told):
    """A dead endpoint, a model it does not have, a file or folder that is none: said before any work."""
    source = jsonl(tmp_path / "labels.jsonl", *LABELS)
    code, out, err = run("judge", source, *options.format(base=server.base).split())
    assert (code, out) == (2, "")
    assert re.search(told, " ".join(err.split())), err


def test_options_are_set(run, at, server, tmp_path):
    """--set takes any option, as often as one likes; what it takes is what is asked and judged by."""
    source = jsonl(tmp_path / "in.jsonl", RECORDS[0])
    settings = ("granularity=answer", "criteria=Be strict = fair.", "verdict_scores={}", "confidence=none")
    run("judge", source, *at, *(part for s in settings for part in ("--set", s)))
    assert server.requests[0]["messages"][0]["content"].endswith("\nBe strict = fair.")
    assert "logprobs" not in server.requests[0]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (["verdicts"], ["'verdicts': expected option=value, e.g. verdicts=graded"]),
        (["verdict=graded"], ["verdict: there is no such field", "abstention, ask_about, cite"]),
        (["granularity=word"], ["'statement', 'sentence' or 'answer'", "got 'word'"]),
        (["cite=true", "cite=false"], ["'cite=false': expected option=value, e.g. verdicts=graded, each option once"]),
        (["verdict_scores={1"], ["is no JSON"]),
    ],
)
def test_options_that_cannot_be_set(run, at, server, tmp_path, settings, parts):
    source = jsonl(tmp_path / "in.jsonl", *[{**r, "faithful": True} for r in RECORDS])
    given = [part for s in settings for part in ("--set", s)]
    refused(run("agree", source, *at, *given), *parts)
    assert server.requests == []


def test_options_of_an_exported_judge_are_its_own(run, judge_at, server, at, tmp_path):
    judge, _ = judge_at(server)
    judge.save(tmp_path / "judge")
    source = jsonl(tmp_path / "in.jsonl", *RECORDS)
    refused(run("judge", source, *at, "--judge", tmp_path / "judge", "--set", "cite=true"), "has its own options")


@pytest.mark.parametrize("out", ["no/such/folder/out.jsonl", "."])
def test_output_that_cannot_be_written(run, at, server, tmp_path, out):
    source = jsonl(tmp_path / "in.jsonl", *RECORDS)
    refused(run("judge", source, *at, "--out", tmp_path / out), tmp_path)
    assert server.requests == []


def test_tune_finds_bad_input_before_anything_is_made(run, tmp_path):
    """Labels that are none end a study before it makes a store; no folder that it made stays behind, and no other
    goes."""
    (tmp_path / "labels.jsonl").write_text("{oops\n")
    (tmp_path / "mine").mkdir()
    for more in ((), ("--out", "a/b/c"), ("--out", "mine")):
        code, _, err = run("tune", "labels.jsonl", *more)
        assert code == 2
        assert "labels.jsonl, line 1: is no JSON" in err
    assert {p.name for p in tmp_path.iterdir()} == {"mine", "labels.jsonl"}


def test_a_champion_that_is_held_back_or_not_better_fails(run, monkeypatch):
    from made import rows, study

    held = study(rows([0.9, 0.1] * 4), held_back=("injection: flattery: flipped 0.50 of 4 verdicts.",))
    given = {}
    monkeypatch.setattr("faith_dspy.optimize.tune", lambda labels, **options: given.update(options) or held)
    code, out, err = run("tune", "labels.jsonl", "--max-flips", "0.05", "--timeout", "60")
    assert (code, given["max_flips"], given["timeout"]) == (1, 0.05, 60)
    assert "In three lines" in out
    assert err == "failed: injection: flattery: flipped 0.50 of 4 verdicts.\n"
    assert "failed: the champion is not shown to be better" in run("tune", "labels.jsonl", "--require-better")[2]


def test_stopped_by_the_user(run, monkeypatch, tmp_path):
    """Ctrl-C ends with 130 and what happens to the work that was done."""

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("faith_dspy.io.records.read_records", stop)
    jsonl(tmp_path / "x", RECORDS[0])
    code, _, err = run("judge", tmp_path / "x", "--lm", "openai/tiny")
    assert code == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "command",
    [("study", "rollback"), ("study", "show", "51d1"), ("study", "compare", "--experiment", "x"), ("labels", "pull")],
)
def test_reading_makes_no_store(monkeypatch, run, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    refused(run(*command), "there is no mlflow.db in", "--tracking-uri")
    assert list(tmp_path.iterdir()) == []
