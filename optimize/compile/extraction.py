"""Compiling extraction on people's own statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.program.extraction import read_statements
from faith_dspy.schema import Chunk
from faith_dspy.scoring.matching import locate
from faith_dspy.text.features import IndexedContext, lexical_features
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
        pieces = {p.index: p.text for p in sentences(e.answer) if carries_statement(p.text)}
        texts = [" ".join(s.text.split()) for s in e.statements]
        at = [place.sentence for place in locate(texts, e.answer)]
        if set(texts) <= {" ".join(p.split()) for p in pieces.values()} or not pieces.keys() <= set(at):
            continue
        number = {index: i for i, index in enumerate(pieces, 1)}
        numbered = [f"{number[i]} {text}" for i, text in zip(at, texts, strict=True) if i in number]
        row = dspy.Example(question=e.question or "", sentences=list(pieces.values()), statements=numbered, texts=texts)
        out.append(row.with_inputs("question", "sentences"))
    return out


def extraction_metric(
    gold: dspy.Example, pred: dspy.Prediction, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
) -> Any:
    """Harmonic mean of coverage and fidelity, in [0, 1]; 0 for a reply without statements."""
    said = [] if pred is None else _texts(pred.get("statements") or [])
    covered = found_shares(gold.texts, said)
    added = invented(said, " ".join([gold.question, *gold.sentences]))
    coverage = sum(covered) / len(covered)
    fidelity = 1 - len(added) / len(said) if said else 0.0
    score = 2 * coverage * fidelity / (coverage + fidelity) if coverage + fidelity else 0.0
    if trace is not None:
        return score >= GOOD
    if pred_name is None and pred_trace is None:
        return score
    missed = [t for t, c in zip(gold.texts, covered, strict=True) if c < GOOD]
    found = f"Found {coverage:.0%} of the people's statements." if said else "There was no statement."
    feedback = [found, *(f"Missing: {t}" for t in missed[:3]), *(f"Not in the answer: {s}" for s in added[:3])]
    return dspy.Prediction(score=score, feedback=" ".join(feedback))


def _texts(lines: Sequence[str]) -> list[str]:
    return [t for _, t in read_statements(lines) if not re.fullmatch(r"\W*none\W*", t, re.IGNORECASE)]


def found_shares(people: Sequence[str], judge: Sequence[str]) -> list[float]:
    """How far each of the people's statements is found, in [0, 1]: the words it shares with the closest of the judge's.

    The smaller share of the two counts, so that the whole answer in one statement does not cover its parts.
    """
    return [max((min(word_share(t, s), word_share(s, t)) for s in judge), default=0.0) for t in people]


def invented(judge: Sequence[str], known: str) -> list[str]:
    """The judge's statements with a content word that ``known``, answer and question, does not have."""
    return [s for s in judge if word_share(s, known) < 1]


def word_share(text: str, within: str) -> float:
    """Share of the content words of ``text`` that ``within`` has; 1 if it has no content word."""
    indexed = IndexedContext([Chunk(id=0, text=within)])
    return 1 - lexical_features(text, indexed, ["novel_words"])["novel_words"]
