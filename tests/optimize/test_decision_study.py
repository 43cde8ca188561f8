"""A study whose LM is a decision model, on a scripted server: from labels to the loaded judge."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from decision_server import KEY, DecisionServer, statement_of
from test_study import CITIES, Quiet

from faith_dspy import Judge, load_judge, tune
from faith_dspy.errors import ConfigError
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.optimizers import PROPOSING, Effort

if TYPE_CHECKING:
    from pathlib import Path

TOWNS = (*CITIES, "Marl", "Norr", "Orso", "Pell", "Quay", "Rond", "Sarn", "Tarn")


def sixty(path: Path) -> Path:
    """60 answers over 20 contexts, half of them unfaithful, in the context's own words, so that no words tell it."""
    rows = []
    for i, town in enumerate(TOWNS):
        mayor, bishop = f"The mayor of {town} resigned in {1950 + i}.", f"Its bishop died in {1950 + i}."
        context = [f"{town} has {i + 20} bridges and a harbour.", mayor, bishop]
        for j, more in enumerate(("", ", it is said", ", we read")):
            false = (i + j) % 2 == 0
            first = f"There are {i + 20} bridges in {town}{more}."
            second = f"Its mayor {'died' if false else 'resigned'} in {1950 + i}."
            rows.append({"id": f"{i}-{j}", "context": context, "answer": f"{first} {second}", "faithful": not false})
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def too_strict(name: str, asked: dict[str, Any]) -> float:
    """A model that tells false from true, of single sentences only, and that always says No: at a fixed threshold of .5
    no answer passes."""
    statement = statement_of(name, asked)
    noise = zlib.crc32(statement.encode()) % 100 / 600
    if statement.count(".") > 1:  # a whole answer
        return 0.1 + 2 * noise
    return (0.05 if "mayor died" in statement else 0.2) + noise


@pytest.fixture
def server():
    """A decision model that is too strict."""
    made = DecisionServer(too_strict)
    yield made
    made.close()


@pytest.fixture
def study(server, migrated_store, tmp_path, monkeypatch):
    """Runs a study of sixty labels: its result and what it said."""
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlflow.db").write_bytes(migrated_store.read_bytes())

    def run(**options: Any) -> Any:
        view = Quiet()
        labels = sixty(tmp_path / "labels.jsonl")
        return tune(labels, lm="typesafe/jev-latest", api_base=server.base, out="judge", view=view, **options), view

    return run


PLAN = """
[[variants]]
name = "sentence"
[[variants]]
name = "joint"
verification = "joint"
[[variants]]
name = "statement"
[[variants]]
name = "sentence-few-shot"
[[variants]]
name = "sentence-bootstrap"
[[variants]]
name = "sentence-mistakes"
"""


def test_from_labels_to_the_loaded_judge(study, server, tmp_path):
    """The threshold is fitted on labels, a variant that needs an LM that writes is skipped with the reason, and the
    export holds neither key nor address."""
    (tmp_path / "plan.toml").write_text(PLAN)
    result, _ = study(variants=tmp_path / "plan.toml")
    notes = {v.name: v.note for v in result.variants if v.status == "skipped"}
    assert notes.keys() == {"statement", "sentence-few-shot", "sentence-bootstrap", "sentence-mistakes"}
    assert "writes no text; granularity='statement' needs an LM that writes" in notes["statement"]
    assert (
        "is only asked a question. Compile its wording with mipro or gepa and --reflection-lm"
        in (notes["sentence-bootstrap"])
    )
    champion, untuned = (result.tested(name).agreement.balanced_accuracy.value for name in ("champion", "untuned"))
    assert result.champion in ("sentence", "joint")
    assert untuned == 0.5
    assert champion > 0.8
    usage = result.usage  # a request counts as 50 tokens read, a question as 10 read and 2 written
    assert usage.calls - result.replayed == len(server.requests)
    assert usage.prompt_tokens == 50 * usage.calls + 5 * usage.output_tokens

    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert KEY.encode() not in written
    assert b"127.0.0.1" not in b"".join(p.read_bytes() for p in (tmp_path / "judge").rglob("*") if p.is_file())

    judge = load_judge("judge", api_base=server.base)
    assert judge.lm_name == "typesafe/jev-latest"
    context = ["Zell has 9 bridges and a harbour.", "The mayor of Zell resigned in 1999.", "Its bishop died in 1999."]
    said = "There are 9 bridges in Zell. Its mayor {} in 1999."
    true, false = (judge(context=context, answer=said.format(did)) for did in ("resigned", "died"))
    assert (true.faithful, false.faithful) == (True, False)
    assert true.probability > judge.classifier.threshold > false.probability


NEW = "Mind who did what.\n\nDoes the context say so of the same person? Answer Yes or No."
EFFORT = Effort(demos=2, candidates=1, compare_on=4)


@pytest.mark.parametrize("name", ["gepa", "mipro"])
def test_what_is_compiled_is_the_questions_wording(server, chat_server, tmp_path, monkeypatch, name):
    """GEPA and MIPROv2 let another LM write instructions, whose last paragraph is the question; no example is shown."""
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)

    def write(asked: dict[str, Any]) -> str:
        prompt = "".join(str(m["content"]) for m in asked["messages"])
        names = [n for n in ("improved_instruction", "proposed_instruction", "new_instruction") if n in prompt]
        return "".join(f"[[ ## {n} ## ]]\n{NEW}\n\n" for n in names or ["text"]) + "[[ ## completed ## ]]"

    writer = make_lm("openai/tiny", api_base=chat_server(says=write).base)
    judge = Judge("typesafe/jev-latest", api_base=server.base, granularity="answer")
    train = read_labels(sixty(tmp_path / "labels.jsonl"))[:30]
    compile_judge(judge, name, train, EFFORT, 0, proposer=writer)
    asked = {r["questions"]["verdict"]["instructions"] for r in server.requests}
    assert NEW.rpartition("\n\n")[2] in asked
    assert not any("demos" in r["state"] for r in server.requests)


@pytest.mark.parametrize("name", ["labelled", "mistakes", "bootstrap", "mipro", "gepa"])
def test_optimizers_without_a_place(server, tmp_path, name):
    """Examples are shown to no decision model, and it writes no instructions: refused before anything is asked."""
    judge = Judge("typesafe/jev-latest", api_base=server.base, api_key=KEY, granularity="answer")
    said = "writes instructions, got typesafe/" if name in PROPOSING else "typesafe/jev-latest is only asked a question"
    with pytest.raises(ConfigError, match=f"{name} .*{said}.*--reflection-lm"):
        compile_judge(judge, name, read_labels(sixty(tmp_path / "labels.jsonl")), EFFORT, 0)
    assert server.requests == []
