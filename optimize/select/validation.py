"""What people read: the champion and its baselines on answers that nothing learned from.

Fit and choose are repeated without each fold, which is then judged: nested cross-validation (Varma & Simon 2006, BMC
Bioinformatics 7:91; Cawley & Talbot 2010, JMLR 11). The figures are of the procedure; the exported judge is fitted on
all labels. A test of the user's own is judged by the exported judge itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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


class Rivals(NamedTuple):
    """The champion and the judges that it is compared with."""

    champion: Candidate
    calibrated: Candidate | None
    """The best of the LMs calibrated; None without an LM."""
    lexical: Candidate
    untuned: Replies | None

    @property
    def judges(self) -> dict[str, Judge]:
        """Return them by name; the length baseline is none."""
        judges = {CHAMPION: self.champion.judge, LEXICAL: self.lexical.judge}
        if self.calibrated is not None:
            judges[CALIBRATED] = self.calibrated.judge
        if self.untuned is not None:
            judges[UNTUNED] = self.untuned.judge
        return judges


def rivals_of(
    champion: Candidate, tried: Sequence[Candidate], untuned: Replies | None
) -> Rivals:
    """Return what a champion is compared with; of the LMs calibrated, the best on all of the champion's answers."""
    own = {a.id for a in champion.answers}
    shared = {}
    for c in tried:
        if c.method == "lm":
            shared[c.name] = [a for a in c.answers if a.id in own]
    # One that learned from some of these answers itself would leave fewer to read figures of.
    most = max(map(len, shared.values()), default=0)
    whole = [c for c in tried if c.name in shared and len(shared[c.name]) == most]
    best = max(whole, key=lambda c: score(shared[c.name]) or 0.0, default=None)
    lexical = next(c for c in tried if c.name == LEXICAL)
    return Rivals(champion, best, lexical, untuned)


def cross_validate(
    asked: Asked, fold_of: Mapping[str, int], point: OperatingPoint
) -> dict[str, list[JudgedAnswer]]:
    """Return each answer as judged by what was fitted and chosen without its fold, by judge's name.

    Of a champion that has learned from a part of the sources itself, only the answers of the others.
    """
    judged: defaultdict[str, list[JudgedAnswer]] = defaultdict(list)
    words = {a.id: a for a in asked.lexical.answers}
    for k in sorted(set(fold_of.values())):
        rest = {source: fold for source, fold in fold_of.items() if fold != k}
        try:
            tried = candidates(asked.lexical, asked.replies, rest, point)
        except InputError:  # too few scored labels are left to fit an LM
            tried = candidates(asked.lexical, (), rest, point)
        chosen = choose(tried, point).champion
        rivals = rivals_of(chosen, tried, asked.untuned)
        for name, judge in rivals.judges.items():
            replies = _replies_of(name, rivals)
            held = [a for a in replies.answers if fold_of[a.source] == k]
            judged[name] += [as_asked(judge, a, words[a.id]) for a in held]
        fitted_on = [a for a in words.values() if a.source in rest]
        held = [a for a in words.values() if fold_of[a.source] == k]
        judged[LENGTH] += by_length(fitted_on, held)
    return judged


def _replies_of(name: str, rivals: Rivals) -> Replies:
    if name == UNTUNED:
        assert rivals.untuned is not None
        return rivals.untuned
    of = {CHAMPION: rivals.champion, CALIBRATED: rivals.calibrated}
    return (of.get(name) or rivals.lexical).replies


def judge_test(
    rivals: Rivals, words: Sequence[JudgedAnswer], study: Study
) -> dict[str, list[JudgedAnswer]]:
    """Return the answers of the user's own test by judge's name, each variant asked once; ``words``: the pool's answers
    without an LM."""
    test = study.labels.test
    answers: dict[str, list[JudgedAnswer]] = {}
    by_variant: dict[str, list[JudgedAnswer]] = {}
    for name, judge in rivals.judges.items():
        variant = _replies_of(name, rivals).name
        if judge.escalate_to is None and variant in by_variant:
            answers[name] = [a.by(judge) for a in by_variant[variant]]
            continue
        what = rivals.champion.name if name == CHAMPION else name
        with study.view.task(f"{what}: test", len(test)) as advance:
            answers[name] = verify(judge, test, advance)
        if judge.escalate_to is None:
            by_variant[variant] = answers[name]
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
            shared[name] = _in_order(answers[name], ids)
    judges = [
        measure_judge(name, judged, rivals.judges.get(name, rivals.lexical.judge))
        for name, judged in shared.items()
    ]
    own = shared[CHAMPION]
    candidate_of = {LEXICAL: rivals.lexical, CALIBRATED: rivals.calibrated}
    comparisons = {}
    for name, called in BASELINES.items():
        if name in shared and candidate_of.get(name) is not rivals.champion:
            names = "the champion", called
            comparisons[name] = compare(own, shared[name], names, cost=point.cost)
    return Measured(judges=tuple(judges), comparisons=comparisons)


def _in_order(answers: Iterable[JudgedAnswer], ids: set[str]) -> list[JudgedAnswer]:
    return sorted((a for a in answers if a.id in ids), key=lambda a: a.id)


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

    None where the export has no such baseline, or where the judge asks no LM itself.
    """
    fields = judge.manifest.get("lexical_baseline")
    if fields is None or not any(one.asks_lm for one in judge.cascade):
        return None
    words = Judge(NO_LM, classifier=Classifier.model_validate(fields))
    by_words = words.batch(examples)
    own, others = (
        list(map(Row.of, examples, judged)) for judged in (judgments, by_words)
    )
    return compare(own, others, ("the judge", BASELINES[LEXICAL]))
