"""Labels files: JSON lines in, labelled examples out, with the file and line of whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, fault
from faith_dspy.io.names import document_of, fields_of, say_names
from faith_dspy.io.records import open_records
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FORMAT = (
    'One JSON object a line: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional.'
)
_TAGS = ("source", "domain", "language", "kind", "level", "model")


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each non-empty line; `LabelsError` names the file and the line of a bad one."""
    try:
        with open_records(Path(path)) as records:
            for record in records:
                if record.problem is not None:
                    raise LabelsError(f"{path}:{record.line}: {record.problem}. {_FORMAT}")
                yield record.line, record.row
    except InputError as exc:
        raise exc if isinstance(exc, LabelsError) else LabelsError(str(exc)) from exc


def read_labels(path: str | Path, *, require_label: bool = True) -> list[LabelledExample]:
    """All examples of a labels file.

    Unknown keys are ignored, ``null`` counts as absent. With ``require_label`` examples without any usable label are
    left out, and a file in which none has one is an error.
    """
    out: list[LabelledExample] = []
    seen: dict[str, int] = {}
    rows = 0
    for number, row in read_jsonl(path):
        rows += 1
        say_names(row, str(path))
        example = parse_example(row, where=f"{path}:{number}")
        if example.id in seen:
            before = f"on line {seen[example.id]}"
            raise LabelsError(
                f"{path}:{number}: id {example.id!r} was already used {before}; give each example its own id, or none."
                if row.get("id") is not None
                else f"{path}:{number}: has the question, context and answer of the example {before}; keep one of the "
                "two (each person's own label can stand in 'annotators'), or give both an id."
            )
        seen[example.id] = number
        if example.label is not None or not require_label:
            out.append(example)
    if not rows:
        raise LabelsError(f"{path}: is empty. {_FORMAT}")
    if not out:
        raise LabelsError(f"{path}: none of its {rows} lines has a usable label. {_FORMAT}")
    return out


def parse_example(row: dict[str, Any], *, where: str = "record") -> LabelledExample:
    """One labels object as a `LabelledExample`; `LabelsError` says what is wrong with it."""
    row = {k: v for k, v in row.items() if v is not None} | fields_of(row)
    try:
        context = as_chunks(row.get("context"))
        if not any(chunk.text.strip() for chunk in context):
            raise InputError("context is empty: a labelled example needs the text the answer was judged against")
        answer = row.get("answer")
        if not isinstance(answer, str) or not answer.strip():
            raise InputError(f"answer is {answer!r}, expected text")
        meta: dict[str, Any] = row["meta"] if isinstance(row.get("meta"), dict) else {}
        tags = {k: str(v) for k, v in {**meta, **row}.items() if k in _TAGS and isinstance(v, str | int | bool)}
        fields: dict[str, Any] = {
            k: row[k] for k in ("question", "faithful", "score", "annotators", "group", "split") if k in row
        }
        if not isinstance(fields.get("faithful", True), bool):
            raise InputError(f"faithful is {row['faithful']!r}, expected true or false")
        statements = row.get("statements", [])
        fields["statements"] = [_statement(s) for s in statements] if isinstance(statements, list) else statements
        key = answer_key(fields.get("question"), context, answer)
        example = LabelledExample.model_validate(
            {**fields, "id": str(row.get("id", key)), "context": context, "answer": answer, "tags": tags}
        )
        for i, statement in enumerate(example.statements):
            if bad := [c for c in statement.supporting_chunk_ids or () if not 0 <= c < len(context)]:
                raise InputError(
                    f"statements[{i}] names chunk {bad[0]}, but the context has {len(context)} chunks, counted from 0"
                )
        return example
    except InputError as exc:
        raise LabelsError(f"{where}: {exc}. {_FORMAT}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        raise LabelsError(f"{where}: {fault(first)} (got {repr(first.get('input'))[:200]}). {_FORMAT}") from exc


def as_chunks(context: Any) -> tuple[Chunk, ...]:
    """Context as given by a user – text, strings, `Chunk` objects, documents – with 0-based positions as ids."""
    if context is None:
        return ()
    if isinstance(context, str) or (not isinstance(context, dict) and document_of(context)):
        context = [context]
    if not isinstance(context, list | tuple):
        raise InputError(f"context is {type(context).__name__}, expected a list of texts or chunks")
    chunks = []
    for i, item in enumerate(context):
        if isinstance(item, Chunk):
            chunks.append(item.model_copy(update={"id": i}))
        elif isinstance(item, str):
            chunks.append(Chunk(id=i, text=item))
        elif found := document_of(item):
            chunks.append(Chunk(id=i, text=found[0], source=found[1]))
        else:
            raise InputError(f"context[{i}] is {str(item)[:40]!r}, expected text or an object with 'text'")
    return tuple(chunks)


def answer_key(question: str | None, context: Iterable[Chunk], answer: str) -> str:
    """Hash of an answer with its question and context, whatever its id and labels."""
    return digest([question, [c.text for c in context], answer])


def label_set_hash(examples: Sequence[LabelledExample]) -> str:
    """Hash of texts and labels; the order of the lines does not matter."""
    return digest(sorted(digest(e.model_dump(mode="json")) for e in examples))


def _statement(value: Any) -> Any:
    return {k: value[k] for k in LabelledStatement.model_fields if k in value} if isinstance(value, dict) else value
