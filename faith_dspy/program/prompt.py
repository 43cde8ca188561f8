"""Compact prompts that a small LM can keep to: what a request looks like.

Layout: instruction's top part, then demos, then context, question and statement, then what is asked. The reply starts
with the label, unless reasoning comes first; a quote or a reason stands on a line of its own. Everything DSPy
optimizers compile – instructions and demos – stays DSPy's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import dspy
from dspy import Signature
from dspy.adapters import ChatAdapter

from faith_dspy.errors import need
from faith_dspy.lm.capabilities import without_thoughts
from faith_dspy.program.reply import VERDICT_FIELDS, find_label, read_fields
from faith_dspy.program.signatures import JOINT, labels_of
from faith_dspy.text.words import visible


class BoundPredict(dspy.Predict):
    """A `dspy.Predict` that asks through an adapter of its own, whatever `dspy.configure` names."""

    def __init__(
        self,
        signature: type[Signature],
        adapter: dspy.Adapter,
        nearest: NearestDemos | None = None,
    ) -> None:
        super().__init__(signature)
        self.adapter = adapter
        self.nearest = nearest
        """Chooses demos for each statement; None: all of them are shown."""

    @property
    def shown_demos(self) -> list[Any]:
        """The demos that one prompt holds, at most: of those that are chosen from, the longest."""
        demos: list[Any] = self.demos
        if self.nearest is None:
            return demos
        return sorted(demos, key=lambda demo: len(str(demo)))[-self.nearest.k :]

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        """Ask as `dspy.Predict` does; a decision model answers without a text."""
        lm = kwargs.pop("lm", None) or self.lm or dspy.settings.lm
        if not getattr(lm, "writes_text", True):
            kwargs.pop("config", None)
            top, ask = split_instructions(self.signature)
            parts = (top, ask.removesuffix(f" {JOINT}"))
            labels = labels_of(self.signature)
            return lm.decide(super().forward, parts, labels, _as_data(kwargs))
        if self.nearest is not None and len(self.demos) > self.nearest.k:
            kwargs["demos"] = self.nearest(self.demos, kwargs["statement"])
        with dspy.context(adapter=self.adapter):
            return super().forward(**kwargs, lm=lm)


class NearestDemos:
    """Chooses the demos whose statements are nearest to one, by `dspy.KNN`: the retriever of DSPy's `KNNFewShot`.

    `KNNFewShot` itself puts a function in the place of the module's ``forward``, which JSON cannot hold.
    """

    def __init__(self, k: int, embedder: str | None) -> None:
        self.k = k
        self.embedder = embedder
        self._index: tuple[list[Any], dspy.KNN] | None = None

    def __call__(self, demos: list[Any], statement: str) -> list[Any]:
        """Return the ``k`` nearest, the nearest last, where an LM heeds it best."""
        if self._index is None or self._index[0] is not demos:
            rows = [dspy.Example(**demo).with_inputs("statement") for demo in demos]
            self._index = demos, dspy.KNN(self.k, rows, self._vectorizer(rows))
        found: list[Any] = self._index[1](statement=statement)
        return found[::-1]

    def __deepcopy__(self, memo: Any) -> NearestDemos:
        return NearestDemos(self.k, self.embedder)

    def _vectorizer(self, rows: Sequence[Any]) -> dspy.Embedder:
        if self.embedder is not None:
            return dspy.Embedder(self.embedder)
        text = need("sklearn.feature_extraction.text", "Showing the nearest examples")
        tfidf = text.TfidfVectorizer(sublinear_tf=True)
        tfidf.fit([f"statement: {row.statement}" for row in rows])
        return dspy.Embedder(
            lambda texts: tfidf.transform(texts).toarray(), caching=False
        )


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
            outputs = {name: _as_data(demo[name]) for name in signature.output_fields}
            request = _request(signature, demo, ask)
            messages.append({"role": "user", "content": request})
            messages.append({"role": "assistant", "content": write_reply(outputs)})
        request = _request(signature, inputs, ask)
        return [*messages, {"role": "user", "content": request}]

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Return the fields of a reply. A label that is not there is None, for the program to count as unjudged."""
        fields = signature.output_fields.items()
        types = {name: field.annotation for name, field in fields}
        return read_fields(types, completion)


def complete_demos(
    signature: type[Signature], demos: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return the demos that a prompt shows: those with all fields of the signature, and with a verdict."""
    complete = []
    for demo in demos:
        fields = {name: demo[name] for name in signature.fields if name in demo}
        has_verdict = fields.get("verdict", "") is not None
        if has_verdict and len(fields) == len(signature.fields):
            complete.append(fields)
    return complete


class JointAdapter(dspy.JSONAdapter):
    """DSPy's JSON adapter, with labels read as in any other reply."""

    def format(
        self,
        signature: type[Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the messages of DSPy's adapter, the inputs as data."""
        messages: list[dict[str, Any]] = super().format(
            signature, demos, _as_data(inputs)
        )
        return messages

    def parse(self, signature: type[Signature], completion: str) -> dict[str, Any]:
        """Return ``verdicts``: the fields of each entry, its ``statement`` the number that the reply gives."""
        loose = signature.with_updated_fields("verdicts", type_=list[dict[str, Any]])
        entries = super().parse(loose, without_thoughts(completion))["verdicts"]
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


def _read_verdict(entry: Mapping[str, Any], labels: Sequence[str]) -> str | None:
    """Return the label of an entry; None unless exactly one of its fields is a verdict, in words."""
    fields = [entry[name] for name in VERDICT_FIELDS if entry.get(name) is not None]
    if len(fields) != 1 or not isinstance(fields[0], str):
        return None
    label = find_label(fields[0], labels)
    return label.name if label else None


def split_instructions(signature: type[Signature]) -> tuple[str, str]:
    """Return what stands at the top of a prompt, and its last paragraph, which is asked after the statement.

    A last paragraph that does not name the labels to answer with, as a proposed one may, is followed by a line that
    does: without it the reply could not be read.
    """
    top, _, ask = signature.instructions.strip().rpartition("\n\n")
    labels = labels_of(signature)
    if not all(re.search(rf"\b{re.escape(label)}\b", ask) for label in labels):
        ask += f"\nAnswer {', '.join(labels[:-1])} or {labels[-1]}."
    return top, ask


def _request(signature: type[Signature], inputs: Mapping[str, Any], ask: str) -> str:
    parts = []
    for name in signature.input_fields:
        value = inputs.get(name)
        title = name.replace("_", " ").capitalize()
        if value and isinstance(value, list | tuple):
            first = 0 if name == "context" else 1
            lines = [f"[{i}] {as_data(str(v))}" for i, v in enumerate(value, first)]
            parts.append("\n".join([f"{title}:", *lines]))
        elif value:
            parts.append(f"{title}: {as_data(str(value))}")
    # It takes more than a line to say how to reply.
    if signature.output_fields.keys() & {"quotes", "reason"}:
        blank = {
            "verdict": "/".join(labels_of(signature)),
            "supporting_chunk_ids": ["ids"],
            "quotes": ["…"],
            "reason": "…",
        }
        form = write_reply({name: blank[name] for name in signature.output_fields})
        ask += f"\nReply in this form:\n{form}"
    return "\n\n".join([*parts, ask])


def _as_data(value: Any) -> Any:
    """Return inputs, or a demo's outputs, with all texts in them as data."""
    if isinstance(value, dict):
        return {key: _as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_data(item) for item in value]
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
    lines = [line for line in map(visible, text.splitlines()) if line.strip()]
    return _TEMPLATE_TOKEN.sub(r"\g<0> ", "\n ".join(lines)).strip()


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
