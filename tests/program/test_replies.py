import math
from typing import Literal

import pytest

from faith_dspy.program.reply import (
    Token,
    label_token,
    read_fields,
    read_label,
    read_verdict,
    tokens_of,
)
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Statement, Verdict

YES_NO = ("Yes", "No")
GRADED = tuple(INSTRUCTIONS["graded"].labels)


@pytest.mark.parametrize(
    ("reply", "labels", "name"),
    [
        ("Y", YES_NO, "Yes"), ("Yes/No", YES_NO, None), ("part", ("partly", "partial"), None),
        ("no", ("no", "nothing"), "no"), ("n", ("no", "nothing"), None), ("contra", GRADED, "contradicts"),
        ("Red, says chunk 0", ("Red", "Blue"), "Red"),
    ],
)  # fmt: skip
def test_labels(reply, labels, name):
    """A beginning that fits two labels is none of them; a whole label that begins another is itself."""
    assert read_label(reply, labels) == name


@pytest.mark.parametrize(
    ("reply", "reason", "verdict"),
    [
        ("It is so.\nVerdict: Yes", "It is so.", "Yes"),
        ("Why: It is so.\nYes\n", "It is so.", "Yes"),
        ("**Reasoning:** It is so.\n\n**Verdict:** No.", "It is so.", "No"),
        ("Verdict: No\nNo, wait.\n**Verdict:** Yes", None, None),
        ("Yes", None, "Yes"),
    ],
)
def test_reasons_before_the_label(reply, reason, verdict):
    """The label follows the line that says so, else it is the last line; a reply with two has none."""
    fields = {"reason": str, "verdict": Literal[YES_NO]}
    assert read_fields(fields, reply) == {"verdict": verdict, "reason": reason}


def verdict(label, alternatives, written=None, **options):
    """What a reply of one token says, whose alternatives have these probabilities (log-probabilities, if below 0)."""
    top = [
        {"token": t, "logprob": math.log(p) if 0 < p < 1 else p}
        for t, p in alternatives.items()
    ]
    token = {
        "token": label if written is None else written,
        "logprob": -0.1,
        "top_logprobs": top,
    }
    (token,) = tokens_of({"logprobs": {"content": [token]}})
    statement = Statement(text="It is blue.")
    return read_verdict(
        {"verdict": label}, statement, INSTRUCTIONS["binary"], [], token, **options
    )


def test_probabilities_pool_variants():
    """Yes .30 + .20 + .10 = .60, no .15 + .05 = .20, the rest says nothing: .60/.80 = .75."""
    shares = {" Yes": 0.3, "yes": 0.2, "YES": 0.1, "No": 0.15, "**No": 0.05}
    found = verdict("Yes", shares | {"Maybe": 0.1, "": 0.05})
    assert found.verdict is Verdict.FULLY_SUPPORTED
    assert found.probability == pytest.approx(0.75)
    assert found.logit == pytest.approx(math.log(3))


def test_no_label_no_verdict():
    """Whatever the probabilities: a label is never guessed. A label without any has none."""
    assert verdict(None, {"Yes": 0.9, "No": 0.1}, "Yes").label is None
    assert label_token([Token("Yes", [("Yes", -0.1)])], None) is None
    bare = verdict("Yes", {})
    assert (bare.label, bare.probability, bare.logit) == ("Yes", None, 2.0)


@pytest.mark.parametrize(
    "impossible",
    [
        {"No": -0.1, "Yes": 1.7}, {"No": -0.1, "Yes": math.nan}, {"No": -0.1, "Yes": math.inf},
        {"Hello": -0.001, "Yes": -0.01}, {"No": -0.69, "yes": -0.7, "Yes": -0.7, "YES": -0.7},
    ],
)  # fmt: skip
def test_impossible_probabilities_are_not_believed(impossible):
    """A log-probability above 0 or that is no number, or several that sum to more than 1: the label stays alone; zero
    is certainty, and minus infinity is none."""
    found = verdict("No", impossible)
    assert (found.label, found.probability, found.logit) == ("No", None, -2.0)
    assert verdict("Yes", {"Yes": 0.0, "No": -math.inf}).probability == pytest.approx(
        1, abs=0.01
    )


def test_a_label_and_its_token():
    """A written “Yes” whose likeliest token is “No” is no label, unless tokens were drawn by chance; of two equally
    likely ones the written one counts."""
    against, even = {"No": 0.9, "Yes": 0.1}, {"Yes": 0.5, "No": 0.5}
    assert "has no label that was asked for" in verdict("Yes", against).error
    assert verdict("Yes", against, sampled=True).label == "No"
    assert verdict("No", against).label == "No"
    assert [verdict(label, even).label for label in ("Yes", "No")] == ["Yes", "No"]
    assert verdict("No", even).probability == pytest.approx(0.5)


def test_alternatives_to_something_else():
    """Of “**Yes**” the first token is no label: what might have stood there says nothing about the label."""
    found = verdict("Yes", {"**": 0.9, "No": 0.06, "Yes": 0.04}, "**")
    assert (found.label, found.probability) == ("Yes", None)
    assert (
        verdict("No", {"Perhaps": 0.4, "Yes": 0.3}).probability is None
    )  # of the label there is no alternative
