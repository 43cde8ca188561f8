"""A recorded LM: an OpenAI-compatible endpoint whose reply is a function of the request's messages alone."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from typing import Any

from tests.chat_server import ChatServer

MODELS = ("golden", "gpt-4o-mini")  # of the second DSPy knows that it holds replies to a JSON schema
LABELS = {  # what is asked for in the prompt → labels, from no support to full support
    "completely (": ("not", "hardly", "mixed", "generally", "completely"),
    "fully (": ("contradicts", "nothing", "partly", "fully"),
    "": ("No", "Yes"),
}


class Endpoint(ChatServer):
    """Answers by the words that statement and context share.

    ``mode``: ``tells`` token probabilities · ``faulty``: 400 for every third statement · ``unsure``: a repeated request
    gets other labels.
    """

    def __init__(self, mode: str = "tells") -> None:
        super().__init__(says=self.reply, models=[{"id": name} for name in MODELS])
        self.http.RequestHandlerClass.protocol_version = "HTTP/1.1"  # connections are kept open
        self.http.RequestHandlerClass.disable_nagle_algorithm = True
        self.mode, self.seen = mode, Counter[str]()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What `ChatServer` is to say."""
        prompt, key = asked["messages"][-1]["content"], json.dumps(asked["messages"])
        self.seen[key] += 1
        if self.mode == "faulty" and "\n\nStatement: " in prompt and _third(_statement(prompt)):
            return {"status": 400, "text": "no such request"}
        return {"tokens": [(text, top or {text: 1.0}) for text, top in self.pieces(prompt, self.seen[key])]}

    def pieces(self, prompt: str, turn: int) -> list[tuple[str, dict[str, float] | None]]:
        """The reply in pieces: text, and of a label the probability of each."""
        if "Sentences:\n" in prompt:
            return [(_extracted(prompt), None)]
        several = re.search(r"^\[\[ ## statements ## \]\]\n(.*)", prompt, re.MULTILINE)
        if several is None:
            return self.verdict(prompt, _statement(prompt), turn)
        pieces: list[tuple[str, dict[str, float] | None]] = [('{"verdicts": [', None)]
        for number, text in json.loads(several[1]).items():
            if int(number) % 7 == 6:  # some it leaves out
                continue
            begin = f'{", " if len(pieces) > 1 else ""}{{"statement": {number}, "verdict": "'
            pieces += [(begin, None), *self.verdict(prompt, text, turn), ('"}', None)]
        return [*pieces, ("]}", None)]

    def verdict(self, prompt: str, statement: str, turn: int) -> list[tuple[str, dict[str, float] | None]]:
        """What is said about one statement, in the form the prompt asks for."""
        chunks = re.findall(r"^\[\d+\] (.*)$", prompt.rpartition("Context:\n")[2].partition("\n\n")[0], re.MULTILINE)
        if in_json := re.search(r"^\[\[ ## context ## \]\]\n(.*)", prompt, re.MULTILINE):
            chunks = list(json.loads(in_json[1]).values())
        words = _words(statement)
        shared = [len(words & _words(chunk)) for chunk in chunks] or [0]
        best = shared.index(max(shared))
        noise = int(hashlib.sha256(statement.encode()).hexdigest()[:8], 16) / 2**32
        lacking = {w for w in words if w.isdigit()} - _words(" ".join(chunks))
        p = 0.9 * shared[best] / max(1, len(words)) + 0.2 * (noise - 0.5) - (0.3 if lacking else 0.0)
        if re.search(r"[.!?] \w", statement):  # of several sentences it can tell little
            p = 0.25 * p + 0.6 * noise
        p = min(0.98, max(0.02, p))
        if self.mode == "unsure":
            p = p if turn % 2 else 1 - p
        label, top = _labelled(prompt, p)
        ids = [*([best] if shared[best] else []), *([7] if noise < 0.2 else [])]
        quotes = [" ".join(chunks[best].split()[:6]) if noise < 0.8 else "made of gold"] if chunks else []
        why = f"{shared[best]} of {len(words)} words are there."
        before = "First think" in prompt
        after = f" {ids}" if "ids of the passages" in prompt else ""
        after += "".join(f'\nQuote: "{quote}"' for quote in quotes) if "Quote the shortest" in prompt else ""
        after += f"\nWhy: {why}" if "Then say why" in prompt else ""
        return [(f"Why: {why}\nVerdict: " if before else "", None), (label, top), (after, None)]


def _labelled(prompt: str, p: float) -> tuple[str, dict[str, float]]:
    """The label that is the likeliest at ``p`` of support, and the probability of each."""
    ask = prompt.rpartition("\n\n")[2]
    labels = next(found for mark, found in LABELS.items() if mark in ask)
    last = len(labels) - 1
    weights = [math.exp(-last * abs(i / last - p)) if last > 1 else (1 - p, p)[i] for i in range(len(labels))]
    shares = {label: w / sum(weights) * 0.95 for label, w in zip(labels, weights, strict=True)}
    return max(shares, key=lambda name: shares[name]), {**shares, "The": 0.05}


def _extracted(prompt: str) -> str:
    """Statements of the numbered sentences, split at “and”; to some it adds what nobody said, some it leaves out."""
    lines = []
    for number, text in re.findall(r"^\[(\d+)\] (.*)$", prompt.rpartition("Sentences:\n")[2], re.MULTILINE):
        lines += [f"{number}. {part.strip()}" for part in text.split(" and ")]
        if _third(text):
            lines.append(f"{number}. Professor Quill invented a zeppelin.")
        elif text.startswith(("A ", "It ")):
            lines[-1] = f"{number}. none"
    return "\n".join(lines)


def _statement(prompt: str) -> str:
    return prompt.rpartition("\n\nStatement: ")[2].partition("\n\n")[0]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]{2,}|\d|[\u3040-\u9fff]", text.casefold()))


def _third(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 3 == 0
