"""Results of studies that never ran, for the tests of what is made of them."""

from faith_dspy.optimize.results import JudgedAnswer, JudgeResult, StudyResult
from faith_dspy.optimize.select.candidates import measure_judge
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import Chunk, Judgment, LabelledExample, RawJudgment, Unscored


def rows(probabilities, labels=(), prefix="a", statements=(), **example):
    """Answers a0, a1 …, faithful by turns unless ``labels`` say otherwise; the judge passes those from .5 on."""
    labels = labels or [i % 2 == 0 for i in range(len(probabilities))]
    found = []
    for i, (label, p) in enumerate(zip(labels, probabilities, strict=True)):
        name = f"{prefix}{i}"
        fields = {
            "id": name,
            "group": name,
            "answer": f"Answer {i}.",
            "faithful": label,
        }
        fields["context"] = (Chunk(id=0, text=f"Context {name}."),)
        scored = {"unscored": Unscored.PARSE_FAILED}
        if p is not None:
            scored = {"score": p, "probability": p, "faithful": p >= 0.5}
        found.append(
            JudgedAnswer.judged(
                LabelledExample(**fields | example),
                RawJudgment(),
                Judgment(**scored, statements=tuple(statements)),
            ).model_copy(update={"labels": (None,) * len(statements)})
        )
    return tuple(found)


def agreement(found):
    """As a study measures it."""
    return measure_judge(JudgeResult(name="it", kind="lm"), found).agreement


def judge(name, found, **more):
    """One judge on some part."""
    kind = (
        "baseline"
        if name.endswith("baseline")
        else "untuned"
        if name == "untuned"
        else "lm"
    )
    result = measure_judge(JudgeResult(name=name, kind=kind), found)
    return result.model_copy(update=more)


def study(champion, untuned=(), /, **more):
    """A finished study whose judges found this on the testset; the lexical baseline is no better than the untuned."""
    others = untuned or champion
    fields = {
        "study_id": "51d1",
        "labels_file": "labels.jsonl",
        "label_set_hash": "81f2aa77",
        "lm": {"name": "openai/tiny"},
        "budget": "quick",
        "seed": 0,
        "split": {},
        "champion": "sentence",
        "variants": (
            JudgeResult(
                name="sentence",
                kind="lm",
                description="by sentence",
                params={},
                lm_share=1.0,
            ),
        ),
        "test": (
            judge("champion", champion),
            judge("untuned", others),
            judge("lexical-baseline", others),
        ),
    } | more
    first, *rest = fields["test"]
    made = {t.name: compare(first.rows, t.rows, ("the champion", t.name)) for t in rest}
    return StudyResult(**{"comparisons": made} | fields)
