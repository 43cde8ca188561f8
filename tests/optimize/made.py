"""Results of studies that never ran, for the tests of what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.results import JudgedAnswer, JudgeResult, StudyResult
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.optimize.select.evaluate import measure
from faith_dspy.schema import Chunk, Judgment, LabelledExample, RawJudgment, StatementVerdict, Unscored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.agreement import Agreement

Answers = tuple[JudgedAnswer, ...]


def rows(
    probabilities: Sequence[float | None],
    labels: Sequence[bool] = (),
    prefix: str = "a",
    statements: Sequence[StatementVerdict] = (),
    **example: Any,
) -> Answers:
    """Answers a0, a1 …, faithful by turns unless ``labels`` say otherwise; the judge passes those from .5 on."""
    labels = labels or [i % 2 == 0 for i in range(len(probabilities))]
    return tuple(
        JudgedAnswer(
            example=LabelledExample(
                **{
                    "id": f"{prefix}{i}",
                    "group": f"{prefix}{i}",
                    "answer": f"Answer {i}.",
                    "faithful": label,
                    "context": (Chunk(id=0, text=f"Context {prefix}{i}."),),
                }
                | example
            ),
            raw=RawJudgment(),
            judgment=Judgment(
                score=p,
                probability=p,
                faithful=None if p is None else p >= 0.5,
                unscored=Unscored.PARSE_FAILED if p is None else None,
                statements=tuple(statements),
            ),
            features=(),
            labels=(None,) * len(statements),
        )
        for i, (label, p) in enumerate(zip(labels, probabilities, strict=True))
    )


def agreement(found: Answers) -> Agreement:
    """As a study measures it."""
    return measure("it", "lm", found).agreement


def judge(name: str, found: Answers, **more: Any) -> JudgeResult:
    """One judge on some part."""
    kind = "baseline" if name.endswith("baseline") else "untuned" if name == "untuned" else "lm"
    return measure(name, kind, found).model_copy(update=more)


def study(champion: Answers, untuned: Answers = (), /, **more: Any) -> StudyResult:
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
        "variants": (JudgeResult(name="sentence", kind="lm", description="by sentence", params={}, lm_share=1.0),),
        "test": (judge("champion", champion), judge("untuned", others), judge("lexical-baseline", others)),
    } | more
    first, *rest = fields["test"]
    made = {t.name: compare(first.rows, t.rows, ("the champion", t.name)) for t in rest}
    return StudyResult(**{"comparisons": made} | fields)
