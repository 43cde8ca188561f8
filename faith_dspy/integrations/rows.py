"""Answers and judgments as rows of tables, for a served judge and for Spark.

Every record becomes a row: a bad record, or a failed LM, becomes an unscored row with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from faith_dspy.errors import FaithDspyError
from faith_dspy.schema import Judgment, Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from faith_dspy.judge import Judge

PARAMS = {"nested": False, "threads": 0}
"""Parameters of a request to a served judge: whether each row is nested under ``judgment``, as `RESULT_TYPE` needs it;
answers judged at the same time (0: the judge's default)."""


EXAMPLE = [
    {
        "question": "When did the museum open?",
        "context": ["The museum opened in 1932 and was extended in 1987."],
        "answer": "The museum opened in 1932.",
    }
]
"""A request, for a model's signature."""


class Row(BaseModel):
    """One answer to judge. All fields are optional, so that a row without an answer fails no other row."""

    question: str | None = None
    context: list[str] | None = None
    answer: str | None = None


class VerdictCounts(BaseModel):
    """Statements per verdict."""

    fully_supported: int = 0
    partially_supported: int = 0
    no_evidence: int = 0
    contradictory: int = 0
    not_supported: int = 0
    unjudged: int = 0


class JudgedRow(BaseModel):
    """The judgment of one answer; ``score`` to ``needs_review`` are None when it is unscored."""

    score: float | None = None
    faithful: bool | None = None
    probability: float | None = None
    threshold: float | None = None
    level: str | None = None
    needs_review: bool | None = None
    unscored: str | None = None
    detail: str | None = None
    """Why it is unscored, in words."""
    verdict_counts: VerdictCounts = VerdictCounts()
    statements: str = "[]"
    """JSON: a list of statements with verdict, chunk ids, quotes, confidence."""
    usage: Usage = Usage()


def judge_rows(
    judge: Judge,
    records: Iterable[Mapping[str, Any]],
    threads: int | None = None,
) -> Iterator[dict[str, Any]]:
    """A `JudgedRow` as a dictionary for each record, in order; records are read as they are needed. Never raises.

    ``threads``: answers judged at the same time (default: as `Judge.stream`).
    """
    try:
        judge.ready()
    except FaithDspyError as exc:  # everything else that goes wrong is an unscored judgment already
        failed = Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))
        yield from (_row(failed) for _ in records)
        return
    yield from map(_row, judge.stream(records, threads))


def _row(judgment: Judgment) -> dict[str, Any]:
    statements = [s.model_dump_json(exclude={"features"}) for s in judgment.statements]
    fields = judgment.model_dump(mode="json", include=set(JudgedRow.model_fields) - {"statements"})
    counts = VerdictCounts(**judgment.verdict_counts).model_dump()
    return fields | {"verdict_counts": counts, "statements": f"[{', '.join(statements)}]"}


RESULT_TYPE = (
    "struct<judgment struct<score double, faithful boolean, probability double, threshold double, level string, "
    "needs_review boolean, unscored string, detail string, verdict_counts struct<fully_supported long, "
    "partially_supported long, no_evidence long, contradictory long, not_supported long, unjudged long>, "
    "statements string, usage struct<calls long, prompt_tokens long, cached_tokens long, output_tokens long, "
    "seconds double, dollars double>>>"
)
"""For ``mlflow.pyfunc.spark_udf(…, result_type=RESULT_TYPE, params={"nested": True})``: one field, ``judgment``, that
holds a `JudgedRow`. Without nesting, MLflow 3.17 turns null texts into 'nan' and null booleans into false as soon as
another row of the batch has a value."""
