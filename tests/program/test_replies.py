from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from faith_dspy.program.adapter import (
    Tokens,
    label_probabilities,
    read_label,
    read_reply,
    split_reasoning,
    token_alternatives,
)
from faith_dspy.program.signatures import INSTRUCTIONS

YES_NO = ("Yes", "No")
GRADED = tuple(INSTRUCTIONS["graded"].labels)


@pytest.mark.parametrize(
    "reply",
    [
        "Yes",
        "**Yes**",
        " yes.",
        "YES",
        "\n\nyes\n",
        "`Yes`",
        '"Yes"',
        "Yes, it does.",
        "Y",
        "_Yes_!",
        "- Yes",
        "yes [0]",
    ],
)
def test_labels_in_any_case_and_punctuation(reply):
    """A label is read whatever its case, its punctuation, what follows it, and when it was cut off."""
    assert read_label(reply, YES_NO) == "Yes"


@pytest.mark.parametrize(
    "reply", ["", " ", "**", "Maybe", "Yesterday it was", "Yes/No", "The answer is yes", "未知", "[0]"]
)
def test_no_label_is_none(reply):
    """A reply that does not start with a label is no label; nothing is guessed from words later on."""
    assert read_label(reply, YES_NO) is None


def test_ambiguous_is_none():
    """A beginning that fits two labels is none of them; a whole label that begins another is itself."""
    assert read_label("part", ("partly", "partial")) is None
    assert read_label("no", ("no", "nothing")) == "no"
    assert read_label("n", ("no", "nothing")) is None
    assert read_label("contra", GRADED) == "contradicts"


def test_probabilities_pool_variants_and_sum_to_one():
    """Yes .30 + .20 + .10 = .60, no .15 + .05 = .20, the rest says nothing: .60/.80 = .75 and .25."""
    shares = {" Yes": 0.30, "yes": 0.20, "YES": 0.10, "No": 0.15, "**No": 0.05, "Maybe": 0.10, "": 0.05}
    top = [{"token": t, "logprob": math.log(p)} for t, p in shares.items()]
    found = label_probabilities(top, YES_NO)
    assert found == pytest.approx({"Yes": 0.75, "No": 0.25})
    # objects, as dspy gives them, are read like mappings
    assert label_probabilities([SimpleNamespace(**entry) for entry in top], YES_NO) == found


def test_probabilities_of_labels_not_given():
    """Labels that share less than .01 were not answered, and an empty list tells nothing."""
    low = [{"token": "Yes", "logprob": math.log(0.005)}, {"token": "No", "logprob": math.log(0.004)}]
    assert label_probabilities(low, YES_NO) is None
    assert label_probabilities([{"token": "Yes", "logprob": math.log(0.02)}], YES_NO) == {"Yes": 1.0, "No": 0.0}
    assert label_probabilities([], YES_NO) is None


@pytest.mark.parametrize(
    ("reply", "thoughts", "rest"),
    [
        ("It is so.\nVerdict: Yes", "It is so.\n", "Yes"),
        ("Verdict: No\nNo, wait.\n**Verdict:** Yes", "Verdict: No\nNo, wait.\n", "Yes"),
        ("It is so.\nYes\n", "It is so.", "\nYes\n"),
        ("Yes", "", "Yes"),
    ],
)
def test_where_thoughts_end(reply, thoughts, rest):
    """The label follows the last line that says so, else it is the last line."""
    end, at = split_reasoning(reply)
    assert (reply[:end], reply[at:]) == (thoughts, rest)


def test_the_token_at_a_place():
    """Offsets count characters, tokens may hold half of one: the token that has the first letter from there on."""
    pieces = [b"\xe6\xb0", b"\xb4. ", b'"', b" Yes", b"!"]
    tokens = Tokens({"token": "?", "bytes": list(p), "top_logprobs": [i]} for i, p in enumerate(pieces))
    assert tokens.text == '水. " Yes!'
    assert token_alternatives(tokens) == [0]
    assert [token_alternatives(tokens, at) for at in (0, 3, 5, 8)] == [[0], [3], [3], []]


def test_half_a_character_in_a_token():
    """A lone surrogate, which JSON can carry, ends no reading: it is one character, and offsets stay."""
    tokens = Tokens([{"token": "\ud800"}, {"token": "Yes", "top_logprobs": [1]}])
    assert (tokens.text, token_alternatives(tokens, 1)) == ("?Yes", [1])


def one_token(**logprobs):
    """A reply of one token, with these log-probabilities."""
    return Tokens([{"token": "Yes", "top_logprobs": [{"token": t, "logprob": p} for t, p in logprobs.items()]}])


@pytest.mark.parametrize("impossible", [0.7, math.nan, math.inf, "-0.1", None, True])
def test_what_is_no_log_probability(impossible):
    """A reply with a log-probability above 0, or that is no number, keeps its label and has no probability."""
    found = read_reply(one_token(Yes=-0.1, No=impossible), {"verdict": "Yes"}, YES_NO)
    assert (found.label, found.probabilities, found.is_sound) == ("Yes", None, False)


def test_log_probabilities_at_their_ends():
    """Zero, with what rounding adds, is certainty, and minus infinity is none: both are log-probabilities."""
    found = read_reply(one_token(Yes=1e-6, No=-math.inf), {"verdict": "Yes"}, YES_NO)
    assert (found.probabilities, found.is_sound) == ({"Yes": 1.0, "No": 0.0}, True)


def test_a_label_that_contradicts_its_text():
    """A written “Yes” whose likeliest token is “No” is no label, unless tokens were drawn by chance."""
    tokens = one_token(No=math.log(0.9), Yes=math.log(0.1))
    assert read_reply(tokens, {"verdict": "Yes"}, YES_NO)[:2] == (None, None)
    assert read_reply(tokens, {"verdict": "Yes"}, YES_NO, sampled=True).label == "No"
    assert read_reply(tokens, {"verdict": "No"}, YES_NO).label == "No"
