import json
import math
from typing import Literal

import pytest
from dspy import lm15
from hypothesis import given, settings
from hypothesis import strategies as st

from faith_dspy import Judge
from faith_dspy.lm.metered import MeteredLM
from faith_dspy.program.reply import Token, read_fields, read_label, read_verdict
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
    about = Statement(text="It is blue."), INSTRUCTIONS["binary"], []
    token = Token(label if written is None else written, top)
    return read_verdict({"verdict": label}, *about, token, **options)


def test_probabilities_pool_variants():
    """Yes .30 + .20 + .10 = .60, no .15 + .05 = .20, the rest says nothing: .60/.80 = .75."""
    shares = {" Yes": 0.3, "yes": 0.2, "YES": 0.1, "No": 0.15, "**No": 0.05}
    pooled = verdict("Yes", shares | {"Maybe": 0.1, "": 0.05})
    assert pooled.verdict is Verdict.FULLY_SUPPORTED
    assert pooled.probability == pytest.approx(0.75)
    assert pooled.logit == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("written", "alternatives", "label", "probability"),
    [
        # Whatever the probabilities, a label is never guessed; without any it has none.
        (None, {"Yes": 0.9, "No": 0.1}, None, None),
        ("Yes", {}, "Yes", None),
        # A written “Yes” whose likeliest token is “No” is no label; of two equally likely ones the written one counts.
        ("Yes", {"No": 0.9, "Yes": 0.1}, None, None),
        ("No", {"Yes": 0.5, "No": 0.5}, "No", 0.5),
        # Of the label there is no alternative.
        ("No", {"Perhaps": 0.4, "Yes": 0.3}, "No", None),
        # Zero is certainty, and minus infinity none; what is above 0, no number, or sums to more than 1 is nothing.
        ("Yes", {"Yes": 0.0, "No": -math.inf}, "Yes", 0.9975),
        ("No", {"No": -0.1, "Yes": 1.7}, "No", None),
        ("No", {"No": -0.1, "Yes": math.nan}, "No", None),
        ("No", {"Hello": -0.001, "Yes": -0.01}, "No", None),
        ("No", {"No": -0.69, "yes": -0.7, "Yes": -0.7, "YES": -0.7}, "No", None),
    ],
)  # fmt: skip
def test_a_label_and_its_token(written, alternatives, label, probability):
    read = verdict(written, alternatives, "Yes" if written is None else written)
    assert read.label == label
    assert read.probability == (probability and pytest.approx(probability, abs=1e-4))
    assert (read.error is None) == (label is not None)
    if label and probability is None:
        assert read.logit == (2.0 if label == "Yes" else -2.0)


def test_where_tokens_are_drawn_the_likeliest_counts():
    assert verdict("Yes", {"No": 0.9, "Yes": 0.1}, sampled=True).label == "No"


def test_alternatives_to_something_else():
    """Of “**Yes**” the first token is no label: what might have stood there says nothing about the label."""
    read = verdict("Yes", {"**": 0.9, "No": 0.06, "Yes": 0.04}, "**")
    assert (read.label, read.probability) == ("Yes", None)


PIECES = st.sampled_from([
    "Yes", "No", "fully", "completely", " not ", "but", "[0, 1]", "[99999999999]", "\n", "\nQuote: ", "\nWhy: ",
    "Verdict:", "1. It is blue.", "</think>", '{"verdicts": [', '{"statement": 1, "verdict": "', '"}', "]}", "```json",
    "{", "\x00", "\u2028", "\ud800", "😀",
])  # fmt: skip
OPTIONS = [
    {"verdicts": "graded", "cite": True, "quote": True, "reasoning": "after"},
    {"granularity": "statement", "reasoning": "before"},
    {"verification": "joint", "cite": True, "quote": True},
    {"granularity": "answer", "verdicts": "five_level", "confidence": "samples"},
]


class Says:
    """An engine that gives one reply, whatever it is asked, with a log-probability for each character."""

    def __init__(self, reply, logprob):
        self.reply, self.logprob = reply, logprob

    def complete(self, request):
        top = (lm15.TopLogprob("Yes", self.logprob),)
        logprobs = tuple(lm15.TokenLogprob(c, -0.1, top=top) for c in self.reply[:99])
        message, usage = lm15.Message.assistant(self.reply), lm15.Usage(1, 1)
        return lm15.Response(None, "m", message, "stop", usage, logprobs=logprobs)


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=25, deadline=None)
@given(
    reply=st.text(max_size=40) | st.lists(PIECES, max_size=12).map("".join),
    logprob=st.floats(max_value=1),
)
def test_any_reply(options, reply, logprob):
    """Whatever an LM says, each statement has a verdict or the reason why not, and so has the answer."""
    lm = MeteredLM("own/engine", engine=Says(reply, logprob), cache=False)
    judge = Judge(lm, classifier=None, **options)
    judgment = judge(context=["It is blue."], answer="It is blue. Ann owns 2.")
    json.dumps(judgment.model_dump(mode="json"), allow_nan=False).encode()
    assert judgment.unscored in (None, "parse_failed", "lm_failed")
    assert (judgment.score is None) == (judgment.unscored is not None)
    assert judgment.statements
    for s in judgment.statements:
        assert (s.verdict is None) == (s.error is not None)
        assert s.confidence is None or 0 <= s.confidence <= 1
        assert set(s.supporting_chunk_ids) <= {0}
