"""How gates end, and what they say."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from faith_dspy.io.inputs import as_chunks
from faith_dspy.scoring.gate import words_key
from tests.support.files import blue_kettles, write_lines

DEAD = "http://127.0.0.1:9/v1"


SITUATIONS = {
    "good": (0, ("--min", 0.75), "passed: the LM answers, an answer is scored, balanced accuracy at least 0.75, 10 "),
    "wrong": (1, ("--min", 0.75), "balanced accuracy is 0.500, below the minimum of 0.75."),
    "silent on a quarter": (1, ("--min", 0.7), "coverage is 0.75 (30 of 40 labelled answers scored), below"),
    "silent, which is allowed": (0, ("--min", 0.7, "--min-coverage", 0.7), ""),
    "few sources": (1, ("--min", 0.75), "--min needs 10 sources with each label; the rarer label has 9."),
    "traffic of its study": (
        2,
        ("--unlabelled", "labels.jsonl"),
        "so that --unlabelled would say",
    ),
    "traffic with a gap": (0, ("--unlabelled", "traffic.jsonl"), ""),
    "labels of its study": (2, ("--min", 0.75), "1 answer of 40 had a part in the study that tuned this judge"),
    "no endpoint": (1, (), "none of 40 labelled answers was scored (coverage 0.00)."),
    "an endpoint that dies": (1, (), "calls in a row failed"),
}  # fmt: skip
"""Exit code, options and what is said."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_how_agree_ends(situation, monkeypatch, tmp_path, judge_at, cli):
    """0: the judge holds its bar; 1: it does not, or nothing was measured; 2: the labels cannot be used. JUnit's file
    says the same as standard error."""
    monkeypatch.chdir(tmp_path)
    code, options, said = SITUATIONS[situation]
    rows = blue_kettles(9 if situation == "few sources" else 20)
    write_lines("labels.jsonl", rows)
    write_lines("traffic.jsonl", [*blue_kettles(2), {"context": "", "answer": "x"}])

    silent = {f"It is {colour} {i}." for colour in ("blue", "red") for i in range(5)}

    def says(asked):
        statement = server.statement(asked)
        if situation == "an endpoint that dies" and len(server.requests) > 10:
            return {"status": 503, "text": "gone", "headers": {"retry-after": "0"}}
        if situation.startswith("silent") and statement in silent:
            return "Perhaps."
        return "Yes" if "blue" in statement or situation == "wrong" else "No"

    judge, server = judge_at(says=says)
    key = words_key(as_chunks(rows[0]["context"]), rows[0]["answer"] + " ")
    if situation.endswith("its study"):
        judge = judge.copy(manifest={"answer_keys": [key]})
    judge.save("judge")
    base = DEAD if situation == "no endpoint" else server.base
    at = ("--judge", "judge", "--api-base", base, "--junit", "gate.xml")
    ended, out, err = cli("agree", "labels.jsonl", *at, *options)
    assert (ended, said in err) == (code, True), err
    assert ("none of 40" in err) is (situation == "no endpoint")
    if code == 2:
        assert (out, server.requests, Path("gate.xml").exists()) == ("", [], False)
        return
    suite = ElementTree.parse("gate.xml").getroot()
    failures = [f"failed: {case.get('message')}" for case in suite.iter("failure")]
    assert [line for line in err.splitlines() if line.startswith("failed")] == failures
    assert (suite.get("failures"), bool(failures)) == (str(len(failures)), code == 1)
    assert int(suite.get("tests")) == len(list(suite.iter("testcase"))) >= 2
