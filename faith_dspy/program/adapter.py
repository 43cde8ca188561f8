"""Compact prompts and replies that a small LM can keep to, and the verdict's probability read from its first token.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own.
Several statements are answered in numbered lines, or in JSON. Everything DSPy optimizers compile – instructions and
demos – stays DSPy's own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from dspy.adapters import ChatAdapter
from dspy.utils.exceptions import AdapterParseError

from faith_dspy.lm.metered_lm import MeteredLM
from faith_dspy.program.extraction import read_statements
from faith_dspy.program.replies import (
    from_json,
    from_lines,
    label_offset,
    read_fields,
    read_reply,
    tokens_of,
    without_thoughts,
    write_reply,
)
from faith_dspy.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspy import Signature


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
    - There is no invisible character (`faith_dspy.text.visible`) by which either could be got around.

    Ordinary text of one line stays as it is, and all words stay, to be judged. Not promised is that the LM does not do
    what the words say. Offsets and quotes refer to the text as given.
    """
    lines = (line for line in map(visible, text.splitlines()) if line.strip())
    return _TOKEN.sub(r"\g<0> ", "\n ".join(lines)).strip()


_TOKEN = re.compile(r"[<\[](?=[|｜]|[|/]?[A-Za-z_][\w.:=-]*[|/]?[>\]])", re.ASCII)
