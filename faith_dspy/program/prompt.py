"""Compact prompts that a small LM can keep to: what a request looks like.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own. Everything DSPy
optimizers compile – instructions and demos – stays DSPy's own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import dspy
from dspy import Signature
from dspy.adapters import ChatAdapter

from faith_dspy.lm.capabilities import without_thoughts
from faith_dspy.program.reply import VERDICT_FIELDS, find_label, read_fields
from faith_dspy.program.signatures import labels_of
from faith_dspy.text.words import visible

MAX_ENTRIES = 1_000
"""Braces of a joint reply; one with more is not read, which would take time quadratic in their number."""
_OWN_TRACE = dspy.settings.trace
"""What DSPy traces a user's own calls in; an optimizer that tries demos on a copy of a program takes another one."""
_Values: TypeAlias = dict[str, Any]
"""By name, the values of a message, of a demo, or of what is asked or replied."""


class BoundPredict(dspy.Predict):
    """A `dspy.Predict` that asks through an adapter of its own, whatever `dspy.configure` names."""

    def __init__(self, signature: type[Signature], adapter: dspy.Adapter) -> None:
        super().__init__(signature)
        self.adapter = adapter

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        """Ask as `dspy.Predict` does; a label is read from the whole reply, never from a stream of it."""
        trace = dspy.settings.trace
        is_own_call = trace is None or trace is _OWN_TRACE
        are_hidden = self.demos and not complete_demos(self.signature, self.demos)
        if are_hidden and is_own_call:
            fields = ", ".join(self.signature.fields)
            warnings.warn(
                f"None of the demos is shown: each needs {fields}. dspy.LabeledFewShot teaches judge.program.verify; "
                "examples of whole answers teach by an optimizer that runs the program, as dspy.BootstrapFewShot does.",
                stacklevel=2,
            )
        with dspy.context(adapter=self.adapter, send_stream=None):
            return super().forward(**kwargs)


class CompactAdapter(ChatAdapter):
    """Fields by name, one blank line apart; no markers. One call per prediction, never a silent second one."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format(
        self,
        signature: type[Signature],
        demos: list[_Values],
        inputs: _Values,
    ) -> list[_Values]:
        """Return the messages: system, one user/assistant pair per complete demo, the request."""
        top, ask = split_instructions(signature)
        turns = []
        if top:
            turns.append(("system", top))
        for demo in complete_demos(signature, demos):
            outputs = {name: data_of(demo[name]) for name in signature.output_fields}
            turns.append(("user", _request(signature, demo, ask)))
            turns.append(("assistant", write_reply(outputs)))
        turns.append(("user", _request(signature, inputs, ask)))
        return [{"role": role, "content": content} for role, content in turns]

    def parse(
        self,
        signature: type[Signature],
        completion: str,
    ) -> _Values:
        """Return the fields of a reply. A label that is not there is None, for the program to count as unjudged."""
        fields = signature.output_fields.items()
        return read_fields({name: one.annotation for name, one in fields}, completion)


class FollowUpAdapter(CompactAdapter):
    """Asks on behind a verdict: the request for it and its reply, which the server has read, then one question."""

    def __init__(self, verify: dspy.Predict) -> None:
        super().__init__()
        self.verify = verify

    def format(
        self,
        signature: type[Signature],
        demos: list[_Values],
        inputs: _Values,
    ) -> list[_Values]:
        """Return the messages of the verdict's request, the verdict, and what is asked about it."""
        first = super().format(self.verify.signature, self.verify.demos, inputs)
        verdict = write_reply({"verdict": inputs["verdict"]})
        return [
            *first,
            {"role": "assistant", "content": verdict},
            {"role": "user", "content": signature.instructions},
        ]


def complete_demos(signature: type[Signature], demos: Sequence[Any]) -> list[_Values]:
    """Return the demos that a prompt shows: those with all fields of the signature, and with a verdict."""
    complete = []
    for demo in demos:
        if all(name in demo for name in signature.fields):
            fields = {name: demo[name] for name in signature.fields}
            if fields.get("verdict", "") is not None:
                complete.append(fields)
    return complete


class JointAdapter(dspy.JSONAdapter):
    """DSPy's JSON adapter, with labels read as in any other reply."""

    def parse(self, signature: type[Signature], completion: str) -> _Values:
        """Return ``verdicts``: the fields of each entry of the reply's last list, whose ``statement`` is its number."""
        loose = signature.with_updated_fields("verdicts", type_=list[dict[str, Any]])
        reply = without_thoughts(completion)
        if reply.count("{") > MAX_ENTRIES:
            reply = ""
        *_, last = [None, *_LIST.finditer(reply)]
        if last:
            reply = f'{{"verdicts": {reply[last.start() :]}'
        entries = super().parse(loose, reply)["verdicts"]
        labels = labels_of(signature)
        for entry in entries:
            entry["verdict"] = _read_verdict(entry, labels)
            for name, kind in (("supporting_chunk_ids", int), ("quotes", str)):
                items = entry.get(name)
                items = items if isinstance(items, list) else []
                entry[name] = [item for item in items if type(item) is kind]
            if not isinstance(entry.get("reason"), str):
                entry["reason"] = None
        return {"verdicts": entries}


_LIST = re.compile(r'\[\s*\{\s*"')


def _read_verdict(entry: Mapping[str, Any], labels: Sequence[str]) -> str | None:
    """Return the label of an entry; None unless exactly one of its fields is a verdict, in words, and no reason behind
    it takes it back."""
    fields = [name for name in VERDICT_FIELDS if entry.get(name) is not None]
    if len(fields) != 1 or not isinstance(entry[fields[0]], str):
        return None
    names = list(entry)
    behind = names[names.index(fields[0]) :]
    reason = f"\n{entry['reason']}" if "reason" in behind else ""
    return find_label(entry[fields[0]], labels, reason)


def split_instructions(signature: type[Signature]) -> tuple[str, str]:
    """Return what stands at the top of a prompt, and its last paragraph, which is asked after the statement.

    A last paragraph that does not name the labels to answer with, as a proposed one may, is followed by a line that
    does: without it the reply could not be read.
    """
    top, _, ask = signature.instructions.strip().rpartition("\n\n")
    labels = labels_of(signature)
    if not all(re.search(rf"\b{re.escape(label)}\b", ask) for label in labels):
        *others, last = labels
        ask += f"\nAnswer {', '.join(others)} or {last}."
    return top, ask


def _request(
    signature: type[Signature],
    inputs: Mapping[str, Any],
    ask: str,
) -> str:
    parts = []
    for name in signature.input_fields:
        value = inputs.get(name)
        if not value:
            continue
        title = name.replace("_", " ").capitalize()
        if isinstance(value, list | tuple):
            lines = [f"{title}:"]
            first = 0 if name == "context" else 1
            for i, text in enumerate(value, first):
                lines.append(f"[{i}] {as_data(str(text))}")
            parts.append("\n".join(lines))
        else:
            parts.append(f"{title}: {as_data(str(value))}")
    parts.append(ask)
    names = signature.output_fields
    # It takes more than a line to say how to reply.
    if "quotes" in names or "reason" in names:
        blank = {
            "verdict": "/".join(labels_of(signature)),
            "supporting_chunk_ids": ["ids"],
            "quotes": ["…"],
            "reason": "…",
        }
        form = write_reply({name: blank[name] for name in names})
        parts[-1] += f"\nReply in this form:\n{form}"
    return "\n\n".join(parts)


def data_of(value: Any) -> Any:
    """Return inputs, or a demo's outputs, with all texts in them as data."""
    if isinstance(value, dict):
        return {key: data_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [data_of(item) for item in value]
    return as_data(value) if isinstance(value, str) else value


@lru_cache(maxsize=64)  # for all statements about a document
def as_data(text: str) -> str:
    """Return text that others wrote a prompt holds it: inside one field or one chunk, whatever it says.

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
    lines = [visible(line) for line in text.splitlines()]
    indented = "\n ".join(line for line in lines if line.strip())
    return _TEMPLATE_TOKEN.sub(r"\g<0> ", indented).strip()


_TEMPLATE_TOKEN = re.compile(
    r"[<\[](?=[|｜]|[|/]?[A-Za-z_][\w.:=-]*[|/]?[>\]])", re.ASCII
)


def write_reply(outputs: Mapping[str, Any]) -> str:
    """Return a reply in the form that prompts ask for and demos show."""
    text = ""
    reason_first = next(iter(outputs)) == "reason"
    for name, value in outputs.items():
        if value is None:  # a demo's label without a reason
            continue
        if name == "quotes":
            for quote in value:
                text += f'\nQuote: "{quote}"'
        elif name == "reason":
            text += f"\nWhy: {value}"
        elif name == "statements":
            text += "\n".join(value)
        elif isinstance(value, list | tuple):
            text += f" [{', '.join(map(str, value))}]"
        elif reason_first:
            text += f"\nVerdict: {value}"
        else:
            text += f" {value}"
    return text.strip()
