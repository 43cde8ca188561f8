"""Results of studies that never ran, for the tests of what is made of them."""

from faith_dspy.judge import Judge
from faith_dspy.optimize.results import (
    CandidateResult,
    JudgedAnswer,
    Measured,
    StudyResult,
)
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
    return judge("it", found).agreement


def judge(name, found, **more):
    """One judge on some answers."""
    return measure_judge(name, found, Judge("none")).model_copy(update=more)


def candidate(name, found, **more):
    """One candidate, cross-fitted."""
    fields = {
        "variant": "sentence",
        "method": "features",
        "description": "by sentence",
    } | more
    return CandidateResult(**dict(judge(name, found)) | fields)


def measured(*judges):
    """The first of these judges as the champion, compared with the others."""
    first, *rest = judges
    made = {t.name: compare(first.rows, t.rows, ("the champion", t.name)) for t in rest}
    return Measured(judges=judges, comparisons=made)


def study(champion, untuned=(), /, **more):
    """A finished study whose judges found this; the lexical baseline is no better than the untuned judge."""
    others = untuned or champion
    fields = {
        "study_id": "51d1",
        "labels_file": "labels.jsonl",
        "label_set_hash": "81f2aa77",
        "lm": {"model": "openai/tiny"},
        "budget": "quick",
        "seed": 0,
        "split": {},
        "champion": "sentence",
        "candidates": (candidate("sentence", champion, lm_share=1.0),),
        "cv": measured(
            judge("champion", champion, lm_share=1.0),
            judge("untuned", others),
            judge("lexical-baseline", others),
        ),
    } | more
    return StudyResult(**fields)
