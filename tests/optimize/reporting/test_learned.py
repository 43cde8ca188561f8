from __future__ import annotations

import re
from typing import Any

import pytest

from faith_dspy.optimize import results
from faith_dspy.optimize.reporting.learned import diff, disagreements, flips, write_learned
from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.scoring.agreement import measure

EVIL = "<script>alert('x')</script> & \"quoted\" \ud83d"
LABELS = [True, False, True, False]


def rows(probabilities: list[float | None], part: Any = "test") -> list[PredictionRow]:
    """Four answers, the first and third faithful, with texts that would break a page that does not escape them."""
    return [
        PredictionRow(
            id=f"a{i}", group=f"g{i}", part=part, label=label, predicted=None if p is None else p >= 0.5,
            probability=p, unscored="parse_failed" if p is None else None, question=f"Why {i}? {EVIL}",
            answer=f"Answer {i}. {EVIL}", context=[f"Chunk of {i}. {EVIL}"], tags={"source": "x"},
            statements=[{"text": f"Statement {i}. {EVIL}", "verdict": "no_evidence", "confidence": p, "label": label}],
        )
        for i, (label, p) in enumerate(zip(LABELS, probabilities, strict=True))
    ]  # fmt: skip


BEFORE, AFTER = [0.4, 0.6, 0.9, 0.1], [0.8, None, 0.7, 0.95]


def study() -> StudyResult:
    """Untuned: wrong about the first two. Champion: right about the first and third, unscored, wrong about the last."""
    variants = [
        VariantResult(
            name=name, kind=kind, description="", params={"optimizer": optimizer}, predictions=rows(p, "dev"),
            prompts={"verify": {"instructions": instructions, "demos": demos}},
            seed_prompts={"verify": {"instructions": "Is it so? Say Yes.", "demos": []}},
            agreement=measure(LABELS, [None if x is None else x >= 0.5 for x in p], p, n_resamples=20),
        )
        for name, kind, optimizer, p, instructions, demos in (
            ("answer", "untuned", "none", BEFORE, "Is it so? Say Yes.", []),
            ("tuned", "lm", "labelled", AFTER, "Is it so? Say Yes or No.", [{"statement": EVIL, "answer": "Yes"}]),
        )
    ]  # fmt: skip
    test = [
        results.TestResult(
            name=n, kind=k, predictions=rows(p),
            agreement=measure(LABELS, [None if x is None else x >= 0.5 for x in p], p, n_resamples=20),
        )
        for n, k, p in (("champion", "lm", AFTER), ("untuned", "untuned", BEFORE))
    ]  # fmt: skip
    sides = [Side([r.predicted for r in t.predictions], [r.probability for r in t.predictions]) for t in test]
    return StudyResult(
        study_id="51d1", labels_file="l.jsonl", label_set_hash="81f2", lm={"name": "openai/tiny"}, budget="quick",
        seed=0, split={}, variants=variants, champion="tuned", test=test,
        comparisons={"untuned": compare(LABELS, *sides, n_resamples=20)},
        classifier={"statement": {"names": ["lm", "novel_words"], "weights": [1.2, -0.6]}, "threshold": 0.5},
    )  # fmt: skip


def test_flips_are_counted_against_the_untuned_judge():
    """Right to right: the third. To right: the first. To wrong: the last. Wrong before, unscored now: both wrong."""
    result = study()
    found = flips(result.tested("untuned").predictions, result.tested("champion").predictions)
    assert found.counts == {"both right": 1, "now right": 1, "now wrong": 1, "both wrong": 1}
    assert [new.id for _, new in found.now_right] == ["a0"]
    assert [(old.predicted, new.predicted) for old, new in found.now_wrong] == [(False, True)]


def test_disagreements_are_worst_first():
    """.95 for an unfaithful answer is worse than .6 for one; an unscored answer comes last."""
    assert [r.id for r in disagreements(rows([0.8, 0.6, 0.7, 0.95]))] == ["a3", "a1"]
    assert [r.id for r in disagreements(rows(AFTER))] == ["a3", "a1"]


def test_a_diff_joins_to_either_text():
    """Nothing of the two prompts is lost, spaces and line breaks included."""
    before, after = "Use only\n the context. Yes or No?", "Use the context,  nothing else.\nYes or No?"
    pieces = diff(before, after)
    assert "".join(p.text for p in pieces if p.kind != "new") == before
    assert "".join(p.text for p in pieces if p.kind != "gone") == after
    assert [p.kind for p in diff("same", "same")] == ["same"]


def test_the_page_shows_prompts_flips_and_mistakes():
    """Each is there with its figures, the prompt as a diff, and what is still wrong with its context."""
    page = write_learned(study())
    assert "<del>Yes.</del>" in page
    assert "<ins>Yes or No.</ins>" in page
    assert "Demo 1 of 1" in page
    assert "both right 1, now right 1, now wrong 1, both wrong 1." in page
    assert "Now wrong: 1" in page
    assert "Now right: 1" in page
    assert "Mistakes: 2" in page
    assert page.index("Answer 3.") < page.rindex("Answer 1.")
    assert "Chunk of 3." in page
    assert "unscored: parse failed" in page


def test_texts_are_data():
    """No text can become markup, the policy lets no script run, and nothing is asked of any network."""
    page = write_learned(study())
    assert "<script" not in page
    assert "&lt;script&gt;alert(" in page
    page.encode("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    assert "http://" not in page
    assert "https://" not in page
    assert 'style="' not in page


def test_long_contexts_are_cut_and_say_so():
    """A page of long documents stays readable; the rest is in the labels file."""
    result = study()
    long = {"context": ("word " * 399 + "and that is never shown", *["chunk"] * 9, "never shown")}
    rows = tuple(r.model_copy(update=long) for r in result.test[0].predictions)
    champion = result.test[0].model_copy(update={"predictions": rows})
    page = write_learned(result.model_copy(update={"test": (champion, *result.test[1:])}))
    assert "The other chunks are left out here" in page
    assert "never shown" not in page


def test_without_jinja_the_extra_is_named(monkeypatch):
    """The page needs faith_dspy[tune]."""
    import sys

    from faith_dspy.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="tune"):
        write_learned(study())
