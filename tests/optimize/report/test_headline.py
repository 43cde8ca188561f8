import re

import pytest

from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.report.headline import (
    Measured,
    not_shown,
    notes_of,
    shortfalls,
    three_lines,
)
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHEAPER,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    Difference,
)
from tests.support.documents import README, blocks
from tests.support.results import agreement, judge, rows, study

HALF = [True] * 20 + [False] * 20


def right(n):
    """A judge that is right about n of twenty answers of either label."""
    return rows([0.9] * n + [0.1] * (20 - n) + [0.1] * n + [0.9] * (20 - n), HALF)


def compared(verdict, value=0.1, more=None, sources=None):
    """A difference of so much, with an interval of ±.05."""
    d = Difference(value=value, low=value - 0.05, high=value + 0.05)
    fields = {
        "n": 40,
        "sources": 40,
        "balanced_accuracy": d,
        "auroc": d,
        "verdict": verdict,
        "sentence": "",
    }
    return Comparison(**fields, more_labels=more, more_sources=sources)


BETTER = {name: compared("better") for name in (*CHEAPER, LENGTH)}
PRICES = {
    "champion": "$0.40 for 1,000 answers",
    **dict.fromkeys(CHEAPER, "$0.30 for 1,000 answers"),
    LEXICAL: "free",
}


def told(**changes):
    """The three lines of a judge that is good, unless something is changed."""
    measured = Measured(agreement(right(18)), BETTER, "judges/mine", prices=PRICES)
    return three_lines(measured._replace(**changes)).notes


def test_three_lines_say_how_far_what_was_gained_and_what_next():
    """Agreement with interval and n, the gain over what it is compared with, and the command to use it. A difference
    whose interval holds 0 is inconclusive."""
    agrees, gained, next_ = told(chosen=" Chosen on 80 answers over 30 sources.")
    assert re.fullmatch(
        r"Agreement: balanced accuracy \.90 \[\.\d\d, (\.\d\d|1\.00)\] on 40 test answers over 40 sources"
        r" \(chance is \.50\)\. Few answers: read the interval, not the figure\."
        r" Chosen on 80 answers over 30 sources\.",
        agrees,
    )
    over = "+10.0 [+5.0, +15.0] over"
    assert gained == (
        f"Gain: in points, {over} the LM calibrated; {over} the lexical baseline (no LM); {over} the untuned judge."
    )
    assert (
        next_
        == "Next: use it ($0.40 for 1,000 answers): faith-dspy judge ANSWERS.jsonl --judge judges/mine"
    )
    gained = told(
        comparisons={
            UNTUNED: compared("inconclusive"),
            LEXICAL: compared("worse", -0.1),
        }
    )[1]
    assert "over the untuned judge, inconclusive." in gained
    assert "(no LM), worse;" in gained
    by_sign = compared("inconclusive").model_copy(update={"p_value": 0.07})
    assert (
        "over the untuned judge, inconclusive by permutation (p = .07)."
        in told(comparisons={UNTUNED: by_sign})[1]
    )
    assert "not tuned" in told(comparisons={})[1]


ON_ONE_LABEL = agreement(rows([0.9] * 40, [True] * 40))
NOTHING_SCORED = ON_ONE_LABEL.model_copy(update={"scored": 0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # Whoever is ahead of the champion and costs no more is to be taken, shown or not.
        (
            {UNTUNED: compared("worse", -0.1)},
            "take the untuned judge, $0.30 for 1,000 answers, 10.0 points ahead of this judge ($0.40 for 1,000 "
            "answers) on these test answers: Judge(lm, granularity='answer', classifier=None).",
        ),
        (
            {LEXICAL: compared("inconclusive", -0.087, 30, 12)},
            "take the lexical baseline (no LM), free, 8.7 points ahead of this judge ($0.40 for 1,000 answers) on "
            'these test answers: Judge("none").fit(labels). '
            "Inconclusive: about 30 more answers over about 10 more contexts would decide a difference of 8.7 points.",
        ),
        (
            {CALIBRATED: compared("inconclusive", -0.01)},
            "take the LM calibrated, $0.30 for 1,000 answers, 1.0 points ahead of this judge ($0.40 for 1,000 answers) "
            'on these test answers: Judge(lm).fit(labels, "lm"). Inconclusive.',
        ),
        # A lead over what is free that may be luck: both are named with their price.
        (
            {LEXICAL: compared("inconclusive", 0.03, 200, 90)},
            "use it ($0.40 for 1,000 answers): faith-dspy judge ANSWERS.jsonl --judge judges/mine; or the lexical "
            'baseline (no LM), free: Judge("none").fit(labels). Inconclusive: about 200 more answers over about 90 ',
        ),
        (
            {LENGTH: compared("inconclusive", -0.02)},
            "label more answers, to tune and to test: counting words agrees",
        ),
    ],
)
def test_the_advice_never_speaks_against_the_figures(changes, said):
    assert told(comparisons=BETTER | changes)[2].startswith(f"Next: {said}")


def test_a_judge_that_costs_more_is_no_rival():
    """The champion without an LM is behind an LM: it stays, for what is ahead is not free."""
    figures = BETTER | {CALIBRATED: compared("inconclusive", -0.02)}
    found = told(
        comparisons=figures, prices={"champion": "free", LEXICAL: "free"}, asks_lm=False
    )[2]
    assert found.startswith(
        "Next: use it (free), your labels need no LM: faith-dspy judge"
    )


def by_source(sources):
    """Sixty answers, all but four judged rightly, over so many sources, either label in each."""
    labels = [True, False] * 30
    found = [
        rows([0.9 if y is (i > 3) else 0.1], [y], f"{i}-", group=str(i // 2 % sources))
        for i, y in enumerate(labels)
    ]
    return tuple(a for one in found for a in one)


BEHIND = BETTER | {LEXICAL: compared("inconclusive", -0.117)}
BY_LUCK = BETTER | {LEXICAL: compared("inconclusive", 0.03)}
TAKE = "take the lexical baseline (no LM), free, 11.7 points ahead of this judge ($0.40 for"
BETWEEN = (
    "Until then choose between this judge ($0.40 for 1,000 answers) and the lexical baseline (no LM), free: "
    'Judge("none").fit(labels).'
)


@pytest.mark.parametrize(
    ("found", "comparisons", "said"),
    [
        # .55 and .40 on twenty sources of each label, and .93 on five: behind what is free, it is never kept.
        (right(11), BEHIND, TAKE),
        (right(8), BEHIND, TAKE),
        # Unless what is free is no better than chance, either: .35 + .117.
        (right(7), BEHIND, "label more answers like these and tune on them"),
        # A lead that may be luck leaves the choice, with both prices.
        (right(11), BY_LUCK, BETWEEN),
        (right(11), BETTER, "it is not significantly better than chance."),
    ],
)
def test_a_deficit_or_a_lucky_lead_on_few_answers(found, comparisons, said):
    assert said in told(agreement=agreement(found), comparisons=comparisons)[2]


def test_five_sources_decide_nothing():
    few = agreement(by_source(5))
    assert told(agreement=few, comparisons=BEHIND)[2].startswith(f"Next: {TAKE}")
    line = told(agreement=few, comparisons=BY_LUCK)[2]
    assert line.startswith(
        "Next: label answers over more sources to test on: it takes 10 sources of each label to decide."
    )
    assert line.endswith(BETWEEN)


def test_a_judge_on_other_answers_is_compared_in_its_study():
    """What is ahead was ahead there; a judge that is worse than chance here is not used at all."""
    lines = told(comparisons=BEHIND, in_its_study=True)
    assert lines[1].startswith("Gain: in its study in points, ")
    assert "ahead of this judge ($0.40 for 1,000 answers) in its study: " in lines[2]
    poor = told(comparisons=BEHIND, in_its_study=True, agreement=agreement(right(8)))
    assert poor[2].endswith("until then do not use it.")


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        (None, None),
        (1, "No other study has opened this testset."),
        (3, "3 studies have opened this testset, this one included: "),
    ],
)
def test_how_often_the_testset_was_opened_is_said(opened, said):
    notes = notes_of(study(right(18), opened=opened), "it is the best", BALANCED)
    assert notes[0] == "Chosen on 0 answers over 0 sources: it is the best."
    assert [note for note in notes if "testset" in note] == [
        note for note in notes if said and note.startswith(said)
    ]
    assert ("testset" in " ".join(notes)) is (said is not None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"comparisons": {}},
            "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl",
        ),
        (
            {"seen": 40},
            "label other answers to measure it on: 40 of 40 answers had a part in the study",
        ),
        ({"agreement": ON_ONE_LABEL}, "label more answers of both kinds"),
        ({"agreement": NOTHING_SCORED}, "fix what kept the answers from being scored"),
        (
            {"agreement": agreement(right(8))},
            "label more answers like these and tune on them; until then do not use",
        ),
        # .55 ± .171, with t of the rarer label's 20 sources: 40 · ((.171 / .05)² − 1) = 428
        (
            {"agreement": agreement(right(11))},
            "label about 430 more answers to test on: it is not significantly better than",
        ),
    ],
)
def test_the_next_step_follows_from_what_is_shown(changes, said):
    assert told(**changes)[2].startswith(f"Next: {said}")


@pytest.mark.parametrize(
    ("champion", "untuned", "said"),
    [
        (right(8), right(0), "not significantly better than chance"),
        (right(18), right(18), "not significantly better than its own untuned judge"),
        (right(18), right(0), ""),
        (right(20), right(0), ""),
        (
            by_source(9),
            by_source(9),
            "not significantly better than chance",
        ),  # whatever its interval
        (
            by_source(10),
            by_source(10),
            "not significantly better than its own untuned judge",
        ),
    ],
)
def test_what_a_champion_is_not_shown_to_be(champion, untuned, said):
    """Better than chance comes first, then better than its own untuned judge; nothing is said of one that is both."""
    assert not_shown(study(champion, untuned)) == said


def test_what_a_required_gain_lacks():
    """Better than untuned is not enough: chance and what is free must be beaten, too, unless the champion is free."""
    won = study(right(20), right(0))
    assert shortfalls(won) == []
    champion, untuned, _ = won.test
    lexical = judge("lexical-baseline", right(20))
    (free,) = shortfalls(
        study(
            right(20),
            test=(champion.model_copy(update={"lm_share": 1.0}), untuned, lexical),
        )
    )
    assert free.startswith("the champion against lexical-baseline: inconclusive")
    assert shortfalls(study(right(20), test=(champion, untuned, lexical))) == []
    chance, tied, *_ = shortfalls(study(right(8), right(8)))
    assert chance.startswith(
        "the champion is not significantly better than chance: .40"
    )
    assert tied.startswith("the champion against untuned: inconclusive")


def test_the_readme_shows_them_as_they_are_printed():
    """Figures aside, the README's first two lines are those of a judge compared with the same others."""

    def masked(line):
        return re.sub(r"[-+]?\d*\.?\d+", "N", line)

    (block,) = (b for b in blocks(README) if b.startswith("In three lines"))
    _, agrees, gained, _ = " ".join(block.split()).split(" • ")
    comparisons = {}
    for name, called in CHEAPER.items():
        is_open = f"over {called}, inconclusive" in gained
        if called in gained:
            comparisons[name] = compared("inconclusive" if is_open else "better")
    chosen = " Chosen on 74 answers over 24 sources."
    lines = told(comparisons=comparisons, chosen=chosen)
    assert [masked(line) for line in lines[:2]] == [masked(agrees), masked(gained)]
