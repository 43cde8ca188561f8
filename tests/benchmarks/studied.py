"""A study's own steps on kept replies, for the bench of known LMs: candidates, choice, figures; no LM, no MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.plan import VARIANTS
from faith_dspy.optimize.results import CHAMPION, LEXICAL, JudgedAnswer, Measured
from faith_dspy.optimize.select.ask import Asked, Replies, usable, without_lm
from faith_dspy.optimize.select.candidates import as_asked, candidates
from faith_dspy.optimize.select.champion import Choice, choose
from faith_dspy.optimize.select.validation import cross_validate, measure, rivals_of
from faith_dspy.schema import LabelledExample, RawVerdict, Verdict

SHAPES = {
    name: VARIANTS[name].config
    for name in ("answer", "answer-reasoning", "joint", "sentence", "sentence-graded")
}
"""Prompts that nothing compiles: to an LM that has read the labels, all examples and instructions are the same."""


class Studied(NamedTuple):
    """What a study found."""

    choice: Choice
    printed: Measured
    """The figures that its user reads, by cross-validation."""
    tested: dict[str, list[JudgedAnswer]]
    """Other answers by the exported judge and by the lexical baseline."""

    @property
    def printed_gain(self) -> float | None:
        """The gain over the lexical baseline that its user reads; none where that is what is exported."""
        comparison = self.printed.comparisons.get(LEXICAL)
        return comparison and comparison.balanced_accuracy.value


def study(
    lexical: Replies, asked: Sequence[Replies], pool: Iterable[str], test: Iterable[str]
) -> Studied:
    """Study the answers with these ids, and judge the others.

    Raises:
        InputError: the labels are too few to fit anything.
    """
    drawn = [_only(replies, pool) for replies in asked]
    words = _only(lexical, pool)
    fold_of = assign_folds([a.example for a in words.answers], 0)
    tried = candidates(words, drawn, fold_of, BALANCED)
    choice = choose(tried)
    everything = Asked(words, drawn, [], finished=True)
    rivals = rivals_of(choice.champion, tried, everything.untuned)
    validated = cross_validate(everything, fold_of, BALANCED)
    exported = choice.champion
    whose = {replies.name: replies for replies in (lexical, *asked)}
    tested = {}
    for name, candidate in (
        (CHAMPION, exported),
        (LEXICAL, rivals[LEXICAL]),
    ):
        others = _only(whose[candidate.replies.name], test).answers
        first = {a.id: a for a in whose[(candidate.first or lexical).name].answers}
        tested[name] = [as_asked(candidate.judge, a, first[a.id]) for a in others]
    return Studied(choice, measure(validated, rivals, BALANCED), tested)


def _only(replies: Replies, ids: Iterable[str]) -> Replies:
    answer_of = {a.id: a for a in replies.answers}
    return replies._replace(answers=[answer_of[i] for i in ids])


def answerable(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Those that every judge is asked about: the others are unscored for all of them alike."""
    return [a.example for a in usable(without_lm(examples).answers)]


class Unasked(NamedTuple):
    """The answers of a set without an LM."""

    lexical: Replies
    """Sentence by sentence."""
    whole: dict[str, JudgedAnswer]
    """As one statement each, by id."""


def unasked_answers(examples: Sequence[LabelledExample]) -> Unasked:
    """Judge answers without an LM, sentence by sentence, and as one statement each."""
    lexical = without_lm(examples)
    whole = {}
    for a in lexical.answers:
        verdict = RawVerdict(
            text=a.example.answer.strip(), verdict=Verdict.FULLY_SUPPORTED
        )
        raw = a.raw.model_copy(update={"raw_verdicts": (verdict,)})
        whole[a.id] = JudgedAnswer.judged(a.example, raw, a.judgment)
    return Unasked(lexical, whole)
