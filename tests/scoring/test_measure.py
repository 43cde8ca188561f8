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
