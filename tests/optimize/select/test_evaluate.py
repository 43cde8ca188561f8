from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy.cli import main
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.select.evaluate import usable, verify

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = ["The kettle is blue.", "It was bought in May.", "It holds a litre."]
ROW: dict[str, Any] = {
    "id": "a",
    "context": CONTEXT,
    "answer": "The kettle is blue. It was bought in May.",
    "statements": [
        {"text": "The kettle is blue.", "verdict": "fully_supported", "supporting_chunk_ids": [0]},
        {"text": "It was bought in May.", "verdict": "fully_supported", "supporting_chunk_ids": [1, 2]},
        {"text": "Penguins cannot fly.", "verdict": "no_evidence", "supporting_chunk_ids": [2]},
        {"text": "The kettle is blue and round.", "verdict": "no_evidence"},
    ],
}


def test_agree_reports_it(
    chat_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`agree --json` has ``evidence`` where labels name chunks; here each id is found by the words: ids {0} and {1}
    of {0} and {1, 2}, 2·2 / (2 + 3), and one answer that people found wanting."""
    rows = [
        {**ROW, "statements": ROW["statements"][:2]},
        {"context": CONTEXT, "answer": "It is red.", "faithful": False},
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(r) + "\n" for r in rows))
    server = chat_server(yes={"The kettle is blue.": 0.9, "It was bought in May.": 0.9, "It is red.": 0.1})
    at = ["--lm", "openai/tiny", "--api-base", server.base, "--json"]
    monkeypatch.setattr(sys, "argv", ["faith-dspy", "agree", str(labels), *at])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    assert json.loads(capsys.readouterr().out)["evidence"]["f1"]["value"] == pytest.approx(4 / 5)


def test_answers_that_the_lm_failed_on_are_not_fitted(judge_at: Any) -> None:
    """Only an answer with all of its statements judged shows what a classifier has to learn."""
    judge, _ = judge_at(yes={"It is blue.": 0.9, "It is red.": 0.1})
    rows = [
        {"id": str(i), "context": CONTEXT, "answer": answer, "faithful": False}
        for i, answer in enumerate(["It is blue. It is red.", "It is blue. It is lost.", "It is lost.", "Hello!"])
    ]
    seen = verify(judge, [parse_example(row) for row in rows])
    assert [a.id for a in usable(seen)] == ["0"]
