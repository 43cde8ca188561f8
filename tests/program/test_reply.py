"""What a reply says: every form in which LMs write a verdict is read right, or not at all; never as another."""

import json
import math
from typing import Literal

import pytest
from dspy import lm15
from hypothesis import given, settings
from hypothesis import strategies as st

from faith_dspy import Judge
from faith_dspy.lm.capabilities import thoughts_end
from faith_dspy.lm.metered import MeteredLM
from faith_dspy.program.reply import (
    Token,
    find_label,
    read_fields,
    read_label,
    read_verdict,
)
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Statement, Verdict

YES_NO = ("Yes", "No")


@pytest.mark.parametrize(
    ("reply", "labels", "name"),
    [
        ("part", ("partly", "partial"), None), ("no", ("no", "nothing"), "no"), ("n", ("no", "nothing"), None),
        ("Red, says chunk 0", ("Red", "Blue"), "Red"),
    ],
)  # fmt: skip
def test_labels(reply, labels, name):
    """A beginning that fits two labels is none of them; a whole label that begins another is itself."""
    assert read_label(reply, labels) == name


@pytest.mark.parametrize(
    ("reply", "reason", "verdict"),
    [
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


def verdict(label, alternatives, written=None):
    """What a reply of one token says, whose alternatives have these probabilities (log-probabilities, if below 0)."""
    top = [
        {"token": t, "logprob": math.log(p) if 0 < p < 1 else p}
        for t, p in alternatives.items()
    ]
    about = Statement(text="It is blue."), INSTRUCTIONS["binary"], []
    token = Token(label if written is None else written, top)
    return read_verdict({"verdict": label}, *about, token)


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


# --- forms ---------------------------------------------------------------------------------------------------------

BINARY = {
    "Yes": [
        "Yes", "**Yes**", "_Yes_", "Yes because chunk 0 says so", "Yes it is", "Final answer: yes", "The answer is yes",
        '{"reason": "It says so.", "verdict": "Yes"}', "Yes [0]", "yes 0, 2", "True", "Correct.", "# Verdict: Yes",
        "Entailed", "Label: Yes\nReason: No other kettle is named.", "<think>No? Verdict: No</think>\n\nYes",
        '{"judgement": "supported"}',
    ],
    "No": [
        "No", "no.", "no – the context does not say", "Verdict: No", "Conclusion: No",
        '```json\n{"verdict": "No"}\n```', '{"supported": false}', "Not supported", "Partially supported",
        "Only partially supported", "Contradicted", "Fully contradicted", "Not fully supported",
        "Completely unsupported", "The claim is contradicted by the context.", "No evidence in the context",
        "No, it is not supported", "It says 0.9 litres.\nNo", "not-supported", "NOT_SUPPORTED", "Hallucinated", "N",
        '{"judgement": "unsupported"}',
    ],
    None: [
        "", " ", "**", "N/A", "I cannot tell", "Yes and no", "Yesterday it was", "No, it is fully supported",
        "Verdict: Yes\nVerdict: No", "No one disputes it", "The context speaks of lamps.",
        "I'm sorry, but I can't assist with that.", "Not contradicted", "Supported in some respects", "未知",
        "<think>Verdict: Yes", '{"verdict": "Yes"} {"verdict": "No"}', "1",
        "Is the statement fully supported by the context? Answer Yes or No.",
    ],
}  # fmt: skip
GRADED = {
    "fully": [
        "fully", "**Fully**", "Fully supported", "Verdict: fully",
    ],
    "partly": [
        "partly", "Partially supported", "Partial", "partly: the colour is right", "Mostly supported",
    ],
    "nothing": [
        "nothing", "No evidence", "Not mentioned", "Unsupported",
    ],
    "contradicts": [
        "contradicts", "Contradictory", "It contradicts", "contra", '{"verdict": "contradicts"}',
        "The statement is contradicted by the context.", "Completely contradicted",
    ],
    None: [
        "Yes", "N/A", "Not fully supported", "Fully or partly", "fully, but not the price", "Partially contradicted",
        "partly\nVerdict: nothing", "not",
    ],
}  # fmt: skip
FIVE_LEVEL = {
    "completely": [
        "completely", "Completely Yes", "Verdict: completely",
    ],
    "generally": [
        "generally", "Generally Yes", "Mostly supported", "generally supported",
    ],
    "mixed": [
        "mixed", "Neutral/Mixed", "Partially supported", "Mixed.",
    ],
    "hardly": [
        "hardly", "Not Generally", "Hardly supported", "Mostly unsupported",
    ],
    "not": [
        "not", "Not At All", "Not supported", "Contradicted",
    ],
    None: [
        "Yes", "No", "N/A", "Not fully supported", "between mixed and hardly", "4/5",
    ],
}  # fmt: skip
FORMS = [
    pytest.param(name, label, reply, id=f"{name}-{reply[:30]!r}")
    for name, table in (
        ("binary", BINARY), ("graded", GRADED), ("five_level", FIVE_LEVEL),
    )
    for label, replies in table.items()
    for reply in replies
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "reply"), FORMS)
def test_a_form(name, label, reply):
    text = reply[thoughts_end(reply) :]
    assert find_label(text, tuple(INSTRUCTIONS[name].labels)) == label


TAKEN_BACK = [
    "Yes, but the date is wrong.", "Yes, except for the date.", "Yes. However, the date is wrong.",
    "Yes. But the year is 1999.", "Yes, in part.", "Yes, to some extent.", "Yes, almost.", "Yes, kind of.",
    "Yes, sort of.", "Yes?", "Yes, if one ignores the date.", "Yes, unless 1999 is meant.", "Yes, apart from the date.",
    "Yes, aside from the year.", "Yes, with the exception of the date.", "Yes, other than the date.",
    "Yes, not exactly.", "Yes (partially)", "Yes, for the most part.", "Yes, perhaps.", "Yes, maybe.", "Yes, possibly.",
    "Yes, I guess.", "Yes, likely.", "Yes (probably)", "**Yes**, but only in part", "Yes, assuming that it is blue.",
    "Yes. The context contradicts this.", "Yes. The context does not say so.", "Yes. Sorry, I meant No.",
    "Yes. On reflection, no.", "Yes\nWhy: I am not sure.", "Yes, save for the date.",
    "Yes, the kettle is blue, but the date is wrong.", "Yes, the colour is supported, the date is not.",
    "Yes, it is blue, except that it was made in 1999.", "Yes. Wait, no.", "Yes... no.", "Yes, I mean no.", "Yes\nNo",
    "Yes\nCorrection: No", "Yes. On second thought, no.", "Yes. Actually, it is not supported.",
    "Yes. The statement is not supported.", "Yes, the context contradicts it.", "Yes. This is false.",
    "Yes, that's incorrect.", "Yes, that is wrong.", "Yes: No", "Yes -> No", "Yes. Hmm, no, it is not.",
    "Yes, it isn't supported.", "Yes, the context says otherwise.", "Yes\nWhy: It says so.\nVerdict: No",
    "Yes\nWhy: partially supported.", "Yes/No", "Not yes", '{"verdict": "Yes", "supported": false}',
    '{"verdict": "Yes, but the date is wrong"}', '[{"verdict": "Yes"}, {"verdict": "No"}]',
    "Yes\n\nWait, the context says 2019, so No.",
]  # fmt: skip
STANDING = [
    "Yes. The context says so.", "Yes – the first chunk says it",
    "Yes\nWhy: The context says that the kettle is blue, but it holds 2 litres.",
    "Yes. The price is not mentioned elsewhere.", "Yes\nWhy: Nothing contradicts it.",
    "Yes. It is blue, as chunk 0 says. However small, it holds 2 litres.",
    'Yes\nQuote: "No, it is blue."\nWhy: Chunk 0 says so.', "Yes\nWhy: The manual says no smoking is allowed.",
    "Yes\nWhy: The kettle is only sold in blue, although it was red before.",
]  # fmt: skip


@pytest.mark.parametrize(
    "more", [{}, {"quotes": list[str], "reason": str}], ids=["label", "reasons"]
)
def test_a_label_that_is_taken_back_never_stands(more):
    """Hedged, in doubt, reversed or contradicted behind it, a “Yes” is none; other reasons leave it as it is."""
    fields = {"verdict": Literal["Yes", "No"], **more}
    for reply in TAKEN_BACK:
        assert read_fields(fields, reply)["verdict"] != "Yes", reply
    for reply in STANDING:
        if more or "Quote" not in reply:
            assert read_fields(fields, reply)["verdict"] == "Yes", reply
