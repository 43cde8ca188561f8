"""The testset, opened once: the champion on it, and what it is measured against. Nothing is chosen here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faith_dspy.optimize.data.splits import Parts
from faith_dspy.optimize.plan import WHOLE, View
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHEAPER,
    COUNTING_WORDS,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    JudgedAnswer,
    JudgeResult,
)
from faith_dspy.optimize.select.ask import Replies, verify
from faith_dspy.optimize.select.candidates import Candidate, measure, pool_folds
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import LabelledExample


class Tested(NamedTuple):
    """The champion and the baselines on the testset; where there is none, cross-fitted on the pool."""

    results: tuple[JudgeResult, ...]
    """The champion, the LM calibrated, the lexical baseline, the untuned judge, the length baseline."""
    comparisons: dict[str, Comparison]
    """The champion against each of the others, by name, but for the one that is the champion."""


def open_testset(
    champion: Candidate,
    candidates: Sequence[Candidate],
    replies: Mapping[str, Replies],
    parts: Parts,
    seed: int,
    view: View,
) -> Tested:
    """Judge the test answers by the champion and by its baselines, each asked at most once about each answer.

    The LM calibrated is that of the champion's variant, of a champion without an LM the best one on the pool.
    """
    calibrated, lexical = _calibrated(champion, candidates), _named(candidates, LEXICAL)
    whole = replies[WHOLE]
    judged: dict[str, list[JudgedAnswer]]
    if parts.cross_fitted:
        judged = _on_pool(champion, calibrated, lexical, whole, parts, seed)
    else:
        judged = _on_testset(champion, calibrated, lexical, whole, parts.test, view)
    judges = {
        "champion": champion.judge,
        CALIBRATED: calibrated.judge,
        UNTUNED: whole.judge,
    }
    results = [
        measure(name, _kind(name), answers, judges.get(name))
        for name, answers in judged.items()
    ]
    same = {lexical.result.name: LEXICAL, calibrated.result.name: CALIBRATED}.get(
        champion.result.name
    )
    comparisons = {
        other.name: compare(
            results[0].rows,
            other.rows,
            ("the champion", CHEAPER.get(other.name, COUNTING_WORDS)),
            tested=not parts.cross_fitted,
        )
        for other in results[1:]
        if other.name != same
    }
    return Tested(tuple(results), comparisons)


def _kind(name: str) -> Any:
    return {"champion": "lm", CALIBRATED: "lm", UNTUNED: "untuned"}.get(
        name, "baseline"
    )


def _named(candidates: Sequence[Candidate], name: str) -> Candidate:
    return next(c for c in candidates if c.result.name == name)


def _calibrated(champion: Candidate, candidates: Sequence[Candidate]) -> Candidate:
    calibrated = [c for c in candidates if c.method == "lm" and c.replies is not None]
    own = [
        c
        for c in calibrated
        if champion.replies is not None and c.replies is champion.replies
    ]
    return (own or sorted(calibrated, key=lambda c: -(c.result.score or 0.0)))[0]


def _on_testset(
    champion: Candidate,
    calibrated: Candidate,
    lexical: Candidate,
    whole: Replies,
    test: Sequence[LabelledExample],
    view: View,
) -> dict[str, list[JudgedAnswer]]:
    def asked(name: str, judge: Any) -> list[JudgedAnswer]:
        with view.task(f"{name}: test", len(test)) as advance:
            return verify(judge, test, advance)

    by_champion = asked(champion.result.name, champion.judge)
    if (
        champion.judge.asks_lm
    ):  # about all answers, with the prompts of its LM calibrated
        by_calibrated = [a.by(calibrated.judge) for a in by_champion]
    else:
        by_calibrated = asked(calibrated.result.name, calibrated.judge)
    if calibrated.replies is whole:
        by_untuned = [a.by(whole.judge) for a in by_calibrated]
    else:
        by_untuned = asked(WHOLE, whole.judge)
    by_lexical = verify(lexical.judge, test)
    return {
        "champion": by_champion,
        CALIBRATED: by_calibrated,
        LEXICAL: by_lexical,
        UNTUNED: by_untuned,
        LENGTH: by_length(lexical.result.answers, by_lexical),
    }


def _on_pool(
    champion: Candidate,
    calibrated: Candidate,
    lexical: Candidate,
    whole: Replies,
    parts: Parts,
    seed: int,
) -> dict[str, list[JudgedAnswer]]:
    """The same cross-fitted, on the answers that all of them may be measured on."""
    fold_of = pool_folds(parts.pool, seed)
    answers = list(lexical.result.answers)
    by_size = []
    for k in sorted(set(fold_of.values())):
        known, held = (
            [a for a in answers if (fold_of[a.source] == k) is side]
            for side in (False, True)
        )
        by_size += by_length(known, held)
    judged: dict[str, Sequence[JudgedAnswer]] = {
        "champion": champion.result.answers,
        CALIBRATED: calibrated.result.answers,
        LEXICAL: answers,
        UNTUNED: whole.answers,
        LENGTH: by_size,
    }
    shared = set.intersection(*({a.id for a in side} for side in judged.values()))
    return {
        name: sorted((a for a in side if a.id in shared), key=lambda a: a.id)
        for name, side in judged.items()
    }


def by_length(
    known: Sequence[JudgedAnswer], held: Sequence[JudgedAnswer]
) -> list[JudgedAnswer]:
    """The length baseline, fitted on ``known``: by an answer's words and sentences, which are not evidence."""
    from sklearn.linear_model import LogisticRegression

    def lengths(answers: Sequence[JudgedAnswer]) -> Any:
        return np.log1p(
            [[len(a.example.answer.split()), len(a.raw.sentences)] for a in answers]
        )

    model = LogisticRegression(class_weight="balanced").fit(
        lengths(known), [a.label for a in known]
    )
    chances = model.predict_proba(lengths(held))[
        :, list(model.classes_).index(True)
    ].tolist()
    return [_passed(a, p) for a, p in zip(held, chances, strict=True)]


def _passed(answer: JudgedAnswer, p: float) -> JudgedAnswer:
    update = {"probability": p, "faithful": p >= 0.5, "score": p}
    return answer.model_copy(
        update={"judgment": answer.judgment.model_copy(update=update)}
    )
