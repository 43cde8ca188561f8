from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.genai.judges import make_judge

from faith_dspy import load_judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import FaithfulnessScorer
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.align import FaithfulnessAlignment
from faith_dspy.optimize.tracking import study_run
from faith_dspy.optimize.tracking.feedback import push
from faith_dspy.optimize.tracking.store import connect

CITIES = ("Arlen", "Brome", "Corvin", "Dunmore", "Eskel", "Farrow", "Galt", "Hesper", "Ilmen", "Jarrow", "Kelm", "Lund")


def _labelled() -> list[Any]:
    """36 answers over 12 contexts, half of them unfaithful, each with two people's words."""
    rows = []
    for i, city in enumerate(CITIES):
        for j in range(3):
            false = (i + j) % 2 == 0
            last = f"The mayor of {city} won a medal in Paris." if false else f"Its mayor resigned in {1950 + i}."
            rows.append(
                {
                    "id": f"{i}-{j}",
                    "question": f"What is known of {city}, asked for the {j}. time?",
                    "context": [f"{city} has {i + 20} bridges.", f"The mayor of {city} resigned in {1950 + i}."],
                    "answer": f"There are {i + 20} bridges in {city}. {last}",
                    "faithful": not false,
                    "annotators": {"ann": "no" if false else "yes", "bob": "no" if false else "yes"},
                }
            )
    return [parse_example(row) for row in rows]


def _knowing(asked: dict[str, Any]) -> dict[str, Any]:
    """An LM that sees through medals in Paris; the rest is chance, the same for the same request."""
    text = asked["messages"][-1]["content"]
    noise = zlib.crc32(text.encode()) % 100 / 250
    p = 0.1 + noise / 2 if "medal" in text.partition("Statement:")[2] else 0.5 + noise
    return {"text": "Yes" if p > 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}


@pytest.fixture
def traces(own_store: Path) -> list[Any]:
    """Traces with people's feedback called ``grounded``."""
    store = connect(None, "agent")
    push(store, _labelled(), "grounded")
    return list(mlflow.search_traces(locations=[store.experiment_id], return_type="list"))


def test_align(traces: list[Any], chat_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`judge.align` with our optimizer gives an MLflow judge of the same name, with the agreement on feedback that no
    part of tuning saw, against the untuned judge; it scores in MLflow and is exported."""
    monkeypatch.setattr(study_run, "judge_figures", lambda *_: {})
    monkeypatch.setattr(study_run, "study_figures", lambda *_: {})
    server = chat_server(says=_knowing)
    judge = make_judge(name="grounded", instructions="Is {{ outputs }} grounded in {{ inputs }}?", model="openai:/none")
    optimizer = FaithfulnessAlignment("openai/tiny", api_base=server.base, variants="answer,sentence", register=False)
    tuned = judge.align(traces, optimizer=optimizer)
    assert isinstance(tuned, FaithfulnessScorer)
    assert tuned.name == "grounded"
    kept = load_judge(Path("judges/grounded"))
    assert tuned.judge.fingerprint == kept.fingerprint
    parts = kept.manifest["split"]["used"]
    assert sum(parts.values()) <= 36
    assert tuned.judge.manifest["agreement"]["n"] == parts["test"]
    assert {"untuned", "length-baseline"} <= kept.manifest["comparison"].keys()
    found = tuned(inputs={"context": ["Arlen has 20 bridges."]}, outputs="The mayor of Arlen won a medal in Paris.")
    assert [f.name for f in found[:3]] == ["grounded", "grounded/faithful", "grounded/scored"]
    assert found[1].value is False


def test_our_scorer_can_be_aligned(traces: list[Any], judge_at: Any) -> None:
    """It is an MLflow judge: `align` hands its name and the traces to the optimizer; a name nobody used is an error."""
    scorer = FaithfulnessScorer(judge_at()[0], name="fluent")
    with pytest.raises(InputError, match="no trace has a usable human assessment called 'fluent': 0 labelled answers"):
        scorer.align(traces, optimizer=FaithfulnessAlignment("openai/tiny"))
