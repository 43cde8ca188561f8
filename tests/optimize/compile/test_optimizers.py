from __future__ import annotations

import re
from threading import Barrier
from typing import Any

import dspy
import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.examples import balanced, statement_examples
from faith_dspy.optimize.compile.judge import Stage, answerable, compile_judge
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import (
    FORM,
    Effort,
    Task,
    compile_stage,
    learn_and_compare,
)
from faith_dspy.optimize.plan import VARIANTS
from faith_dspy.program.signatures import VerifyStatement

SENTENCES = Granularity.SENTENCE
EFFORT = Effort(demos=2, candidates=2, compare_on=12)
BETTER = "Mind what was won and what was not.\n\nDid the context tell of this medal honestly? Answer Yes or No."


def labelled(cities: str) -> list[Any]:
    """Two statements about each city: its bridges, which the context tells of, and a medal, which it does not."""
    out = []
    for i, city in enumerate(cities):
        true, false = f"{city} has {i + 20} bridges.", f"{city} won a medal."
        out.append(
            parse_example(
                {
                    "context": [f"{city} has {i + 20} bridges and a harbour."],
                    "answer": f"{true} {false}",
                    "statements": [
                        {"text": true, "verdict": "fully_supported", "supporting_chunk_ids": [0]},
                        {"text": false, "verdict": "no_evidence", "reason": "No medal is told of."},
                    ],
                }
            )
        )
    return out


TRAIN = labelled("ABCDEFGHIJ")


def sees(asked: dict[str, Any]) -> bool:
    """Whether the prompt is one under which the fake LM knows a false medal."""
    text = "\n".join(m["content"] for m in asked["messages"])
    return "honestly" in text


def verdicts(better: Any = sees, doubt: float = 0.2) -> Any:
    """An LM that says yes to everything, and sees through medals where ``better`` says of the request that it may.

    Else its ``doubt`` is what it takes off their probability.
    """

    def say(asked: dict[str, Any]) -> dict[str, Any]:
        statement = re.findall(r"Statement: (.*)", asked["messages"][-1]["content"])[-1]
        noise = ord(statement[0]) % 10 / 100
        p = 0.7 + noise if "medal" not in statement else 0.1 if better(asked) else 0.7 - doubt + noise
        labels = re.findall(r"Answer (\w+)[^.]*? or (\w+)\.", asked["messages"][-1]["content"]) or [("Yes", "No")]
        yes, no = ("fully", "nothing") if "fully (" in asked["messages"][-1]["content"] else labels[-1]
        return {"text": yes if p > 0.5 else no, "top": {yes: p, no: 1 - p}}

    return say


def proposals(instruction: str) -> Any:
    """An LM that proposes this instruction in whatever fields it is asked for."""
    said = {
        "observations": "Statements about cities.",
        "summary": "Cities, bridges and medals.",
        "proposed_instruction": instruction,
        "improved_instruction": instruction,
        "new_instruction": instruction,
        "discussion": "The worse one believed in a medal.",
        "module_advice": '{"part.predict": "Tell honestly whether the context has the medal."}',
    }

    def say(asked: dict[str, Any]) -> str:
        system = asked["messages"][0]["content"]
        outputs = system[system.index("Your output fields are:") :]
        fields = [k for k in said if f"`{k}`" in outputs]
        assert fields, outputs
        return "\n\n".join(f"[[ ## {k} ## ]]\n{said[k]}" for k in fields) + "\n\n[[ ## completed ## ]]"

    return say


@pytest.fixture
def compiling(chat_server):
    """Compiles a variant at a judged endpoint, with a proposing one: (judge, all of it, judged server, proposer)."""

    def run(
        variant: str, *, better: Any = sees, doubt: float = 0.2, instruction: str = BETTER, seed: int = 0, **more: Any
    ) -> Any:
        judged, proposing = chat_server(says=verdicts(better, doubt)), chat_server(says=proposals(instruction))
        lm = make_lm("openai/tiny", api_base=judged.base, num_retries=0)
        judge = Judge(lm, config=VARIANTS[variant].config)
        proposer = make_lm("openai/tiny", api_base=proposing.base, num_retries=0)
        compiled = compile_judge(
            judge,
            VARIANTS[variant].optimizer,
            more.get("train", TRAIN),
            EFFORT,
            seed,
            proposer=proposer,
        )
        return compiled.judge, compiled, judged, proposing

    return run


def test_where_only_answers_are_labelled_verification_is_compiled_on_whole_ones(compiling):
    """The sentences of a faithful answer are supported; of an unfaithful one it is not known which is not."""

    def answers(cities: str) -> list[Any]:
        return [
            parse_example({"context": e.context, "answer": e.answer, "faithful": i % 2 == 0})
            for i, e in enumerate(labelled(cities))
        ]

    train = answers("ABCDEFGHIJ")
    _, compiled, judged, _ = compiling("sentence-mistakes", train=train)
    assert "whole answers" in compiled.notes[0]
    assert judged.statements
    assert set(judged.statements) <= {e.answer for e in train}


def test_the_judge_given_stays_as_it_is(chat_server):
    """Compiling returns another judge; the LM is shared."""
    judge = Judge(make_lm("openai/tiny", api_base=chat_server(says=verdicts()).base), granularity="sentence")
    compiled = compile_judge(judge, "labelled", TRAIN, EFFORT, 0)
    assert compiled.judge.program.verify.predict.demos
    assert judge.program.verify.predict.demos == []
    assert compiled.judge.lm is judge.lm


def support(judge: Judge, statement: str) -> float:
    """What the judge's verifier makes of a statement about a city it has not seen."""
    r = judge(context=["Z has 9 bridges."], answer=statement)
    return r.statements[0].confidence


@pytest.mark.parametrize("variant", ["sentence-mipro", "sentence-gepa"])
def test_an_instruction_that_is_proposed_and_works_ends_in_the_judge(variant, compiling, tmp_path):
    """The proposer gets the proposals only, the judged LM the verdicts only; saved and loaded it judges the same."""
    judge, compiled, judged, proposing = compiling(variant)
    assert "honestly" in judge.program.verify.predict.signature.instructions
    assert support(judge, "Z won a medal.") == pytest.approx(0.1, abs=1e-3)
    assert proposing.requests
    assert not any("[[ ##" in m["content"] for r in judged.requests for m in r["messages"])
    assert all("[[ ##" in r["messages"][0]["content"] for r in proposing.requests)
    assert not any("logprob" in m["content"] for r in proposing.requests for m in r["messages"])
    assert compiled.notes == []
    judge.save(tmp_path / "judge")
    again = load_judge(tmp_path / "judge", lm=judge.lm)
    for statement in ("Z won a medal.", "Z has 9 bridges."):
        assert support(again, statement) == support(judge, statement)


@pytest.mark.parametrize("name", ["mipro", "gepa"])
def test_a_dead_proposer_is_found_before_any_verdict_is_asked(name, chat_server):
    """Its endpoint is checked first; the judged LM has not been called."""
    judged, proposing = chat_server(says=verdicts()), chat_server()
    proposer = make_lm("openai/tiny", api_base=proposing.base, num_retries=0)
    proposing.close()
    with pytest.raises(LMUnavailableError):
        compile_stage(name, task(judged, proposer=proposer))
    assert judged.requests == []


def task(server: Any, *, proposer: Any = None, **options: Any) -> Task:
    """A task over the statements above; its LM becomes the current one."""
    judge = Judge(make_lm("openai/tiny", api_base=server.base, num_retries=0), **options)
    dspy.configure(lm=judge.lm)
    first = judge.config.instruction
    return Task(
        student=Stage(judge.program.verify),
        train=statement_examples(TRAIN, SENTENCES, first),
        effort=EFFORT,
        seed=0,
        metric=agreement_metric,
        proposer=proposer,
    )


@pytest.fixture(autouse=True)
def no_lm_stays():
    """`task` sets the current LM."""
    yield
    dspy.configure(lm=None)


@pytest.mark.parametrize("name", ["mipro", "gepa"])
def test_a_proposer_that_cannot_keep_to_the_form_ends_the_variant(name, chat_server):
    """A reply without the fields asked for is never taken for an instruction."""
    given = task(chat_server(says=verdicts()), proposer=make_lm("openai/tiny", api_base=chat_server(says="?").base))
    with pytest.raises(ConfigError, match="Give another LM"):
        compile_stage(name, given)


@pytest.mark.parametrize("variant", ["sentence-few-shot", "sentence-bootstrap"])
def test_demos_that_help_end_in_the_judge(variant, compiling, tmp_path):
    """An LM that sees through medals once it was shown one."""
    judge, _, _, proposing = compiling(variant, better=lambda asked: len(asked["messages"]) > 3)
    assert judge.program.verify.predict.demos
    assert support(judge, "Z won a medal.") == pytest.approx(0.1, abs=1e-3)
    assert proposing.requests == []
    judge.save(tmp_path / "judge")
    again = load_judge(tmp_path / "judge", lm=judge.lm)
    assert support(again, "Z won a medal.") == support(judge, "Z won a medal.")
    assert {k for d in judge.program.verify.predict.demos for k in dict(d)} <= {
        "context", "question", "statement", "verdict",
    }  # fmt: skip


def test_mistakes_are_shown_first(compiling):
    """Of the cities A to J it believes least in F's bridges, .70, and most in E's medal, .59: a demo of each."""
    judge, *_ = compiling("sentence-mistakes")
    demos = judge.program.verify.predict.demos
    assert {(d.statement, d.verdict) for d in demos} == {("F has 25 bridges.", "Yes"), ("E won a medal.", "No")}


@pytest.mark.parametrize("fault", [{"status": 400, "text": "no"}, {"text": "?"}])
def test_where_the_lm_failed_it_made_no_mistake(chat_server, fault):
    """Without a verdict on E and F, it believes least in G's bridges and most in D's medal."""

    def says(asked: dict[str, Any]) -> Any:
        failing = re.search(r"Statement: [EF]", asked["messages"][-1]["content"])
        return fault if failing else verdicts()(asked)

    compiled = compile_stage("mistakes", task(chat_server(says=says)))
    assert {d.statement for d in compiled.stage.part.predict.demos} == {"G has 26 bridges.", "D won a medal."}
    assert (compiled.asked, compiled.failed) == (20, 4)


def test_a_proposer_that_repeats_its_brief_proposes_nothing(compiling):
    """As the embedded model did: an instruction about instructions."""
    with pytest.raises(ConfigError, match="repeated what it was told"):
        compiling("sentence-gepa", instruction=f"{FORM}\nAnswer Yes or No.")


def test_demos_are_not_kept_where_they_hurt(compiling):
    """Random search compares with none at all."""
    judge, *_ = compiling("sentence-bootstrap", better=lambda asked: len(asked["messages"]) < 3)
    assert judge.program.verify.predict.demos == []


def test_candidates_are_compared_on_a_part_of_train_of_its_own(chat_server):
    """A third of the contexts, none of them learnt from; dev is for comparing variants. Too few say what is missing."""
    given = task(chat_server())
    learn, compare = learn_and_compare(given)
    contexts = [{"".join(r.context) for r in part} for part in (learn, compare)]
    assert [len(c) for c in contexts] == [7, 3]
    assert not contexts[0] & contexts[1]
    with pytest.raises(ConfigError, match="label more"):
        learn_and_compare(given._replace(train=given.train[:4]))


def test_mistakes_are_asked_about_at_the_same_time(chat_server):
    """As many calls in flight as the judge's LM takes."""
    two = Barrier(2, timeout=20)  # a call goes on when another has come

    def says(asked: dict[str, Any]) -> Any:
        two.wait()
        return verdicts()(asked)

    assert compile_stage("mistakes", task(chat_server(says=says))._replace(threads=2)).failed == 0


def test_a_balanced_sample_weighs_both_classes_the_same():
    """Nine supported statements and three unsupported: of four drawn two are of each, and every one counts 1."""
    unlabelled = [e.model_copy(update={"statements": e.statements[:1]}) for e in labelled("DEFGHI")]
    rows = statement_examples([*labelled("ABC"), *unlabelled], Granularity.STATEMENT, "supported")
    assert sorted({r.weight for r in rows}) == [12 / 18, 12 / 6]
    drawn = balanced(rows, 4, 0)
    assert [r.supported for r in drawn].count(True) == 2
    assert [r.weight for r in drawn] == [1.0] * 4
    assert set(drawn[0].inputs()) == {"context", "question", "statement"}


@pytest.mark.parametrize("name", ["mistakes", "bootstrap", "gepa"])
def test_an_endpoint_that_fails_is_no_disagreement(name, chat_server):
    """Most calls fail: an error that says so, not a judge that lost."""
    server = chat_server(says=lambda asked: {"status": 500, "text": "out of order"})
    with pytest.raises(LMUnavailableError, match="answers of the LM failed"):
        compile_stage(name, task(server, proposer=make_lm("openai/tiny", api_base=chat_server(says="x").base)))


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
