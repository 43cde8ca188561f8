"""Compact prompts that a small LM can keep to: what a request looks like.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own. Everything DSPy
optimizers compile – instructions and demos – stays DSPy's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

import dspy
from dspy import Signature
from dspy.adapters import ChatAdapter

from faith_dspy.lm.capabilities import without_thoughts
from faith_dspy.program.reply import find_label, read_fields
from faith_dspy.text.words import visible


class BoundPredict(dspy.Predict):
    """A `dspy.Predict` that asks through an adapter of its own, whatever `dspy.configure` names."""

    def __init__(self, signature: type[Signature], adapter: dspy.Adapter) -> None:
        super().__init__(signature)
        self.adapter = adapter

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        """Ask as `dspy.Predict` does."""
        with dspy.context(adapter=self.adapter):
            return super().forward(**kwargs)


class CompactAdapter(ChatAdapter):
    """Fields by name, one blank line apart; no markers. One call per prediction, never a silent second one."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format(
        self,
        signature: type[Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the messages: system, one user/assistant pair per complete demo, the request."""
        top, ask = split_instructions(signature)
        messages = [{"role": "system", "content": top}] if top else []
        for demo in complete_demos(signature, demos):
            reply = write_reply(
                {name: _data(demo[name]) for name in signature.output_fields}
            )
            messages.append({"role": "user", "content": _request(signature, demo, ask)})
            messages.append({"role": "assistant", "content": reply})
        return [
            *messages,
            {"role": "user", "content": _request(signature, inputs, ask)},
        ]

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Return the fields of a reply. A label that is not there is None, for the program to count as unjudged."""
        return read_fields(_fields(signature), completion)


def complete_demos(
    signature: type[Signature], demos: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return the demos that a prompt shows: those with all fields of the signature, and with a verdict."""
    names = signature.fields.keys()
    complete = [
        demo
        for demo in demos
        if all(name in demo for name in names) and demo.get("verdict", "") is not None
    ]
    return [{name: demo[name] for name in names} for demo in complete]


class JointAdapter(dspy.JSONAdapter):
    """DSPy's JSON adapter, with labels read as in any other reply."""

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Return ``verdicts``: the fields of each entry, its ``statement`` the number that the reply gives."""
        loose = signature.with_updated_fields("verdicts", type_=list[dict[str, Any]])
        entries = super().parse(loose, without_thoughts(completion))["verdicts"]
        (entry_type,) = get_args(signature.output_fields["verdicts"].annotation)
        labels = get_args(entry_type.model_fields["verdict"].annotation)
        return {"verdicts": [_entry(entry, labels) for entry in entries]}


def _entry(entry: dict[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
    label = find_label(str(entry.get("verdict") or ""), labels)
    ids, quotes, reason = (
        entry.get(name) for name in ("supporting_chunk_ids", "quotes", "reason")
    )
    return {
        "statement": entry.get("statement"),
        "verdict": label.name if label else None,
        "supporting_chunk_ids": [i for i in ids if type(i) is int]
        if isinstance(ids, list)
        else [],
        "quotes": [quote for quote in quotes if isinstance(quote, str)]
        if isinstance(quotes, list)
        else [],
        "reason": reason if isinstance(reason, str) else None,
    }


def split_instructions(signature: type[Signature]) -> tuple[str, str]:
    """Return what stands at the top of a prompt, and its last paragraph, which is asked after the statement.

    A last paragraph that does not name the labels to answer with, as a proposed one may, is followed by a line that
    does: without it the reply could not be read.
    """
    top, _, ask = signature.instructions.strip().rpartition("\n\n")
    labels = get_args(_fields(signature).get("verdict"))
    if not all(re.search(rf"\b{re.escape(label)}\b", ask) for label in labels):
        ask += f"\nAnswer {', '.join(labels[:-1])} or {labels[-1]}."
    return top, ask


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
            lines = "\n".join(
                f"[{i}] {as_data(str(v))}" for i, v in enumerate(value, first)
            )
            parts.append(f"{title}:\n{lines}")
        else:
            parts.append(f"{title}: {as_data(str(value))}")
    fields = _fields(signature)
    if fields.keys() & {
        "quotes",
        "reason",
    }:  # it takes more than a line to say how to reply
        labels = "/".join(get_args(fields["verdict"]))
        blank = {
            "verdict": labels,
            "supporting_chunk_ids": ["ids"],
            "quotes": ["…"],
            "reason": "…",
        }
        ask += "\nReply in this form:\n" + write_reply(
            {name: blank[name] for name in fields}
        )
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


_TEMPLATE_TOKEN = re.compile(
    r"[<\[](?=[|｜]|[|/]?[A-Za-z_][\w.:=-]*[|/]?[>\]])", re.ASCII
)


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
