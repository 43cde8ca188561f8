from __future__ import annotations

import pytest
from select_points import HALF, point

from faith_dspy.optimize.results import PredictionRow, StatementRow
from faith_dspy.optimize.select.cost import MARGIN, compare_costs, cost_sentences, difference, not_worse
from faith_dspy.optimize.select.modes import Candidate, cascades, with_own_context
from faith_dspy.schema import Usage
from faith_dspy.scoring.classifier import to_probability

LOGITS = (0.5, -1.0, 1.5, -2.0, 2.5, -3.0, 3.5, -4.0)
ONE = Usage(calls=1, prompt_tokens=100, cached_tokens=60, output_tokens=5, seconds=2.0)


def rows(probabilities, usage=None, labels=None, groups=None):
    """Answers judged so; faithful and unfaithful in turns, a group each."""
    labels = labels or [i % 2 == 0 for i in range(len(probabilities))]
    return [
        PredictionRow(
            id=str(i), group=groups[i] if groups else str(i), label=labels[i],
            predicted=None if p is None else p >= 0.5, probability=p, usage=usage or Usage(),
        )
        for i, p in enumerate(probabilities)
    ]  # fmt: skip


LEXICAL = rows([to_probability(z) for z in LOGITS])
LM = Candidate("sentence", rows([0.9, 0.1] * 4, ONE))


def test_the_lm_is_asked_where_lexical_features_are_least_sure():
    """A quarter of eight is two: the threshold's neighbours in log-odds, .5 and -1; the range ends half way to 1.5."""
    found = cascades(LM, LEXICAL, 0.5)
    assert [c.name for c in found] == [*(f"lexical, then sentence {n}%" for n in (75, 50, 25)), "lexical"]
    quarter = found[2]
    assert quarter.escalates_within == pytest.approx((to_probability(-1.25), to_probability(1.25)))
    assert [r.probability for r in quarter.rows] == [0.9, 0.1, *(r.probability for r in LEXICAL[2:])]
    assert [sum(r.usage.calls for r in c.rows) for c in found] == [6, 4, 2, 0]
    # Around a threshold of log-odds 3 the two nearest are 2.5 and 3.5.
    quarter = cascades(LM, LEXICAL, to_probability(3.0))[-2]
    assert [i for i, r in enumerate(quarter.rows) if r.usage.calls] == [4, 6]


def test_what_lexical_features_cannot_judge_is_asked_and_what_declines_stays_unscored():
    """An answer without a lexical probability is the LM's; one that declines is nobody's."""
    nothing = {"probability": None, "predicted": None}
    lexical = [*LEXICAL[:6], LEXICAL[6].model_copy(update=nothing), LEXICAL[7]]
    declined = LM.rows[7].model_copy(update={**nothing, "unscored": "abstained", "usage": Usage()})
    lm = Candidate("sentence", [*LM.rows[:7], declined])
    quarter, alone = cascades(lm, lexical, 0.5)[-2:]
    assert quarter.rows[6].usage.calls == 1
    assert (quarter.rows[7].predicted, alone.rows[7].unscored) == (None, "abstained")
    assert alone.rows[6].predicted is None
    assert cascades(lm, [lexical[6]] * 8, 0.5) == []


def test_who_is_left_has_to_read_the_context():
    """Of three answers over one context the first read 90 tokens, the others 30 each, 40 with a second statement.

    With the first left out the dearest call that is left reads 60 more; another context's answer stays as it is.
    """

    def answer(i: int, context: str, *cached: int) -> PredictionRow:
        each = [Usage(calls=1, prompt_tokens=100, cached_tokens=c) for c in cached]
        said = tuple(StatementRow(text="t", usage=u) for u in each)
        update = {"usage": sum(each, Usage()), "statements": said, "context": (context,)}
        return rows([0.5] * 4)[i].model_copy(update=update)

    full = [answer(0, "a", 10), answer(1, "a", 70, 90), answer(2, "a", 70), answer(3, "b", 20)]
    free = [r.model_copy(update={"usage": Usage(), "statements": ()}) for r in full]
    for rows_, computed in (
        (full, [90, 40, 30, 80]),
        ([free[0], *full[1:]], [0, 100, 30, 80]),
        ([*free[:2], full[2], free[3]], [0, 0, 90, 0]),
        (free, [0, 0, 0, 0]),
    ):
        assert [r.usage.computed_tokens for r in with_own_context(rows_, full)] == computed


def test_points_hold_agreement_and_cost_an_answer():
    """Asked about two of eight: a quarter of 40 computed tokens, of 5 written and of 2 seconds."""
    found = {p.name: p for p in compare_costs([LM, *cascades(LM, LEXICAL, 0.5)], "sentence")}
    quarter = found["lexical, then sentence 25%"]
    assert (quarter.n, quarter.lm_share, quarter.calls) == (8, 0.25, 0.25)
    assert (quarter.computed_tokens, quarter.output_tokens, quarter.seconds) == (10, 1.25, 0.5)
    assert quarter.cost == 13.75
    assert quarter.balanced_accuracy.value == 1.0
    assert found["sentence"].reference
    assert found["sentence"].difference.value == 0


def test_points_stand_by_their_cost_and_the_cheapest_that_is_not_worse_is_marked():
    """All modes judge alike, so lexical features alone are the cheapest; else the LM's quarter is."""
    same = compare_costs([LM, *cascades(LM, LEXICAL, 0.5)], "sentence")
    assert [p.lm_share for p in same] == [0, 0.25, 0.5, 0.75, 1]
    assert [p.name for p in same if p.cheapest] == ["lexical"]
    logits = [z for i in range(20) for z in (2.0 + i / 10, -2.0 - i / 10)]
    unsure = [(-0.1 - i / 1000) if i % 2 == 0 else (0.1 + i / 1000) for i in range(12)]  # each on the wrong side
    lexical = rows([to_probability(z) for z in [*logits, *unsure]])
    lm = Candidate("sentence", rows([0.9, 0.1] * 26, ONE))
    found = compare_costs([lm, *cascades(lm, lexical, 0.5)], "sentence")
    assert [p.name for p in found if p.cheapest] == ["lexical, then sentence 25%"]  # 13 of 52: all twelve, and one more
    alone = found[0]
    assert alone.difference.value == pytest.approx((40 / 52 - 1 + (20 * 20 + 2 * 20 * 6) / 26**2 - 1) / 2)
    assert alone.difference.high < -MARGIN
    assert not not_worse(alone.difference)


def test_a_variant_of_dev_alone_is_compared_on_dev():
    """Of eight and four answers the four are compared, by their ids."""
    other = Candidate("answer", LM.rows[:4])
    found = {p.name: p for p in compare_costs([LM, other], "sentence")}
    assert (found["answer"].n, found["answer"].difference.value) == (4, 0.0)


def test_too_few_labels_show_nothing():
    """One group, one label, nothing in common or nothing scored: no interval, so never not worse."""
    for one, other in (
        (rows([0.9, 0.8], labels=[True, True]), rows([0.9, 0.8], labels=[True, True])),
        (LM.rows[:2], LM.rows[2:4]),
        (rows([None, None]), LM.rows[:2]),
    ):
        found = difference(one, other)
        assert found.low is None
        assert found.why
    point = compare_costs([LM, Candidate("none", rows([None] * 8))], "sentence")[0]
    assert not not_worse(point.difference)


def test_resamples_are_of_whole_groups():
    """Where all answers of a label are one group most resamples miss a label."""
    groups = ["a" if i % 2 else "b" for i in range(8)]
    assert difference(rows([0.9, 0.1] * 4, groups=groups), rows([0.6, 0.6] * 4, groups=groups)).value == 0.5


def test_sentences_of_the_table():
    """What the champion asks, and what would be cheaper."""
    full = point("sentence", reference=True, exported=True)
    assert cost_sentences([full.model_copy(update={"cheapest": True})]) == (
        "Nothing cheaper is shown to lose less than 2 points to sentence.",
    )
    assert cost_sentences([HALF.model_copy(update={"cheapest": True}), full]) == (
        "The cheapest that is shown to lose less than 2 points to sentence: lexical, then sentence 50%, 50 "
        "computed tokens per answer instead of 100 (-0.4 points, 95 % interval -1.4 to +0.6); `tune --prefer cheapest` "
        "exports it.",
    )
    exported = [HALF.model_copy(update={"cheapest": True, "exported": True}), full]
    assert cost_sentences(exported) == (
        "The champion asks the LM about 50% of the answers, and of these about the weakest uncovered statement; "
        "lexical features settle the other 50%. Against asking about everything: -0.4 points, 95 % interval -1.4 to "
        "+0.6 in the mean of balanced accuracy and AUROC, cross-fitted on 200 answers.",
    )
