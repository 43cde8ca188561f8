"""Results of studies that never ran, for the tests of what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.optimize import results
from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult
from faith_dspy.optimize.select.comparison import compare_rows
from faith_dspy.scoring.agreement import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.agreement import Agreement

Rows = tuple[PredictionRow, ...]


def rows(probabilities: Sequence[float | None], labels: Sequence[bool] = (), prefix: str = "a", **fields: Any) -> Rows:
    """Answers a0, a1 …, faithful by turns unless ``labels`` say otherwise; the judge passes those from .5 on."""
    labels = labels or [i % 2 == 0 for i in range(len(probabilities))]
    return tuple(
        PredictionRow(
            **{
                "id": f"{prefix}{i}",
                "group": f"{prefix}{i}",
                "part": "test",
                "label": label,
                "predicted": None if p is None else p >= 0.5,
                "probability": p,
                "unscored": "parse_failed" if p is None else None,
                "answer": f"Answer {i}.",
            }
            | fields
        )
        for i, (label, p) in enumerate(zip(labels, probabilities, strict=True))
    )


def agreement(found: Rows) -> Agreement:
    """As a study measures it."""
    columns = [r.label for r in found], [r.predicted for r in found], [r.probability for r in found]
    return measure(*columns, groups=[r.group for r in found])


def on_test(name: str, found: Rows, **more: Any) -> results.TestsetResult:
    """One judge on the testset."""
    kind = "baseline" if name.endswith("baseline") else "untuned" if name == "untuned" else "lm"
    return results.TestsetResult(name=name, kind=kind, agreement=agreement(found), predictions=found, **more)


def study(champion: Rows, untuned: Rows = (), /, **more: Any) -> StudyResult:
    """A finished study whose judges found this on the testset; the lexical baseline is no better than the untuned."""
    others = untuned or champion
    fields: dict[str, Any] = {
        "study_id": "51d1",
        "labels_file": "labels.jsonl",
        "label_set_hash": "81f2aa77",
        "lm": {"name": "openai/tiny"},
        "budget": "quick",
        "seed": 0,
        "split": {},
        "champion": "sentence",
        "variants": (VariantResult(name="sentence", kind="lm", description="by sentence", params={}),),
        "test": (on_test("champion", champion), on_test("untuned", others), on_test("lexical-baseline", others)),
    } | more
    first, *rest = fields["test"]
    fields.setdefault(
        "comparisons",
        {t.name: compare_rows(first.predictions, t.predictions, ("the champion", t.name)) for t in rest},
    )
    return StudyResult(**fields)
