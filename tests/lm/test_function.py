import asyncio
import json
import subprocess
import sys

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.export import save_judge
from faith_dspy.lm.function import Claim
from faith_dspy.load import open_judge
from faith_dspy.optimize.plan import Options, plan
from faith_dspy.schema import Usage
from tests.support import judges
from tests.support.classifiers import by_weakest, linear
from tests.support.exports import edit, reference_of
from tests.support.files import write_lines

CONTEXT = ["The kettle is blue.", "It holds 2 litres."]
ANSWER = "The kettle is blue. It has a whistle."
NAME = "tests.support.judges:blue"
RETURNED = "ValueError: the function returned"
EXPECTED = (
    "expected a list with a probability, True, False or None for each of 2 claims"
)


def test_a_function_is_asked_about_all_statements_of_an_answer_at_once():
    """It has each statement with the context's texts and the question; one call is counted, without tokens or price."""
    requests = []

    def judge(claims):
        requests.append(claims)
        return judges.blue(claims)

    judgment = Judge(judge)("Which colour?", CONTEXT, ANSWER)
    texts = ("The kettle is blue.", "It has a whistle.")
    assert requests == [[Claim(text, CONTEXT, "Which colour?") for text in texts]]
    assert [s.confidence for s in judgment.statements] == pytest.approx([0.9, 0.2])
    seconds = judgment.usage.seconds
    assert judgment.usage == Usage(calls=1, seconds=seconds, dollars=None)
    assert seconds > 0


@pytest.mark.parametrize("name", ["blue", "blue_later", "verdicts"])
def test_probabilities_verdicts_and_coroutines(name):
    """A coroutine is awaited, where an event loop runs, too; True and False are verdicts without a probability."""
    judge = Judge(f"python:tests.support.judges:{name}")

    async def within_a_loop():
        return judge(context=CONTEXT, answer=ANSWER)

    judgment = asyncio.run(within_a_loop())
    assert judge(context=CONTEXT, answer=ANSWER).score == judgment.score == 0.5
    assert [s.is_supported for s in judgment.statements] == [True, False]
    has_none = [s.confidence is None for s in judgment.statements]
    assert has_none == [name == "verdicts"] * 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("one_too_many", f"{RETURNED} [0.9, 0.9, 0.9], {EXPECTED}"),
        ("percent", "the function returned 101.0, expected a probability from 0 to 1"),
        ("words", f"{RETURNED} ['yes', 'yes'], {EXPECTED}"),
        ("table", f"{RETURNED} [[0.1, 0.9], [0.1, 0.9]], {EXPECTED}"),
        ("nothing", "the function could not judge it"),
        ("broken", "RuntimeError: no GPU"),
        ("exits", "SystemExit: 3"),
    ],
)
def test_a_function_that_fails_leaves_the_answer_unscored(name, why):
    judgment = Judge(getattr(judges, name))(context=CONTEXT, answer=ANSWER)
    assert judgment.unscored == "lm_failed"
    assert judgment.detail == f"2 of 2 statements could not be judged; the first: {why}"


@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        ("python:nowhere:blue", {}, "cannot be imported .ModuleNotFoundError"),
        ("python:tests.support.judges:NUMBER", {}, "is 7; expected a function of claims"),
        (judges.blue, {"quote": True}, "a function, which takes no prompt; quote"),
    ],
)  # fmt: skip
def test_what_is_no_function_and_what_takes_none(function, options, why):
    with pytest.raises(ConfigError, match=why):
        Judge(function, **options)


def test_a_study_of_a_function_compiles_nothing():
    with pytest.raises(ConfigError, match="compiles a prompt"):
        plan(Options(lm=f"python:{NAME}", variants="sentence-few-shot"))
    _, variants = plan(Options(lm=f"python:{NAME}"))
    assert [v.name for v in variants] == ["sentence", "answer"]


def test_a_cascade_holds_a_function_on_either_side(chat_server):
    """What the first is unsure of goes to the second, with the usage of both."""
    server = chat_server(yes={"The kettle is blue.": 0.9, "It has a whistle.": 0.5})
    address = {"api_base": server.base, "api_key": "none"}
    one = Judge("openai/tiny", escalate_to=judges.blue, **address)
    other = Judge(judges.unsure, escalate_to="openai/tiny", **address)
    for judge in (one, other):
        judgment = judge(context=CONTEXT, answer=ANSWER)
        assert judgment.escalated == 1
        assert (judgment.usage + judgment.replayed).calls == 3


@pytest.fixture
def exported(tmp_path):
    """A tuned judge of `judges.blue`."""
    judge = Judge(judges.blue, classifier=by_weakest(linear({"lm": 1}, 0.3)))
    references = reference_of(judge, CONTEXT, ANSWER)
    save_judge(judge, tmp_path / "judge", reference=references)
    return tmp_path / "judge"


def test_an_export_names_its_function_and_needs_it_given(exported, tmp_path, caplog):
    """Without it a judge is loaded, saved and read; its first judgment says what is missing. With it, given as a
    function or by name, it judges as before."""
    record = {"context": CONTEXT, "answer": ANSWER}
    without = load_judge(exported)
    expected = Judge(judges.blue, classifier=without.classifier)(**record).probability
    for ask in (lambda: without(**record), lambda: without.batch([record])):
        with pytest.raises(LMUnavailableError, match=f"{NAME}, which loading never"):
            ask()
    without.save(tmp_path / "again")
    for folder in (exported, tmp_path / "again"):
        for function in (judges.blue, NAME):
            judge = open_judge(folder, function=function)
            assert judge.fingerprint == without.fingerprint
            assert judge(**record).probability == expected
    assert not caplog.messages


def test_a_changed_function_is_said(exported, caplog):
    edit(exported, lambda document: document["lm"].update(sha256="0" * 64))
    load_judge(exported, function=NAME)
    assert "another version of it is asked" in caplog.messages[-1]


def test_a_function_for_a_judge_that_takes_none(exported, tmp_path):
    Judge("none").save(tmp_path / "words")
    with pytest.raises(ConfigError, match="asks no function"):
        load_judge(tmp_path / "words", function=judges.blue)
    with pytest.raises(ConfigError, match="as its LM, by its name 'python:"):
        open_judge("none", function=judges.blue)
    with pytest.raises(ConfigError, match="got the function 3, expected a function"):
        load_judge(exported, function=3)


def test_an_export_loads_no_code(exported, tmp_path):
    """Whatever it names, first or second in a cascade: neither loading nor judging imports it."""
    (tmp_path / "hostile.py").write_text("open('was-here', 'w')")
    code = (
        "import sys; from faith_dspy import load_judge; judge = load_judge('judge')\n"
        "try: judge(context=['A kettle.'], answer='A lamp.')\n"
        "except Exception as exc: print(type(exc).__name__)\n"
        "print('hostile' in sys.modules)"
    )
    edit(exported, lambda document: document["lm"].update(model="python:hostile:f"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout.split() == ["LMUnavailableError", "False"], done.stderr
    assert not (tmp_path / "was-here").exists()


def test_the_commands_take_a_function(exported, tmp_path, monkeypatch, cli):
    """In place of an LM by its name, and for a judge that was tuned on one."""
    monkeypatch.chdir(tmp_path)
    answers = write_lines("answers.jsonl", [{"context": CONTEXT, "answer": ANSWER}])
    source = "def blue(claims): return ['blue' in one.statement for one in claims]"
    (tmp_path / "mine.py").write_text(source)
    _, out, _ = cli("judge", answers, "--lm", "python:mine:blue")
    assert json.loads(out)["verdict_counts"]["fully_supported"] == 1
    _, out, _ = cli("judge", answers, "--judge", exported, "--function", "mine:blue")
    assert json.loads(out)["usage"]["calls"] == 1
