from itertools import permutations

import pytest

from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import OperatingPoint
from faith_dspy.optimize.results import Cost, costs
from faith_dspy.optimize.select.ask import Replies
from faith_dspy.optimize.select.candidates import Candidate
from faith_dspy.optimize.select.champion import choose, difference, not_inferior, score
from faith_dspy.schema import RawJudgment, Usage
from tests.support.results import rows

LABELS = [i % 2 == 0 for i in range(400)]


def judging(right, sure=0.8, labels=LABELS):
    """Probabilities that are right about so many answers, and as sure of all of them."""
    return [
        sure if label == (i < right) else 1 - sure for i, label in enumerate(labels)
    ]


def candidate(name, probabilities, tokens=0, labels=LABELS, evidence=None):
    """Of ``tokens`` an answer."""
    usage = Usage(calls=min(tokens, 1), prompt_tokens=tokens)
    fields = {"raw": RawJudgment(usage=usage), "evidence": evidence}
    answers = [a.model_copy(update=fields) for a in rows(probabilities, labels)]
    judge = Judge(NO_LM)
    replies = Replies(name, "", {}, judge, answers)
    return Candidate(name, "", replies, "features", judge, answers)


def champion(*candidates):
    return choose(candidates).champion.name


def test_the_score_by_hand():
    """Errors .1 and .3 of the faithful ones, .2 of the unfaithful: 1 - (mean of .01 and .09, and .04) / 2 at even odds;
    at three to one the same odds are .9, .7 and .2 again. What is unscored has an error of 1."""
    odds = [3 * p / (1 - p) for p in (0.9, 0.9, 0.9, 0.2)]
    shifted = [o / (1 + o) for o in odds]
    for probabilities, labels, expected in (
        ([0.9, 0.2, 0.7, 0.2], [True, False, True, False], 1 - (0.05 + 0.04) / 2),
        (shifted, [True, True, True, False], 1 - (0.01 + 0.04) / 2),
        ([0.9, None], [True, False], 1 - (0.01 + 1) / 2),
    ):
        assert score(rows(probabilities, labels)) == pytest.approx(expected)
    assert score(rows([0.9, 0.8], [True, True])) is None


def test_the_best_wins_whatever_it_costs_unless_a_cheaper_one_is_shown_not_to_be_worse():
    """Of 400 answers the LM is right about 360. Word overlap at 280 is worse; a cascade whose verdicts differ on six
    answers is not; with 24 answers nothing is shown, and the best wins."""
    lm, lexical = candidate("lm", judging(360), 100), candidate("lexical", judging(280))
    assert champion(lexical, lm) == "lm"
    nearly = candidate("cascade", judging(357, 0.75), 50)
    assert champion(lexical, nearly, lm) == "cascade"
    few = LABELS[:24]
    nearly = candidate("cascade", judging(22, labels=few), 50, few)
    assert champion(nearly, candidate("lm", judging(23, labels=few), 100, few)) == "lm"


def test_not_inferior_is_at_the_operating_point():
    """Two judges that are wrong about 8 of 400, one of which passes 8 unfaithful answers and the other fails 8 faithful
    ones: balanced, 0 points apart; where passing costs 20 times as much, (8 · 20 - 8) / (200 · 21) = 3.6."""
    right = [0.9 if label else 0.1 for label in LABELS]
    passes = rows([0.9] * 16 + right[16:], LABELS)
    fails = rows([0.1] * 16 + right[16:], LABELS)
    assert not_inferior(passes, fails)
    assert not not_inferior(passes, fails, OperatingPoint("cost", 20))
    assert not_inferior(fails, passes, OperatingPoint("cost", 20))


def test_money_orders_judges_where_every_lm_has_a_price_else_tokens():
    """100 tokens of a dear LM cost more than 300 of a cheap one."""

    def cost(tokens, price):
        usage = Usage(calls=1, prompt_tokens=tokens)
        return Cost(usage=usage, judged=1, lm_share=float(tokens > 0), price=price)

    free = cost(0, None)
    assert costs([cost(100, 0.004), cost(300, 0.0005), free]) == [0.004, 0.0005, 0.0]
    assert costs([cost(100, 0.004), cost(300, None), free]) == [100, 300, 0.0]


def test_candidates_are_compared_on_the_answers_both_may_be_measured_on():
    """However badly the other did elsewhere."""
    labels = LABELS[:40]
    whole = rows(judging(30, labels=labels), labels)
    assert difference(whole[:30], whole).value == pytest.approx(0)
    assert difference(whole[:30], whole[30:]).why == "no answer was judged by both"


def test_the_order_of_candidates_decides_nothing():
    """Two that cover different halves beside two that cover all: whoever stands first, one is chosen, by one order."""
    labels = LABELS[:80]
    several = []
    for name, right, covered in (
        ("all", 60, slice(80)),
        ("all, dearer", 62, slice(80)),
        ("first", 61, slice(40)),
        ("last", 61, slice(40, 80)),
    ):
        one = candidate(name, judging(right, labels=labels), right, labels)
        several.append(one._replace(answers=one.answers[covered]))
    first, *others = map(choose, permutations(several))
    for other in others:
        assert other.champion.name == first.champion.name
        assert other.scores == pytest.approx(first.scores)


def test_not_inferior_needs_ten_sources_of_the_rarer_label():
    """The same verdicts, from 20 answers of which nine or ten are unfaithful."""
    for unfaithful, shown in ((9, False), (10, True)):
        labels = [i >= unfaithful for i in range(20)]
        some = rows(judging(19, labels=labels), labels)
        assert not_inferior(some, some) is shown


def test_chunk_ids_decide_between_judges_with_equal_verdicts():
    """It names ten chunks an answer, of ten that people name; nine or five are the same. Errors .04 each: 1 - .04 = .96
    by verdicts, with a fifth for ids .8 · .96 + .2 · .5. Whoever loses verdicts does not win by ids."""
    good = candidate("good", judging(360), 100, evidence=(9, 10, 10))
    bad = candidate("bad", judging(360), 100, evidence=(5, 10, 10))
    sure = candidate("all", judging(400), 100, evidence=(5, 10, 10))
    assert score(sure.answers, 0.2) == pytest.approx(0.8 * 0.96 + 0.2 * 0.5)
    assert score(sure.answers) == pytest.approx(0.96)
    assert champion(bad, good) == "good"
    ids = candidate("ids", judging(340), 100, evidence=(10, 10, 10))
    assert champion(sure, ids) == "all"
