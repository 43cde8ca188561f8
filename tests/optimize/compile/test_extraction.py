from __future__ import annotations

import re
from typing import Any

import dspy
import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.compile.extraction import extraction_examples, extraction_metric, word_share
from faith_dspy.optimize.compile.stages import compiled_judge, demo_ids
from faith_dspy.optimize.compile.task import Compiled, Effort
from faith_dspy.optimize.select.variants import VARIANTS, Variant

CITIES = "ABCDEFGH"


def answer(city: str, *, statements: bool = True) -> Any:
    """One sentence that people took apart in two: one supported, one not."""
    told = [
        {"text": f"{city} has a harbour.", "verdict": "fully_supported"},
        {"text": f"{city} has a tall tower.", "verdict": "no_evidence"},
    ]
    row = {"context": [f"{city} has a harbour."], "answer": f"{city} has a harbour and a tall tower."}
    return parse_example({**row, "statements": told} if statements else {**row, "faithful": False})


def gold() -> dspy.Example:
    """The example of city A."""
    return extraction_examples([answer("A")])[0]


def test_examples_number_peoples_statements_by_the_sentence_they_come_from():
    """As the LM is asked to write them."""
    assert gold().statements == ["1 A has a harbour.", "1 A has a tall tower."]
    assert gold().sentences == ["A has a harbour and a tall tower."]


@pytest.mark.parametrize(
    ("answer", "statement"),
    [("A is big.", "A is big."), ("Arlen is big. Its tower leans to the west.", "Arlen is a big town.")],
)
def test_statements_that_are_just_the_sentences_teach_nothing(answer, statement):
    """Nor do those that leave a sentence without one."""
    statements = [{"text": statement, "verdict": "no_evidence"}]
    assert extraction_examples([parse_example({"context": ["c"], "answer": answer, "statements": statements})]) == []


@pytest.mark.parametrize(
    ("lines", "score"),
    [
        (["1 A has a harbour.", "1 A has a tall tower."], 1.0),
        # One invented of three: coverage 1, fidelity 2/3, harmonic mean 2 · 2/3 / (5/3).
        (["1 A has a harbour.", "1 A has a tall tower.", "1 Tourists adore elephants."], 0.8),
        ([], 0.0),
        (["1 none"], 0.0),
        (None, 0.0),
    ],
)
def test_extraction_is_scored_by_coverage_and_fidelity(lines, score):
    """Their harmonic mean; without a statement, or where the call failed, 0."""
    assert extraction_metric(gold(), dspy.Prediction(statements=lines)) == pytest.approx(score)
    assert extraction_metric(gold(), dspy.Prediction(error="down")) == 0.0


def test_a_statement_left_out_costs_coverage_and_feedback_names_it():
    """Only the harbour is found in full."""
    found = extraction_metric(gold(), dspy.Prediction(statements=["1 A has a harbour."]), pred_name="extract")
    assert found.score < 0.8
    assert "Missing: A has a tall tower." in found.feedback


def lm(splits: Any) -> Any:
    """An LM that takes sentences apart where ``splits`` says so of the request, and knows every tower is invented."""

    def say(asked: dict[str, Any]) -> Any:
        last = asked["messages"][-1]["content"]
        if "Sentences:" in last:
            city = re.findall(r"\[1\] (\w)", last)[-1]
            whole = f"1 {city} has a harbour and a tall tower."
            return f"1 {city} has a harbour.\n1 {city} has a tall tower." if splits(asked) else whole
        statement = re.findall(r"Statement: (.*)", last)[-1]
        p = 0.5 if "and" in statement else 0.1 if "tower" in statement else 0.9
        return {"text": "Yes" if p > 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}

    return say


def compiled(server: Any, variant: Variant, parts: Any) -> Compiled[Judge]:
    """The judge of that variant compiled on these answers."""
    judge = Judge(make_lm("openai/tiny", api_base=server.base, num_retries=0), config=variant.config)
    train, dev = parts
    return compiled_judge(judge, variant.optimizer, train, dev, Effort(demos=2, candidates=1, compare_on=8), seed=1)


def test_each_stage_gets_demos_of_its_own(chat_server, tmp_path):
    """Extraction is shown people's statements, verification their verdicts; loaded again it extracts and judges so."""
    server = chat_server(says=lm(lambda asked: len(asked["messages"]) > 3))
    parts = [answer(c) for c in CITIES[:4]], [answer(c) for c in CITIES[4:]]
    found = compiled(server, VARIANTS["statement-few-shot"], parts)
    judge = found.result
    assert {len(d.statements) for d in judge.program.extract.demos} == {2}
    assert {d.verdict for d in judge.program.verify.predict.demos} == {"Yes", "No"}
    assert any("compiled on 4 answers" in note for note in found.notes)
    shown = {d.sentences[0][0] for d in judge.program.extract.demos}  # they measure nothing any more
    assert demo_ids(judge, parts[0]) >= {e.id for e in parts[0] if e.answer[0] in shown}
    judge.save(tmp_path / "judge")
    for j in (judge, load_judge(tmp_path / "judge", lm=judge.lm)):
        r = j(context=["Z has a harbour."], answer="Z has a harbour and a tall tower.")
        assert [(s.text, s.is_supported) for s in r.statements] == [
            ("Z has a harbour.", True),
            ("Z has a tall tower.", False),
        ]


def test_where_only_answers_are_labelled_extraction_stays_as_it_was(chat_server):
    """There is nothing to learn it from; verification learns from the answers' sentences."""
    true = [
        parse_example({"context": [f"{c} has a harbour."], "answer": f"{c} has a harbour.", "faithful": True})
        for c in CITIES[:4]
    ]
    answers = [*true, *(answer(c, statements=False) for c in CITIES[4:])]
    found = compiled(chat_server(says=lm(lambda asked: True)), VARIANTS["statement-few-shot"], (answers, answers))
    assert found.result.program.extract.demos == []
    assert {d.statement for d in found.result.program.verify.predict.demos} <= {e.answer for e in answers}
    assert "extraction: as it was" in found.notes[0]


def test_word_share_by_hand():
    """Of kettle, blue and round two are in the other text; without content words nothing is missing."""
    assert word_share("The kettle is blue and round.", "A blue kettle.") == 1 - 1 / 3
    assert word_share("So it is.", "A blue kettle.") == 1.0
