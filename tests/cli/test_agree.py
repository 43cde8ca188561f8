"""Several judges on the same labels: recorded ones, and one that is asked."""

import json
from pathlib import Path

from faith_dspy import Judge
from tests.support.files import blue_kettles, write_lines


def recorded_kettles(n):
    """Labelled answers with a good score, an inverted one and a verdict that is always yes."""
    rows = blue_kettles(n)
    for i, row in enumerate(rows):
        good = row["faithful"]
        row |= {"good": 0.8 if good else 0.3 + i / 1000, "ok": "yes"}
        row |= {"hallucination_score": "10 %" if good else "70%", "topic": "ab"[i % 2]}
    return rows


def test_recorded_judges_side_by_side(monkeypatch, tmp_path, cli):
    """The first judge's report is any judge's, with the differences to it, groups and a page; nothing is asked."""
    monkeypatch.chdir(tmp_path)
    rows = recorded_kettles(20)
    for row in rows:
        del row["context"], row["answer"]
    write_lines("labels.jsonl", rows)
    scores = ("--scores", "good,hallucination_score,ok", "--by", "topic")
    code, out, err = cli(
        "agree", "labels.jsonl", *scores, "--html", "p.html", "--min", 0.9
    )
    assert (code, "failed" in err) == (0, False)
    for said in (
        "ok is worse than good: balanced accuracy -50.0 points",
        "40 answers without a group and a context: each counts as a source",
        "Agreement by topic",
    ):
        assert said in " ".join(out.split())
    assert "Judges side by side" in Path("p.html").read_text()
    scores = ("--scores", "good,hallucination_score", "--scores", "ok")
    code, out, _ = cli("agree", "labels.jsonl", *scores, "--json")
    names = [judge["name"] for judge in json.loads(out)["judges"]]
    assert names == ["good", "hallucination_score", "ok"]


def test_the_traffic_of_the_first_judge(monkeypatch, tmp_path, cli):
    """The pass rate is the first judge's, and said of any: the others' columns may be missing in its traffic."""
    monkeypatch.chdir(tmp_path)
    write_lines("labels.jsonl", recorded_kettles(20))
    traffic = [
        row | {"good": 0.1 + 0.8 * (i < 2)} for i, row in enumerate(blue_kettles(4))
    ]
    write_lines("traffic.jsonl", traffic)
    ask = (
        "agree",
        "labels.jsonl",
        "--unlabelled",
        "traffic.jsonl",
        "--json",
        "--scores",
    )
    for judges, passed in ((["good,ok"], 2 / 8), (["ok", "--judge", "none"], 4 / 8)):
        code, out, err = cli(*ask, *judges)
        assert code == 0, err
        assert json.loads(out)["traffic"]["judge_rate"] == passed
    code, _, err = cli(*ask, "ok,good")
    assert (code, "without a value in 'ok'" in err) == (2, True)


def test_a_function_goes_to_the_judges_that_were_tuned_on_one(
    monkeypatch, tmp_path, cli
):
    """Of several; it is refused where none was. Without it nothing is judged, now or the next time."""
    monkeypatch.chdir(tmp_path)
    labels = write_lines("labels.jsonl", blue_kettles(10))
    name = "tests.support.judges:blue"
    Judge(f"python:{name}").save("asks")
    Judge("none").save("words")
    both = ("--judge", "asks", "--judge", "words", "--function", name)
    code, out, err = cli("agree", labels, *both, "--json")
    assert code == 0, err
    asks, words = json.loads(out)["judges"]
    assert (asks["name"], asks["usage"]["calls"], words["name"]) == (
        "asks",
        20,
        "words",
    )
    for command, judges, said in (
        ("agree", both[2:], "asks no function, got function='tests"),
        ("judge", both[:2], "--function package.module:function"),
    ):
        code, _, err = cli(command, labels, *judges)
        assert (code, said in err, "to continue" in err) == (2, True, False)


def test_a_judge_beside_a_column(monkeypatch, tmp_path, judge_at, cli):
    """A judge that is asked comes first, with what it takes; in MLflow each has a run, with its difference."""
    monkeypatch.chdir(tmp_path)
    write_lines("labels.jsonl", recorded_kettles(10))
    judge, server = judge_at(
        says=lambda asked: "Yes" if "blue" in server.statement(asked) else "No"
    )
    judge.save("judge")
    at = ("--judge", "judge", "--api-base", server.base, "--scores", "!good", "--json")
    store = "sqlite:///m.db"
    code, out, err = cli("agree", "labels.jsonl", *at, "--tracking-uri", store)
    assert code == 0, err
    asked, column = json.loads(out)["judges"]
    assert (asked["name"], asked["lm_share"], column["lm_share"]) == ("judge", 1, 0)
    from mlflow import MlflowClient

    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'faithfulness'")
    runs = client.search_runs([experiment.experiment_id])
    metric = "difference/balanced_accuracy"
    found = {run.data.tags["judge"]: run.data.metrics.get(metric) for run in runs}
    assert (found["good"], found["judge"]) == (-1, None)


def test_a_function_that_breaks_on_labels_of_a_model(monkeypatch, tmp_path, cli):
    """Whose labels a judge that is asked agrees with is said, and why answers are unscored."""
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "labelled_by": "model"} for row in blue_kettles(10)]
    write_lines("labels.jsonl", rows)
    _, out, _ = cli("agree", "labels.jsonl", "--lm", "none")
    assert "Agreement with model-made labels: of" in " ".join(out.split())
    broken = "python:tests.support.judges:broken"
    code, out, _ = cli("agree", "labels.jsonl", "--lm", broken)
    assert code == 1
    said = " ".join(out.split())
    assert "20 lm failed, the first: " in said
    assert "RuntimeError: no GPU" in said


def test_a_column_that_is_read_the_wrong_way_round(monkeypatch, tmp_path, cli):
    """Nothing tells its direction but the figures, which are below chance."""
    monkeypatch.chdir(tmp_path)
    write_lines("labels.jsonl", recorded_kettles(20))
    _, out, _ = cli("agree", "labels.jsonl", "--scores", "!good")
    assert "wrong way round, put ! before its name" in " ".join(out.split())
    code, _, err = cli("agree", "labels.jsonl", "--scores", ",")  # asks no LM instead
    assert (code, "expected names of columns" in err) == (2, True)
