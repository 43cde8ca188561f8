"""The names under which data come: columns of records, and what objects of other libraries call the same things."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
COLUMNS = {
    **NAMES,
    "question": (*NAMES["question"], "prompt"),
    "context": (*NAMES["context"], "passage", "passages", "document", "documents", "source_info", "doc"),
    "answer": (*NAMES["answer"], "reply", "completion", "generation", "summary", "claim", "text"),
}
"""Names of a table's columns: those, and some that mean the same there and something else on an object. Letters and
digits count alone: ``Retrieved Contexts`` is ``retrieved_contexts``. A row with ``answer`` and ``context`` means those,
whatever stands beside them."""
LABELS = {
    "faithful": ("faithful", "label", "labels", "is_faithful", "hallucination_labels", "verdict"),
    "group": ("group", "source_id"),
    "split": ("split",),
    "annotators": ("annotators",),
}
"""Names of the columns with what people said."""
_OWN = ("answer", "context")
_IDEAL = {"expected", "reference", "ground", "truth", "gold", "ideal"}
"""Words in the names of columns that hold what should have been said."""
_SOURCES = ("source", "url", "file_name", "name", "doc_uri", "id", "id_", "node_id")

log = logging.getLogger(__name__)


def value_of(item: Any, name: str) -> Any:
    """A mapping's value, or an object's attribute; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record (mapping or object) that have a value, by our names. A conversation counts where there is
    no answer."""
    if isinstance(record, Mapping):
        names = columns(record)
    else:
        given = ((f, next((n for n in ns if value_of(record, n) is not None), None)) for f, ns in NAMES.items())
        names = {field: name for field, name in given if name is not None}
    if "answer" in names and names.get("conversation") != "conversation":
        names.pop("conversation", None)
    return {field: value_of(record, name) for field, name in names.items()}


def columns(row: Mapping[str, Any], names: Mapping[str, tuple[str, ...]] = COLUMNS) -> dict[str, str]:
    """The column of a row that each field is read from: the first of its ``names`` that holds anything."""
    found = _columns(tuple(row), tuple(names.items()))
    return {f: c for f, there in found.items() if (c := next((c for c in there if row[c] is not None), None))}


@lru_cache(maxsize=256)
def _columns(there: tuple[str, ...], names: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, list[str]]:
    spelt = {_spelling(column): column for column in reversed(there)}
    own = spelt.keys() >= set(_OWN)
    known = {field: (field,) if own and field in _OWN else given for field, given in names}
    return {field: [spelt[s] for s in map(_spelling, given) if s in spelt] for field, given in known.items()}


def _spelling(name: object) -> str:
    return "".join(c for c in str(name).casefold() if c.isalnum())


def unused(rows: Sequence[Mapping[str, Any]], known: Iterable[str] = ()) -> str:
    """The columns of these rows that hold something and from which nothing is read, in words; nothing where all are.

    ``known``: further fields, which are used under these names; with them the rows are those of a labels file.
    """
    names = {**COLUMNS, **LABELS} if known else COLUMNS
    taken = {*known, *(column for row in rows for column in columns(row, names).values())}
    held = dict.fromkeys(column for row in rows for column, value in row.items() if value is not None)
    left = ", ".join(repr(column) for column in held if column not in taken)
    return f"Columns that are not used: {left}." if left else ""


def missing(record: Any, field: str = "answer") -> str:
    """What to say of a record without that field: its empty column, or what there is, and which one may be meant."""
    empty = _columns(tuple(record), tuple(COLUMNS.items()))[field] if isinstance(record, Mapping) else []
    if empty:
        return f"it has no {field}: {empty[0]!r} is empty."
    expected = ", ".join(NAMES[field])
    return f"it has no {field}: got {there(record)}, expected {expected}.{meant(record, field)}"


def there(record: Any) -> str:
    """The columns of a record, in words."""
    given = record if isinstance(record, Mapping) else {}
    return ", ".join(f"{name}{' (empty)' * (value is None)}" for name, value in given.items()) or "nothing"


def meant(record: Any, field: str) -> str:
    """The column of a record that may be meant by a field that it lacks, as a hint to be put after a message."""
    given = record if isinstance(record, Mapping) else {}
    names = {**COLUMNS, **LABELS}
    taken = columns(given, names).values()
    for column in (c for c in given if c not in taken):
        words = "".join(c if c.isalnum() else " " for c in str(column).casefold()).split()
        if not _IDEAL & set(words) and (set(words) & set(names[field]) or did_you_mean(str(column), names[field])):
            return f" Did you mean {column!r}? Rename it to {field!r}."
    return ""


_said: set[tuple[str, str, str]] = set()


def say_names(record: Any, where: str, names: Mapping[str, tuple[str, ...]] = COLUMNS) -> None:
    """Log, once, from which columns a record's fields are taken, where they have not our names."""
    if not isinstance(record, Mapping):
        return  # an object of a known library has no columns
    other = {f: name for f, name in columns(record, names).items() if f != name and (where, f, name) not in _said}
    if other:
        _said.update((where, field, name) for field, name in other.items())
        log.warning("%s: %s", where, ", ".join(f"{field} is taken from {name!r}" for field, name in other.items()))


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
