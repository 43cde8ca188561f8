import re
import time
from contextlib import closing

import dspy
import pytest
from decision_server import KEY, DecisionServer, statement_of

from faith_dspy import Judge, load_judge
from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.examples import (
    agreement_metric,
    balanced,
    statement_examples,
)
from faith_dspy.optimize.compile.judge import Stage, answerable, compile_judge
from faith_dspy.optimize.compile.optimizers import (
    FORM,
    OPTIMIZERS,
    PROPOSING,
    Effort,
    Task,
    compile_stage,
    learn_and_compare,
)
from faith_dspy.program.signatures import VerifyStatement

EFFORT = Effort(demos=2, candidates=2, compare_on=12)
BETTER = "Mind what was won and what was not.\n\nDid the context tell of this medal honestly? Answer Yes or No."


def labelled(cities):
    """Two statements about each city: its bridges, which the context tells of, and a medal, which it does not."""
    out = []
    for i, city in enumerate(cities):
        true, false = f"{city} has {i + 20} bridges.", f"{city} won a medal."
        statements = [
            {"text": true, "verdict": "fully_supported", "supporting_chunk_ids": [0]},
            {"text": false, "verdict": "no_evidence", "reason": "No medal is told of."},
        ]
        context = [f"{city} has {i + 20} bridges and a harbour."]
        out.append(
            parse_example(
                {
                    "context": context,
                    "answer": f"{true} {false}",
                    "statements": statements,
                }
            )
        )
    return out


TRAIN = labelled("ABCDEFGHIJ")


def told_better(asked):
    return any("honestly" in m["content"] for m in asked["messages"])


def shown_demos(asked):
    return len(asked["messages"]) > 3


def verdicts(better=told_better):
    """An LM that says yes to everything, less surely to medals; where ``better`` says so it sees through them."""

    def say(asked):
        statement = re.findall(r"Statement: (.*)", asked["messages"][-1]["content"])[-1]
        noise = ord(statement[0]) % 10 / 100
        p = (
            0.7 + noise
            if "medal" not in statement
            else 0.1
            if better(asked)
            else 0.51 + noise
        )
        return {"text": "Yes" if p > 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}

    return say


def proposals(instruction=BETTER):
    """An LM that proposes this instruction in whatever fields it is asked for."""

    def say(asked):
        fields = re.findall(
            r"^\d+\. `(\w+)`",
            asked["messages"][0]["content"].partition("output fields are:")[2],
            re.M,
        )
        assert fields
        return (
            "".join(f"[[ ## {k} ## ]]\n{instruction}\n\n" for k in fields)
            + "[[ ## completed ## ]]"
        )

    return say


def lm_at(server):
    return make_lm("openai/tiny", api_base=server.base, num_retries=0)


@pytest.fixture
def compiling(chat_server):
    """Compiles a judge by sentence: (the judge given, what was compiled, the judged server, the proposing one)."""

    def run(name, *, better=told_better, train=TRAIN):
        judged, proposing = (
            chat_server(says=verdicts(better)),
            chat_server(says=proposals()),
        )
        judge = Judge(lm_at(judged), granularity="sentence")
        return (
            judge,
            compile_judge(judge, name, train, EFFORT, 0, proposer=lm_at(proposing)),
            judged,
            proposing,
        )

    return run


@pytest.fixture
def task():
    """Makes a task over the statements above; its LM is the current one until the test is over."""

    def make(server, proposer=None):
        judge = Judge(lm_at(server))
        dspy.configure(lm=judge.lm)
        train = statement_examples(
            TRAIN, Granularity.SENTENCE, judge.config.instruction
        )
        return Task(
            Stage(judge.program.verify),
            train,
            EFFORT,
            0,
            agreement_metric,
            proposer and lm_at(proposer),
        )

    yield make
    dspy.configure(lm=None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_helps_ends_in_the_judge(name, compiling, tmp_path):
    """An LM that sees through medals once it was shown one, or is told better; saved and loaded the judge does, too.

    The proposer gets the proposals only, the judged LM the verdicts only; the judge that was given stays as it was.
    """
    given, compiled, judged, proposing = compiling(
        name, better=told_better if name in PROPOSING else shown_demos
    )
    compiled.judge.save(tmp_path / "judge")
    loaded = load_judge(tmp_path / "judge", lm=given.lm)
    for judge in (compiled.judge, loaded):
        medal, bridges = (
            judge(context=["Z has 9 bridges."], answer=f"Z {x}.")
            for x in ("won a medal", "has bridges")
        )
        assert medal.statements[0].confidence == pytest.approx(0.1, abs=1e-3)
        assert bridges.statements[0].confidence > 0.5
    verify, before = compiled.judge.program.verify.predict, given.program.verify.predict
    assert before.demos == []
    assert "honestly" not in before.signature.instructions
    assert (
        ("honestly" in verify.signature.instructions)
        is bool(proposing.requests)
        is (name in PROPOSING)
    )
    assert {k for d in verify.demos for k in dict(d)} <= {
        "context",
        "question",
        "statement",
        "verdict",
    }
    assert verify.demos or name in PROPOSING
    assert not any(
        "[[ ##" in m["content"] for r in judged.requests for m in r["messages"]
    )
    assert all("[[ ##" in r["messages"][0]["content"] for r in proposing.requests)
    assert compiled.notes == []


def out_of_order(asked):
    return {"status": 500, "text": "out of order"}


@pytest.mark.parametrize(
    ("name", "judged", "proposed", "error", "said"),
    [
        # Most calls fail: an error that says so, not a judge that lost.
        ("mistakes", out_of_order, "x", LMUnavailableError, "answers of the LM failed"),
        (
            "bootstrap",
            out_of_order,
            "x",
            LMUnavailableError,
            "answers of the LM failed",
        ),
        ("gepa", out_of_order, "x", LMUnavailableError, "answers of the LM failed"),
        # A reply without the fields asked for is never taken for an instruction.
        ("mipro", verdicts(), "?", ConfigError, "Give another LM"),
        ("gepa", verdicts(), "?", ConfigError, "Give another LM"),
        # As the embedded model did: an instruction about instructions.
        (
            "gepa",
            verdicts(),
            proposals(f"{FORM}\nAnswer Yes or No."),
            ConfigError,
            "repeated what it was told",
        ),
        # Whoever proposes is down: found before any verdict is asked.
        ("gepa", verdicts(), None, LMUnavailableError, "does not answer"),
    ],
)
def test_an_lm_that_is_of_no_use_ends_the_variant(
    name, judged, proposed, error, said, task, chat_server
):
    judging, proposing = chat_server(says=judged), chat_server(says=proposed)
    if proposed is None:
        proposing.close()
    with pytest.raises(error, match=said):
        compile_stage(name, task(judging, proposing))
    assert (judging.requests == []) is (proposed is None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_of_a_decision_model_the_questions_wording_is_compiled(name, chat_server):
    """It is shown no examples and writes nothing: only where another LM proposes instructions is anything asked."""
    with closing(
        DecisionServer(lambda *asked: 0.1 if "medal" in statement_of(*asked) else 0.7)
    ) as server:
        judge = Judge(
            "typesafe/jev-latest",
            api_base=server.base,
            api_key=KEY,
            granularity="sentence",
        )
        said = (
            "instructions, got typesafe/"
            if name in PROPOSING
            else "typesafe/jev-latest is only asked a question"
        )
        with pytest.raises(ConfigError, match=f"{name} .*{said}.*--reflection-lm"):
            compile_judge(judge, name, TRAIN, EFFORT, 0)
        assert server.requests == []
        if name in PROPOSING:
            compile_judge(
                judge,
                name,
                TRAIN,
                EFFORT,
                0,
                proposer=lm_at(chat_server(says=proposals())),
            )
            asked = {r["questions"]["verdict"]["instructions"] for r in server.requests}
            assert BETTER.rpartition("\n\n")[2] in asked
            assert not any("demos" in r["state"] for r in server.requests)


def test_where_only_answers_are_labelled_verification_is_compiled_on_whole_ones(
    compiling,
):
    """The sentences of a faithful answer are supported; of an unfaithful one it is not known which is not."""
    train = [
        parse_example(
            {"context": e.context, "answer": e.answer, "faithful": i % 2 == 0}
        )
        for i, e in enumerate(TRAIN)
    ]
    _, compiled, judged, _ = compiling("mistakes", train=train)
    assert "whole answers" in compiled.notes[0]
    assert judged.statements
    assert set(judged.statements) <= {e.answer for e in train}


@pytest.mark.parametrize("fault", [None, {"status": 400, "text": "no"}, {"text": "?"}])
def test_mistakes_are_shown_first(task, chat_server, fault):
    """Of the cities A to J it believes least in F's bridges, .70, and most in E's medal, .60: a demo of each.

    Without a verdict on E and F, in G's bridges and in D's medal: where the LM failed it made no mistake.
    """
    in_flight, most = [], []

    def says(asked):
        in_flight.append(asked)
        time.sleep(0.05)
        most.append(len(in_flight))
        in_flight.pop()
        failing = fault and re.search(
            r"Statement: [EF]", asked["messages"][-1]["content"]
        )
        return fault if failing else verdicts()(asked)

    compiled = compile_stage(
        "mistakes", task(chat_server(says=says))._replace(threads=2)
    )
    shown = (
        {"F has 25 bridges.", "E won a medal."}
        if fault is None
        else {"G has 26 bridges.", "D won a medal."}
    )
    assert {d.statement for d in compiled.stage.part.predict.demos} == shown
    assert (compiled.asked, compiled.failed) == (20, 4 if fault else 0)
    assert max(most) == 2


def test_candidates_are_compared_on_a_part_of_train_of_its_own(task, chat_server):
    """A third of the contexts, none of them learnt from; dev is for comparing variants. Too few say what is missing."""
    given = task(chat_server())
    learn, compare = (
        {"".join(r.context) for r in part} for part in learn_and_compare(given)
    )
    assert (len(learn), len(compare), learn & compare) == (7, 3, set())
    with pytest.raises(ConfigError, match="label more"):
        learn_and_compare(given._replace(train=given.train[:4]))


def test_a_balanced_sample_weighs_both_classes_the_same():
    """Nine supported statements and three unsupported: of four drawn two are of each, and every one counts 1."""
    unlabelled = [
        e.model_copy(update={"statements": e.statements[:1]})
        for e in labelled("DEFGHI")
    ]
    rows = statement_examples(
        [*labelled("ABC"), *unlabelled], Granularity.STATEMENT, "supported"
    )
    assert sorted({r.weight for r in rows}) == [12 / 18, 12 / 6]
    drawn = balanced(rows, 4, 0)
    assert [r.supported for r in drawn].count(True) == 2
    assert [r.weight for r in drawn] == [1.0] * 4
    assert set(drawn[0].inputs()) == {"context", "question", "statement"}


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("Check it.", "Check it.\nAnswer Yes or No."),
        ("Check.\n\nIs it so? Answer Yes or No.", "Is it so? Answer Yes or No."),
        ("Check.\n\nIs it so? Yes or No?\n\nMind the years.", "Is it so? Yes or No?"),
        ("Check.\n\nIt has no label.", "It has no label.\nAnswer Yes or No."),
    ],
)
def test_whatever_is_proposed_ends_in_a_paragraph_that_names_the_labels(text, last):
    """It is asked after the statement; a rule that was added behind the question is moved before it."""
    found = answerable(VerifyStatement.with_instructions(text)).instructions
    assert found.rpartition("\n\n")[2] == last
    assert answerable(VerifyStatement.with_instructions(found)).instructions == found
