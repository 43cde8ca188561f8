"""What becomes of records while their endpoint misbehaves: one fault at a time, at several rates.

    python -m tests.benchmarks.faults [--records 10000] [--rates .05 .15 .3] [--seed 0] [--only FAULT …] [--out FILE]

Every fault × rate judges its share of the records, in a file, as `faith-dspy judge` does; then the endpoint is well
again and the same run is resumed. Each answer has two statements, one of them unsupported in every second answer, and a
request is faulty by chance, decided by statement and attempt. Checked on every cell: each record has one row, in order;
an answer that is not faithful never passes; the resumed run asks about nothing that was answered, and its rows are
those of a run that nobody disturbed, but that a reply without a verdict stays one. Last, the endpoint dies for good in
the middle of a run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TIMEOUT = 5.0
"""Seconds a call may take with its retries. The resumed run has as many: DSPy's cache keys hold them."""
RETRIES = 2
LARGE = 10_000_000
"""Bytes of a very large reply."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"


def _choice(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **more}
    return {"body": {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}}


def _top(*tokens: tuple[str, Any]) -> dict[str, Any]:
    top = [{"token": token, "logprob": p, "bytes": None} for token, p in tokens]
    return {"content": [{**top[0], "top_logprobs": top}]}


def _status(code: int, **headers: str) -> dict[str, Any]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": code, "text": f"status {code} on purpose", "headers": names}


FAULTS: dict[str, Any] = {
    "400 bad request": _status(400),
    "401 key refused": _status(401),
    "403 forbidden": _status(403),
    "404 no such model": _status(404),
    "429": _status(429),
    "429, Retry-After 1 day": _status(429, Retry_After="86400"),
    "429, Retry-After in 2099": _status(429, Retry_After="Thu, 01 Jan 2099 00:00:00 GMT"),
    "500": _status(500),
    "503, Retry-After 0": _status(503, Retry_After="0"),
    "no reply in time": {"text": "Yes", "delay": TIMEOUT + 1},
    "connection closed": {"body": b""},
    "half a reply": {"body": _HEAD + b'{"id": "1", "choices": [{"message": {"content": "Yes'},
    "no HTTP": {"body": b"\x16\x03\x01 what?\r\n\r\n"},
    "no JSON": {"body": _HEAD.replace(b"400", b"20") + b"<html>Yes</html>    "},
    "no choices": {"body": {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": []}},
    "null instead of choices": {"body": {"object": "chat.completion", "model": "tiny", "choices": None}},
    "null content": _choice({"content": None}),
    "empty content": _choice({"content": ""}),
    "prose": "The context speaks of lamps, so it may well be supported.",
    "refusal": _choice({"content": None, "refusal": "I can't help with that."}),
    "content filter": _choice({"content": ""}, finish_reason="content_filter"),
    "wrong chunk ids": lambda label: f"{label} [7, 99999999999, -1]",
    "other words": "Supported.",
    "other languages": "Oui, c'est étayé par le contexte. 是的。",
    "thoughts cut off": "<think>Yes, because",
    "thoughts first": lambda label: f"<think>No … wait. Verdict: No</think>\n\n{label}",
    "log-probability above 0": lambda y: _choice({"content": y}, logprobs=_top((y, 0.7), ("No", 0.3))),
    "log-probability is text": lambda y: _choice({"content": y}, logprobs=_top((y, "much"), ("No", None))),
    "label against its token": _choice({"content": "Yes"}, logprobs=_top(("No", -0.01), ("Yes", -5.0))),
    "reply of 10 MB": _choice({"content": "Yes " + "I say yes. " * (LARGE // 11)}),
    "10 MB of line ends": _choice({"content": "\n" * LARGE}),
}  # fmt: skip


def right(statement: str) -> str:
    """The true verdict."""
    return "No" if "free" in statement else "Yes"


class Endpoint:
    """Says the truth, except where a request is chosen for a fault; counts what it was asked."""

    def __init__(self, seed: int = 0) -> None:
        from tests.chat_server import ChatServer

        self.server = ChatServer(says=self.say)
        self.seed, self.fault, self.rate = seed, "", 0.0
        self.dead_after: int | None = None
        self.asked: Counter[str] = Counter()

    def say(self, request: dict[str, Any]) -> Any:
        """One reply."""
        statement = self.server.statement(request)
        self.asked[statement] += 1
        self.server.requests.clear()  # it would keep every prompt
        if self.dead_after is not None and self.asked.total() > self.dead_after:
            self.server.status = 503  # of the preflight, too
            return _status(503)
        chance = random.Random(f"{self.seed} {self.fault} {statement} {self.asked[statement]}")
        if chance.random() >= self.rate:
            return {"text": right(statement), "top": {right(statement): 0.9}}
        fault = FAULTS[self.fault]
        return fault(right(statement)) if callable(fault) else fault

    def run(self, source: Path, out: Path) -> str:
        """Judge a file as `faith-dspy judge` does; why it was stopped, if it was."""
        from faith_dspy import Judge
        from faith_dspy.errors import LMUnavailableError
        from faith_dspy.lm.make import make_lm
        from faith_dspy.runner import run

        self.asked.clear()
        lm = make_lm("openai/tiny", api_base=self.server.base, timeout=TIMEOUT, num_retries=RETRIES)
        try:
            run(Judge(lm, granularity="sentence", cite=True), source, out, threads=8)
        except LMUnavailableError as exc:
            return str(exc)
        return ""


def records(start: int, n: int) -> list[dict[str, Any]]:
    """Two statements each; the second one is unsupported in every second record."""
    second = ("Shipping of lamp {} is free.", "Lamp {} costs nine euros.")
    context = ["Lamps are red.", "Every lamp costs nine euros."]
    return [
        {"id": i, "context": context, "answer": f"Lamp {i} is red. {second[i % 2].format(i)}"}
        for i in range(start, start + n)
    ]


def cell(endpoint: Endpoint, folder: Path, given: list[dict[str, Any]], fault: str, rate: float) -> dict[str, Any]:
    """One fault at one rate: the run, and the resumed one with an endpoint that is well again."""
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in given), encoding="utf-8")
    endpoint.fault, endpoint.rate = fault, rate
    stopped = endpoint.run(source, out)
    rows, most = [json.loads(line) for line in out.read_bytes().splitlines()], max(endpoint.asked.values())
    expected = {s["text"].strip() for row in rows for s in row["statements"] if s["error"]}
    expected |= {sentence.strip() for r in given[len(rows) :] for sentence in re.findall(r"[^.]+\.", r["answer"])}
    endpoint.rate, endpoint.dead_after, endpoint.server.status = 0.0, None, 200
    endpoint.run(source, out)
    healed = [json.loads(line) for line in out.read_bytes().splitlines()]
    out.unlink()
    ids, unfaithful = [r["id"] for r in given], {r["id"] for r in given if "free" in r["answer"]}
    numbers = [row["id"] for row in rows]
    return {
        "fault": fault,
        "rate": f"{rate:.0%}",
        "records": len(given),
        "scored": sum(row["unscored"] is None for row in rows),
        "unscored": dict(Counter(row["unscored"] for row in rows if row["unscored"])),
        "not reached": len(given) - len(rows) if stopped else 0,
        "lost": 0 if stopped else len(given) - len(set(numbers)),
        "doubled": len(numbers) - len(set(numbers)),
        "out of order": numbers != ids[: len(rows)],
        "passed wrongly": sum(row["faithful"] is True and row["id"] in unfaithful for row in rows),
        "too many retries": most > 2 * (RETRIES + 1),
        "asked again": endpoint.asked.total(),
        "asked again for nothing": sum(s.strip() not in expected for s in endpoint.asked if s),
        "unscored after resuming": dict(Counter(row["unscored"] for row in healed if row["unscored"])),
        "failed after resuming": sum(row["unscored"] not in (None, "parse_failed") for row in healed),
        "not whole after resuming": [row["id"] for row in healed] != ids,
        "wrong after resuming": sum(
            row["faithful"] is not (row["id"] not in unfaithful) for row in healed if not row["unscored"]
        ),
        "stopped": stopped,
    }


PROMISES = ("lost", "doubled", "out of order", "passed wrongly", "too many retries", "asked again for nothing")
PROMISES += ("failed after resuming", "not whole after resuming", "wrong after resuming")
"""What is nothing in every cell. A reply without a verdict (`parse_failed`) stays one."""
SHOWN = ("fault", "rate", "records", "scored", "unscored", "not reached", "lost", "doubled", "passed wrongly")
SHOWN += ("asked again", "unscored after resuming")


def broken(row: dict[str, Any]) -> list[str]:
    """Which promises a cell does not keep."""
    return [name for name in PROMISES if row[name]]


def main() -> int:
    """Run all cells; print the table and what is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000, help="in total")
    parser.add_argument("--rates", type=float, nargs="*", default=[0.05, 0.15, 0.30])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(FAULTS), choices=FAULTS, metavar="FAULT")
    parser.add_argument("--out", type=Path, help="all that was counted, as JSON lines")
    asked = parser.parse_args()
    logging.getLogger("faith_dspy").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    os.environ["DSPY_CACHEDIR"] = str(folder / "cache")  # before dspy is imported
    endpoint, plan = Endpoint(asked.seed), [(f, r) for f in asked.only for r in asked.rates]
    each, rows = -(-asked.records // (len(plan) + 1)), []
    for number, (fault, rate) in enumerate([*plan, (plan[-1][0], 0.0)]):
        if number == len(plan):
            fault, endpoint.dead_after = "endpoint dies for good", each
        rows.append(cell(endpoint, folder, records(number * each, each), fault, rate))
        print(json.dumps(rows[-1], ensure_ascii=False), file=sys.stderr, flush=True)
    print(f"| {' | '.join(SHOWN)} |", "|---" * len(SHOWN) + "|", sep="\n")
    for row in rows:
        print(f"| {' | '.join(str(row[name] or 0) for name in SHOWN)} |")
    wrong = {f"{row['fault']}, {row['rate']}": broken(row) for row in rows if broken(row)}
    print(f"\n{sum(r['records'] for r in rows):,} records. Promises broken: {wrong or 'none'}")
    if asked.out:
        asked.out.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
