from __future__ import annotations

from faith_dspy.optimize.monitoring.prevalence import faithful_share


def test_traffic_like_the_labels_fits():
    """The same scores on both sides: the share is that of the labels, and no alarm."""
    labels = [i % 4 != 0 for i in range(80)]
    scores = [0.8 if ok else 0.3 for ok in labels]
    found = faithful_share(labels, scores, scores * 5)
    assert found.labels_fit
    assert abs(found.share.powered.value - 0.75) < 0.01


def test_other_traffic_is_told():
    """Scores that the labelled answers never had: the labels no longer fit, and the sentence says what to do."""
    labels = [i % 2 == 0 for i in range(60)]
    found = faithful_share(labels, [0.8 if ok else 0.6 for ok in labels], [0.1] * 200)
    assert not found.labels_fit
    assert "Label a random sample" in found.sentence
