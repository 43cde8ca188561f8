from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from select_points import HALF, point
from test_escalation import CLEAR, OPEN, WORDS
from test_study import Quiet, Record, knowing

from faith_dspy import Judge, load_judge
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.classifier.fitting import FittedClassifier
from faith_dspy.optimize.options import Options
from faith_dspy.optimize.select.cost import choose_mode, cost_table
from faith_dspy.optimize.select.evaluate import JudgedExample, judged_rows, verify, without_lm
from faith_dspy.optimize.select.modes import Modes, Replies, as_judged_by, ask_weakest, build_judge, fit_modes
from faith_dspy.optimize.study import run
from faith_dspy.schema import Chunk, LabelledExample

if TYPE_CHECKING:
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.scoring.classifier import Classifier

FULL = point("sentence", reference=True)
WEAKEST = point("sentence, weakest", value=-0.004, computed_tokens=60.0, cheaper_mode=True, ask_about="weakest")
QUARTER = point(
    "lexical, then sentence 25%",
    value=-0.015,
    lm_share=0.25,
    computed_tokens=25.0,
    cheaper_mode=True,
    escalates_within=(0.4, 0.6),
)
ALONE = point(
    "lexical",
    value=-0.005,
    lm_share=0.0,
    calls=0.0,
    computed_tokens=0.0,
    output_tokens=0.0,
    cheaper_mode=True,
    escalates_within=(0.5, 0.5),
)
MANY = [True] * 50 + [False] * 50


def modes(every: Classifier | None = None, weakest: Classifier | None = None) -> Modes:
    """With these classifiers, and the lexical one."""
    return Modes(
        *(Replies((), FittedClassifier(c, [], [], "answers", (1.0, 1.0), None)) for c in (every, weakest, WORDS))
    )


def chosen(points: Any, known: Any = MANY, prefer: str = "agreement") -> str:
    """Name of the mode that is exported."""
    return choose_mode(points, known, prefer).name


def test_lexical_features_come_first_where_that_is_as_good():
    """Half is within one standard error, .005; a quarter is not; lexical features alone take no LM's place."""
    assert chosen([ALONE, QUARTER, HALF, FULL]) == HALF.name
    assert chosen([ALONE, QUARTER, FULL]) == FULL.name
    assert chosen([ALONE, QUARTER, WEAKEST, FULL]) == WEAKEST.name
    better = point("sentence, weakest", value=0.002, computed_tokens=60.0, cheaper_mode=True, ask_about="weakest")
    assert chosen([ALONE, HALF, better, FULL]) == better.name  # half is .006 below the best


def test_few_labels_change_nothing():
    """With 49 unfaithful answers, or none, the LM is asked about all; whatever else the study shows."""
    assert chosen([ALONE, HALF, FULL], [True] * 200 + [False] * 49) == FULL.name
    assert chosen([ALONE, HALF, FULL], []) == FULL.name


def test_who_prefers_the_cheapest_gets_it():
    """Lexical features alone, where they are not shown to be worse; another variant is not among the modes."""
    assert chosen([ALONE, QUARTER, HALF, FULL], [], "cheapest") == ALONE.name
    worse = ALONE.model_copy(update={"difference": ALONE.difference.model_copy(update={"low": -0.03})})
    other = point("answer", computed_tokens=1.0)
    assert chosen([worse, other, HALF, FULL], [], "cheapest") == HALF.name
    assert chosen([worse, other, FULL], [], "cheapest") == FULL.name


def example(answer: str) -> LabelledExample:
    """It, faithful, over the kettle."""
    return LabelledExample(id=answer, context=(Chunk(id=0, text="The kettle is blue."),), answer=answer, faithful=True)


def untimed(row: PredictionRow) -> PredictionRow:
    """The row without seconds and dollars: a reply from the cache takes none."""
    usage = row.usage.model_copy(update={"seconds": 0.0, "dollars": None})
    statements = tuple(s.model_copy(update={"usage": None}) for s in row.statements)
    return row.model_copy(update={"usage": usage, "statements": statements})


def test_a_judge_built_for_a_mode_judges_as_the_mode_did(judge_at):
    """What it would have seen, from replies already paid for, is what it then sees; the options of policy are kept."""
    judge, server = judge_at(yes={CLEAR: 0.9, OPEN: 0.9}, abstention=0.0, reasoning="none")
    seen = verify(judge, [example(CLEAR), example(OPEN)])
    first = build_judge(
        judge, point("w", lm_share=0.5, cheaper_mode=True, escalates_within=(0.2, 0.8), ask_about="weakest"), modes()
    )
    assert (first.classifier.review_range, first.config.abstention) == ((0.2, 0.8), 0.0)
    assert (first.escalate_to.program, first.escalate_to.config.ask_about) == (judge.program, "weakest")
    asked = len(server.requests)
    expected = [as_judged_by(first, o).raw_judgment for o in seen]
    assert len(server.requests) == asked
    assert [o.escalated is not None for o in expected] == [
        answer == OPEN for answer in (o.example.answer for o in seen)
    ]
    again = verify(first, [example(CLEAR), example(OPEN)])
    rows = judged_rows(again, first)
    would = judged_rows([e._replace(raw_judgment=r) for e, r in zip(seen, expected, strict=True)], first)
    assert [untimed(r) for r in rows] == [untimed(r) for r in would]
    assert {r.answer: r.usage.calls for r in rows} == {CLEAR: 0, OPEN: 1}
    assert None not in [r.probability for r in rows]
    full = build_judge(judge, FULL, modes(every=WORDS))
    assert (full.program, full.config, full.classifier) == (judge.program, judge.config, WORDS)
    weakest = build_judge(judge, WEAKEST, modes(weakest=WORDS))
    assert (weakest.program, weakest.config.ask_about, weakest.classifier) == (judge.program, "weakest", WORDS)
    alone = build_judge(judge, ALONE, modes())
    assert (alone.lm_name, alone.escalate_to, alone.classifier) == ("none", None, WORDS)
    assert as_judged_by(alone, seen[0]).raw_judgment == without_lm([seen[0].example])[0].raw_judgment
    early = JudgedExample(example("x"), seen[0].raw_judgment, None)
    assert as_judged_by(judge, early) is early


def test_what_would_have_been_seen_of_the_weakest_statement_only(judge_at):
    """Of two with something new the one with more new words; the judge with that option sees the same."""
    answer = "The kettle is blue. The kettle is red. Seven dragons guard the kettle in Rome."
    judge, server = judge_at(says="No")
    (seen,) = verify(judge, [example(answer)])
    found = ask_weakest(seen).raw_judgment
    assert [f.verdict.is_supported for f in found.raw_verdicts] == [True, True, False]
    assert [f.probability is None for f in found.raw_verdicts] == [False, True, False]
    assert (found.usage.calls, found.usage.computed_tokens) == (1, 40)
    mode = point("w", lm_share=0.9, cheaper_mode=True, ask_about="weakest")
    weakest = build_judge(judge, mode, modes(weakest=WORDS))
    assert (weakest.config.ask_about, weakest.classifier, len(server.requests)) == ("weakest", WORDS, 3)
    again = verify(weakest, [example(answer)])[0].raw_judgment
    assert [v.verdict for v in again.raw_verdicts] == [v.verdict for v in found.raw_verdicts]
    assert [v.probability for v in again.raw_verdicts] == [v.probability for v in found.raw_verdicts]


def study(many, server, out, **more):
    """Whole answer and sentences on all labels."""
    return run(
        many,
        Options(lm="openai/tiny", api_base=server.base, budget="thorough", variants=("sentence",), out=out, **more),
        Quiet(),
        tracker=Record,
    )


@pytest.mark.parametrize(
    ("options", "asked_about"),
    [({}, {"all", "weakest"}), ({"ask_about": "weakest"}, {"weakest"}), ({"verification": "joint"}, {"all"})],
)
def test_modes_ask_about_no_more_than_the_variant(many, chat_server, options, asked_about):
    """A variant of the weakest has no mode that asks about more; one joint reply says nothing of a single statement."""
    server = chat_server(says=knowing)
    judge = Judge("openai/tiny", api_base=server.base, granularity="sentence", **options)
    found = cost_table("v", judge.config, fit_modes(verify(judge, read_labels(many)[:54]), 0), [])
    assert {p.ask_about for p in found if p.cheaper_mode} == asked_about
    assert [p.ask_about for p in found if p.reference] == [judge.config.ask_about]


def test_a_study_exports_a_cascade_where_it_is_as_good(many, chat_server, tmp_path):
    """The table has a row per mode; the exported judge asks on test only where features are unsure, and loads."""
    server = chat_server(says=knowing)
    result = study(many, server, tmp_path / "j")
    assert [p.lm_share for p in result.costs if p.escalates_within is not None].count(0.0) == 1
    assert [p.computed_tokens for p in result.costs] == sorted(p.computed_tokens for p in result.costs)
    exported = next(p for p in result.costs if p.exported)
    assert 0 < exported.lm_share < 1
    assert sum(p.cheapest for p in result.costs) == sum(p.reference for p in result.costs) == 1
    judge = load_judge(tmp_path / "j", api_base=server.base, lm="openai/tiny")
    assert [j.asks_lm for j in judge.chain] == [False, True]
    assert {r["raw_judgment"]["escalated"] is None for r in judge.manifest["reference"]} == {True, False}
    tested = result.tested("champion")
    assert tested.agreement.n == 54
    assert tested.usage.calls < 54
    assert result.tested("untuned").usage.calls == 54
    card = (tmp_path / "j" / "CARD.md").read_text()
    assert "## Cost and quality" in card
    assert f"The champion asks the LM about {exported.lm_share:.0%}" in card
    with metered() as meter:
        for row in tested.predictions[:12]:
            found = judge(row.question, row.context, row.answer)
            assert (found.faithful, found.probability) == (row.predicted, pytest.approx(row.probability))
            assert (found.usage + found.replayed).calls == row.usage.calls
    assert meter.replayed == meter.usage.calls  # the test paid for them


def test_a_study_that_prefers_the_cheapest_exports_lexical_features_alone(many, chat_server, tmp_path):
    """Nothing with an LM is better here: the judge makes no call on test, and says so."""
    server = chat_server(says=knowing)
    result = study(many, server, tmp_path / "j", prefer="cheapest")
    assert next(p for p in result.costs if p.exported).name == "lexical"
    assert result.tested("champion").usage.calls == 0
    judge = load_judge(tmp_path / "j")
    assert judge.lms == []
    card = (tmp_path / "j" / "CARD.md").read_text()
    assert "no LM is asked" in card
    assert "The champion asks no LM." in card
