"""What people read: the champion and its baselines on answers that nothing learned from.

Fit and choose are repeated without each fold, which is then judged: nested cross-validation (Varma & Simon 2006, BMC
Bioinformatics 7:91; Cawley & Talbot 2010, JMLR 11). The figures are of the procedure; the exported judge is fitted on
all labels. A test of the user's own is judged by the exported judge itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import OperatingPoint
from faith_dspy.optimize.classifier.logistic import fit_logistic, probabilities_of
from faith_dspy.optimize.plan import Study
from faith_dspy.optimize.results import (
    BASELINES,
    CALIBRATED,
    CHAMPION,
    COLUMN,
    FUNCTION,
    LENGTH,
    LEXICAL,
    UNTUNED,
    Comparison,
    JudgedAnswer,
    Measured,
    Row,
)
from faith_dspy.optimize.select.ask import Asked, Replies, verify
from faith_dspy.optimize.select.candidates import (
    Candidate,
    as_asked,
    candidates,
    measure_judge,
)
from faith_dspy.optimize.select.champion import choose, score
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import Judgment, LabelledExample
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.statistics import Floats

Rivals = Mapping[str, Candidate]
"""By name: the champion, the lexical baseline, and the best LM, function and column calibrated and the untuned judge,
where there are any. The length baseline is no judge."""


def rivals_of(
    champion: Candidate, tried: Sequence[Candidate], untuned: Replies | None
) -> Rivals:
    """Return a champion and what it is compared with; of each kind that is calibrated the best on all of the champion's
    answers."""
    own = {a.id for a in champion.answers}
    lexical = next(c for c in tried if c.name == LEXICAL)
    rivals = {CHAMPION: champion, LEXICAL: lexical}

    def merit(c: Candidate) -> tuple[int, float]:
        shared = [a for a in c.answers if a.id in own]
        # One that learned from some of these answers itself would leave fewer to read figures of.
        return len(shared), score(shared) or 0.0

    calibrated = [c for c in reversed(tried) if c.method == "lm"]
    for c in sorted(calibrated, key=merit):
        rivals[_asked_by(c)] = c  # the best comes last
    if untuned is not None:
        judge, answers = untuned.judge, untuned.answers
        rivals[UNTUNED] = Candidate(
            UNTUNED, untuned.description, untuned, UNTUNED, judge, answers
        )
    return rivals


def _asked_by(calibrated: Candidate) -> str:
    """Return which baseline a judge is that is calibrated, by what it asks."""
    if calibrated.judge.function is not None:
        return FUNCTION
    return CALIBRATED if calibrated.asks_lm else COLUMN


def cross_validate(
    asked: Asked, fold_of: Mapping[str, int], point: OperatingPoint
) -> dict[str, list[JudgedAnswer]]:
    """Return each answer as judged by what was fitted and chosen without its fold, by judge's name.

    Of a champion that has learned from a part of the sources itself, only the answers of the others.
    """
    judged: defaultdict[str, list[JudgedAnswer]] = defaultdict(list)
    for k in sorted(set(fold_of.values())):
        rest = {source: fold for source, fold in fold_of.items() if fold != k}
        try:
            tried = candidates(asked.lexical, asked.replies, rest, point)
        except InputError:  # too few scored labels are left to fit an LM
            tried = candidates(asked.lexical, (), rest, point)
        chosen = choose(tried, point).champion
        first = (chosen.first or asked.lexical).answers
        for name, rival in rivals_of(chosen, tried, asked.untuned).items():
            held = [a for a in rival.replies.answers if fold_of[a.source] == k]
            judged[name] += as_asked(rival.judge, held, first)
        words = asked.lexical.answers
        fitted_on = [a for a in words if a.source in rest]
        held = [a for a in words if fold_of[a.source] == k]
        judged[LENGTH] += by_length(fitted_on, held)
    return judged


def judge_test(
    rivals: Rivals, words: Sequence[JudgedAnswer], study: Study
) -> dict[str, list[JudgedAnswer]]:
    """Return the answers of the user's own test by judge's name, each variant asked once; ``words``: the pool's answers
    without an LM."""
    test = study.labels.test
    answers: dict[str, list[JudgedAnswer]] = {}
    asked: dict[str, list[JudgedAnswer]] = {}
    for name, rival in rivals.items():
        judge = rival.judge
        variant = rival.name if rival.first else rival.replies.name
        if variant not in asked:
            what = rival.name if name == CHAMPION else name
            with study.view.task(f"{what}: test", len(test)) as advance:
                asked[variant] = verify(judge, test, advance)
        answers[name] = [a.by(judge) for a in asked[variant]]
    answers[LENGTH] = by_length(words, answers[LEXICAL])
    return answers


def measure(
    answers: Mapping[str, Sequence[JudgedAnswer]],
    rivals: Rivals,
    point: OperatingPoint,
) -> Measured:
    """Measure the champion and each baseline on the answers that all of them judged, and compare them."""
    ids = set.intersection(*({a.id for a in judged} for judged in answers.values()))
    shared = {}
    for name in (CHAMPION, *BASELINES):
        if name in answers:
            own = [a for a in answers[name] if a.id in ids]
            shared[name] = sorted(own, key=lambda a: a.id)
    champion, lexical = rivals[CHAMPION], rivals[LEXICAL]
    judges = [
        measure_judge(name, judged, rivals.get(name, lexical).judge)
        for name, judged in shared.items()
    ]
    own = shared[CHAMPION]
    comparisons = {}
    for name, called in BASELINES.items():
        if name in shared and rivals.get(name) is not champion:
            names = "the champion", called
            comparisons[name] = compare(own, shared[name], names, cost=point.cost)
    return Measured(judges=tuple(judges), comparisons=comparisons)


def by_length(
    labelled: Sequence[JudgedAnswer], held: Sequence[JudgedAnswer]
) -> list[JudgedAnswer]:
    """Return the length baseline, fitted on ``labelled``: by an answer's words and sentences, which are not
    evidence."""
    labels = np.array([a.label for a in labelled], dtype=np.float64)
    model = fit_logistic(_sizes(labelled), labels, [0, 0], width=1.0)
    probabilities = probabilities_of(model.logits(_sizes(held))).tolist()
    judged = []
    for answer, p in zip(held, probabilities, strict=True):
        update = {"probability": p, "faithful": p >= 0.5, "score": p, "unscored": None}
        judgment = answer.judgment.model_copy(update=update)
        judged.append(answer.with_judgment(judgment))
    return judged


def _sizes(answers: Sequence[JudgedAnswer]) -> Floats:
    sizes = []
    for a in answers:
        words = a.example.answer.split()
        sizes.append([len(words), len(a.raw.sentences)])
    return np.log1p(sizes)


def compare_with_words(
    judge: Judge, examples: Sequence[LabelledExample], judgments: Sequence[Judgment]
) -> Comparison | None:
    """Compare a tuned judge with the lexical baseline fitted on the labels of its study, on the same new answers.

    None where the export has no such baseline, or where the judge is by words alone itself.
    """
    fields = judge.manifest.get("lexical_baseline")
    by_words = not (judge.columns or any(one.asks_lm for one in judge.cascade))
    if fields is None or by_words:
        return None
    words = Judge(NO_LM, classifier=Classifier.model_validate(fields))
    own = list(map(Row.of, examples, judgments))
    others = list(map(Row.of, examples, words.batch(examples)))
    return compare(own, others, ("the judge", BASELINES[LEXICAL]))
