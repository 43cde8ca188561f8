"""What adapters share: the records that other libraries' data give a judge, and what those libraries take back.

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

    from faith_dspy.schema import Judgment

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
    """One record per datum, in order; with the datum's ``id`` if it has one."""
    return [record(datum) | ({} if (i := _get(datum, "id")) is None else {"id": i}) for datum in data]


def record(datum: Any) -> dict[str, Any]:
    """``question``, ``context`` and ``answer`` of one datum: what a judge is called with.

    Chunks may be texts, or objects with ``page_content``, ``content`` or ``text``. Raises `InputError` if no field has
    a name for the answer.
    """
    found = {
        part: next((v for name in names if (v := _get(datum, name)) is not None), None) for part, names in NAMES.items()
    }
    if found["answer"] is None:
        fields = ", ".join(map(str, datum)) if isinstance(datum, Mapping) else type(datum).__name__
        raise InputError(
            f"a datum has no answer: got {fields}, expected one of {', '.join(NAMES['answer'])} (and of "
            f"{', '.join(NAMES['context'])} for the context)"
        )
    context = found["context"]
    return found | {"context": [context] if isinstance(context, str) else [_chunk(c) for c in context or ()]}


def _get(datum: Any, name: str) -> Any:
    return datum.get(name) if isinstance(datum, Mapping) else getattr(datum, name, None)


def _chunk(item: Any) -> Any:
    """A document as text and source; what is a chunk already, or has no text, stays for the judge to check."""
    documents = documents_of([item]) if isinstance(item, Mapping) and "text" not in item else ()
    return {"text": documents[0][1], "source": documents[0][0]} if documents else item


def explain(judgment: Judgment) -> str:
    """Each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
    if judgment.unscored is not None:
        return f"unscored ({judgment.unscored.value}): {judgment.detail or 'no more is known'}"
    supported = sum(bool(s.is_supported) for s in judgment.statements)
    lines = [f"{supported} of {len(judgment.statements)} statements supported"] if judgment.statements else []
    for s in judgment.statements:
        ids = f" {list(s.supporting_chunk_ids)}" if s.supporting_chunk_ids else ""
        reason = s.reason or s.error
        lines.append(f"{s.verdict.value if s.verdict else 'unjudged'}{ids}: {s.text}{f' – {reason}' if reason else ''}")
    return "\n".join([*lines, *([judgment.detail] if judgment.detail else [])])


def value(judgment: Judgment) -> float | None:
    """The calibrated probability of a tuned judge, else the score; None when unscored."""
    return judgment.score if judgment.probability is None else judgment.probability
