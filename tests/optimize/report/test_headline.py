import re

import pytest
from made import agreement, rows, study
from rich.console import Console
from test_readme import README, blocks

from faith_dspy.optimize.report.headline import Measured, not_shown, three_lines
from faith_dspy.optimize.results import CHEAPER, Comparison, Difference
from faith_dspy.report.tables import terminal
from faith_dspy.scoring.statistics import Estimate

HALF = [True] * 20 + [False] * 20


def right(n):
    """A judge that is right about n of twenty answers of either label."""
    return rows([0.9] * n + [0.1] * (20 - n) + [0.1] * n + [0.9] * (20 - n), HALF)


def compared(verdict, value=0.1, more=None):
    """A difference of so much, with an interval of ±.05."""
    d = Difference(value=value, low=value - 0.05, high=value + 0.05)
    return Comparison(n=40, sources=40, balanced_accuracy=d, auroc=d, verdict=verdict, more_labels=more, sentence="")


def told(**changes):
    """The three lines of a judge that is good, unless something is changed."""
    both = {"untuned": compared("better"), "lexical-baseline": compared("better")}
    return three_lines(Measured(agreement(right(18)), both, "judges/mine")._replace(**changes)).notes


def test_three_lines_say_how_far_what_was_gained_and_what_next():
    """Agreement with interval and n, the gain over both judges it is compared with, and the command to use it. A
    difference whose interval holds 0 is no gain."""
    agrees, gained, next_ = told()
    assert re.fullmatch(
        r"Agreement: balanced accuracy \.90 \[\.\d\d, (\.\d\d|1\.00)\] on 40 test answers over 40 sources"
        r" \(chance is \.50\)\. Few answers: read the interval, not the figure\.",
        agrees,
    )
    over = "+10.0 [+5.0, +15.0] points over"
    assert gained == f"Gain: {over} the untuned judge; {over} the lexical baseline (no LM)."
    assert next_ == "Next: use it: faith-dspy judge ANSWERS.jsonl --judge judges/mine"
    both = {"untuned": compared("not shown better"), "lexical-baseline": compared("worse", -0.1)}
    gained = told(comparisons=both)[1]
    assert "over the untuned judge, not shown; " in gained
    assert "(no LM), worse." in gained
    assert "not tuned" in told(comparisons={})[1]


ON_ONE_LABEL = agreement(rows([0.9] * 40, [True] * 40))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"untuned": compared("worse", -0.1)}, "label more answers to tune on; until then keep the untuned judge."),
        (
            {"untuned": compared("better"), "lexical-baseline": compared("worse", -0.1)},
            "label more answers to tune on; until then keep the lexical baseline (no LM).",
        ),
        (
            {"untuned": compared("not shown better", 0.02, 133)},
            "label about 130 more answers to test on; until then keep the cheaper one, this judge or the untuned one.",
        ),
        ({"untuned": compared("not shown better", 0.0)}, "keep the cheaper one, this judge or the untuned one."),
        ({}, "use it, or tune it on labels of your own: faith-dspy tune LABELS.jsonl"),
        # And from what it agrees on.
        ({"seen": 40}, "label other answers to measure it on: 40 of 40 answers had a part in the study"),
        ({"agreement": ON_ONE_LABEL}, "label more answers of both kinds"),
        ({"agreement": agreement(right(8))}, "label more answers like these and tune on them; until then do not use"),
        # .55 ± .165: 40 · ((.165 / .05)² − 1) = 396
        ({"agreement": agreement(right(11))}, "label about 400 more answers to test on: it is not shown better than"),
        ({"asks_lm": False}, "use it, your labels need no LM: faith-dspy judge"),
    ],
)
def test_the_next_step_follows_from_what_is_shown(changes, said):
    if not changes.keys() - CHEAPER.keys():
        changes = {"comparisons": changes}
    assert told(**changes)[2].startswith(f"Next: {said}")


def by_source(sources):
    """Sixty answers, all but four judged rightly, over so many sources."""
    labels = [True, False] * 30
    found = [rows([0.9 if y is (i > 3) else 0.1], [y], f"{i}-", group=str(i % sources)) for i, y in enumerate(labels)]
    return tuple(a for one in found for a in one)


@pytest.mark.parametrize(
    ("champion", "untuned", "said"),
    [
        (right(8), right(0), "not shown better than chance"),
        (right(18), right(18), "not shown better than its own untuned judge"),
        (right(18), right(0), ""),
        (right(20), right(0), ""),  # which has no interval
        (by_source(9), by_source(9), "not shown better than chance"),  # whatever its interval
        (by_source(10), by_source(10), "not shown better than its own untuned judge"),
    ],
)
def test_what_a_champion_is_not_shown_to_be(champion, untuned, said):
    """Better than chance comes first, then better than its own untuned judge; nothing is said of one that is both."""
    assert not_shown(study(champion, untuned)) == said


def test_the_readme_shows_them_as_they_are_printed(capsys):
    """Three lines made of the README's figures are those it shows, as a terminal of 80 columns breaks them."""
    shown = next(block for block in blocks(README) if block.startswith("In three lines"))
    words = " ".join(shown.split())
    counts = r"on (\d+) test answers(?:, (\d+) of them scored,)? over (\d+) sources"
    n, scored, sources = re.search(counts, words).groups()
    accuracy, *gains = (
        dict(zip(("value", "low", "high"), map(float, found), strict=True))
        for found in re.findall(r"([-+.\d]+) \[([-+.\d]+), ([-+.\d]+)\]", words)
    )
    read = {"n": int(n), "scored": int(scored or n), "sources": int(sources), "balanced_accuracy": Estimate(**accuracy)}
    comparisons = {}
    for name, gain in zip([n for n, called in CHEAPER.items() if f"points over {called}" in words], gains, strict=True):
        verdict, share = "better" if gain["low"] > 0 else "not shown better", {k: v / 100 for k, v in gain.items()}
        comparisons[name] = compared(verdict).model_copy(update={"balanced_accuracy": Difference(**share)})
    measured = agreement(right(18)).model_copy(update=read)
    lines = three_lines(Measured(measured, comparisons, words.split()[-1], asks_lm="need no LM" not in words))
    Console(width=80).print(terminal([lines]))
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()
