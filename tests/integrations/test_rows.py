from __future__ import annotations

import json
import re

from faith_dspy import Judge
from faith_dspy.integrations.mlflow_model import RESULT_TYPE, JudgedRow, VerdictCounts, judge_rows
from faith_dspy.schema import Usage

BLUE = {"question": None, "context": ["The kettle is blue."], "answer": "It is blue."}


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
    assert "There is no model file at" in found[0]["detail"]


def test_a_dead_endpoint_fails_no_batch(judge_at):
    """Sixty rows, an endpoint that never answers: sixty rows that say so, and no error after twenty calls."""
    judge, server = judge_at()
    server.status = 500
    found = judge_rows(judge, [{**BLUE, "answer": f"Kettle {i} is blue."} for i in range(60)], threads=1)
    assert [r["unscored"] for r in found] == ["lm_failed"] * 60
    assert len(server.requests) < 60


def test_the_type_in_spark():
    """The type names every field of a row, in order, the nested ones included."""
    names = re.findall(r"(\w+) (?:double|boolean|string|long|struct)", RESULT_TYPE)
    nested = {"verdict_counts": list(VerdictCounts.model_fields), "usage": list(Usage.model_fields)}
    assert names == ["judgment", *(n for name in JudgedRow.model_fields for n in (name, *nested.get(name, [])))]
