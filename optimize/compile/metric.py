"""What optimizers maximise on labelled examples: agreement with people's verdicts, chunk ids and statements.

It reads the predictions of the program and of its parts alike: of `dspy.Example`s with a ``statement`` those of the
verifier, with ``sentences`` those of the extraction, with an ``answer`` those of the whole program.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import dspy

from faith_dspy.io.inputs import as_chunks
from faith_dspy.optimize.compile.examples import carrying_sentences, statement_example
from faith_dspy.program.extraction import assign_statements
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.program.verifier import as_prediction
from faith_dspy.schema import Statement, Verdict
from faith_dspy.scoring.classifier import to_probability
from faith_dspy.scoring.matching import match_statements, statement_labels
from faith_dspy.text.features import (
    Comparison,
    closest_sentences,
    index_context,
    missing_words,
)
from faith_dspy.text.sentences import sentence_texts

EVIDENCE_WEIGHT = 0.2
"""Weight of the F1 of chunk ids, where people name some; the verdict has the rest."""
CONFUSED = 0.1
"""Penalty where *no evidence* and *contradictory* are confused: both are unsupported, so most of it is right."""
BOOTSTRAPPED = 0.8
"""Share of an example's verdicts and statements that must be right for a demo."""
MAX_QUOTED = 300
"""Characters of a sentence that feedback quotes."""

_VERDICTS: dict[str, Verdict] = {}
_SUPPORT: dict[str, float] = {}
for _instruction in INSTRUCTIONS.values():
    _VERDICTS |= _instruction.verdicts
    _SUPPORT |= _instruction.labels
_UNSUPPORTED_KINDS = {Verdict.NO_EVIDENCE, Verdict.CONTRADICTORY}


class Judged(NamedTuple):
    """A statement as people and as the LM judged it."""

    gold: dspy.Example
    """As `statement_example` makes it."""
    pred: dspy.Prediction
    """As the verifier returns it."""


def agreement_metric(
    gold: dspy.Example,
    pred: dspy.Prediction,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
    *,
    cut: float = 0.0,
    evidence_weight: float = EVIDENCE_WEIGHT,
    cite: bool = False,
) -> Any:
    """Agreement with people, in [0, 1]; its class-weighted mean over a set is a soft balanced accuracy.

    A yes-or-no verdict scores the probability of the person's, its log-odds counted from ``cut``. A graded one scores
    1 - |distance| on the scale fully 1, partly ½, none 0, less `CONFUSED` where *no evidence* and *contradictory* are
    confused. Where person and LM both name chunks, ``evidence_weight`` of the score is the F1 of the LM's; where the LM
    is to ``cite``, it is 0 for a supported statement for which it names none. An answer scores the mean over the
    statements that people labelled, where they labelled none its weakest statement by the answer's label; where people
    wrote statements, half of its score is the F1 of those that the LM extracts.

    Args:
        gold: a labelled example (`faith_dspy.optimize.compile.examples`).
        pred: the prediction on it. One without a verdict scores 0, and is never taken for a verdict (`failed`).
        trace: given while demos are bootstrapped.
        pred_name: the predictor that GEPA asks about, or an empty text for the scores alone.
        pred_trace: of its call.
        cut: log-odds from which a verdict counts as supported (`best_cut`).
        evidence_weight: in [0, 1].
        cite: whether the LM is asked for chunk ids.

    Returns:
        With a ``trace`` whether most of it is right; with a ``pred_name`` a prediction with ``score``, ``feedback`` and
        the share that is right in ``objective_scores``; else the score times the example's weight.
    """
    if trace is not None:
        return share_right(gold, pred, cut) >= BOOTSTRAPPED
    score = 0.0
    if not failed(pred):
        judged = judged_statements(gold, pred)
        scores = [_verdict_score(one, cut, evidence_weight, cite) for one in judged]
        score = _with_extraction(scores, gold, pred)
    if pred_name is None and pred_trace is None:
        return score * gold.weight
    feedback = _feedback(gold, pred, pred_name, pred_trace, cut) if pred_name else ""
    right = {"right": share_right(gold, pred, cut)}
    return dspy.Prediction(
        score=score,
        feedback=feedback,
        objective_scores=right,
    )


def failed(pred: Any) -> bool:
    """Tell whether there is nothing to compare: the LM failed, or its reply had no label and no statement."""
    if pred is None or pred.get("error"):
        return True
    if "raw_verdicts" in pred:
        return not any(v.label for v in pred.raw_verdicts)
    return pred.get("verdict") is None and pred.get("statements") is None


def fault(pred: Any) -> str | None:
    """Return how the LM failed; None where it replied."""
    if pred is None:
        return "no prediction"
    errors = [pred.get("error")]
    errors += [v.error for v in pred.get("raw_verdicts") or () if v.lm_failed]
    return next(filter(None, errors), None)


def judged_statements(gold: dspy.Example, pred: Any) -> list[Judged]:
    """Return the statements that people labelled, with what the LM says of them; of an answer without such labels its
    weakest statement, with the answer's."""
    if "statement" in gold:
        return [Judged(gold, pred)]
    if "answer" not in gold:
        return []
    example, verdicts = gold.labelled, pred.get("raw_verdicts") or ()
    labels = statement_labels(verdicts, example)
    judged = []
    for verdict, label in zip(verdicts, labels, strict=True):
        if label is not None:
            own = statement_example(example, verdict.text, label, gold.instruction)
            judged.append(Judged(own, as_prediction(verdict)))
    scored = [v for v in verdicts if v.logit is not None]
    if judged or example.label is None or not scored:
        return judged
    weakest = min(scored, key=lambda v: v.logit or 0.0)
    label, instruction = example.label, gold.instruction
    whole = statement_example(example, example.answer, label, instruction)
    return [Judged(whole, as_prediction(weakest))]


def best_cut(judged: Sequence[Judged]) -> float:
    """Return the log-odds that divide these verdicts with the best balanced accuracy; of equals those nearest to 0.

    Scores are counted from the cut of the seed prompt: a prompt that only moves Yes against No then wins nothing.
    """
    supported: list[float] = []
    unsupported: list[float] = []
    for gold, pred in judged:
        if not failed(pred):
            side = supported if gold.supported else unsupported
            side.append(pred.logit)
    if not supported or not unsupported:
        return 0.0

    def accuracy(cut: float) -> float:
        passed = sum(logit >= cut for logit in supported)
        caught = sum(logit < cut for logit in unsupported)
        return passed / len(supported) + caught / len(unsupported)

    logits = sorted(supported + unsupported)
    cuts = [0.0, *((a + b) / 2 for a, b in pairwise(logits))]
    return max(cuts, key=lambda cut: (accuracy(cut), -abs(cut)))


def is_right(judged: Judged, cut: float) -> bool:
    """Tell whether a verdict is the person's, supported or not."""
    gold, pred = judged
    if failed(pred):
        return False
    supported = _VERDICTS[pred.verdict].is_supported
    if pred.get("probability") is not None:
        supported = pred.logit >= cut
    return bool(supported is gold.supported)


def statement_f1(
    labelled: Sequence[str], extracted: Sequence[Statement], answer: str
) -> float:
    """F1 of extracted statements against people's, one to one: what is merged, split, added or lost lowers it."""
    matches = match_statements(labelled, extracted, answer)
    taken: set[int] = set()
    for match in matches:
        free = [i for i in match if i not in taken]
        taken.update(free[:1])
    return 2 * len(taken) / max(1, len(labelled) + len(extracted))


def share_right(gold: dspy.Example, pred: Any, cut: float) -> float:
    """Return the share of an example's verdicts that are people's; of an answer the mean of it and of its statements'
    F1."""
    if failed(pred):
        return 0.0
    right = [float(is_right(one, cut)) for one in judged_statements(gold, pred)]
    return _with_extraction(right, gold, pred)


def _with_extraction(scores: list[float], gold: dspy.Example, pred: Any) -> float:
    """Return the mean of scores of verdicts, and of how the statements were extracted, where people wrote some."""
    parts = []
    if scores:
        parts.append(fmean(scores))
    if gold.get("people"):
        extracted = _extracted(gold, pred)
        parts.append(statement_f1(gold.people, extracted, gold.answer))
    return fmean(parts) if parts else 0.0


def _verdict_score(
    judged: Judged,
    cut: float,
    evidence_weight: float,
    cite: bool,
) -> float:
    gold, pred = judged
    if failed(pred):  # one of several
        return 0.0
    verdict, support = _VERDICTS[pred.verdict], _SUPPORT[pred.verdict]
    if pred.get("probability") is not None:
        support = to_probability(pred.logit - cut)
    score: float = 1 - abs(gold.support - support)
    if {Verdict(gold.person), verdict} == _UNSUPPORTED_KINDS:
        score = max(0.0, score - CONFUSED)
    own = set(gold.supporting_chunk_ids)
    named = set(pred.get("supporting_chunk_ids") or ())
    must_name = cite and verdict.is_supported
    if own and (named or must_name):
        f1 = 2 * len(named & own) / (len(named) + len(own))
        score = (1 - evidence_weight) * score + evidence_weight * f1
    return score


def _extracted(gold: dspy.Example, pred: Any) -> Sequence[Statement]:
    """Return the statements of a prediction, after those are sorted out that change what the answer says."""
    if "raw_verdicts" in pred:
        verdicts: Sequence[Statement] = pred.raw_verdicts
        return verdicts
    carrying = carrying_sentences(gold.answer)
    return assign_statements(pred.statements, carrying, gold.question).statements


# Feedback, for an LM that reflects on it.


def _feedback(
    gold: dspy.Example,
    pred: Any,
    pred_name: str | None,
    call: Any,
    cut: float,
) -> str:
    if pred is None or pred.get("error"):
        return "The LM gave no reply."
    if "sentences" in gold or str(pred_name).endswith("extract"):
        return _extraction_feedback(gold, pred)
    judged = judged_statements(gold, pred)
    if not judged:
        return "People did not label this statement."
    asked = call[0][1].get("statement") if call else None
    about = [one for one in judged if one.gold.statement == asked]
    return " ".join(_verdict_feedback(one, cut) for one in about or judged)


def _verdict_feedback(judged: Judged, cut: float) -> str:
    """Return the verdict and how sure it was, people's and their reason, what the context lacks, and what comes
    closest."""
    gold, pred = judged
    parts = ["The reply did not start with a label;"]
    if not failed(pred):
        outcome = "Right" if is_right(judged, cut) else "Wrong"
        sure = ""
        if pred.get("probability") is not None:
            share = to_probability(pred.logit - cut)
            sure = f", support {share:.2f} (supported from .50)"
        parts = [f"{outcome}: the verdict was {pred.verdict}{sure};"]
    verdict = "supports all of it" if gold.supported else "does not support all of it"
    finer = ""
    if gold.person not in (Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED):
        finer = f" ({gold.person})"
    parts.append(f"people say the context {verdict}{finer}.")
    if gold.reason:
        parts.append(f"Their reason: {gold.reason}")
    indexed = index_context(as_chunks(gold.context), gold.question)
    missing = missing_words(Comparison(gold.statement, indexed))
    if missing:
        parts.append(f"Words that the context lacks: {', '.join(missing)}.")
    chunk, sentence = _closest(gold, gold.supporting_chunk_ids)
    if sentence:
        whose = "Their evidence" if gold.supporting_chunk_ids else "What comes closest"
        parts.append(f"{whose}, passage {chunk}: {sentence[:MAX_QUOTED]}")
    return " ".join(parts)


def _closest(gold: dspy.Example, ids: Sequence[int]) -> tuple[int, str]:
    """Return the sentence of the context most like the statement, and its chunk; among chunks of these ids, if any."""
    chunks = [c for c in as_chunks(gold.context) if not ids or c.id in ids]
    places: list[tuple[int, str]] = []
    for chunk in chunks:
        places += [(chunk.id, text) for _, text in sentence_texts(chunk.text)]
    indexed = index_context(chunks, gold.question)
    closest = closest_sentences(Comparison(gold.statement, indexed))
    if closest and closest[0] < len(places):
        return places[closest[0]]
    return places[0] if ids and places else (0, "")


def _extraction_feedback(gold: dspy.Example, pred: Any) -> str:
    extracted = _extracted(gold, pred)
    if not gold.get("people"):
        judged = judged_statements(gold, pred)
        all_right = all(is_right(one, 0.0) for one in judged)
        verdict = "the right verdict" if all_right else "a wrong verdict"
        return f"People labelled the answer as a whole: {verdict} followed from these statements."
    matches = match_statements(gold.people, extracted, gold.answer)
    pairs = list(zip(gold.people, matches, strict=True))
    matched = [i for match in matches for i in match]
    texts = [s.text for s in extracted]
    faults = {
        "Not extracted": [text for text, match in pairs if not match],
        "Extracted, but no statement of theirs": [
            text for i, text in enumerate(texts) if i not in matched
        ],
        "Several of theirs in one": [
            text for i, text in enumerate(texts) if matched.count(i) > 1
        ],
        "Divided, one of theirs": [text for text, match in pairs if len(match) > 1],
    }
    sentences = []
    for what, concerned in faults.items():
        if concerned:
            sentences.append(f"{what}: {'; '.join(concerned)}.")
    if not sentences:
        return "Right: these are the statements that people wrote."
    return f"People wrote: {'; '.join(gold.people)}. {' '.join(sentences)}"
