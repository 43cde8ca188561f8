"""Compact prompts and replies that a small LM can keep to, and the verdict's probability read from its first token.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label. Everything DSPy optimizers compile – instructions and demos – stays DSPy's own.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from dspy.adapters import ChatAdapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dspy import Signature

MIN_LABEL_MASS = 0.01
"""Labels that together have less probability than this were not answered at all."""


class CompactAdapter(ChatAdapter):
    """Fields by name, one blank line apart; no markers, no JSON. One call per prediction, never a silent second one."""

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
                first = 1 if name == "sentences" else 0
                lines = "\n".join(f"[{i}] {as_data(str(v))}" for i, v in enumerate(value, first))
                parts.append(f"{title}:\n{lines}")
            else:
                parts.append(f"{title}: {as_data(str(value))}")
        return "\n\n".join([*parts, ask])

    def _reply(self, signature: type[Signature], outputs: Mapping[str, Any]) -> str:
        parts: list[str] = []
        for name, field in signature.output_fields.items():
            value = outputs[name]
            if _is_list_of(field.annotation, str):
                parts.append("\n".join(value))
            else:
                parts.append(str(list(value)) if isinstance(value, list | tuple) else str(value))
        return " ".join(parts)

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Read a reply leniently. A label that is not there is None, for the program to count as unjudged."""
        rest = completion.strip()
        out: dict[str, Any] = {}
        for name, field in signature.output_fields.items():
            if get_origin(field.annotation) is Literal:
                out[name] = read_label(rest, get_args(field.annotation))
            elif _is_list_of(field.annotation, int):
                bracket = re.search(r"\[([\d,\s]*)\]", rest)
                # Without brackets only numbers right after the label count, not numbers in some explanation.
                found = bracket.group(1) if bracket else re.sub(r"^\W*\w+\W*", "", rest.split("\n")[0])
                out[name] = [int(n) for n in re.findall(r"\d{1,4}", found)] if bracket or len(found) < 16 else []
            elif _is_list_of(field.annotation, str):
                out[name] = [line.strip() for line in rest.splitlines() if line.strip()]
            else:
                out[name] = rest
        return out


def as_data(text: str) -> str:
    """Text under judgement, so that it can pose neither as a message nor as another field.

    Chat-template markers are broken up; blank lines, which part the fields of a prompt, are closed.
    """
    return re.sub(r"\n\s*\n", "\n", _TEMPLATE.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text)).strip()


# ChatML, Llama 3, Phi; DeepSeek (with a wide bar); Gemma, Mistral, Llama 2.
_TEMPLATE = re.compile(r"<[|｜]|</?(?:s|bos|eos|start_of_turn|end_of_turn)>|\[/?(?:INST|SYSTEM_PROMPT)\]|<</?SYS>>")


def _is_list_of(annotation: Any, item: type) -> bool:
    return get_origin(annotation) is list and get_args(annotation) == (item,)


def _plain(text: str) -> str:
    return re.sub(r"^[\W_]+", "", text).lower()


def read_label(reply: str, labels: Iterable[str]) -> str | None:
    """The label a reply starts with, whatever its case and punctuation; also when the reply was cut inside the label.

    None when there is none, or when more than one fits.
    """
    words = _plain(reply).split()
    if not words:
        return None
    word = re.sub(r"[\W_]+$", "", words[0])
    if not word:
        return None
    exact = [label for label in labels if _plain(label) == word]
    fits = exact or [label for label in labels if _plain(label).startswith(word)]
    return fits[0] if len(fits) == 1 else None


def label_probabilities(top: Iterable[Any], labels: Iterable[str]) -> dict[str, float] | None:
    """Probability of each label from the alternatives of the reply's first token.

    ``top``: objects or mappings with ``token`` and ``logprob`` (natural log). Tokens are pooled by the label they begin
    (" yes", "Yes", "YES"); the result sums to 1. None when the labels share less than `MIN_LABEL_MASS`.
    """
    labels = list(labels)
    mass = dict.fromkeys(labels, 0.0)
    for entry in top:
        token, logprob = (entry["token"], entry["logprob"]) if isinstance(entry, dict) else (entry.token, entry.logprob)
        label = read_label(token, labels) if token else None
        if label is not None:
            mass[label] += math.exp(logprob)
    total = sum(mass.values())
    if total < MIN_LABEL_MASS:
        return None
    return {label: m / total for label, m in mass.items()}
