"""What a user does first: labels of one's own, tuned on, loaded and judged with; and the judge that needs no model."""

import pandas as pd
import pytest

import faith_dspy
from faith_dspy import Judge, load_judge
from faith_dspy.eval_sets.catalog import load
from tests.support.chat_server import ChatServer, yes_or_no
from tests.support.studies import labels, log_little


def says(asked):
    """An LM that tells whose death the context speaks of."""
    return yes_or_no(0.1 if "died" in ChatServer.statement(asked) else 0.9)


def test_labels_in_a_judge_out(chat_server, tmp_path, monkeypatch):
    log_little(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    rows = pd.read_json(labels(tmp_path / "labels.jsonl", swapped=True), lines=True)
    rows["faithful"] = [
        "no" if "no_evidence" in str(statements) else "yes"
        for statements in rows["statements"]
    ]
    columns = ["question", "context", "answer", "faithful"]
    rows[columns].to_csv("labels.csv", index=False)
    base = chat_server(says=says).base
    result = faith_dspy.tune(
        "labels.csv", lm="openai/tiny", api_base=base, variants="sentence"
    )
    assert result.judge_dir == "judges/labels"
    assert (tmp_path / "mlflow.db").is_file()
    judge = load_judge("judges/labels", api_base=base)
    context = [
        "Zell has 9 bridges.",
        "The mayor of Zell resigned in 1999.",
        "Its bishop died in 1999.",
    ]
    said = "There are 9 bridges in Zell. Its mayor {} in 1999."
    true, false = (
        judge(context=context, answer=said.format(did)) for did in ("resigned", "died")
    )
    assert true.probability > false.probability
    assert (true.faithful, false.faithful) == (True, False)


@pytest.mark.parametrize(
    ("name", "auroc"),
    [("quickstart", 0.784), ("hard_cases", 0.59), ("assistants", 0.558)],
)
def test_without_a_model_it_ranks_as_well_as_it_did(name, auroc):
    """`Judge("none")` on the shipped sets: faithful answers come above unfaithful ones as often as when this was
    written."""
    assert round(Judge("none").agreement(load(name)).answers.auroc.value, 3) >= auroc
