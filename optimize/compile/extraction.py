"""Compiling extraction: on people's own statements where they wrote some, else by the answers' labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.optimize.compile.metric import mean_gain
from faith_dspy.scoring.matching import match_in_order, word_share
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.program.faithfulness import FaithfulnessProgram
    from faith_dspy.schema import LabelledExample, RawVerdict

GOOD = 0.75
"""Score from which on a reply may become a demo."""

ALTERNATIVES = (
    "You take an answer apart into statements that can be checked one by one.\n\n"
    "For each numbered sentence write its number and then the sentence itself, with pronouns replaced by what they "
    "stand for. Split a sentence only where it lists several separate facts. Change nothing else and add nothing.",
)
"""Instructions tried against the seed prompt where only answers are labelled."""


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
        if not texts or set(texts) <= {" ".join(p.split()) for p in pieces}:
            continue
        at = match_in_order(texts, pieces)
        if {i for i in at if i is not None} != set(range(len(pieces))):
            continue
        out.append(
            dspy.Example(
                question=e.question or "",
                sentences=pieces,
                statements=[f"{i + 1} {text}" for i, text in zip(at, texts, strict=True) if i is not None],
                texts=texts,
            ).with_inputs("question", "sentences")
        )
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
    if pred_name is not None or pred_trace is not None:
        missed = [t for t, c in zip(gold.texts, covered, strict=True) if c < GOOD]
        words = [f"Found {coverage:.0%} of the people's statements."]
        words += [f"Missing: {t}" for t in missed[:3]]
        words += [f"Not in the answer: {s}" for s in invented[:3]]
        return dspy.Prediction(score=score, feedback=" ".join(words if said else [*words, "There was no statement."]))
    return score


def choose_prompt(
    program: FaithfulnessProgram, examples: Sequence[LabelledExample], advance: Callable[[int], None]
) -> tuple[str, str]:
    """The extraction instruction with which the program agrees best with the answers' labels, and a note on it.

    Agreement is the class-weighted probability that the weakest statement gives to the answer's label. The seed prompt
    stays unless another is better by more than the paired standard error by context.
    """
    size = {label: sum(e.label is label for e in examples) for label in (True, False)}
    assert program.extract is not None
    seed = program.extract.signature.instructions
    scores: dict[str, list[float]] = {}
    for text in (seed, *ALTERNATIVES):
        tried = program.deepcopy()
        tried.extract.signature = tried.extract.signature.with_instructions(text)
        scores[text] = []
        for e in examples:
            prediction = tried(context=e.context, answer=e.answer, question=e.question)
            weakest = min((_support(v) for v in prediction.raw_verdicts), default=0.5)
            right = weakest if e.label else 1 - weakest
            scores[text].append(right * len(examples) / (2 * size[bool(e.label)]))
            advance(1)
    best = max(scores, key=lambda text: sum(scores[text]))
    gains = [a - b for a, b in zip(scores[best], scores[seed], strict=True)]
    gain, error = mean_gain(gains, [e.context_key for e in examples])
    chosen = best if gain > error else seed
    outcome = "seed prompt kept" if chosen == seed else "another prompt chosen"
    return chosen, f"extraction: {outcome} on {len(examples)} labelled answers ({gain:+.2f} ± {error:.2f})"


def _support(raw_verdict: RawVerdict) -> float:
    if raw_verdict.verdict is None:
        return 0.5
    if raw_verdict.probability is None:
        return float(raw_verdict.verdict.is_supported)
    return raw_verdict.probability


def _texts(lines: Sequence[str]) -> list[str]:
    texts = [re.sub(r"^[\s\-*\[(]*\d{1,3}[\])]?[.:)\s]+", "", line).strip() for line in lines]
    return [t for t in texts if t and not re.fullmatch(r"\W*none\W*", t, re.IGNORECASE)]
