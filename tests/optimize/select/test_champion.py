import pytest

from faith_dspy.optimize.results import costs
from faith_dspy.optimize.select.candidates import Candidate
from faith_dspy.optimize.select.champion import choose, difference, not_inferior, score
from faith_dspy.schema import Usage
from tests.support.results import judge as measured
from tests.support.results import rows

LABELS = [i % 2 == 0 for i in range(400)]


def judging(right, sure=0.8, labels=LABELS):
    """Probabilities that are right about so many answers, and as sure of all of them."""
    return [
        sure if label == (i < right) else 1 - sure for i, label in enumerate(labels)
    ]


def candidate(name, probabilities, tokens=0, price=None, labels=LABELS):
    """Of ``tokens`` an answer, or of that price."""
    n = len(labels)
    usage = Usage(calls=n if tokens or price else 0, prompt_tokens=n * tokens)
    asked = 1.0 if tokens or price else 0.0
    result = measured(
        name, rows(probabilities, labels), usage=usage, lm_share=asked, price=price
    )
    return Candidate(result, None, None, "features")


def names(*candidates, prefer="agreement"):
    return choose(candidates, prefer).champion.result.name


def test_the_score_by_hand():
    """Errors .1 and .3 of the faithful ones, .2 of the unfaithful: 1 - (mean of .01 and .09, and .04) / 2 at even odds;
    at three to one the same odds are .9, .7 and .2 again. What is unscored has an error of 1."""
    assert score(
        rows([0.9, 0.2, 0.7, 0.2], [True, False, True, False])
    ) == pytest.approx(1 - (0.05 + 0.04) / 2)
    odds = [3 * p / (1 - p) for p in (0.9, 0.9, 0.9, 0.2)]
    shifted = rows([o / (1 + o) for o in odds], [True, True, True, False])
    assert score(shifted) == pytest.approx(1 - (0.01 + 0.04) / 2)
    assert score(rows([0.9, None], [True, False])) == pytest.approx(1 - (0.01 + 1) / 2)
    assert score(rows([0.9, 0.8], [True, True])) is None


def test_the_best_wins_whatever_it_costs_unless_a_cheaper_one_is_shown_not_to_be_worse():
    """Of 400 answers the LM is right about 360. Word overlap at 280 is worse; a cascade whose verdicts differ on six
    answers is not; with 24 answers nothing is shown, and the best wins."""
    lm, lexical = candidate("lm", judging(360), 100), candidate("lexical", judging(280))
    assert names(lexical, lm) == "lm"
    nearly = candidate("cascade", judging(357, 0.75), 50)
    assert names(lexical, nearly, lm) == "cascade"
    few = LABELS[:24]
    assert names(
        candidate("cascade", judging(22, labels=few), 50, labels=few),
        candidate("lm", judging(23, labels=few), 100, labels=few),
    ) == "lm"  # fmt: skip


def test_whoever_prefers_the_cheapest_takes_one_within_a_standard_error():
    labels = LABELS[:60]
    cheap = candidate("cheap", judging(50, labels=labels), 10, labels=labels)
    dear = candidate("dear", judging(51, labels=labels), 100, labels=labels)
    poor = candidate("poor", judging(30, labels=labels), 1, labels=labels)
    assert names(poor, cheap, dear) == "dear"
    choice = choose([poor, cheap, dear], "cheapest")
    assert choice.champion is cheap
    assert "within one standard error of dear" in choice.reason
    assert [r.behind is None for r in choice.compared] == [False, False, True]


def test_money_orders_judges_where_every_lm_has_a_price_else_tokens():
    """100 tokens of a dear LM cost more than 300 of a cheap one."""
    dear = candidate("dear", judging(40), 100, price=0.004).result
    cheap = candidate("cheap", judging(40), 300, price=0.0005).result
    free = candidate("free", judging(40)).result
    assert costs([dear, cheap, free]) == [0.004, 0.0005, 0.0]
    unpriced = cheap.model_copy(update={"price": None})
    assert costs([dear, unpriced, free]) == [100, 300, 0.0]


def test_candidates_are_compared_on_the_answers_both_may_be_measured_on():
    """What a prompt has learned from is left out of its rows, however badly the other did there."""
    labels = LABELS[:40]
    whole = rows(judging(30, labels=labels), labels)
    part = rows(judging(30, labels=labels), labels)[:30]
    assert difference(part, whole).value == pytest.approx(0)
    assert (
        difference(part, rows(judging(0, labels=labels), labels)[30:]).why
        == "no answer was judged by both"
    )


def test_not_inferior_needs_ten_sources_of_the_rarer_label():
    """The same verdicts, from 20 answers of which nine or ten are unfaithful."""
    for unfaithful, shown in ((9, False), (10, True)):
        labels = [i >= unfaithful for i in range(20)]
        some = rows(judging(19, labels=labels), labels)
        assert not_inferior(some, some) is shown


def citing(name, probabilities, f1, labels=LABELS):
    """It names ten chunks an answer, of ten that people name; so many of them are the same."""
    one = candidate(name, probabilities, 100, labels=labels)
    both = (int(10 * f1), 10, 10)
    with_ids = tuple(r.model_copy(update={"evidence": both}) for r in one.result.rows)
    return one._replace(result=one.result.model_copy(update={"rows": with_ids}))


def test_chunk_ids_decide_between_judges_with_equal_verdicts():
    """Errors .04 each: 1 - .04 = .96 by verdicts; with a fifth for ids .8 · .96 + .2 · .5. Whoever loses verdicts does
    not win by ids; where ids have no weight they decide nothing."""
    good, bad = citing("good", judging(360), 0.9), citing("bad", judging(360), 0.5)
    sure = citing("all", judging(400), 0.5)
    assert score(sure.result.rows) == pytest.approx(0.8 * 0.96 + 0.2 * 0.5)
    assert score(sure.result.rows, 0.0) == pytest.approx(0.96)
    assert names(bad, good) == "good"
    assert names(sure, citing("ids", judging(300), 1.0)) == "all"
    tie = choose([bad, good], "agreement", 0.0)
    assert tie.champion.result.name == "bad"
