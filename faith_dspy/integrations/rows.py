"""Answers and judgments as rows of tables: what a served judge and Spark take and give.

Every judgment is a row, whatever happened: a bad record, or an LM that is not there, is an unscored row that says why.
"""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from faith_dspy.errors import FaithDspyError
from faith_dspy.schema import Judgment, Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from faith_dspy.judge import Judge

PARAMS = {"nested": False, "threads": 0, "calls_per_second": 0.0}
"""What a request to a served judge can say beside its rows: each row under ``judgment``, as `RESULT_TYPE` wants it;
answers judged at the same time; most LM calls a second. 0: the judge's default, no limit."""


EXAMPLE = [
    {
        "question": "When did the museum open?",
        "context": ["The museum opened in 1932 and was extended in 1987."],
        "answer": "The museum opened in 1932.",
    }
]
"""A request, for a model's signature."""


class Row(BaseModel):
    """One answer to judge. What is missing comes back as an unscored row, so that it fails no other."""

    question: str | None = None
    context: list[str] | None = None
    answer: str | None = None


class VerdictCounts(BaseModel):
    """Statements per verdict, over all that were asked about."""

    fully_supported: int = 0
    partially_supported: int = 0
    no_evidence: int = 0
    contradictory: int = 0
    not_supported: int = 0
    unjudged: int = 0


class JudgedRow(BaseModel):
    """What is found of one answer; ``score`` to ``needs_review`` are None when ``unscored`` says why."""

    score: float | None = None
    faithful: bool | None = None
    probability: float | None = None
    level: str | None = None
    needs_review: bool | None = None
    unscored: str | None = None
    detail: str | None = None
    """In words, why it is unscored."""
    verdict_counts: VerdictCounts = VerdictCounts()
    statements: str = "[]"
    """JSON: a list of statements with verdict, chunk ids, quotes, confidence."""
    usage: Usage = Usage()


def judge_rows(
    judge: Judge,
    records: Iterable[Mapping[str, Any]],
    threads: int | None = None,
    calls_per_second: float | None = None,
) -> Iterator[dict[str, Any]]:
    """A `JudgedRow` as a dictionary for each record, in order, read as they are needed. Nothing about them raises.

    ``threads``: answers judged at the same time (default: as `Judge.stream`); ``calls_per_second``: most LM calls.
    """
    from faith_dspy.lm import Limits, metered

    try:
        judge.ready()
    except FaithDspyError as exc:  # all else that goes wrong with a record is a judgment already
        nothing = Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))
        yield from (row_of(nothing) for _ in records)
        return
    with metered(Limits(calls_per_second=calls_per_second)):
        yield from map(row_of, judge.stream(records, threads))


def row_of(judgment: Judgment) -> dict[str, Any]:
    """A `JudgedRow` as a dictionary."""
    statements = [s.model_dump_json(exclude={"features"}) for s in judgment.statements]
    fields = judgment.model_dump(mode="json", include=set(JudgedRow.model_fields) - {"statements"})
    counts = VerdictCounts(**judgment.verdict_counts).model_dump()
    return fields | {"verdict_counts": counts, "statements": f"[{', '.join(statements)}]"}


def ddl(model: type[BaseModel]) -> str:
    """A model as Spark spells the type of a struct: ``struct<score double, …>``."""
    return f"struct<{', '.join(f'{name} {_ddl(hint)}' for name, hint in get_type_hints(model).items())}>"


def _ddl(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (a for a in get_args(hint) if a is not type(None))
    if issubclass(hint, BaseModel):
        return ddl(hint)
    return {float: "double", bool: "boolean", int: "long", str: "string"}[hint]


RESULT_TYPE = f"struct<judgment {ddl(JudgedRow)}>"
"""For ``mlflow.pyfunc.spark_udf(…, result_type=RESULT_TYPE, params={"nested": True})``: one field, ``judgment``, that
holds a `JudgedRow`. Side by side instead of nested, MLflow 3.17 turns null texts into 'nan' and null booleans into
false as soon as another row of the batch has a value."""
