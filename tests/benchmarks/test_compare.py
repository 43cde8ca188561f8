from __future__ import annotations

import argparse
import json

import pytest

from benchmarks import compare
from benchmarks.answers import AnswerSet, choose, find_sets
from benchmarks.proxy import MeteringProxy
from benchmarks.report import markdown
from benchmarks.rows import Book
from benchmarks.summary import summarise
from benchmarks.systems import SYSTEMS, Endpoint
from benchmarks.worker import NotReadyError, Worker
from faith_dspy import load_judge
from faith_dspy.errors import InputError, in_short
from faith_dspy.eval_sets.catalog import load
from faith_dspy.optimize.data.splits import split


def say(asked):
    """What each system is told: everything is supported, in its own format."""
    said = "\n".join(str(m["content"]) for m in asked["messages"])
    if "truths" in said or "claims" in said or "contradictions" in said:
        verdict = {"verdict": "yes", "reason": "it is there"}
        return json.dumps({"truths": ["a"], "claims": ["a"], "verdicts": [verdict], "reason": "all of it"})
    if "natural language inference" in said.lower() or "faithfulness of a series of statements" in said:
        return json.dumps({"statements": [{"statement": "a", "reason": "b", "verdict": 1}]})
    if "Break down each sentence" in said:
        return json.dumps({"statements": ["a"]})
    if "Is the answer faithful" in said:
        return json.dumps({"result": True, "rationale": "it is there"})
    return {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}}


class Here:
    """A `Worker` without a process, for what does not need one."""

    def __init__(self, name, at, judge, log):
        self.name = name
        try:
            self.find, self.fingerprint = SYSTEMS[name].make(at, judge)
        except Exception as exc:
            raise NotReadyError(in_short(exc)) from exc

    def judge(self, record, timeout):
        return self.find(record)

    def close(self):
        pass


@pytest.fixture
def run(chat_server, tmp_path, monkeypatch):
    """Runs systems over six answers of the shipped set: (book, endpoint)."""
    server = chat_server(says=say)
    one = AnswerSet("hard_cases", "", choose(split(load("hard_cases")).test, 6))
    served = Endpoint(server.base.removesuffix("/v1"), "tiny", 8192, "0" * 64)
    proxy = MeteringProxy(served.base, {name: s.mark for name, s in SYSTEMS.items()})
    monkeypatch.setattr(compare, "tokens", lambda base, text: len(text.split()))

    def go(*systems, until=None, timeout=30, worker=Here):
        monkeypatch.setattr(compare, "Worker", worker)
        book = Book(tmp_path / "answers.jsonl")
        asked = argparse.Namespace(systems=systems, out=tmp_path, timeout=timeout)
        compare.run_set(one, None, served, proxy, book, until, asked)
        return book, server

    yield go
    proxy.close()


def test_each_system_has_its_turn_on_each_answer(run):
    """Two systems, six answers: twelve rows, each with the tokens the proxy counted (100 a call, 60 of them cached).

    Both ask with the same words; their first messages begin differently, so that neither finds the other's prefix.
    """
    book, server = run("sentence", "answer")
    assert len(book.rows) == 12
    for row in book.rows.values():
        assert row.usage.prompt_tokens == 100 * row.usage.calls
        assert row.usage.cached_tokens == 60 * row.usage.calls
        assert row.seconds > 0
    assert all(r.usage.calls == 1 for r in book.judged("hard_cases")["answer"])
    assert len({asked["messages"][0]["content"][:2] for asked in server.requests}) == 2


def test_goes_on_where_it_stopped(run):
    """Time that is over ends a run after an answer; the next one asks only about the rest."""
    first, _ = run("sentence", "answer", until=0.0)
    assert {len(rows) for rows in first.judged("hard_cases").values()} == {1}
    before = dict(first.rows)
    again, _ = run("sentence", "answer")
    assert {len(rows) for rows in again.judged("hard_cases").values()} == {6}
    assert {k: again.rows[k] for k in before} == before


def test_only_answers_all_had_their_turn_on_count(run):
    """A system that joins later has to catch up before its answers count."""
    run("sentence")
    book, _ = run("sentence", "answer", until=0.0)
    assert {k: len(rows) for k, rows in book.judged("hard_cases").items()} == {"sentence": 1, "answer": 1}


def test_timeout(run):
    """A system that takes too long is killed: it has no verdict on that answer, which is kept, and its call counts."""

    class Slow(Worker):
        def judge(self, record, timeout):
            server.delay = 5.0
            return super().judge(record, timeout)

    _, server = run()
    book, _ = run("answer", until=0.0, timeout=0.5, worker=Slow)
    (row,) = book.rows.values()
    assert (row.passes, row.why, row.usage.calls) == (None, "no verdict within 0.5 s", 1)


@pytest.mark.all
@pytest.mark.parametrize(
    ("library", "system"), [("ragas", "ragas"), ("deepeval", "deepeval"), ("mlflow", "make_judge")]
)
def test_peers(run, library, system):
    """Each peer, as its users set it up, passes an answer of which the model says that all is supported."""
    pytest.importorskip(library)
    book, _ = run(system, until=0.0, worker=Worker)
    assert book.run["sets"]["hard_cases"]["absent"] == {}
    for row in book.judged("hard_cases")[system]:
        assert (row.passes, row.score, row.why) == (True, 1.0, None)
        assert row.usage.calls >= 1


def test_report(run):
    """The report has a row per system, the least tokens, and says who took no part and why."""
    book, _ = run("sentence", "champion")
    results = summarise(book)
    text = markdown(results)
    assert "| faith_dspy, untuned, by sentence |" in text
    assert f"No judge computes fewer than {results.sets[0].least:.0f} prompt tokens an answer" in text
    assert "faith_dspy, tuned took no part" in text
    assert ("contexts are too few" in text) is (results.sets[0].contexts < 6)


@pytest.mark.parametrize(("changed", "stands"), [({}, True), ({"lm": "local:x.gguf"}, False), ({"hash": "0"}, False)])
def test_whose_judge(tmp_path, changed, stands):
    """A shipped judge stands for its own labels and the embedded model alone."""
    shipped = compare.CHAMPIONS / "ragtruth_qa"
    label_hash = changed.pop("hash", load_judge(shipped).manifest["label_set_hash"])
    one = AnswerSet("ragtruth_qa", label_hash, [])
    found = compare.champions([one], argparse.Namespace(**{"judge": [], "lm": "local"} | changed))
    assert found == ({"ragtruth_qa": str(shipped)} if stands else {})


def test_shipped_judges_hold_no_labelled_texts():
    """Numbers and prompts only: the labels are not ours to pass on."""
    files = [*compare.CHAMPIONS.glob("*/judge.json")]
    assert files
    for file in files:
        judge = load_judge(file.parent)
        assert not judge.manifest.get("reference")
        assert not any(p.demos for j in judge.chain if j.asks_lm for p in j.program.predictors())


def test_sets_are_those_asked_for(tmp_path):
    """A name that is not there is an error, but for a folder that is missing as a whole."""
    (tmp_path / "a.jsonl").write_text("")
    assert find_sets(tmp_path, ["a"]) == [tmp_path / "a.jsonl"]
    with pytest.raises(InputError, match=r"b\.jsonl is missing; label files there: a\."):
        find_sets(tmp_path, ["a", "b"])
    assert [f.stem for f in find_sets(tmp_path / "x", ["a"])] == ["hard_cases"]
