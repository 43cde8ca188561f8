"""A study whose LM is a decision model, on a scripted server: from labels to the loaded judge."""

import zlib

import pytest
from decision_server import KEY, DecisionServer, statement_of
from recorded import CITIES, Quiet, labels

from faith_dspy import Judge, load_judge, tune
from faith_dspy.errors import ConfigError
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.optimizers import PROPOSING, Effort

EFFORT = Effort(demos=2, candidates=1, compare_on=4)


def too_strict(name, asked):
    """A model that tells false from true, of single sentences only, and that always says No: at a fixed threshold of .5
    no answer passes."""
    statement = statement_of(name, asked)
    noise = zlib.crc32(statement.encode()) % 100 / 600
    if statement.count(".") > 1:  # a whole answer
        return 0.1 + 2 * noise
    return (0.05 if "mayor died" in statement else 0.2) + noise


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
    made = DecisionServer(too_strict)
    yield made
    made.close()


PLAN = "".join(
    f"[[variants]]\nname = '{name}'\n"
    for name in ("sentence", "joint", "statement", "sentence-few-shot", "sentence-bootstrap", "sentence-mistakes")
).replace("'joint'\n", "'joint'\nverification = 'joint'\n")


def test_from_labels_to_the_loaded_judge(server, own_store):
    """The threshold is fitted on labels, a variant that needs an LM that writes is skipped with the reason, and the
    export holds neither key nor address."""
    (own_store / "plan.toml").write_text(PLAN)
    given = {"lm": "typesafe/jev-latest", "api_base": server.base, "out": "judge", "view": Quiet()}
    towns = (*CITIES, "Marl", "Norr", "Orso", "Pell", "Quay", "Rond", "Sarn", "Tarn")
    known = [
        e.model_copy(update={"faithful": e.label, "statements": ()})
        for e in read_labels(labels(own_store / "cities.jsonl", parts=False, swapped=True, cities=towns))
    ]
    result = tune(known, variants=own_store / "plan.toml", **given)
    notes = {v.name: v.note for v in result.variants if v.status == "skipped"}
    assert notes.keys() == {"statement", "sentence-few-shot", "sentence-bootstrap", "sentence-mistakes"}
    assert "writes no text; granularity='statement' needs an LM that writes" in notes["statement"]
    asked_only = "is only asked a question. Compile its wording with mipro or gepa and --reflection-lm"
    assert asked_only in notes["sentence-bootstrap"]
    champion, untuned = (result.tested(name).agreement.balanced_accuracy.value for name in ("champion", "untuned"))
    assert result.champion in ("sentence", "joint")
    assert untuned == 0.5
    assert champion > 0.8
    usage = result.usage  # a request counts as 50 tokens read, a question as 10 read and 2 written
    assert usage.calls - result.replayed == len(server.requests)
    assert usage.prompt_tokens == 50 * usage.calls + 5 * usage.output_tokens

    written = b"".join(p.read_bytes() for p in own_store.rglob("*") if p.is_file())
    assert KEY.encode() not in written
    assert b"127.0.0.1" not in b"".join(p.read_bytes() for p in (own_store / "judge").rglob("*") if p.is_file())

    judge = load_judge("judge", api_base=server.base)
    assert judge.lm_name == "typesafe/jev-latest"
    context = ["Zell has 9 bridges and a harbour.", "The mayor of Zell resigned in 1999.", "Its bishop died in 1999."]
    said = "There are 9 bridges in Zell. Its mayor {} in 1999."
    true, false = (judge(context=context, answer=said.format(did)) for did in ("resigned", "died"))
    assert (true.faithful, false.faithful) == (True, False)
    assert true.probability > judge.classifier.threshold > false.probability


NEW = "Mind who did what.\n\nDoes the context say so of the same person? Answer Yes or No."


@pytest.mark.parametrize("name", ["gepa", "mipro"])
def test_what_is_compiled_is_the_questions_wording(server, chat_server, tmp_path, name):
    """GEPA and MIPROv2 let another LM write instructions, whose last paragraph is the question; no example is shown."""

    def write(asked):
        prompt = "".join(str(m["content"]) for m in asked["messages"])
        names = [n for n in ("improved_instruction", "proposed_instruction", "new_instruction") if n in prompt]
        return "".join(f"[[ ## {n} ## ]]\n{NEW}\n\n" for n in names or ["text"]) + "[[ ## completed ## ]]"

    writer = make_lm("openai/tiny", api_base=chat_server(says=write).base)
    judge = Judge("typesafe/jev-latest", api_base=server.base, granularity="answer")
    train = read_labels(labels(tmp_path / "labels.jsonl", swapped=True))
    compile_judge(judge, name, train, EFFORT, 0, proposer=writer)
    asked = {r["questions"]["verdict"]["instructions"] for r in server.requests}
    assert NEW.rpartition("\n\n")[2] in asked
    assert not any("demos" in r["state"] for r in server.requests)


@pytest.mark.parametrize("name", ["labelled", "mistakes", "bootstrap", "mipro", "gepa"])
def test_optimizers_without_a_place(server, tmp_path, name):
    """Examples are shown to no decision model, and it writes no instructions: refused before anything is asked."""
    judge = Judge("typesafe/jev-latest", api_base=server.base, granularity="answer")
    said = "writes instructions, got typesafe/" if name in PROPOSING else "typesafe/jev-latest is only asked a question"
    with pytest.raises(ConfigError, match=f"{name} .*{said}.*--reflection-lm"):
        compile_judge(judge, name, read_labels(labels(tmp_path / "labels.jsonl")), EFFORT, 0)
    assert server.requests == []
