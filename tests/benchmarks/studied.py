"""A study's own steps on kept replies, for the bench of known LMs: candidates, choice, champion; no LM, no MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from unittest.mock import patch

from faith_dspy.judge import Judge
from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.splits import with_sources as with_sources
from faith_dspy.optimize.plan import HOSTED, VARIANTS
from faith_dspy.optimize.results import LEXICAL, JudgedAnswer, JudgeResult
from faith_dspy.optimize.select.ask import Replies, usable, without_lm
from faith_dspy.optimize.select.candidates import candidates
from faith_dspy.optimize.select.champion import choose as choose_candidate
from faith_dspy.schema import LabelledExample, RawVerdict, Verdict
from faith_dspy.scoring.agreement import JudgeAgreement
from faith_dspy.scoring.classifier import Classifier

SHAPES = {name: VARIANTS[name].config for name in HOSTED}
"""What a study asks an LM of the user's, unless it is told otherwise."""
_NOTHING = JudgeAgreement(answers=None, statements=None, evidence=None)
_HERE = "faith_dspy.optimize.select.candidates"


class Chosen(NamedTuple):
    """The champion of a study, as the bench looks at it."""

    name: str
    judge: Judge
    shape: str | None
    """What its LM is asked; None without one."""
    lexical: Classifier
    scores: dict[str, float]
    """Of all candidates on the pool."""

    def margins(
        self,
        answers: Mapping[str, Sequence[JudgedAnswer]],
        words: Sequence[JudgedAnswer],
    ) -> list[float]:
        """By how much each answer's probability passes the threshold, escalated or not."""
        asked = words if self.shape is None else answers[self.shape]
        classifier, following = self.judge.classifier, self.judge.escalate_to
        if following is None:
            return [_margin(classifier, a) for a in asked]
        low, high = classifier.review_range
        margins = []
        for first, second in zip(words, asked, strict=True):
            sure = not low <= _margin(classifier, first) + classifier.threshold < high
            margins.append(
                _margin(classifier, first)
                if sure
                else _margin(following.classifier, second)
            )
        return margins

    def lexical_margins(self, words: Sequence[JudgedAnswer]) -> list[float]:
        """The same of the lexical baseline."""
        return [_margin(self.lexical, a) for a in words]


def _margin(classifier: Classifier, answer: JudgedAnswer) -> float:
    return classifier.probability(answer.features) - classifier.threshold


def answerable(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Those that every judge is asked about: the others are unscored for all of them alike."""
    return [a.example for a in usable(without_lm(examples))]


Answers = dict[str, dict[str, JudgedAnswer]]
"""By granularity, and by the answer's id."""


def unasked_answers(examples: Sequence[LabelledExample]) -> Answers:
    """The answers without an LM, sentence by sentence, and as one statement each."""
    by_sentence = {a.id: a for a in without_lm(examples)}
    whole = {}
    for e in examples:
        verdict = RawVerdict(text=e.answer.strip(), verdict=Verdict.FULLY_SUPPORTED)
        raw = by_sentence[e.id].raw.model_copy(update={"raw_verdicts": (verdict,)})
        whole[e.id] = JudgedAnswer.judged(e, raw, by_sentence[e.id].judgment)
    return {"sentence": by_sentence, "answer": whole}


def choose(
    judges: Mapping[str, Judge],
    answers: Mapping[str, Sequence[JudgedAnswer]],
    words: Sequence[JudgedAnswer],
) -> Chosen:
    """Make, choose and fit as a study does; agreement on statements, which only reports show, is not measured.

    Raises:
        InputError: the labels are too few to fit anything.
    """
    replies = {}
    for name, judge in judges.items():
        described = VARIANTS[name].description
        variant = JudgeResult(name=name, kind="lm", description=described)
        replies[name] = Replies(judge, list(answers[name]), variant)
    pool = [a.example for a in words]
    with (
        patch(f"{_HERE}.without_lm", lambda _: list(words)),
        patch(f"{_HERE}.measure_agreement", lambda *_: _NOTHING),
    ):
        found = candidates(replies, pool, 0, BALANCED)
    choice = choose_candidate(found, "agreement")
    champion = choice.champion
    lexical = next(c for c in found if c.result.name == LEXICAL)
    return Chosen(
        name=champion.result.name,
        judge=champion.judge,
        shape=None if champion.replies is None else champion.replies.variant.name,
        lexical=lexical.judge.classifier,
        scores={
            r.name: round(r.score, 4) for r in choice.compared if r.score is not None
        },
    )
