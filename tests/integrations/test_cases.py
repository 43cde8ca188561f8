"""The embedded model on the six subjects, where an answer is clearly supported or clearly not."""

from __future__ import annotations

import pytest
from cases import CASES, SUBJECTS

from faith_dspy import Judge
from faith_dspy.lm import server
from faith_dspy.lm.files import EMBEDDED, models_dir

CLEAR = [case for case in CASES if case.version in ("supported", "unsupported")]


def test_cases_are_complete():
    """Each subject has its four versions, each version a sentence of its kind; labels belong to one sentence each."""
    kinds = {"supported": "fully", "partly": "partly", "unsupported": "nothing", "contradicted": "contradicts"}
    assert [(c.subject, c.version) for c in CASES] == [(s, v) for s in SUBJECTS for v in kinds]
    assert all(kinds[c.version] in {label for _, label in c.sentences} for c in CASES)
    labels = {}
    for case in CASES:
        for text, label in case.sentences:
            assert labels.setdefault(text, label) == label


@pytest.fixture(scope="module")
def judged():
    """The clear answers, judged by the embedded model sentence by sentence."""
    pytest.importorskip("xllamacpp")
    if not (models_dir() / EMBEDDED.filename).is_file():
        pytest.skip("the embedded model is not here: faith-dspy model fetch")
    judge = Judge("local", granularity="sentence")
    found = judge.batch({"question": c.question, "context": c.context, "answer": c.answer} for c in CLEAR)
    yield {(c.subject, c.version): j for c, j in zip(CLEAR, found, strict=True)}
    server.stop_all()


@pytest.mark.lm
@pytest.mark.parametrize("subject", SUBJECTS)
def test_supported_above_unsupported(judged, subject):
    """The weakest sentence of the supported answer is more probable than the weakest of the unsupported one."""
    assert judged[subject, "supported"].ranking > judged[subject, "unsupported"].ranking


@pytest.mark.lm
def test_most_are_decided_right(judged):
    """At its own cut of one half, untuned, it decides at least ten of the twelve answers as a reader does."""
    right = [judged[c.subject, c.version].faithful is (c.version == "supported") for c in CLEAR]
    assert sum(right) >= 10
