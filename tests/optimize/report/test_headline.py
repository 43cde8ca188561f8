import re

import pytest

from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.report.headline import (
    Headline,
    price_of,
    shortfalls,
    three_lines,
)
from faith_dspy.optimize.results import (
    CHEAPER,
    LEXICAL,
    UNTUNED,
    Comparison,
    Cost,
    Difference,
)
from faith_dspy.optimize.select.candidates import cost_of
from faith_dspy.schema import Usage
from tests.support.results import agreement, judge, measured, rows, study

HALF = [True] * 20 + [False] * 20


def right(n, unfaithful=None):
    """A judge that is right about n of twenty answers of either label, or about another number of the unfaithful."""
    m = n if unfaithful is None else unfaithful
    return rows([0.9] * n + [0.1] * (20 - n) + [0.1] * m + [0.9] * (20 - m), HALF)


def compared(verdict, value=0.1):
    """A difference of so much, with an interval of ±.05."""
    d = Difference(value=value, low=value - 0.05, high=value + 0.05)
    fields = {"n": 40, "sources": 40, "balanced_accuracy": d}
    return Comparison(**fields, verdict=verdict, sentence="")


BETTER = {name: compared("better") for name in CHEAPER}
GOOD = Headline(
    agreement(right(18, unfaithful=17)),
    BETTER,
    "judges/mine",
    measured_by="cross-validated",
    price="$0.40 for 1,000 answers",
)


def lines(**changes):
    """The three lines of a judge that is good, unless something is changed."""
    return three_lines(GOOD._replace(**changes)).notes


def test_agreement_is_said_in_plain_counts():
    """17 of 20 caught and 18 of 20 passed: (.85 + .90) / 2. What is unscored is counted apart."""
    assert re.fullmatch(
        r"Agreement with people: of 20 answers labelled unfaithful it catches 17; of 20 labelled faithful it passes 18 "
        r"\(balanced accuracy \.88 \[\.\d\d, \.\d\d\], cross-validated over 40 sources; chance is \.50\)\.",
        lines()[0],
    )
    unscored = agreement([*right(20), *rows([None], [True], "b")])
    by_both = lines(agreement=unscored, labelled_by={"ann": 30, "model: ours": 10})[0]
    assert by_both.startswith("Agreement with partly model-made labels: of")
    assert "it passes 20; 1 more unscored (balanced" in by_both


def test_the_gain_is_over_what_is_cheaper():
    """A difference whose interval holds 0 is inconclusive; where a judge meets other answers, only the comparison with
    words was made there."""
    over = "+10.0 [+5.0, +15.0] over the"
    mixed = {UNTUNED: compared("inconclusive"), LEXICAL: compared("worse", -0.1)}
    assert lines(comparisons=mixed)[1] == (
        "Gain: in points, -10.0 [-15.0, -5.0] over the lexical baseline (no LM), worse; "
        f"{over} untuned judge, inconclusive."
    )
    own = {LEXICAL: compared("better"), UNTUNED: compared("better")}
    assert lines(comparisons=own, on_others={UNTUNED})[1] == (
        f"Gain: in points, {over} lexical baseline (no LM). In its study {over} untuned judge."
    )
    assert "comes from no study" in lines(comparisons={})[1]


ON_ONE_LABEL = agreement(rows([0.9] * 40, [True] * 40))
NOTHING_SCORED = agreement(rows([None] * 40, HALF))
USE = "use it ($0.40 for 1,000 answers): faith-dspy judge ANSWERS.jsonl --judge judges/mine."
CHOSEN = (
    "It is chosen by its probabilities, which tell more than verdicts do; in verdicts "
    "the lexical baseline (no LM), free,"
)


FEW = []
for i in range(60):  # all but four judged rightly, over five sources
    p = 0.9 if (i % 2 == 0) is (i > 3) else 0.1
    FEW += rows([p], [i % 2 == 0], f"{i}-", group=str(i // 2 % 5))


def lexical(lead):
    """A lead over words that may be luck."""
    return {"comparisons": {LEXICAL: compared("inconclusive", lead)}}


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, USE),
        (lexical(0.03), f"{USE} Its lead over the lexical baseline (no LM), free, is inconclusive."),
        (lexical(-0.03), f"{USE} {CHOSEN} is 3.0 points ahead on these answers, inconclusive."),
        (lexical(0.0), f"{USE} {CHOSEN} agrees as often."),
        (
            {"agreement": agreement(FEW)},
            f"{USE} Inconclusive: it takes 10 sources of each label to decide anything; label over more.",
        ),
        (
            {"agreement": agreement(right(11))},
            f"{USE} Inconclusive: it is not significantly better than chance; label more answers.",
        ),
        (
            {"agreement": agreement(right(8))},
            "label more answers like these and tune on them; until then do not use it.",
        ),
        (
            {"agreement": agreement(right(0, unfaithful=20))},
            "it fails every answer: ask for another operating point, or label more answers.",
        ),
        (
            {"agreement": agreement(right(20, unfaithful=0))},
            "it passes every answer: ask for another operating point, or label more answers.",
        ),
        ({"agreement": ON_ONE_LABEL}, "label more answers of both kinds, over more contexts."),
        (
            {"agreement": NOTHING_SCORED},
            "fix what kept the answers from being scored, then measure again.",
        ),
        (
            {"seen": 40},
            "label other answers to measure it on: 40 of 40 answers had a part in the study that tuned this judge.",
        ),
        (
            {"comparisons": {}, "judge": ""},
            "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl",
        ),
    ],
)  # fmt: skip
def test_the_next_step_follows_from_the_figures_and_recommends_nothing_else(
    changes, step
):
    assert lines(**changes)[2] == f"Next: {step}"


READ = Usage(calls=1, prompt_tokens=95, cached_tokens=50, output_tokens=5)


@pytest.mark.parametrize(
    ("usage", "cost", "price"),
    [
        (READ, {"lm_share": 0.0}, "free"),
        (
            READ,
            {"lm_share": 0.5, "price": 0.0004},
            "$0.40 for 1,000 answers, 50% of them decided without the LM",
        ),
        (READ, {"lm_share": 1.0}, "60 tokens an answer"),
        (Usage(calls=1, seconds=0.05), {"lm_share": 1.0}, "0.05 s an answer"),
    ],
)
def test_what_an_answer_costs(usage, cost, price):
    """Dollars where there is a price, else computed prompt tokens and three times the completion tokens: 45 + 3 · 5; of
    a function, seconds."""
    assert price_of(Cost(usage=usage, judged=1, **cost)) == price


def test_an_exported_cascade_is_not_free():
    """Its first judge asks no LM, the one it escalates to does."""
    cascade = Judge(NO_LM).copy(escalate_to=Judge("openai/tiny", classifier=None))
    half = [Usage(calls=1, prompt_tokens=300), Usage()]
    price = "150 tokens an answer, 50% of them decided without the LM"
    assert price_of(cost_of(half, cascade)) == price


def test_what_a_required_gain_lacks():
    """Better than untuned is not enough: chance and what is free must be beaten, too, unless the champion is free."""
    assert shortfalls(study(right(20), right(0))) == []
    untuned, lexical = judge("untuned", right(0)), judge("lexical-baseline", right(20))
    lm, free = (
        measured(judge("champion", right(20), lm_share=share), untuned, lexical)
        for share in (1.0, 0.0)
    )
    (short,) = shortfalls(study(right(20), cv=lm))
    assert short.startswith("the champion against lexical-baseline: inconclusive")
    assert shortfalls(study(right(20), cv=free)) == []
    chance, *_ = shortfalls(study(right(8)))
    assert "not significantly better than chance: .40" in chance
