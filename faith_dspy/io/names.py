"""The names under which data come: columns of records, and what objects of other libraries call the same things."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "case_id", "uid"),
    "question": ("question", "user_input", "query", "input"),
    "context": (
        *("retrieved_contexts", "retrieved_context", "retrieval_context", "retrieved_content"),
        *("context_chunks", "contexts", "context"),
    ),
    "answer": ("answer", "response", "actual_output", "generated_answer", "output"),
    "conversation": ("conversation", "messages"),
}
"""Names of each field, those of RAGAS, DeepEval, axion, continuous-eval, rag_evals and Strands among them; the first
that has a value counts. DeepEval's ``context`` is the ideal one, so it is last."""
_SOURCES = ("source", "url", "file_name", "name", "doc_uri", "id", "id_", "node_id")

log = logging.getLogger(__name__)


def value_of(item: Any, name: str) -> Any:
    """A mapping's value, or an object's attribute; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record (mapping or object) that have a value, by our names. A conversation counts where there is
    no answer."""
    names = {field: next((n for n in given if value_of(record, n) is not None), None) for field, given in NAMES.items()}
    if names["answer"] is not None and names["conversation"] != "conversation":
        names["conversation"] = None
    return {field: value_of(record, name) for field, name in names.items() if name is not None}


def say_names(record: Any, where: str) -> None:
    """Log, once, from which columns a record's fields are taken, where they have not our names."""
    if not isinstance(record, Mapping):
        return  # an object of a known library has no columns
    fields = {f: next(n for n in NAMES[f] if record.get(n) is not None) for f in fields_of(record)}
    if other := {field: name for field, name in fields.items() if field != name}:
        _say(f"{where}: " + ", ".join(f"{field} is taken from {name!r}" for field, name in other.items()))


@cache
def _say(text: str) -> None:
    log.warning(text)


def document_of(item: Any) -> tuple[str, str | None] | None:
    """Text and source of a retrieved document; None for anything else.

    Reads mappings and objects with ``text``, ``page_content`` (LangChain) or ``content``, also inside a ``node``
    (LlamaIndex) or ``document``, and the source that they or their ``metadata`` name.
    """
    if isinstance(item, str) or item is None:
        return None
    inner = next((v for name in ("node", "document") if (v := value_of(item, name)) is not None), None)
    if inner is not None and (found := document_of(inner)):
        return found
    texts = (value_of(item, name) for name in ("text", "page_content", "content"))
    text = next((t for t in texts if isinstance(t, str)), None)
    if text is None:
        return None
    metadata = value_of(item, "metadata")
    places = (
        value_of(place, name)
        for name in _SOURCES
        for place in (item, metadata if isinstance(metadata, Mapping) else {})
    )
    source = next((p for p in places if isinstance(p, str | int) and p != ""), None)
    return text, None if source is None else str(source)
