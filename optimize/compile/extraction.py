"""Compiling extraction on people's own statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.scoring.matching import match_in_order, word_share
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

GOOD = 0.75
"""Score from which on a reply may become a demo."""


class Extractor(dspy.Module):
    """The extraction call as the program makes it."""

    def __init__(self, extract: dspy.Predict) -> None:
        super().__init__()
        self.extract = extract

    def forward(self, question: str, sentences: list[str]) -> dspy.Prediction:
        """Numbered lines, one per statement."""
        room = 40 + 2 * sum(map(len, sentences)) // 3
        return self.extract(question=question, sentences=sentences, config={"max_tokens": min(room, 2000)})


def extraction_examples(examples: Sequence[LabelledExample]) -> list[dspy.Example]:
    """Answers that people took apart into statements, as DSPy examples.

    Left out are answers whose statements are just their sentences, or do not cover every sentence. ``statements`` are
    numbered as the LM is asked to number them, ``texts`` are the same without numbers.
    """
    out = []
    for e in examples:
        pieces = [p.text for p in sentences(e.answer) if carries_statement(p.text)]
        texts = [" ".join(s.text.split()) for s in e.statements]
        at = match_in_order(texts, pieces)
        if set(texts) <= {" ".join(p.split()) for p in pieces} or {*at, None} != {*range(len(pieces)), None}:
            continue
        numbered = [f"{i + 1} {text}" for i, text in zip(at, texts, strict=True) if i is not None]
        row = dspy.Example(question=e.question or "", sentences=pieces, statements=numbered, texts=texts)
        out.append(row.with_inputs("question", "sentences"))
    return out


def extraction_metric(
    gold: dspy.Example, pred: dspy.Prediction, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
) -> Any:
    """Harmonic mean of coverage and fidelity, in [0, 1]; 0 for a reply without statements.

    Coverage: how far each of the people's statements is found, by the words it shares with the closest of the LM's –
    the smaller share of the two, so that the whole answer in one statement does not cover its parts. Fidelity: share of
    the LM's statements without a content word that neither answer nor question has.
    """
    said = [] if pred is None else _texts(pred.get("statements") or [])
    covered = [max((min(word_share(t, s), word_share(s, t)) for s in said), default=0.0) for t in gold.texts]
    known = " ".join([gold.question, *gold.sentences])
    invented = [s for s in said if word_share(s, known) < 1]
    coverage = sum(covered) / len(covered)
    fidelity = 1 - len(invented) / len(said) if said else 0.0
    score = 2 * coverage * fidelity / (coverage + fidelity) if coverage + fidelity else 0.0
    if trace is not None:
        return score >= GOOD
    if pred_name is None and pred_trace is None:
        return score
    missed = [t for t, c in zip(gold.texts, covered, strict=True) if c < GOOD]
    found = f"Found {coverage:.0%} of the people's statements." if said else "There was no statement."
    feedback = [found, *(f"Missing: {t}" for t in missed[:3]), *(f"Not in the answer: {s}" for s in invented[:3])]
    return dspy.Prediction(score=score, feedback=" ".join(feedback))


def _texts(lines: Sequence[str]) -> list[str]:
    texts = [re.sub(r"^[\s\-*\[(]*\d{1,3}[\])]?[.:)\s]+", "", line).strip() for line in lines]
    return [t for t in texts if t and not re.fullmatch(r"\W*none\W*", t, re.IGNORECASE)]
