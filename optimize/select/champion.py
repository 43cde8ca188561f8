"""The champion: chosen among the candidates on the pool, then measured once on the testset beside its baselines.

Chosen is the best estimate, or a cheaper one that is not inferior. A candidate's score is one minus the Brier
score of its cross-fitted probabilities, both labels weighing the same. It is a proper score, so it compares a judge
that ranks with one that only tells verdicts; it is a mean over answers, so no fold's zero can shift it; and of the
criteria tried it chose best with few labels (optimize/LOG.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.judge import Judge
from faith_dspy.optimize.classifier.fitting import assign_folds
from faith_dspy.optimize.compile.metric import EVIDENCE_WEIGHT
from faith_dspy.optimize.plan import WHOLE, Prefer, Study
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHEAPER,
    COUNTING_WORDS,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    Difference,
    JudgedAnswer,
    JudgeResult,
    Row,
    costs,
)
from faith_dspy.optimize.select.ask import Replies, verify
from faith_dspy.optimize.select.candidates import Candidate, measure_judge
from faith_dspy.optimize.select.comparison import (
    Metrics,
    compare,
    label_metrics,
    paired,
    rarer_sources,
)
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, Floats

MARGIN = 0.03
"""Balanced accuracy that a cheaper judge may lose at most: its 95 % interval has to stay above that loss
(`optimize/LOG.md`)."""
_KINDS: dict[str, Any] = {
    "champion": "lm",
    CALIBRATED: "lm",
    LEXICAL: "baseline",
    UNTUNED: "untuned",
    LENGTH: "baseline",
}


class Choice(NamedTuple):
    """The champion, and all candidates on the pool, each with how far it is behind the best."""

    champion: Candidate
    compared: list[JudgeResult]
    reason: str


def choose(
    candidates: Sequence[Candidate],
    prefer: Prefer,
    evidence_weight: float = EVIDENCE_WEIGHT,
) -> Choice:
    """Choose the candidate to export.

    The best by score; of those that cost less, the cheapest that is not inferior: the interval of its loss in balanced
    accuracy over sources stays below `MARGIN`. With ``prefer="cheapest"`` the cheapest within one standard error of the
    best score (Breiman et al. 1984, *CART*, §3.4.3). Candidates are compared on the answers that both may be measured
    on. Where labels name chunks, the F1 of the judge's chunk ids has ``evidence_weight`` of the score; who is behind
    in verdicts by more than one standard error does not win by ids. `InputError` where nothing could be measured.
    """
    results = [c.result for c in candidates]
    names = [r.name for r in results]
    price_of = dict(zip(names, costs(results), strict=True))
    score_of = {r.name: score(r.rows, evidence_weight) for r in results}
    scored = [c for c in candidates if score_of[c.result.name] is not None]
    if not scored:
        raise InputError(
            "no candidate could be measured: the answers have one label only, or none was scored."
        )
    scored.sort(key=lambda c: price_of[c.result.name])
    best = scored[0]
    for other in scored[1:]:
        rows = other.result.rows, best.result.rows
        ahead = difference(*rows, evidence_weight).value or 0.0
        if ahead > 0 and _within_one_error(difference(*rows, 0.0)):
            best = other
    top = best.result
    behind = {
        c.result.name: difference(c.result.rows, top.rows, evidence_weight)
        for c in scored
        if c is not best
    }
    compared = []
    for r in results:
        update = {"score": score_of[r.name], "behind": behind.get(r.name)}
        compared.append(r.model_copy(update=update))
    cheaper = [c for c in scored if price_of[c.result.name] < price_of[top.name]]
    for c in cheaper:
        if prefer == "cheapest" and _within_one_error(behind[c.result.name]):
            reason = f"it is the cheapest within one standard error of {top.name}"
            return Choice(c, compared, reason)
        if prefer == "agreement" and not_inferior(c.result.rows, top.rows):
            reason = f"it costs less than {top.name}, and is not inferior"
            return Choice(c, compared, reason)
    return Choice(best, compared, "it has the best score on the pool")


def _within_one_error(d: Difference) -> bool:
    return d.value is not None and -d.value <= (d.standard_error or 0.0)


def not_inferior(rows: Sequence[Row], best: Sequence[Row]) -> bool:
    """Tell whether these verdicts are shown to lose less than `MARGIN` of balanced accuracy against the best."""
    one, other = _on_both(rows, best)
    if rarer_sources(one) < SIGNIFICANT_FROM:
        return False
    balanced, _ = paired(label_metrics(one), label_metrics(other), one)
    low = balanced.low
    return low is not None and low > -MARGIN


def difference(
    rows: Sequence[Row],
    others: Sequence[Row],
    evidence_weight: float = EVIDENCE_WEIGHT,
) -> Difference:
    """Return the score of the first minus that of the second, on the answers both have, by source."""
    one, other = _on_both(rows, others)
    if not one:
        return Difference(why="no answer was judged by both")
    first = _score_metric(one, evidence_weight)
    return paired(first, _score_metric(other, evidence_weight), one)[0]


def score(
    rows: Sequence[Row], evidence_weight: float = EVIDENCE_WEIGHT
) -> float | None:
    """Return one minus the class-balanced Brier score, with the F1 of chunk ids; None where a label is missing."""
    metric = _score_metric(rows, evidence_weight)
    everyone = np.ones((1, len(rows)))
    value = float(metric(everyone)[0][0])
    return None if np.isnan(value) else value


def _on_both(rows: Sequence[Row], others: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return those of the same answers, in the same order."""
    row_of = {r.id: r for r in rows}
    other_of = {r.id: r for r in others}
    both = sorted(row_of.keys() & other_of)
    first = [row_of[i] for i in both]
    second = [other_of[i] for i in both]
    return first, second


def _score_metric(rows: Sequence[Row], evidence_weight: float) -> Metrics:
    """Probabilities are moved to even odds; an answer that is unscored is as wrong as one can be."""
    y = np.array([r.label for r in rows], dtype=bool)
    base = to_logit(y.mean())
    errors = np.array([_squared_error(r, base) for r in rows])
    counts = np.array([r.evidence or (0, 0, 0) for r in rows], dtype=np.float64)
    weight = evidence_weight if counts.any() else 0.0

    def metric(w: Floats) -> Sequence[Floats]:
        with np.errstate(invalid="ignore"):
            faithful = w @ (errors * y) / (w @ y)
            unfaithful = w @ (errors * ~y) / (w @ ~y)
        verdicts = 1 - (faithful + unfaithful) / 2
        both, judge, people = (w @ counts).T
        f1 = 2 * both / np.maximum(judge + people, 1)
        return [(1 - weight) * verdicts + weight * f1]

    return metric


def _squared_error(row: Row, base: float) -> float:
    if row.predicted is None:
        return 1.0
    p = float(row.predicted) if row.probability is None else row.probability
    even = to_probability(to_logit(p) - base)
    return (even - row.label) ** 2


# The testset. Nothing is chosen here.


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
    study: Study,
) -> Tested:
    """Judge the test answers by the champion and by its baselines, each asked at most once about each answer.

    The LM calibrated is that of the champion's variant, of a champion without an LM the best one on the pool.
    """
    calibrated = _lm_calibrated(champion, candidates)
    lexical = next(c for c in candidates if c.result.name == LEXICAL)
    untuned = replies[WHOLE]
    rivals = _Rivals(champion, calibrated, lexical, untuned)
    cross_fitted = study.parts.cross_fitted
    open_part = _on_pool if cross_fitted else _on_testset
    answers = open_part(rivals, study)
    judges = {
        "champion": champion.judge,
        CALIBRATED: calibrated.judge,
        UNTUNED: untuned.judge,
    }
    results = []
    for name, kind in _KINDS.items():
        unmeasured = JudgeResult(name=name, kind=kind)
        measured = measure_judge(unmeasured, answers[name], judges.get(name))
        results.append(measured)
    own_names = {LEXICAL: lexical.result.name, CALIBRATED: calibrated.result.name}
    own = results[0].rows
    comparisons = {}
    for other in results[1:]:
        if own_names.get(other.name) != champion.result.name:
            names = "the champion", CHEAPER.get(other.name, COUNTING_WORDS)
            comparison = compare(own, other.rows, names, tested=not cross_fitted)
            comparisons[other.name] = comparison
    return Tested(tuple(results), comparisons)


class _Rivals(NamedTuple):
    """The champion and the judges that it is compared with."""

    champion: Candidate
    calibrated: Candidate
    lexical: Candidate
    untuned: Replies


def _lm_calibrated(champion: Candidate, candidates: Sequence[Candidate]) -> Candidate:
    calibrated = [c for c in candidates if c.method == "lm"]
    for c in calibrated:
        if c.replies is champion.replies:
            return c
    return max(calibrated, key=lambda c: c.result.score or 0.0)


def _on_testset(rivals: _Rivals, study: Study) -> dict[str, list[JudgedAnswer]]:
    champion, calibrated, lexical, untuned = rivals
    test = study.parts.test

    def ask(name: str, judge: Judge) -> list[JudgedAnswer]:
        with study.view.task(f"{name}: test", len(test)) as advance:
            return verify(judge, test, advance)

    by_champion = ask(champion.result.name, champion.judge)
    if champion.judge.asks_lm:  # about all answers, with the prompts of `calibrated`
        by_calibrated = [a.by(calibrated.judge) for a in by_champion]
    else:
        by_calibrated = ask(calibrated.result.name, calibrated.judge)
    if calibrated.replies is untuned:
        by_untuned = [a.by(untuned.judge) for a in by_calibrated]
    else:
        by_untuned = ask(WHOLE, untuned.judge)
    by_lexical = verify(lexical.judge, test)
    return {
        "champion": by_champion,
        CALIBRATED: by_calibrated,
        LEXICAL: by_lexical,
        UNTUNED: by_untuned,
        LENGTH: by_length(lexical.result.answers, by_lexical),
    }


def _on_pool(rivals: _Rivals, study: Study) -> dict[str, list[JudgedAnswer]]:
    """Return the same cross-fitted, on the answers that all of them may be measured on."""
    fold_of = assign_folds(study.parts.pool, study.options.seed)
    by_lexical = rivals.lexical.result.answers
    by_size: list[JudgedAnswer] = []
    for k in set(fold_of.values()):
        rest = [a for a in by_lexical if fold_of[a.source] != k]
        held = [a for a in by_lexical if fold_of[a.source] == k]
        by_size += by_length(rest, held)
    judged = {
        "champion": rivals.champion.result.answers,
        CALIBRATED: rivals.calibrated.result.answers,
        LEXICAL: by_lexical,
        UNTUNED: rivals.untuned.answers,
        LENGTH: by_size,
    }
    ids = [{a.id for a in answers} for answers in judged.values()]
    shared = set.intersection(*ids)
    on_shared = {}
    for name, answers in judged.items():
        in_all = [a for a in answers if a.id in shared]
        on_shared[name] = sorted(in_all, key=lambda a: a.id)
    return on_shared


def by_length(
    labelled: Sequence[JudgedAnswer], held: Sequence[JudgedAnswer]
) -> list[JudgedAnswer]:
    """Return the length baseline, fitted on ``labelled``: by an answer's words and sentences, which are not
    evidence."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced")
    model.fit(_sizes(labelled), [a.label for a in labelled])
    probabilities = model.predict_proba(_sizes(held))[:, 1].tolist()
    return [
        answer.rejudged(
            probability=p,
            faithful=p >= 0.5,
            score=p,
        )
        for answer, p in zip(held, probabilities, strict=True)
    ]


def _sizes(answers: Sequence[JudgedAnswer]) -> Floats:
    sizes = []
    for a in answers:
        words = a.example.answer.split()
        sizes.append([len(words), len(a.raw.sentences)])
    return np.log1p(sizes)
