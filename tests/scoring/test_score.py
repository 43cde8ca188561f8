import math

import pytest
from pydantic import ValidationError

from faith_dspy import Chunk, JudgeConfig, Judgment, Unscored, Verdict
from faith_dspy.config import WEIGHTS
from faith_dspy.errors import ConfigError
from faith_dspy.schema import RawJudgment, RawVerdict, Usage
from faith_dspy.scoring.measure import measure_features
from faith_dspy.scoring.score import (
    LEVELS,
    decide,
    early_judgment,
    judgment_of,
    level,
)
from faith_dspy.text.sentences import split_answer
from tests.support.classifiers import by_weakest, linear

FULL, PART, NONE, CONTRA, NOT = Verdict
CONTEXT = (Chunk(id=0, text="The kettle is blue."), Chunk(id=1, text="The lid is red."))
USAGE = Usage(
    calls=2, prompt_tokens=200, cached_tokens=120, output_tokens=2, seconds=0.5
)


def raw_verdict(verdict, text="The kettle is blue.", **fields):
    """One statement as the LM judged it."""
    return RawVerdict(text=text, sentence_index=0, verdict=verdict, **fields)


def judged(*raw_verdicts, classifier=None, context=CONTEXT, **options):
    raw_judgment = RawJudgment(raw_verdicts=raw_verdicts, usage=USAGE)
    features = measure_features(raw_judgment, context, None)
    return judgment_of(raw_judgment, features, JudgeConfig.make(**options), classifier)


# logit(p) of the statement is the LM's own; the answer's is the weakest statement's.
HEAD = by_weakest(linear({"lm": 1.0}), threshold=0.6, statement_threshold=0.7)


@pytest.mark.parametrize(
    ("verdicts", "plain", "harsh"),
    [
        ([FULL, PART], 0.75, 0.75),
        ([FULL, FULL, CONTRA], 1 / 3, 1 / 3),  # (1 + 1 − 1) / 3
        ([FULL, PART, NONE, CONTRA], 0.125, 0.0),  # .5 / 4; (1 + .5 − 1 − 1) / 4, clamped
        ([NOT, FULL], 0.5, 0.0),  # 1 / 2; (−1 + 1) / 2
    ],
)  # fmt: skip
def test_score_by_hand(verdicts, plain, harsh):
    """The score is the sum of the verdicts' weights over all statements asked about, clamped to [0, 1].

    No evidence and not supported may count −1 instead of 0; so they stay after a round through JSON.
    """
    config = JudgeConfig.make(verdict_scores={"no_evidence": -1, "not_supported": -1})
    again = JudgeConfig.model_validate(config.model_dump(mode="json"))
    scores = [decide(verdicts, None, c)[0] for c in (JudgeConfig(), config, again)]
    assert scores == pytest.approx([plain, harsh, harsh])


def test_five_level_is_scored_by_its_level():
    """The level is the score, and from .5 on the answer passes."""
    options = {"granularity": "answer", "verdicts": "five_level"}
    for value, faithful in ((0.6, True), (0.5, True), (0.49, False)):
        judgment = judged(raw_verdict(PART, level=value), **options)
        assert (judgment.score, judgment.faithful) == (value, faithful)


LID = ("the lid is red",)
EVIDENCE = [
    (raw_verdict(FULL, quotes=("KETTLE is blue", "made of gold")), ("kettle is blue",), {0: "quoted"}),
    (raw_verdict(NONE, "The pot is green.", quotes=LID), (), {}),
    (raw_verdict(CONTRA, "The lid is green.", quotes=LID), ("The lid is red",), {1: "quoted"}),
    (raw_verdict(FULL, chunk_ids=(1, 7, 0)), (), {0: "cited", 1: "cited"}),
    (raw_verdict(FULL, "The lid is red.", chunk_ids=(9,)), (), {1: "shared_words"}),
    (raw_verdict(PART, chunk_ids=(1, 0), quotes=("kettle is blue",)), ("kettle is blue",), {0: "quoted", 1: "cited"}),
]  # fmt: skip
"""Verdicts with the quotes and the chunks that are shown, and what gave each chunk."""


def test_evidence():
    """Quotes that no chunk has and ids that do not exist are dropped and counted; where the LM names no chunk words
    find one; what speaks for a statement without evidence is not shown."""
    verdicts, quotes, chunks = zip(*EVIDENCE, strict=True)
    found = judged(*verdicts)
    assert tuple(s.quotes for s in found.statements) == quotes
    for s, found_by in zip(found.statements, chunks, strict=True):
        assert dict(zip(s.supporting_chunk_ids, s.found_by, strict=True)) == found_by
    assert (found.dropped_quotes, found.dropped_chunk_ids) == (1, 2)
    counts = {FULL: 3, PART: 1, NONE: 1, CONTRA: 1, NOT: 0, "unjudged": 0}
    assert found.verdict_counts == counts


def test_a_head_may_overturn_a_verdict():
    """At its threshold a statement is supported, below it the LM's kind of unsupported verdict stays; the LM's reason
    goes with the verdict it was given for."""
    given = [(FULL, 3), (CONTRA, -3), (FULL, -3), (NONE, 3), (CONTRA, 3)]
    verdicts = (raw_verdict(v, logit=x, reason="So it is.") for v, x in given)
    found = judged(*verdicts, classifier=HEAD)
    assert [s.verdict for s in found.statements] == [FULL, CONTRA, NOT, FULL, FULL]
    assert [s.reason for s in found.statements] == ["So it is."] * 2 + [None] * 3


def test_weights_may_be_partial_and_in_any_case():
    """The others keep their defaults; a name that is no verdict is refused."""
    weights = {"PARTIALLY_SUPPORTED": 0.75, "No Evidence": -0.5}
    config = JudgeConfig.make(verdict_scores=weights)
    assert config.verdict_scores == dict(WEIGHTS) | {PART: 0.75, NONE: -0.5}
    with pytest.raises(ConfigError, match=r"verdict_scores.*'no_support'"):
        JudgeConfig.make(verdict_scores={"no_support": 1})


@pytest.mark.parametrize(
    "weights",
    [{FULL: math.inf}, {FULL: 0.4}, {NONE: 0.6}],
)
def test_weights_are_finite_and_in_order(weights):
    """A weight that is no number would make a score out of nothing, less support that weighs more a wrong one."""
    with pytest.raises(ConfigError, match="must be finite, with fully_supported"):
        JudgeConfig.make(verdict_scores=weights)


def test_pass_mark():
    """Without a threshold every statement has to be fully supported; with one the score, here .75, has to reach it."""
    full, part = raw_verdict(FULL), raw_verdict(PART)
    assert judged(full, full).faithful
    passes = [judged(full, part, threshold=t).faithful for t in (None, 0.75, 0.76)]
    assert passes == [False, True, False]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"score": 0.5, "unscored": "abstained"}, "give exactly one"), ({}, "give exactly one"),
        ({"score": math.nan}, "score"),
        ({"unscored": "abstained", "probability": 0.5}, "an unscored judgment has no"),
    ],
)  # fmt: skip
def test_score_and_reason_never_go_together(fields, said):
    """A judgment has either a score or the reason why not; the unscored one has no verdict at all."""
    with pytest.raises(ValidationError, match=said):
        Judgment(**fields)


def test_head_decides_verdicts_and_pass_mark():
    """Statement at or above .7 is supported; the answer passes at .6 on its weakest: logits 2 and .5 give .622."""
    sure, unsure = raw_verdict(FULL, logit=2.0), raw_verdict(FULL, logit=0.5)
    found = judged(sure, unsure, classifier=HEAD)
    confidences = [s.confidence for s in found.statements]
    assert confidences == pytest.approx([0.8808, 0.6225], abs=1e-4)
    assert [s.verdict for s in found.statements] == [FULL, NOT]
    assert found.probability == found.ranking == pytest.approx(0.6225, abs=1e-4)
    # (.6225 - .6) / .4 · 2 = .11
    assert (found.faithful, found.level) == (True, "Neutral/Mixed")
    even = HEAD.model_copy(update={"threshold": 0.5})
    half = raw_verdict(FULL, logit=0.0)
    assert judged(half, classifier=even).faithful  # .5 reaches .5


@pytest.mark.parametrize(
    ("threshold", "levels"),
    [
        (0.2, {0.04: 0, 0.19: 1, 0.2: 2, 0.5: 3, 0.9: 4}),
        (0.0, {0.0: 2, 1.0: 4}),
        (None, {0.0: 0, 0.75: 1, 1.0: 4}),  # every statement has to be supported
    ],
)
def test_level_never_contradicts_the_pass(threshold, levels):
    """The threshold is the scale's middle: the upper three levels pass, the lower two do not, and none falls as the
    value rises."""
    top = 1.0 if threshold is None else threshold

    places = {}
    for value in (i / 100 for i in range(101)):
        places[value] = LEVELS.index(level(value, threshold, value >= top))
    assert places | levels == places
    assert [*places.values()] == sorted(places.values())
    assert all((place >= 2) == (value >= top) for value, place in places.items())


def test_too_close_to_call_goes_to_a_person():
    """Within [.55, .65) an answer goes to a person; without a review_range, or a verdict, nobody can say."""
    classifier = HEAD.model_copy(update={"review_range": (0.55, 0.65)})
    needs = [classifier.needs_review(p) for p in (0.54, 0.55, 0.64, 0.65)]
    assert needs == [False, True, True, False]
    close = raw_verdict(FULL, logit=0.5)
    assert judged(close, classifier=classifier).needs_review
    for said, head in ((close, HEAD), (close, None), (GARBLED, classifier)):
        assert judged(said, classifier=head).needs_review is None


BY_MEAN = HEAD.answer.model_copy(update={"names": ("mean",)})
MEAN = HEAD.model_copy(update={"answer": BY_MEAN})
FAILED = raw_verdict(None, error="500", lm_failed=True)
GARBLED = raw_verdict(None, error="no label")


SUPPORTED, AGAINST = raw_verdict(FULL, logit=5.0), raw_verdict(NONE, logit=-5.0)
LM_FAILED, PARSE_FAILED = Unscored.LM_FAILED, Unscored.PARSE_FAILED


@pytest.mark.parametrize(
    ("verdicts", "options", "outcome"),
    [
        ([SUPPORTED] * 3 + [FAILED], {"classifier": HEAD}, LM_FAILED),
        ([SUPPORTED] * 2 + [FAILED] * 2, {"threshold": 0.5}, LM_FAILED),
        ([SUPPORTED, GARBLED], {}, PARSE_FAILED),
        ([GARBLED, FAILED], {}, LM_FAILED),
        # It fails where what was judged fails it, whatever the others are.
        ([AGAINST, FAILED], {}, False),
        ([AGAINST, FAILED], {"classifier": HEAD}, False),  # the weakest: logit -5, under .405
        # Logits -5 twice and 6 at best: their mean is -4/3, a probability of .21; with 6 twice, 7/3.
        ([AGAINST, AGAINST, FAILED], {"classifier": MEAN}, False),
        ([AGAINST, FAILED, FAILED], {"classifier": MEAN}, LM_FAILED),
        ([AGAINST, AGAINST, SUPPORTED, FAILED], {"threshold": 0.75}, False),  # 2 of 4 at best
        ([AGAINST, FAILED], {"threshold": 0.5}, LM_FAILED),
    ],
)  # fmt: skip
def test_an_outage_is_neither_passed_nor_failed(verdicts, options, outcome):
    """Whatever could still pass is unscored, with the LM's reason, the verdicts kept: tuned, untuned, by threshold."""
    judgment = judged(*verdicts, **options)
    assert judgment.unscored is (outcome or None)
    assert judgment.faithful is (None if outcome else False)
    assert [s.verdict for s in judgment.statements] == [v.verdict for v in verdicts]
    unjudged = [v.error for v in verdicts if v.error]
    why = f"{len(unjudged)} of {len(verdicts)} statements could not be judged; the first: {unjudged[0]}"
    assert (judgment.detail, judgment.usage) == (why, USAGE)


def test_ranking_falls_back():
    """Without a probability an answer ranks by its weakest statement's confidence, and without all of them by score."""
    sure, unsure = (raw_verdict(FULL, probability=p) for p in (0.9, 0.6))
    assert judged(sure, unsure).ranking == 0.6
    assert judged(sure, raw_verdict(NONE)).ranking == 0.5
    assert judged().ranking is None


def test_too_many_sentences():
    config = JudgeConfig(max_sentences=2)
    two = "It is blue. It is new."
    assert early_judgment(CONTEXT, split_answer(two), config) is None
    three = split_answer(f"{two} It is old.")
    assert early_judgment(CONTEXT, three, config).unscored is Unscored.TOO_LONG
