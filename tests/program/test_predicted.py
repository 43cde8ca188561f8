from __future__ import annotations

import contextlib

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.utils.callback import BaseCallback

from faith_dspy.lm import make_lm
from faith_dspy.program.adapter import CompactAdapter, predicted
from faith_dspy.program.signatures import CiteStatement, VerifyStatement

INPUTS = {"context": ["The kettle is blue."], "question": "Which colour?", "statement": "It is blue."}
ASKED = {"max_tokens": 12, "logprobs": True, "top_logprobs": 20}
PLAIN = {"trace": None, "callbacks": [], "track_usage": False, "send_stream": None}
"""Nobody looks on, whatever another test has left switched on (MLflow traces DSPy from its first evaluation on)."""


class Seen(BaseCallback):
    """Notes the modules it is told of."""

    def __init__(self):
        self.modules = []

    def on_module_start(self, call_id, instance, inputs):
        self.modules.append(instance)


@pytest.fixture
def by_dspy(monkeypatch):
    """The predictors whose own call was used."""
    found = []
    own = dspy.Predict.forward

    def forward(self, **kwargs):
        found.append(self)
        return own(self, **kwargs)

    monkeypatch.setattr(dspy.Predict, "forward", forward)
    return found


@pytest.fixture
def lm(chat_server):
    """An LM that says Yes."""
    return make_lm("openai/tiny", api_base=chat_server().base, cache=False)


@pytest.mark.parametrize("signature", [VerifyStatement, CiteStatement])
def test_both_ways_ask_and_read_the_same(chat_server, by_dspy, signature):
    """Prompt with compiled instructions and demos, prediction and history are those of DSPy's own call."""
    server = chat_server()
    predict = dspy.Predict(signature.with_instructions("Be strict.\n\nIs it supported? Yes or No."))
    predict.demos = [{**INPUTS, "verdict": "No", "supporting_chunk_ids": []}]
    outer, found = dspy.Predict("question -> answer"), []
    for ask in (lambda: predicted(predict, INPUTS, ASKED), lambda: predict(**INPUTS, config=ASKED)):
        lm = make_lm("openai/tiny", api_base=server.base, cache=False)
        before = len(predict.history), len(outer.history)
        with dspy.context(lm=lm, adapter=CompactAdapter(), **PLAIN, caller_modules=[outer]):
            prediction = ask()
        assert (len(predict.history), len(outer.history)) == (before[0] + 1, before[1] + 1)
        assert lm.history[-1] is predict.history[-1] is outer.history[-1] is GLOBAL_HISTORY[-1]
        entry = {k: lm.history[-1][k] for k in ("messages", "kwargs", "outputs", "model")}
        found.append((server.requests[-1], prediction.toDict(), list(prediction.completions.items()), entry))
    assert found[0] == found[1]
    assert "Be strict." in str(found[0][0])
    assert by_dspy == [predict]


def test_an_empty_reply_fails_as_by_dspy(chat_server):
    """Either way raises DSPy's own error."""
    lm = make_lm("openai/tiny", api_base=chat_server(says="").base, cache=False)
    predict = dspy.Predict(VerifyStatement)
    for ask in (lambda: predicted(predict, INPUTS, ASKED), lambda: predict(**INPUTS, config=ASKED)):
        with (
            dspy.context(lm=lm, adapter=CompactAdapter(), **PLAIN),
            pytest.raises(dspy.utils.exceptions.AdapterParseError, match="empty or null"),
        ):
            ask()


def test_what_looks_on_is_told(lm, by_dspy):
    """With a callback, a trace, tokens tracked, or a predictor's own LM or settings, the way is DSPy's."""
    predict, seen, trace = dspy.Predict(VerifyStatement), Seen(), []
    with dspy.context(lm=lm, adapter=CompactAdapter(), **PLAIN):
        predicted(predict, INPUTS, ASKED)
        assert by_dspy == []
        for more in ({"callbacks": [seen]}, {"trace": trace}, {"track_usage": True}, {"adapter": dspy.ChatAdapter()}):
            with dspy.context(**more), contextlib.suppress(dspy.utils.exceptions.AdapterParseError):
                predicted(predict, INPUTS, ASKED)
        assert by_dspy == [predict] * 4
        assert seen.modules == [predict]
        assert [step[0] for step in trace] == [predict]
        for own in (dspy.Predict(VerifyStatement, temperature=0.5), dspy.ChainOfThought(VerifyStatement).predict):
            own.lm = lm
            predicted(own, {**INPUTS}, ASKED)
        assert len(by_dspy) == 6
