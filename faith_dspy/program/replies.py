"""Replies read and written: labels, ids, quotes and reasons of one statement or several, and the labels' probabilities.

Reading is lenient about everything but the label: one that is not there is never guessed.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MIN_LABEL_MASS = 0.01
"""Labels that together have less probability than this were not answered at all."""


def write_reply(outputs: Mapping[str, Any]) -> str:
    """A reply in the form that prompts ask for and demos show."""
    text = ""
    reason_first = next(iter(outputs)) == "reason"
    for name, value in outputs.items():
        if value is None:  # a demo's label without a reason
            continue
        if name == "quotes":
            text += "".join(f'\nQuote: "{quote}"' for quote in value)
        elif name == "reason":
            text += f"\nWhy: {value}"
        elif name == "statements":
            text += "\n".join(value)
        elif isinstance(value, list | tuple):
            text += f" [{', '.join(map(str, value))}]"
        else:
            text += ("\nVerdict: " if reason_first else " ") + str(value)
    return text.strip()


_VERDICT = re.compile(r"^\W*(?:verdict|answer)\W*:\W*", re.IGNORECASE | re.MULTILINE)
_WHY = re.compile(r"^\W*(?:why|reason|reasoning|explanation)\W*:\s*", re.IGNORECASE | re.MULTILINE)
_QUOTED = re.compile(r"^\W*quotes?\W*?:[^\S\n]*(.*)$", re.IGNORECASE | re.MULTILINE)
_IDS = re.compile(r"\[([\d,\s]*)\]")


def read_fields(fields: Mapping[str, Any], completion: str) -> dict[str, Any]:
    """One verdict, or whatever else the fields name, from a reply in the form of `write_reply`."""
    rest = completion.strip()
    out: dict[str, Any] = {}
    if next(iter(fields)) == "reason":
        end, at = split_reasoning(completion)
        out["label_at"] = at
        out["reason"] = _WHY.sub("", completion[:end], count=1).strip() or None
        rest = completion[at:].strip()
    long = bool(fields.keys() & {"quotes", "reason"})
    head = re.split(_QUOTED.pattern + "|" + _WHY.pattern, rest, maxsplit=1, flags=_WHY.flags)[0] if long else rest
    for name, kind in fields.items():
        if get_origin(kind) is Literal:
            out[name] = read_label(rest, get_args(kind))
        elif _is_list_of(kind, int):
            bracket = _IDS.search(head)
            # Without brackets only numbers right after the label count, not numbers in some explanation.
            found = bracket.group(1) if bracket else re.sub(r"^\W*\w+\W*", "", head.split("\n")[0])
            out[name] = [int(n) for n in re.findall(r"\d{1,4}", found)] if bracket or len(found) < 16 else []
        elif name == "quotes":
            out[name] = [q.strip() for q in _QUOTED.findall(rest)]
        elif _is_list_of(kind, str):
            out[name] = [line.strip() for line in rest.splitlines() if line.strip()]
        elif name == "reason":
            ids = rf"(?:{_IDS.pattern}\W*)?" if "supporting_chunk_ids" in fields else ""
            after = re.sub(rf"^\W*\w+[^\w\[]*{ids}", "", _QUOTED.sub("", rest), count=1)
            out.setdefault(name, _WHY.sub("", after, count=1).strip() or None)
        else:
            out[name] = rest
    return out


def split_reasoning(completion: str) -> tuple[int, int]:
    """Where the reasoning of a reply that reasons first ends, and where its label begins: two offsets."""
    *_, last = [None, *_VERDICT.finditer(completion)]
    if last:
        return last.start(), last.end()
    at = len(completion.rstrip().rpartition("\n")[0])  # without a heading the label may still be the last line
    return at, at


def from_lines(fields: Mapping[str, Any], completion: str) -> Iterator[dict[str, Any]]:
    """Entries of ``1. Yes`` and the lines that belong to each."""
    starts = list(re.finditer(r"^[\s\-*\[(]*(\d{1,3})[\]).:*]+\s+", completion, re.MULTILINE))
    for match, after in zip(starts, [*starts[1:], None], strict=False):  # one longer when there are none
        block = completion[match.end() : after.start() if after else len(completion)]
        entry = read_fields(fields, block)
        yield {"statement": int(match[1]), **entry, "label_at": match.end() + entry.get("label_at", 0)}


def from_json(fields: Mapping[str, Any], completion: str) -> Iterator[dict[str, Any]]:
    """Entries of a JSON reply, also of one that was cut off, or wrapped in something else."""
    position = 0
    while (start := completion.find("{", position)) >= 0:
        position = start + 1
        try:
            value, length = json.JSONDecoder().raw_decode(completion[start:])
        except ValueError:
            continue
        if not isinstance(value, dict) or "statement" not in value or "verdict" not in value:
            continue
        position = start + length
        raw = completion[start:position]
        verdict = re.search(r'"verdict"\s*:\s*"', raw)
        number = str(value["statement"]).strip()
        if not verdict or not number.isdecimal():
            continue
        entry = {name: _as(kind, value.get(name)) for name, kind in fields.items()}
        yield {"statement": int(number), **entry, "label_at": start + verdict.end()}


def _as(kind: Any, value: Any) -> Any:
    """A JSON value as its field wants it; what does not fit is left out."""
    if get_origin(kind) is Literal:
        return read_label(value, get_args(kind)) if isinstance(value, str) else None
    if _is_list_of(kind, int):
        # Not a boolean; and a number that is no id counts as one that does not exist.
        return [v for v in value if type(v) is int] if isinstance(value, list) else []
    if _is_list_of(kind, str):
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return [v for v in values if isinstance(v, str)]
    return value.strip() or None if isinstance(value, str) else None


def _is_list_of(annotation: Any, item: type) -> bool:
    return get_origin(annotation) is list and get_args(annotation) == (item,)


def _plain(text: str) -> str:
    return re.sub(r"^[\W_]+", "", text).lower()


def read_label(reply: str, labels: Iterable[str]) -> str | None:
    """The label a reply starts with, whatever its case and punctuation; also when the reply was cut inside the label.

    None when there is none, or when more than one fits.
    """
    word = re.sub(r"[\W_]+$", "", next(iter(_plain(reply).split()), ""))
    exact = [label for label in labels if _plain(label) == word]
    fits = exact or [label for label in labels if word and _plain(label).startswith(word)]
    return fits[0] if len(fits) == 1 else None


_begun = lru_cache(maxsize=10_000)(read_label)  # most replies offer the same tokens


def label_probabilities(top: Iterable[Any], labels: Iterable[str]) -> dict[str, float] | None:
    """Probability of each label from the alternatives of the reply's first token.

    ``top``: objects or mappings with ``token`` and ``logprob`` (natural log). Tokens are pooled by the label they begin
    (" yes", "Yes", "YES"); the result sums to 1. None when the labels share less than `MIN_LABEL_MASS`.
    """
    labels = tuple(labels)
    mass = dict.fromkeys(labels, 0.0)
    for entry in map(_mapping, top):
        label = _begun(entry["token"], labels)
        if label is not None:
            mass[label] += math.exp(entry["logprob"])
    total = sum(mass.values())
    return {label: m / total for label, m in mass.items()} if total >= MIN_LABEL_MASS else None


def token_alternatives(content: Iterable[Any], at: int | None = None) -> list[Any]:
    """Alternatives of a reply's first token, or of the one that holds the first letter from character ``at`` on.

    ``content``: OpenAI's list of tokens with ``token``, ``bytes`` and ``top_logprobs``, as objects or mappings.
    """
    tokens = list(map(_mapping, content))
    if at is None:
        return list(tokens[0].get("top_logprobs") or []) if tokens else []
    text = token_text(tokens)
    letter = re.compile(r"[^\W_]").search(text, at)
    wanted = len(text[: letter.start() if letter else None].encode())
    position = 0
    for token in tokens:
        position += len(_bytes(token))
        if position > wanted:
            return list(token.get("top_logprobs") or [])
    return []


def token_text(content: Iterable[Any]) -> str:
    """The reply that these tokens make up."""
    return b"".join(_bytes(_mapping(t)) for t in content).decode(errors="replace")


def _mapping(token: Any) -> Mapping[str, Any]:
    return token if isinstance(token, dict) else vars(token)


def _bytes(token: Mapping[str, Any]) -> bytes:
    return bytes(token["bytes"]) if token.get("bytes") else str(token["token"]).encode()
