"""The program is a plain `dspy.Module`: any optimizer of DSPy compiles it, and a judge saves and loads the result."""

import asyncio
import json
import warnings

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from faith_dspy import Judge, load_judge
from faith_dspy.errors import ConfigError

CITIES = "ABCDEFGH"
RECORDS = [
    {
        "context": [f"{c} has {20 + i} bridges.", "It has a harbour."],
        "question": "",
        "answer": f"{c} has {n} bridges.",
    }
    for i, c in enumerate(CITIES)
    for n in (20 + i, 90)
]
TRAIN = [
    dspy.Example(**record, faithful="90" not in record["answer"]).with_inputs(
        "context", "question", "answer"
    )
    for record in RECORDS
]
PROPOSAL = (
    "Compare every number.\n\nIs the statement fully supported? Answer Yes or No."
)


def agrees(gold, pred, trace=None):
    """Whether the program calls the answer as people do."""
    return float(pred.faithful is gold.faithful)


def says(asked):
    """A judge that knows numbers, and a proposer of one instruction."""
    text = asked["messages"][-1]["content"]
    statement = text.rpartition("\n\nStatement: ")[2].partition("\n\n")[0]
    if "Statement: " in text and "bridges" in statement and len(statement) < 40:
        return "No" if "90" in statement else "Yes"
    fields = ("proposed_instruction", "improved_instruction", "observations",
              "summary", "module_description", "program_description", "discussion", "new_instruction")  # fmt: skip
    reply = "\n\n".join(f"[[ ## {name} ## ]]\n{PROPOSAL}" for name in fields)
    return f"{reply}\n\n```\n{PROPOSAL}\n```"


@pytest.fixture
def lm(chat_server):
    base = chat_server(says=says).base
    return dspy.LM("openai/tiny", api_base=base, api_key="none", num_retries=0)


OPTIMIZERS = {
    "BootstrapFewShot": lambda lm: (dspy.BootstrapFewShot(metric=agrees, max_bootstrapped_demos=2), {}),
    "MIPROv2": lambda lm: (
        dspy.MIPROv2(metric=agrees, prompt_model=lm, task_model=lm, auto=None, num_candidates=2, num_threads=1, seed=1,
                     max_bootstrapped_demos=1, max_labeled_demos=1),
        {"num_trials": 2, "minibatch": False, "valset": TRAIN[:4]},
    ),
    "SIMBA": lambda lm: (
        dspy.SIMBA(metric=agrees, bsize=8, num_candidates=2, max_steps=1, max_demos=1, prompt_model=lm, num_threads=1),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_compiles_it_and_the_result_round_trips(lm, tmp_path, name):
    """As DSPy's documentation shows; saved and loaded, the judge asks and says the same."""
    judge = Judge(lm)
    optimizer, settings = OPTIMIZERS[name](lm.copy(temperature=1.0))
    with dspy.context(lm=lm):
        judge.program = optimizer.compile(judge.program, trainset=TRAIN, **settings)
    judge.save(tmp_path / "judge")
    address = {key: lm.kwargs[key] for key in ("api_base", "api_key")}
    loaded = load_judge(tmp_path / "judge", **address)
    assert loaded.program.prompts_hash == judge.program.prompts_hash
    assert loaded.fingerprint == judge.fingerprint
    for each in (judge, loaded):
        judgments = each.batch(RECORDS[:4], num_threads=1)
        assert [j.faithful for j in judgments] == [True, False, True, False]


def test_a_compiled_part_is_saved(tmp_path):
    """A part that was compiled by itself and put back is not lost, as it is from DSPy's own state."""
    judge = Judge("openai/tiny")
    fields = {"context": ["a"], "question": "", "statement": "b", "verdict": "No"}
    demo = dspy.Example(**fields).with_inputs("context", "statement")
    verify = judge.program.verify
    judge.program.verify = dspy.LabeledFewShot(k=1).compile(verify, trainset=[demo])
    judge.save(tmp_path / "judge")
    (kept,) = load_judge(tmp_path / "judge").program.verify.predict.demos
    assert (kept["statement"], kept["verdict"]) == ("b", "No")


INPUT = TRAIN[1].inputs()


class App(dspy.Module):
    """An application that judges its answers."""

    def __init__(self, judge):
        self.judge = judge

    def forward(self, **inputs):
        (statement,) = self.judge(**inputs).statements
        return dspy.Prediction(verdicts=[statement.verdict.value])


def streamed(program):
    return [*dspy.streamify(program, async_streaming=False)(**INPUT)][-1]


def set_lm(program):
    program.set_lm(dspy.settings.lm)
    with dspy.context(lm=None):
        return program(**INPUT)


def save_and_load(program, path):
    program.save(path)
    loaded = Judge("openai/tiny").program
    loaded.load(path)
    return loaded(**INPUT)


def evaluate(program, path):
    settings = {"metric": agrees, "display_progress": False, "save_as_json": str(path)}
    dspy.Evaluate(devset=TRAIN[1:2], **settings)(program)
    return dspy.Prediction(**json.loads(path.read_text())[0])


USES = {
    "a call": lambda p, _: p(**INPUT),
    "batch": lambda p, _: p.batch([TRAIN[1]], disable_progress_bar=True)[0],
    "acall": lambda p, _: asyncio.run(p.acall(**INPUT)),
    "an application that is streamed": lambda p, _: streamed(
        App(Judge(dspy.settings.lm))
    ),
    "set_lm": lambda p, _: set_lm(p),
    "save and load": save_and_load,
    "Evaluate": evaluate,
    "BestOfN": lambda p, _: dspy.BestOfN(p, 2, lambda *_: 1.0, 1.0)(**INPUT),
}


@pytest.mark.parametrize("use", USES)
def test_a_plain_module(lm, tmp_path, use):
    """Whatever DSPy does with a module: it asks the user's LM by adapters of its own, says what it found as plain data,
    and DSPy's histories have the prompt."""
    before = len(GLOBAL_HISTORY)
    with dspy.context(lm=lm):
        prediction = USES[use](Judge("openai/tiny").program, tmp_path / "file.json")
    assert prediction.verdicts == ["not_supported"]
    last_request = str(GLOBAL_HISTORY[before:][-1]["messages"])
    assert "Statement: A has 90 bridges.\\n\\n" in last_request
    assert lm.history or use == "BestOfN"  # which asks copies of it


def test_a_program_without_an_lm():
    with pytest.raises(ConfigError, match=r"dspy\.configure\(lm=judge\.lm\)"):
        Judge("openai/tiny").program(**INPUT)


@pytest.mark.parametrize(
    ("optimizer", "is_warned"),
    [
        (dspy.LabeledFewShot(k=2), True),
        (dspy.BootstrapFewShot(metric=agrees, max_bootstrapped_demos=2), False),
    ],
    ids=["labelled", "found"],
)
def test_demos_that_no_prompt_shows(lm, optimizer, is_warned):
    """Examples of whole answers are no demos of a statement: what teaches them is said, unless the optimizer replaces
    them by what it finds when it runs the program."""
    program = Judge("openai/tiny").program
    with dspy.context(lm=lm), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        optimizer.compile(program, trainset=TRAIN)(**INPUT)
    words = "None of the demos is shown: each needs context, q"
    assert any(words in str(w.message) for w in shown) is is_warned
