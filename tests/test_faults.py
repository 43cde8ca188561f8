"""What becomes of records while their endpoint misbehaves, one fault at a time, as `faith-dspy judge` judges a file."""

import random
from collections import Counter

import pytest

from faith_dspy import Judge
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import PATIENT_RETRIES
from faith_dspy.runner import run
from tests.support.files import read_lines, write_lines

TIMEOUT = 5.0
"""Seconds to wait for a reply. The resumed run has as many: DSPy's cache keys hold them."""
RETRIES = 2
LARGE = 10_000_000
"""Bytes of a very large reply."""
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"
)


BODY = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny"}


def _choice(message, **more):
    choice = {"index": 0, "message": {"role": "assistant", **message}}
    return {"body": {**BODY, "choices": [{**choice, "finish_reason": "stop", **more}]}}


def _top(*tokens):
    top = [{"token": token, "logprob": p, "bytes": None} for token, p in tokens]
    return {"content": [{**top[0], "top_logprobs": top}]}


def _status(code, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": code, "text": f"status {code} on purpose", "headers": names}


FAULTS = {
    "400 bad request": _status(400),
    "401 key refused": _status(401),
    "429": _status(429),
    "503, Retry-After 0": _status(503, Retry_After="0"),
    "no reply in time": {"text": "Yes", "delay": TIMEOUT + 1},
    "connection closed": {"body": []},
    "half a reply": {"body": [_HEAD, b'{"id": "1", "choices": [{"message": {"content": "Yes']},
    "no JSON": {"body": [_HEAD.replace(b"400", b"20"), b"<html>Yes</html>    "]},
    "no choices": {"body": {**BODY, "choices": []}},
    "null content": _choice({"content": None}),
    "content filter": _choice({"content": ""}, finish_reason="content_filter"),
    "log-probability above 0": lambda y: _choice({"content": y}, logprobs=_top((y, 0.7), ("No", 0.3))),
    "label against its token": _choice({"content": "Yes"}, logprobs=_top(("No", -0.01), ("Yes", -5.0))),
    "reply of 10 MB": _choice({"content": "Yes " + "I say yes. " * (LARGE // 11)}),
    "10 MB of line ends": _choice({"content": "\n" * LARGE}),
}  # fmt: skip
ALWAYS = {
    "400 bad request", "503, Retry-After 0", "connection closed", "half a reply", "no JSON",
    "no choices", "null content", "label against its token",
}  # fmt: skip
"""Of the others most are like one of these, or take long; `make test-all` tries them."""


class Faulty:
    """An endpoint that says the truth, except where a statement is chosen by chance for a fault; counts its calls."""

    def __init__(self, chat_server, fault):
        self.server, self.fault, self.rate = chat_server(says=self.say), fault, 0.5
        self.asked = Counter()

    def say(self, request):
        statement = self.server.statement(request).strip()
        self.asked[statement] += 1
        self.server.requests.clear()  # it would keep every prompt
        label = "No" if "free" in statement else "Yes"
        chance = random.Random(f"{self.fault} {statement} {self.asked[statement]}")
        if chance.random() >= self.rate:
            return {"text": label, "top": {label: 0.9}}
        fault = FAULTS[self.fault]
        return fault(label) if callable(fault) else fault

    def judge(self, source, out):
        """The rows of a run."""
        patience = {"timeout": TIMEOUT, "num_retries": RETRIES}
        lm = make_lm("openai/tiny", api_base=self.server.base, **patience)
        run(Judge(lm, cite=True), source, out, threads=8)
        return read_lines(out)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, marks=() if f in ALWAYS else pytest.mark.all) for f in FAULTS],
)
def test_a_fault_loses_nothing(fault, chat_server, tmp_path):
    """Each record has one row, in order; no unfaithful answer passes; no statement is asked about without end.

    A second run with an endpoint that is well asks about nothing that was answered, and its rows are those of a run
    that nobody disturbed; a reply without a verdict stays one.
    """
    context = ["Lamps are red.", "Every lamp costs nine euros."]
    second = "Shipping of lamp {0} is free.", "Lamp {0} costs nine euros."
    records = []
    for i in range(6):
        answer = f"Lamp {i} is red. {second[i % 2].format(i)}"
        records.append({"id": i, "context": context, "answer": answer})
    source = write_lines(tmp_path / "in.jsonl", records)
    out = tmp_path / "out.jsonl"
    endpoint = Faulty(chat_server, fault)
    rows = endpoint.judge(source, out)
    assert [row["id"] for row in rows] == [r["id"] for r in records]
    assert not any(row["faithful"] for row in rows if row["id"] % 2 == 0)
    # A limited rate is waited out by DSPy's own retries, more of them.
    retries = RETRIES + PATIENT_RETRIES if fault.startswith("429") else RETRIES
    assert max(endpoint.asked.values()) <= 2 * (retries + 1)

    failed = {
        s["text"].strip() for row in rows for s in row["statements"] if s["error"]
    }
    endpoint.rate = 0.0
    endpoint.asked.clear()
    healed = endpoint.judge(source, out)
    assert {*endpoint.asked} <= failed
    assert [row["id"] for row in healed] == [r["id"] for r in records]
    assert {row["unscored"] for row in healed} <= {None, "parse_failed"}
    assert all(
        row["faithful"] is bool(row["id"] % 2) for row in healed if not row["unscored"]
    )
