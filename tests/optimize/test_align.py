from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from mlflow.genai.judges import make_judge

from faith_dspy import load_judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import FaithfulnessScorer
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.align import FaithfulnessAlignment
from faith_dspy.optimize.tracking import study_run
from tests.support.studies import knowing, labels


@pytest.fixture
def traces(own_store):
    """Traces of 36 answers with two people's feedback called ``grounded``."""
    examples = [
        e.model_copy(
            update={
                "annotators": dict.fromkeys(("ann", "bob"), "yes" if e.label else "no"),
                "split": None,
            }
        )
        for e in read_labels(labels(own_store / "cities.jsonl", parts=False))
    ]
    for e in examples:
        with mlflow.start_span("agent") as span:
            span.set_inputs(
                {"question": e.question, "context": [c.text for c in e.context]}
            )
            span.set_outputs(e.answer)
        for who, value in e.annotators.items():
            person = AssessmentSource("HUMAN", who)
            mlflow.log_feedback(
                trace_id=span.trace_id, name="grounded", value=value, source=person
            )
    return list(mlflow.search_traces(return_type="list"))


def test_align(traces, chat_server, monkeypatch):
    """`judge.align` with our optimizer gives an MLflow judge of the same name, with the agreement on feedback that no
    part of tuning saw, against the untuned judge; it scores in MLflow and is exported."""
    monkeypatch.setattr(study_run, "judge_figures", lambda *_: {})
    monkeypatch.setattr(study_run, "study_figures", lambda *_: {})
    judge = make_judge(
        name="grounded",
        instructions="Is {{ outputs }} grounded in {{ inputs }}?",
        model="openai:/none",
    )
    given = {
        "api_base": chat_server(says=knowing).base,
        "variants": "answer,sentence",
        "register": False,
    }
    tuned = judge.align(traces, optimizer=FaithfulnessAlignment("openai/tiny", **given))
    assert isinstance(tuned, FaithfulnessScorer)
    assert tuned.name == "grounded"
    kept = load_judge(Path("judges/grounded"))
    assert tuned.judge.fingerprint == kept.fingerprint
    parts = kept.manifest["split"]["used"]
    assert (sum(parts.values()), parts["test"]) == (36, kept.manifest["agreement"]["n"])
    assert {"untuned", "length-baseline"} <= kept.manifest["comparison"].keys()
    found = tuned(
        inputs={"context": ["Arlen has 20 bridges."]},
        outputs="The mayor of Arlen won a medal in Paris.",
    )
    assert [f.name for f in found[:3]] == [
        "grounded",
        "grounded/faithful",
        "grounded/scored",
    ]
    assert found[1].value is False
    # Our scorer is an MLflow judge, too: `align` hands its name and the traces on; nobody used this one.
    with pytest.raises(
        InputError,
        match="no trace has a usable human assessment called 'fluent': 0 labelled answers",
    ):
        FaithfulnessScorer(kept, name="fluent").align(
            traces, optimizer=FaithfulnessAlignment("openai/tiny")
        )
