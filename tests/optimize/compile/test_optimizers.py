import json
import re
import string
import sys
from pathlib import Path

import dspy
import pytest
from pydantic import ValidationError

from faith_dspy import Judge, load_judge
from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.examples import statement_examples
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import (
    OPTIMIZERS,
    Task,
    compile_student,
    learn_and_compare,
)
from faith_dspy.optimize.data.labels import row_of
from faith_dspy.optimize.plan import Variant
from tests.support.chat_server import yes_or_no
from tests.support.files import write_lines

BETTER = "Mind what was won and what was not.\n\nDid the context tell of this medal honestly? Answer Yes or No."


def labelled(cities):
    """Two statements about each city: its bridges, which the context tells of, and a medal, which it does not."""
    examples = []
    for i, city in enumerate(cities):
        bridges, medal = f"{city} has {i + 20} bridges.", f"{city} won a medal."
        statements = [
            {"text": bridges, "verdict": "fully_supported"},
            {"text": medal, "verdict": "no_evidence"},
        ]
        row = {"context": [f"{city} has {i + 20} bridges and a harbour."]}
        row |= {"answer": f"{bridges} {medal}", "statements": statements}
        examples.append(parse_example(row))
    return examples


TRAIN = labelled("ABCDEFGHIJ")


def told_better(asked):
    return any("honestly" in m["content"] for m in asked["messages"])


def verdicts(asked):
    """An LM that says yes to everything, as sure of medals as of bridges, until it is told better."""
    statement = re.findall(r"Statement: (.*)", asked["messages"][-1]["content"])[-1]
    noise = ord(statement[0]) % 10 / 100
    p = 0.7 + noise
    if "medal" in statement:
        p = 0.1 if told_better(asked) else 0.75 - noise
    return yes_or_no(p)


def proposals(instruction=BETTER):
    """An LM that proposes this instruction in whatever fields it is asked for."""

    def say(asked):
        outputs = asked["messages"][0]["content"].partition("output fields are:")[2]
        fields = re.findall(r"^\d+\. `(\w+)`", outputs, re.M)
        parts = [f"[[ ## {name} ## ]]\n{instruction}\n\n" for name in fields]
        return "".join(parts) + "[[ ## completed ## ]]"

    return say


def lm_at(server, **more):
    return make_lm("openai/tiny", api_base=server.base, num_retries=0, **more)


def variant(name):
    """A judge by sentence as a plan declares it for this optimizer."""
    return Variant(name="own", granularity="sentence", optimizer=name).config


@pytest.fixture
def compiling(chat_server):
    """Compiles a judge by sentence, and returns the server that was judged, too."""

    def run(name, *, train=TRAIN, proposed="?", **more):
        judged, proposing = chat_server(says=verdicts), chat_server(says=proposed)
        judge = Judge(lm_at(judged), config=variant(name))
        proposer = lm_at(proposing, **more)
        return compile_judge(judge, name, train, proposer=proposer), judged

    return run


@pytest.fixture
def task():
    """Makes a task over the statements above; its LM is the current one until the test is over."""

    def make(server, proposer=None, name="mistakes"):
        judge = Judge(lm_at(server), config=variant(name))
        dspy.configure(lm=judge.lm)
        train = statement_examples(TRAIN, Granularity.SENTENCE, judge.config.verdicts)
        lm = proposer and lm_at(proposer)
        return Task(judge.program.verify, train, "light", 0, agreement_metric, lm)

    yield make
    dspy.configure(lm=None)


LONG = "word " * 10_000


def out_of_order(asked):
    return {"status": 500, "text": "out of order"}


@pytest.mark.parametrize(
    ("name", "judged", "proposed", "error", "said"),
    [
        # Most calls fail: an error that says so, not a judge that lost.
        ("gepa", out_of_order, "x", LMUnavailableError, "answers of the LM failed"),
        # A reply without the fields asked for is never taken for an instruction.
        ("mipro", verdicts, "?", ConfigError, "cannot run here.*tiny.* proposed"),
        ("gepa", verdicts, "?", ConfigError, "cannot run here.*tiny.* proposed"),
        ("guidelines", verdicts, "?", ConfigError, "cannot run here"),
        # Nothing, and ten thousand words.
        ("guidelines", verdicts, proposals(""), ConfigError, "wrote 0 rules"),
        ("guidelines", verdicts, proposals(LONG), ConfigError, "of 49999 characters"),
        ("gepa", verdicts, proposals(""), ConfigError, "empty instruction"),
        ("gepa", verdicts, proposals(LONG), ConfigError, "at most 2000 characters"),
        # Whoever proposes is down: found before any verdict is asked.
        ("gepa", verdicts, None, ConfigError, "does not answer"),
    ],
)
def test_an_lm_that_is_of_no_use_ends_the_variant(
    name, judged, proposed, error, said, task, chat_server
):
    judging, proposing = chat_server(says=judged), chat_server(says=proposed)
    if proposed is None:
        proposing.close()
    with pytest.raises(error, match=said):
        compile_student(name, task(judging, proposing))
    assert (judging.requests == []) is (proposed is None)


def test_where_only_answers_are_labelled_verification_is_compiled_on_whole_ones(
    compiling,
):
    """The sentences of a faithful answer are supported; of an unfaithful one it is not known which is not."""
    train = []
    for i, e in enumerate(TRAIN):
        train.append(e.model_copy(update={"statements": (), "faithful": i % 2 == 0}))
    compiled, judged = compiling("mistakes", train=train)
    assert "whole answers" in compiled.notes[0]
    assert judged.statements
    assert set(judged.statements) <= {e.answer for e in train}


@pytest.mark.parametrize("fault", [None, {"status": 400, "text": "no"}, {"text": "?"}])
def test_mistakes_are_shown_first(task, chat_server, fault):
    """It believes least in F's bridges, .70, and most in F's medal, .75; then come G, H, I and J: four demos of each.

    Without a verdict on E and F none of these: where the LM failed it made no mistake.
    """

    def says(asked):
        request = asked["messages"][-1]["content"]
        failing = fault and re.search(r"Statement: [EF]", request)
        return fault if failing else verdicts(asked)

    student, calls = compile_student("mistakes", task(chat_server(says=says)))
    cities = "GHIJ" if fault else "FGHI"
    shown = [d.statement for d in student.predict.demos]
    assert sorted(text[0] for text in shown) == sorted(2 * cities)
    assert sum("medal" in text for text in shown) == 4
    assert calls == 20


def test_candidates_are_compared_on_a_part_of_train_of_its_own(task, chat_server):
    """A third of the sources, none of them learned from. Too few say what is missing."""
    given = task(chat_server())
    parts = learn_and_compare(given)
    learn, compare = ({"".join(r.context) for r in part} for part in parts)
    assert (len(learn), len(compare), learn & compare) == (7, 3, set())
    with pytest.raises(ConfigError, match="label more"):
        learn_and_compare(given._replace(train=given.train[:4]))


KEY = "proj-9f81c2ab77e04d"


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize(
    "name", [name for name, row in OPTIMIZERS.items() if row.proposes]
)
def test_no_error_of_a_proposer_shows_its_key(
    name, status, compiling, monkeypatch, capfd
):
    """Its endpoint repeats the key when it is asked for a proposal."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = {"status": status, "text": f"Incorrect key provided: {KEY}"}
    with pytest.raises(ConfigError, match="tiny") as refused:
        compiling(name, proposed=refusal, api_key=f"x{KEY}")
    assert KEY not in str(refused.value)
    assert KEY not in "".join(capfd.readouterr())


def test_no_instruction_shows_a_key(compiling, monkeypatch):
    """An endpoint that writes rules, and its key into one of them: the prompt has the rules without it."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    rule = "[[ ## rules ## ]]\n- Look for medals, token: {}.\n\n[[ ## completed ## ]]"
    compiled, _ = compiling("guidelines", proposed=rule.format(KEY))
    written = compiled.judge.program.verify.predict.signature.instructions
    assert "Look for medals, token: ***." in written
    assert KEY not in written


OWN = """
import dspy

def demos(student, trainset, metric):
    assert metric(trainset[0], student(**trainset[0].inputs())) >= 0
    student.verify.predict.demos = [
        dspy.Example(context=["a"], question="", statement="A won a medal.", verdict="No")
    ]
    return student

def exits(student, trainset, metric):
    raise SystemExit(0)

def nothing(student, trainset, metric):
    return None

def other(student, trainset, metric):
    return dspy.ChainOfThought("question -> answer")
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("demos", None),
        ("exits", "own_optimizers:exits cannot run here.*SystemExit: 0"),
        ("nothing", "returned NoneType, no dspy.Module; expected the student"),
        ("other", "returned a module with the predictors"),
        ("missing", "cannot be imported"),
    ],
)
def test_anyones_optimizer(function, said, compiling, tmp_path, monkeypatch):
    """A function of student, trainset and metric, found from the working folder."""
    (tmp_path / "own_optimizers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_optimizers", raising=False)
    name = f"own_optimizers:{function}"
    if said is not None:
        with pytest.raises((ConfigError, ValidationError), match=said):
            compiling(name) if function != "missing" else variant(name)
        return
    compiled, judged = compiling(name)
    (demo,) = compiled.judge.program.verify.predict.demos
    assert demo["statement"] == "A won a medal."
    assert judged.statements[0] == "A has 20 bridges."


def extracting(asked):
    """An LM that copies sentences, until it is told to divide them honestly."""
    text = asked["messages"][-1]["content"]
    if "Sentences:" not in text:
        return verdicts(asked)
    sentences = re.findall(r"^\[(\d+)\] (.*)", text.rpartition("Sentences:")[2], re.M)
    lines = []
    for number, sentence in sentences:
        parts = [sentence]
        if told_better(asked):
            parts = [f"{p.rstrip('.')}." for p in sentence.split(" and ")]
        lines += [f"{number}. {part}" for part in parts]
    return "\n".join(lines)


def divided(cities):
    """Answers of one sentence, in which people found two statements; every other answer is faithful."""
    rows = []
    for i, e in enumerate(labelled(cities)):
        true, other = e.statements
        if i % 2:
            harbour = f"{true.text[0]} has a harbour."
            other = true.model_copy(update={"text": harbour})
        answer = f"{true.text.rstrip('.')} and {other.text}"
        row = {"answer": answer, "faithful": bool(i % 2), "statements": (true, other)}
        rows.append(e.model_copy(update=row))
    return rows


def test_few_shot_takes_a_trainset_for_each_stage(chat_server):
    """The extraction is shown answers with people's statements, the verification statements with their verdicts."""
    server = chat_server(says=extracting)
    judge = Judge(lm_at(server), granularity="statement")
    compiled = compile_judge(judge, "labelled", divided("ABCDEFGHIJ")).judge
    (extract, verify) = (
        compiled.program.prompts[name].demos for name in ("extract", "verify.predict")
    )
    assert len(extract) == len(verify) == 8
    assert extract[0]["statements"][0].startswith("1. ")
    assert verify[0]["verdict"] in ("Yes", "No")


def test_gepa_compiles_extraction_and_verification_together(chat_server):
    judged, proposing = chat_server(says=extracting), chat_server(says=proposals())
    judge = Judge(lm_at(judged), granularity="statement")
    train = divided(string.ascii_letters[:24])
    compiled = compile_judge(judge, "gepa", train, proposer=lm_at(proposing)).judge
    prompts = compiled.program.prompts.values()
    assert ["honestly" in p.signature.instructions for p in prompts] == [True] * 2


@pytest.fixture
def reflecting(chat_server, monkeypatch):
    """An endpoint with a judge that copies sentences until it is told better, and the reflector that tells it."""

    def serve(reflection):
        def says(asked):
            return reflection if asked["model"] == "gpt-4o" else extracting(asked)

        models = [{"id": "gpt-4o"}, {"id": "gpt-4o-mini"}]
        server = chat_server(says=says, models=models)
        for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, server.base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        return server

    return serve


def test_the_lines_by_hand(reflecting, tmp_path, monkeypatch):
    """The README's, as they stand there: any optimizer of DSPy, a fitted judge, and its export."""
    reply = json.dumps({"new_instruction": BETTER})
    server = reflecting(reply)
    monkeypatch.chdir(tmp_path)
    write_lines("labels.jsonl", map(row_of, divided("ABCDEFGH")))
    write_lines("other-labels.jsonl", map(row_of, divided("IJKLMNOPQR")))
    page = Path(__file__).parents[3] / "optimize" / "README.md"
    (lines,) = re.findall(r"```python\n(import dspy\n.*?)```", page.read_text(), re.S)
    exec(lines.replace('auto="light"', "max_metric_calls=60"), {})
    loaded = load_judge(tmp_path / "judges/by-hand", api_base=server.base)
    assert loaded.classifier.fitted_to == "labels"
    prompts = loaded.program.prompts
    assert any("honestly" in p.signature.instructions for p in prompts.values())
