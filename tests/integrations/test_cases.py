"""The embedded model on the six subjects, where an answer is clearly supported or clearly not."""

from __future__ import annotations

import pytest
from cases import CASES, SUBJECTS

from faith_dspy import Judge

pytestmark = [pytest.mark.lm, pytest.mark.all]
CLEAR = [case for case in CASES if case.version in ("supported", "unsupported")]


def test_cases_are_complete():
    """Each subject has its four versions of two sentences, and no sentence is there twice."""
    texts = [text for c in CASES for text, _ in c.sentences]
    assert len(CASES) == 4 * len(SUBJECTS)
    assert len(set(texts)) == len(texts) == 2 * len(CASES)


@pytest.fixture(scope="module")
def judged():
    """The clear answers, judged by the embedded model sentence by sentence."""
    judge = Judge("local", granularity="sentence")
    found = judge.batch({"question": c.question, "context": c.context, "answer": c.answer} for c in CLEAR)
    return {(c.subject, c.version): j for c, j in zip(CLEAR, found, strict=True)}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_supported_above_unsupported(judged, subject):
    """The weakest sentence of the supported answer is more probable than the weakest of the unsupported one."""
    assert judged[subject, "supported"].ranking > judged[subject, "unsupported"].ranking


def test_most_are_decided_right(judged):
    """At its own cut of one half, untuned, it decides at least ten of the twelve answers as a reader does."""
    right = [judged[c.subject, c.version].faithful is (c.version == "supported") for c in CLEAR]
    assert sum(right) >= 10
