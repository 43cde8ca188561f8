from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy.cli import main
from faith_dspy.io.labels import parse_example
from faith_dspy.judge import Judge
from faith_dspy.optimize.select.evaluate import JudgedExample, evidence
from faith_dspy.schema import RawJudgment, RawVerdict, Verdict
from faith_dspy.scoring.score import unscored

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


def _seen(row: dict[str, Any], *chunk_ids: tuple[int, ...]) -> JudgedExample:
    texts = ("The kettle is blue.", "It was bought in May.")
    raw_verdicts = tuple(
        RawVerdict(text=t, verdict=Verdict.FULLY_SUPPORTED, chunk_ids=ids)
        for t, ids in zip(texts, chunk_ids, strict=True)
    )
    return JudgedExample(parse_example(row), RawJudgment(raw_verdicts=raw_verdicts), None)


def test_evidence() -> None:
    """Ids named {0, 1} and {1}, people's {0} and {1, 2}, and {2} of a statement the judge has not: 2·2 / (3 + 4)."""
    found = evidence([_seen(ROW, (0, 1), (1,))], Judge("local"))
    assert found is not None
    assert found.value == pytest.approx(4 / 7)


def test_evidence_is_of_scored_answers_with_labelled_evidence() -> None:
    """None where no label names chunks; what is unscored is left out."""
    bare = {**ROW, "statements": [{"text": "The kettle is blue.", "verdict": "fully_supported"}]}
    nothing = RawJudgment()
    failed = JudgedExample(parse_example(ROW), nothing, unscored("lm_failed", "down", nothing))  # type: ignore[arg-type]
    assert evidence([_seen(bare, (0,), (1,)), failed], Judge("local")) is None


def test_agree_reports_it(
    chat_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`agree --json` has ``evidence_f1`` where labels name chunks; here each id is found by the words: ids {0} and {1}
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
    assert json.loads(capsys.readouterr().out)["evidence_f1"]["value"] == pytest.approx(4 / 5)
