"""Compact prompts and replies that a small LM can keep to, and the verdict's probability read from its first token.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own.
Several statements are answered in numbered lines, or in JSON. Everything DSPy optimizers compile – instructions and
demos – stays DSPy's own.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple, get_args, get_origin

from dspy import Signature
from dspy.adapters import ChatAdapter
from dspy.utils.exceptions import AdapterParseError

from faith_dspy.lm.metered import MeteredLM
from faith_dspy.program.extraction import read_statements
from faith_dspy.text.words import visible

MAX_REPLY = 1_000_000
"""Characters of a reply; a longer one is not what was asked for, and not read."""
MAX_REPLAYS = 20
"""Replies to one question that DSPy's cache may hold and that cannot be read, before the last of them counts."""


class CompactAdapter(ChatAdapter):
    """Fields by name, one blank line apart; no markers. One call per prediction, never a silent second one.

    ``structured``: verdicts on several statements are asked for in JSON, see `response_format`.
    """

    def __init__(self, *, structured: bool = False) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self.structured = structured

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """As DSPy's adapters. What its cache holds and cannot be read is asked for again.

        DSPy keeps each reply as it comes and has no public way to drop one. So a kept reply that cannot be read is
        passed over, and the question asked under the cache key of another rollout, where a good reply stays.
        """
        values: list[dict[str, Any]] = []
        known = lm_kwargs.get("rollout_id", getattr(lm, "kwargs", {}).get("rollout_id")) or 0
        for again in range(MAX_REPLAYS):
            rollout = {"rollout_id": known + again * 1_000_000} if again else {}
            try:
                values = super().__call__(lm, {**lm_kwargs, **rollout}, signature, demos, inputs)
            except AdapterParseError:  # empty
                if not _replayed(lm) or again == MAX_REPLAYS - 1:
                    raise
                continue
            if not _replayed(lm) or all(_is_read(signature, value, is_sampled(lm)) for value in values):
                break
        return values

    def format(
        self, signature: type[Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Messages: system, one user/assistant pair per complete demo, the request."""
        top, _, ask = signature.instructions.strip().rpartition("\n\n")
        messages = [{"role": "system", "content": top}] if top else []
        for demo in demos:
            if all(name in demo for name in [*signature.input_fields, *signature.output_fields]):
                messages += [
                    {"role": "user", "content": self._request(signature, demo, ask)},
                    {"role": "assistant", "content": self._reply(signature, demo)},
                ]
        return [*messages, {"role": "user", "content": self._request(signature, inputs, ask)}]

    def _request(self, signature: type[Signature], inputs: Mapping[str, Any], ask: str) -> str:
        parts = []
        for name in signature.input_fields:
            value = inputs.get(name)
            if not value:
                continue
            title = name.replace("_", " ").capitalize()
            if isinstance(value, list | tuple):
                first = 0 if name == "context" else 1
                lines = "\n".join(f"[{i}] {as_data(str(v))}" for i, v in enumerate(value, first))
                parts.append(f"{title}:\n{lines}")
            else:
                parts.append(f"{title}: {as_data(str(value))}")
        form = self._form(signature)
        return "\n\n".join([*parts, f"{ask}\n{form}" if form else ask])

    def _form(self, signature: type[Signature]) -> str:
        """How to reply, where it takes more than a line."""
        entry = _entry(signature)
        fields = entry or _fields(signature)
        if entry is None and not fields.keys() & {"quotes", "reason"}:
            return ""
        blank = {"statement": 1, "supporting_chunk_ids": ["ids"], "quotes": ["…"], "reason": "…"}
        blank["verdict"] = "/".join(get_args(fields["verdict"]))
        if entry is not None and self.structured:
            return "Reply in JSON: " + json.dumps({"verdicts": [{n: blank[n] for n in fields}]}, ensure_ascii=False)
        number = "" if entry is None else "1. "
        return "Reply in this form:\n" + number + write_reply({n: blank[n] for n in fields if n != "statement"})

    def _reply(self, signature: type[Signature], outputs: Mapping[str, Any]) -> str:
        if _entry(signature) is None:
            return write_reply({name: _data(outputs[name]) for name in signature.output_fields})
        return "\n".join(
            f"{e['statement']}. {write_reply({k: _data(v) for k, v in e.items() if k != 'statement'})}"
            for e in outputs["verdicts"]
        )

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Read a reply leniently. A label that is not there is None, for the program to count as unjudged.

        Of several verdicts those come back that have a statement's number of their own; each has ``label_at``, its
        label's offset in the reply.
        """
        entry = _entry(signature)
        completion = without_thoughts(completion) if len(completion) <= MAX_REPLY else ""
        if entry is None:
            return read_fields(_fields(signature), completion)
        fields = {name: kind for name, kind in entry.items() if name != "statement"}
        found = list(from_json(fields, completion)) or list(from_lines(fields, completion))
        times = Counter(e["statement"] for e in found)
        return {"verdicts": [e for e in found if times[e["statement"]] == 1]}


def is_sampled(lm: Any) -> bool:
    """Whether the LM draws its tokens by chance."""
    return bool(getattr(lm, "kwargs", {}).get("temperature"))


def _replayed(lm: Any) -> bool:
    return isinstance(lm, MeteredLM) and lm.replayed()


def _is_read(signature: type[Signature], value: Mapping[str, Any], sampled: bool) -> bool:
    """Whether a reply says what was asked for, in a form that can be read."""
    if "statements" in value:
        return bool(read_statements(value["statements"]))
    entry = _entry(signature) or _fields(signature)
    if "verdict" not in entry:
        return True
    tokens, labels = tokens_of(value.get("logprobs")), get_args(entry["verdict"])
    if "verdicts" not in value:
        reasons_first = next(iter(signature.output_fields)) == "reason"
        value = {**value, "label_at": label_offset(tokens.text, reasons_first)}
    replies = [read_reply(tokens, e, labels, sampled=sampled) for e in value.get("verdicts", [value])]
    return any(r.label is not None for r in replies) and all(r.is_sound for r in replies)


def _data(value: Any) -> Any:
    """A demo's output, whose quotes and reasons an LM or a person wrote."""
    if isinstance(value, list | tuple):
        return [_data(item) for item in value]
    return as_data(value) if isinstance(value, str) else value


def response_format(signature: type[Signature]) -> dict[str, Any]:
    """OpenAI's ``response_format`` that holds a reply to the JSON of a signature with several verdicts."""
    item = get_args(signature.output_fields["verdicts"].annotation)[0].model_json_schema()
    schema = {
        "type": "object",
        "properties": {"verdicts": {"type": "array", "items": item}},
        "required": ["verdicts"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}


def _fields(signature: type[Signature]) -> dict[str, Any]:
    return {name: field.annotation for name, field in signature.output_fields.items()}


def _entry(signature: type[Signature]) -> dict[str, Any] | None:
    """Fields of one verdict where the signature asks for several."""
    field = signature.output_fields.get("verdicts")
    return field and {n: f.annotation for n, f in get_args(field.annotation)[0].model_fields.items()}


@lru_cache(maxsize=64)  # a document is formatted once for all its statements
def as_data(text: str) -> str:
    """Text that others wrote, as a prompt holds it: inside one field or one chunk, whatever it says.

    Fields and chunks begin at the beginning of a line, messages with a token of the chat template. Promised is that
    the data has neither:

    - All lines but the first begin with a space, and none is blank: ``Statement: …``, ``[1] …`` or a question inside
      the data stand visibly inside it. Whatever Unicode calls a line break is one.
    - No angle or square bracket holds a bar or a single ASCII word, as templates' tokens do (``<|im_end|>``, ``</s>``,
      ``[INST]``, ``<think>``): a space follows the opening one. Numbers (``[1]``) and several words stay.
    - There is no invisible character (`faith_dspy.text.words`) by which either could be got around.

    Ordinary text of one line stays as it is, and all words stay, to be judged. Not promised is that the LM does not do
    what the words say. Offsets and quotes refer to the text as given.
    """
    lines = (line for line in map(visible, text.splitlines()) if line.strip())
    return _TOKEN.sub(r"\g<0> ", "\n ".join(lines)).strip()


_TOKEN = re.compile(r"[<\[](?=[|｜]|[|/]?[A-Za-z_][\w.:=-]*[|/]?[>\]])", re.ASCII)


MIN_LABEL_MASS = 0.01
"""Labels that together have less probability than this were not answered at all."""
MAX_LOGPROB = 1e-3
"""Log-probabilities above it are none; servers round theirs."""
THOUGHTS_END = "</think>"
"""What reasoning models that show their thoughts end them with."""
MAX_LABEL = 64
"""Characters of a reply's first word that are looked at."""


class Reply(NamedTuple):
    """What one reply, or several samples taken together, says about a statement."""

    label: str | None
    probabilities: dict[str, float] | None = None
    """Of each label; None if the LM gives none."""
    chunk_ids: tuple[int, ...] = ()
    quotes: tuple[str, ...] = ()
    reason: str | None = None
    is_sound: bool = True
    """False if its log-probabilities are impossible, or contradict its label."""


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


# What leads a line, `[^\w\n]*`, ends with it: else many blank lines would take time quadratic in their number.
_VERDICT = re.compile(r"^[^\w\n]*(?:verdict|answer)\W*:\W*", re.IGNORECASE | re.MULTILINE)
_WHY = re.compile(r"^[^\w\n]*(?:why|reason|reasoning|explanation)\W*:\s*", re.IGNORECASE | re.MULTILINE)
_QUOTED = re.compile(r"^[^\w\n]*quotes?\W*?:[^\S\n]*(.*)$", re.IGNORECASE | re.MULTILINE)
_ENTRY = re.compile(r"^(?:[^\S\n]|[\-*\[(])*(\d{1,3})[\]).:*]+\s+", re.MULTILINE)
# A JSON object without others inside; outside its strings nothing is escaped.
_OBJECT = re.compile(r'\{(?:[^{}"\\]++|"(?:[^"\\]++|\\.)*+")*+\}', re.DOTALL)
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


def without_thoughts(completion: str) -> str:
    """A reply with the thoughts that a reasoning model wrote before it made blank, so that offsets stay."""
    end = _thoughts(completion)
    return " " * end + completion[end:]


def label_offset(completion: str, reasons_first: bool) -> int | None:
    """Where the label of a reply begins after its reasoning or thoughts; None if it begins the reply."""
    end = _thoughts(completion)
    return max(end, split_reasoning(without_thoughts(completion))[1]) if reasons_first else end or None


def _thoughts(completion: str) -> int:
    return completion.rfind(THOUGHTS_END) + len(THOUGHTS_END) if THOUGHTS_END in completion else 0


def split_reasoning(completion: str) -> tuple[int, int]:
    """Where the reasoning of a reply that reasons first ends, and where its label begins: two offsets."""
    *_, last = [None, *_VERDICT.finditer(completion)]
    if last:
        return last.start(), last.end()
    at = len(completion.rstrip().rpartition("\n")[0])  # without a heading the label may still be the last line
    return at, at


def from_lines(fields: Mapping[str, Any], completion: str) -> Iterator[dict[str, Any]]:
    """Entries of ``1. Yes`` and the lines that belong to each."""
    starts = list(_ENTRY.finditer(completion))
    for match, after in zip(starts, [*starts[1:], None], strict=False):  # one longer when there are none
        block = completion[match.end() : after.start() if after else len(completion)]
        entry = read_fields(fields, block)
        yield {"statement": int(match[1]), **entry, "label_at": match.end() + entry.get("label_at", 0)}


def from_json(fields: Mapping[str, Any], completion: str) -> Iterator[dict[str, Any]]:
    """Entries of a JSON reply, also of one that was cut off, or wrapped in something else."""
    for found in _OBJECT.finditer(completion):
        try:
            value = json.loads(found[0])
        except (ValueError, RecursionError):
            continue
        if "statement" not in value or "verdict" not in value:
            continue
        verdict = re.search(r'"verdict"\s*:\s*"', found[0])
        number = str(value["statement"]).strip()
        if not verdict or not number.isdecimal() or len(number) > 3:
            continue
        entry = {name: _as(kind, value.get(name)) for name, kind in fields.items()}
        yield {"statement": int(number), **entry, "label_at": found.start() + verdict.end()}


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
    word = re.sub(r"[\W_]+$", "", next(iter(_plain(reply).split(None, 1)), "")[:MAX_LABEL])
    exact = [label for label in labels if _plain(label) == word]
    fits = exact or [label for label in labels if word and _plain(label).startswith(word)]
    return fits[0] if len(fits) == 1 else None


_begun = lru_cache(maxsize=10_000)(read_label)  # most replies offer the same tokens


def label_probabilities(top: Iterable[Any], labels: Iterable[str]) -> dict[str, float] | None:
    """Probability of each label from the alternatives of the reply's first token.

    ``top``: objects or mappings with ``token`` and ``logprob`` (natural log). Tokens are pooled by the label they begin
    (" yes", "Yes", "YES"); the result sums to 1. None when the labels share less than `MIN_LABEL_MASS`, or a
    log-probability is none.
    """
    labels = tuple(labels)
    mass = dict.fromkeys(labels, 0.0)
    for entry in map(_mapping, top):
        if not is_logprob(entry.get("logprob")):
            return None
        label = _begun(str(entry.get("token"))[:MAX_LABEL], labels)
        if label is not None:
            mass[label] += math.exp(entry["logprob"])
    total = sum(mass.values())
    return {label: m / total for label, m in mass.items()} if total >= MIN_LABEL_MASS else None


def is_logprob(value: Any) -> bool:
    """Whether a value can be the natural logarithm of a probability."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= MAX_LOGPROB  # NaN is not


class Tokens(list[Any]):
    """A reply's tokens: OpenAI's, with ``token``, ``bytes`` and ``top_logprobs``, as objects or mappings."""

    @cached_property
    def text(self) -> str:
        """The reply that they make up."""
        return b"".join(map(_bytes, self)).decode(errors="replace")

    @cached_property
    def ends(self) -> list[int]:
        """Where each token ends, in bytes."""
        return list(accumulate(len(_bytes(token)) for token in self))


def tokens_of(logprobs: Any) -> Tokens:
    """A reply's tokens from what the LM gave as its ``logprobs``; empty if it gave none."""
    content = _mapping(logprobs).get("content")
    return Tokens(content if isinstance(content, list | tuple) else ())


def read_reply(tokens: Tokens, fields: Mapping[str, Any], labels: Iterable[str], *, sampled: bool = False) -> Reply:
    """One verdict of a reply, from its parsed ``fields`` and its ``tokens``.

    With token probabilities the likeliest label counts. A reply that was not ``sampled`` writes the likeliest token:
    one that begins another label than the one written contradicts itself, and has no label.
    """
    at, label = fields.get("label_at"), fields.get("verdict")
    top = [_mapping(t) for t in token_alternatives(tokens, at)]
    probabilities = label_probabilities(top, labels)
    is_sound = all(is_logprob(t.get("logprob")) for t in top)
    if is_sound and top and label is not None and not sampled:
        likeliest = max(top, key=lambda t: float(t["logprob"]))
        is_sound = _begun(str(likeliest.get("token"))[:MAX_LABEL], tuple(labels)) in (None, label)
        label = label if is_sound else None
    if at is not None and (label is None or not (probabilities or {}).get(label)):
        probabilities = None  # the token there does not begin the label that was read
    if not is_sound:
        probabilities = None
    if probabilities:
        label = max(probabilities, key=lambda name: probabilities[name])
    ids, quotes = (tuple(fields.get(name) or ()) for name in ("supporting_chunk_ids", "quotes"))
    return Reply(label, probabilities, ids, quotes, fields.get("reason"), is_sound)


def token_alternatives(tokens: Tokens, at: int | None = None) -> list[Any]:
    """Alternatives of a reply's first token, or of the one that holds the first letter from character ``at`` on."""
    index = 0
    if at is not None:
        letter = re.compile(r"[^\W_]").search(tokens.text, at)
        index = bisect_right(tokens.ends, len(tokens.text[: letter.start() if letter else None].encode()))
    return list(_mapping(tokens[index]).get("top_logprobs") or []) if index < len(tokens) else []


def _mapping(token: Any) -> Mapping[str, Any]:
    return token if isinstance(token, dict) else getattr(token, "__dict__", {})


def _bytes(token: Any) -> bytes:
    fields = _mapping(token)
    return bytes(fields["bytes"]) if fields.get("bytes") else str(fields.get("token", "")).encode(errors="replace")
