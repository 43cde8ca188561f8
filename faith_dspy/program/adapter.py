"""Compact prompts and replies that a small LM can keep to, and what a reply says about a statement: `read_verdict`.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own. Everything DSPy
optimizers compile – instructions and demos – stays DSPy's own.

Reading is lenient about everything but the label: one that is not there is never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args, get_origin

from dspy import Signature
from dspy.adapters import ChatAdapter

from faith_dspy.program.signatures import Instruction
from faith_dspy.schema import RawVerdict, Statement
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.text.words import visible

MAX_REPLY = 1_000_000
"""Characters of a reply; a longer one is not what was asked for, and not read."""
MAX_LABEL = 64
"""Characters of a reply's first word that are looked at."""
MIN_LABEL_MASS = 0.01
"""Labels that together have less probability than this were not answered at all."""
MAX_LOGPROB, MAX_MASS = 1e-3, 1.01
"""Log-probabilities above the one, or that add up to more than the other, are none; servers round theirs."""
LABEL_LOGIT = 2.0
"""Log-odds that stand for a label without a probability (p = .88)."""
THOUGHTS_END = "</think>"
"""What reasoning models that show their thoughts end them with."""


class CompactAdapter(ChatAdapter):
    """Fields by name, one blank line apart; no markers. One call per prediction, never a silent second one."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format(
        self, signature: type[Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Messages: system, one user/assistant pair per complete demo, the request."""
        top, _, ask = signature.instructions.strip().rpartition("\n\n")
        messages = [{"role": "system", "content": top}] if top else []
        for demo in demos:
            if all(name in demo for name in [*signature.input_fields, *signature.output_fields]):
                reply = write_reply({name: _data(demo[name]) for name in signature.output_fields})
                messages.append({"role": "user", "content": _request(signature, demo, ask)})
                messages.append({"role": "assistant", "content": reply})
        return [*messages, {"role": "user", "content": _request(signature, inputs, ask)}]

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """The fields of a reply. A label that is not there is None, for the program to count as unjudged."""
        completion = completion[_thoughts(completion) :] if len(completion) <= MAX_REPLY else ""
        return read_fields(_fields(signature), completion)


def _fields(signature: type[Signature]) -> dict[str, Any]:
    return {name: field.annotation for name, field in signature.output_fields.items()}


def _request(signature: type[Signature], inputs: Mapping[str, Any], ask: str) -> str:
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
    fields = _fields(signature)
    if fields.keys() & {"quotes", "reason"}:  # it takes more than a line to say how to reply
        labels = "/".join(get_args(fields["verdict"]))
        blank = {"verdict": labels, "supporting_chunk_ids": ["ids"], "quotes": ["…"], "reason": "…"}
        ask += "\nReply in this form:\n" + write_reply({name: blank[name] for name in fields})
    return "\n\n".join([*parts, ask])


def _data(value: Any) -> Any:
    """A demo's output, whose quotes and reasons an LM or a person wrote."""
    if isinstance(value, list | tuple):
        return [_data(item) for item in value]
    return as_data(value) if isinstance(value, str) else value


@lru_cache(maxsize=64)  # a document is formatted once for all its statements
def as_data(text: str) -> str:
    """Text that others wrote, as a prompt holds it: inside one field or one chunk, whatever it says.

    Fields and chunks begin at the beginning of a line, messages with a token of the chat template. Promised is that
    the data has neither:

    - All lines but the first begin with a space, and none is blank: ``Statement: …``, ``[1] …`` or a question inside
      the data stand visibly inside it. Whatever Unicode calls a line break is one.
    - No angle or square bracket holds a bar or a single ASCII word, as templates' tokens do (``<|im_end|>``, ``</s>``,
      ``[INST]``, ``<think>``): a space follows the opening one. Numbers (``[1]``) and several words stay.
    - There is no invisible character (`visible`) by which either could be got around.

    Ordinary text of one line stays as it is, and all words stay, to be judged. Not promised is that the LM does not do
    what the words say. Offsets and quotes refer to the text as given.
    """
    lines = (line for line in map(visible, text.splitlines()) if line.strip())
    return _TEMPLATE_TOKEN.sub(r"\g<0> ", "\n ".join(lines)).strip()


_TEMPLATE_TOKEN = re.compile(r"[<\[](?=[|｜]|[|/]?[A-Za-z_][\w.:=-]*[|/]?[>\]])", re.ASCII)


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
_IDS = re.compile(r"\[([\d,\s]*)\]")


def read_fields(fields: Mapping[str, Any], completion: str) -> dict[str, Any]:
    """One verdict, or whatever else the fields name, from a reply in the form of `write_reply`."""
    rest = completion.strip()
    out: dict[str, Any] = {}
    if next(iter(fields)) == "reason":
        end, at = split_reasoning(completion)
        out["reason"] = _WHY.sub("", completion[:end], count=1).strip() or None
        rest = completion[at:].strip()
    long = bool(fields.keys() & {"quotes", "reason"})
    head = re.split(_QUOTED.pattern + "|" + _WHY.pattern, rest, maxsplit=1, flags=_WHY.flags)[0] if long else rest
    for name, kind in fields.items():
        if get_origin(kind) is Literal:
            out[name] = read_label(rest, get_args(kind))
        elif kind == list[int]:
            bracket = _IDS.search(head)
            # Without brackets only numbers right after the label count, not numbers in some explanation.
            found = bracket.group(1) if bracket else re.sub(r"^\W*\w+\W*", "", head.split("\n")[0])
            out[name] = [int(n) for n in re.findall(r"\d{1,4}", found)] if bracket or len(found) < 16 else []
        elif name == "quotes":
            out[name] = [q.strip() for q in _QUOTED.findall(rest)]
        elif name == "reason":
            ids = rf"(?:{_IDS.pattern}\W*)?" if "supporting_chunk_ids" in fields else ""
            after = re.sub(rf"^\W*\w+[^\w\[]*{ids}", "", _QUOTED.sub("", rest), count=1)
            out.setdefault(name, _WHY.sub("", after, count=1).strip() or None)
        else:
            out[name] = [line.strip() for line in rest.splitlines() if line.strip()]
    return out


def split_reasoning(completion: str) -> tuple[int, int]:
    """Where the reasoning of a reply that reasons first ends, and where its label begins: two offsets."""
    *_, last = [None, *_VERDICT.finditer(completion)]
    if last:
        return last.start(), last.end()
    at = len(completion.rstrip().rpartition("\n")[0])  # without a heading the label may still be the last line
    return at, at


def label_offset(completion: str, reasons_first: bool) -> int | None:
    """Where the label of a reply begins after its reasoning or thoughts; None if it begins the reply."""
    end = _thoughts(completion)
    return end + split_reasoning(completion[end:])[1] if reasons_first else end or None


def _thoughts(completion: str) -> int:
    """Where the thoughts end that a reasoning model wrote before its reply."""
    return completion.rfind(THOUGHTS_END) + len(THOUGHTS_END) if THOUGHTS_END in completion else 0


def _plain(text: str) -> str:
    return re.sub(r"^[\W_]+", "", text).lower()


@lru_cache(maxsize=10_000)  # most replies offer the same tokens
def _begun(word: str, labels: Sequence[str]) -> str | None:
    exact = [label for label in labels if _plain(label) == word]
    fits = exact or [label for label in labels if word and _plain(label).startswith(word)]
    return fits[0] if len(fits) == 1 else None


def read_label(reply: str, labels: Iterable[str]) -> str | None:
    """The label a reply starts with, whatever its case and punctuation; also when the reply was cut inside the label.

    None when there is none, or when more than one fits.
    """
    word = next(iter(_plain(reply).split(None, 1)), "")[:MAX_LABEL]
    return _begun(re.sub(r"[\W_]+$", "", word), tuple(labels))


class Tokens(list[Any]):
    """A reply's tokens: OpenAI's, with ``token`` and ``top_logprobs``, as objects or dictionaries."""

    @cached_property
    def text(self) -> str:
        """The reply that they make up."""
        return "".join(str(_get(token, "token")) for token in self)

    def at(self, offset: int | None) -> Any:
        """The first token, or the one that has the first letter from ``offset`` in `text` on; None if there is none."""
        end = 0
        for token in self:
            start, end = end, end + len(str(_get(token, "token")))
            if offset is None or re.search(r"[^\W_]", self.text[max(start, offset) : end]):
                return token
        return None


def tokens_of(prediction: Mapping[str, Any]) -> Tokens:
    """The tokens of a prediction's reply; empty if the LM gave none."""
    content = _get(prediction.get("logprobs"), "content")
    return Tokens(content if isinstance(content, list | tuple) else ())


def _get(token: Any, name: str) -> Any:
    return token.get(name) if isinstance(token, dict) else getattr(token, name, None)


def read_verdict(
    said: Mapping[str, Any],
    statement: Statement,
    instruction: Instruction,
    chunk_ids: Sequence[int],
    tokens: Tokens | None = None,
    at: int | None = None,
    *,
    sampled: bool = False,
) -> RawVerdict:
    """The verdict of one reply: ``said`` are its fields, ``tokens`` make it up, the label stands ``at`` an offset.

    ``chunk_ids``: by the numbers that chunks have in the prompt. With token probabilities the likeliest label counts;
    ``sampled``: tokens were drawn by chance, so that another one than the likeliest may be written.
    """
    about: dict[str, Any] = {"text": statement.text, "sentence_index": statement.sentence_index}
    label, shares = said.get("verdict"), None
    if tokens:
        label, shares = _weighed(label, tokens.at(at), tuple(instruction.labels), guess=at is None, sampled=sampled)
    if label is None:
        return RawVerdict(**about, error="the LM's reply has no label that was asked for")
    level = instruction.labels[label]
    return RawVerdict(
        **about,
        label=label,
        verdict=instruction.verdicts[label],
        level=level,
        # An id that the prompt does not have stays unknown: -1 is no chunk's id.
        chunk_ids=tuple(dict(enumerate(chunk_ids)).get(i, -1) for i in said.get("supporting_chunk_ids") or ()),
        quotes=tuple(said.get("quotes") or ()),
        reason=said.get("reason"),
        **(support(shares, instruction) if shares else {"logit": LABEL_LOGIT if level == 1.0 else -LABEL_LOGIT}),
    )


def support(shares: Mapping[str, float], instruction: Instruction) -> dict[str, Any]:
    """Expected support as ``logit``, clipped, and ``probability``, from each label's probability."""
    logit = to_logit(sum(p * instruction.labels[label] for label, p in shares.items()))
    return {"logit": logit, "probability": to_probability(logit)}


def _weighed(
    label: str | None, token: Any, labels: Sequence[str], *, guess: bool, sampled: bool
) -> tuple[str | None, dict[str, float] | None]:
    """The label that counts, and each label's probability by the alternatives of its token; None without any.

    Alternatives are pooled by the label they begin (“ yes”, “Yes”, “YES”). They are no distribution if one of them is
    no log-probability or if they sum to more than 1. Unless it was ``sampled``, a reply writes the likeliest token: if
    that begins another label than the one written, the reply contradicts itself and has none. ``guess``: where no
    label could be read, the likeliest one counts.
    """
    top = [(str(_get(t, "token")), _get(t, "logprob")) for t in _get(token, "top_logprobs") or ()]
    if not top or not all(map(is_logprob, (p for _, p in top))) or sum(math.exp(p) for _, p in top) > MAX_MASS:
        return label, None
    if label is not None and not sampled:
        likeliest = read_label(max(top, key=lambda t: t[1])[0][:MAX_LABEL], labels)
        if likeliest not in (None, label):
            return None, None
    mass = dict.fromkeys(labels, 0.0)
    for text, logprob in top:
        if begun := read_label(text[:MAX_LABEL], labels):
            mass[begun] += math.exp(logprob)
    total, own = sum(mass.values()), read_label(str(_get(token, "token"))[:MAX_LABEL], labels)
    if total < MIN_LABEL_MASS or (not guess if label is None else own != label or not mass[label]):
        return label, None  # these are the alternatives to something else
    return max(mass, key=mass.__getitem__), {name: m / total for name, m in mass.items()}


def is_logprob(value: Any) -> bool:
    """Whether a value can be the natural logarithm of a probability."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= MAX_LOGPROB  # NaN is not
