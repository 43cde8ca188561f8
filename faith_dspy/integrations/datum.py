"""Data sets of other evaluation libraries, as records for a judge.

    from faith_dspy.integrations.datum import records
    judgments = judge.batch(records(dataset))

Reads the names that continuous-eval, axion, RAGAS, DeepEval and rag_evals use for question, context and answer, from
mappings or the libraries' own objects (by attribute, so that none of them needs to be installed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.integrations.traces import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = {
    "question": ("question", "user_input", "query", "input"),
    "context": (
        *("retrieved_contexts", "retrieved_context", "retrieval_context", "retrieved_content"),
        *("context_chunks", "contexts", "context"),
    ),
    "answer": ("answer", "response", "actual_output", "generated_answer", "output"),
}
"""Names of each field; the first that exists counts. DeepEval's ``context`` is the ideal one, so it is last."""


def records(data: Iterable[Any]) -> list[dict[str, Any]]:
    """One record per datum, in order."""
    return [record(datum) for datum in data]


def record(datum: Any) -> dict[str, Any]:
    """``question``, ``context`` and ``answer`` of one datum, and its ``id`` if it has one.

    Chunks may be texts, or objects with ``page_content``, ``content`` or ``text``. Raises `InputError` if no field has
    a name for the answer.
    """
    found = {part: _first(datum, names) for part, names in NAMES.items()}
    if found["answer"] is None:
        raise InputError(
            f"a datum has no answer: got {_fields(datum)}, expected one of {', '.join(NAMES['answer'])} (and of "
            f"{', '.join(NAMES['context'])} for the context)"
        )
    context = found["context"]
    chunks = [context] if isinstance(context, str) else [_chunk(c, i) for i, c in enumerate(context or ())]
    out = {"question": found["question"], "context": chunks, "answer": found["answer"]}
    name = _get(datum, "id")
    return out if name is None else {"id": name, **out}


def _chunk(item: Any, i: int) -> Any:
    if not isinstance(item, Mapping) or isinstance(item.get("text"), str):
        return item
    documents = documents_of([item])
    if not documents:
        raise InputError(f"context[{i}] has no text: got {_fields(item)}, expected text, page_content or content")
    return {"text": documents[0][1], "source": documents[0][0]}


def _first(datum: Any, names: tuple[str, ...]) -> Any:
    return next((v for name in names if (v := _get(datum, name)) is not None), None)


def _get(datum: Any, name: str) -> Any:
    return datum.get(name) if isinstance(datum, Mapping) else getattr(datum, name, None)


def _fields(datum: Any) -> str:
    return ", ".join(map(str, datum)) if isinstance(datum, Mapping) else type(datum).__name__
