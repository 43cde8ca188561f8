"""What an answer has in its context is measured once, and scored by any number of judges."""

import pickle

from faith_dspy import Judge
from faith_dspy.io.inputs import as_chunks
from faith_dspy.scoring.measure import measure_features
from faith_dspy.scoring.score import raw_judgment_without_lm
from faith_dspy.text.sentences import split_answer
from tests.support.classifiers import by_weakest, linear

CHUNKS = as_chunks(["The kettle is blue.", "The lid is red."])
ANSWER = "The kettle is blue [1]. The green lid is red [1][7]."


def test_what_is_measured():
    """By hand: nearest chunk, words that no chunk has, cited chunks, and words by the cited ones where they differ."""
    raw = raw_judgment_without_lm(split_answer(ANSWER))
    features = measure_features(raw, CHUNKS, None)
    kettle, lid = features.statements
    assert (kettle.by_context.closest, kettle.by_context.missing) == ((0,), ())
    assert (kettle.cited_chunk_ids, kettle.by_cited) == ((0,), None)
    assert (lid.by_context.closest, lid.by_context.missing) == ((1,), ("green",))
    assert lid.by_cited.missing == ("green", "lid", "red")
    assert features.unknown_citations == ("7",)


def test_any_judge_scores_what_was_measured():
    """Without the context: two classifiers, and each says what its judge says of the answer itself."""
    raw = raw_judgment_without_lm(split_answer(ANSWER))
    features = measure_features(raw, CHUNKS, None)
    for weight in (-1.0, -9.0):
        classifier = by_weakest(linear({"novel_words": weight}, intercept=1.0))
        judge = Judge("none", classifier=classifier)
        again = judge.score_answer(raw, pickle.loads(pickle.dumps(features)))
        assert again == judge(context=CHUNKS, answer=ANSWER)
    assert not again.faithful
