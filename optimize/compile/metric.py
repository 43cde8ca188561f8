"""What optimizers maximise on labelled examples: agreement with people's verdicts, chunk ids and statements.

It reads the predictions of the program and of its parts alike: of `dspy.Example`s with a ``statement`` those of the
verifier, with ``sentences`` those of the extraction, with an ``answer`` those of the whole program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import dspy

from faith_dspy.optimize.compile.examples import statement_example
from faith_dspy.program.extraction import assign_statements
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.program.verifier import as_prediction
from faith_dspy.schema import Statement, Verdict
from faith_dspy.scoring.matching import match_statements, statement_labels
from faith_dspy.text.sentences import split_answer

EVIDENCE_WEIGHT = 0.2
"""Weight of the F1 of chunk ids, where people name some; the verdict has the rest."""
CONFUSED = 0.1
"""Penalty where *no evidence* and *contradictory* are confused: both are unsupported, so most of it is right."""

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

    @property
    def is_right(self) -> bool:
        """Whether the verdict is the person's; of a finer one, whether it stands for the same support."""
        return not failed(self.pred) and _distance(self) == 0


def agreement_metric(
    gold: dspy.Example,
    pred: dspy.Prediction,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
    *,
    cite: bool = False,
) -> Any:
    """Agreement with people, in [0, 1], by the verdicts as the LM gives them: thresholds are fitted afterwards.

    A verdict scores 1 where it is the person's and else 0, a graded one 1 - |distance| on the scale fully 1, partly ½,
    none 0, less `CONFUSED` where *no evidence* and *contradictory* are confused. Where person and LM both name chunks,
    `EVIDENCE_WEIGHT` of the score is the F1 of the LM's; where the LM is to ``cite``, that is 0 for a supported
    statement for which it names none. An answer scores the mean over the statements that people labelled, where they
    labelled none its weakest statement by the answer's label; where people wrote statements, half of its score is the
    F1 of those that the LM extracts.

    Args:
        gold: a labelled example (`faith_dspy.optimize.compile.examples`).
        pred: the prediction on it. One without a verdict scores 0, and is never taken for a verdict (`failed`).
        trace: of the program's calls; makes no difference.
        pred_name: the predictor that GEPA asks for feedback about.
        pred_trace: of its call.
        cite: whether the LM is asked for chunk ids.

    Returns:
        The score; with a ``pred_name`` a prediction with ``score`` and ``feedback``.
    """
    score = _score(gold, pred, cite)
    if pred_name is None:
        return score
    feedback = _feedback(gold, pred, pred_name, pred_trace)
    return dspy.Prediction(score=score, feedback=feedback)


def _score(gold: dspy.Example, pred: Any, cite: bool) -> float:
    if failed(pred):
        return 0.0
    parts = []
    judged = judged_statements(gold, pred)
    if judged:
        parts.append(fmean(_verdict_score(one, cite) for one in judged))
    if gold.get("people"):
        extracted = _extracted(gold, pred)
        parts.append(statement_f1(gold.people, extracted, gold.answer))
    return fmean(parts) if parts else 0.0


def _verdict_score(judged: Judged, cite: bool) -> float:
    gold, pred = judged
    if failed(pred):  # one of several
        return 0.0
    score = 1 - _distance(judged)
    own = set(gold.supporting_chunk_ids)
    named = set(pred.get("supporting_chunk_ids") or ())
    must_name = cite and _VERDICTS[pred.verdict].is_supported
    if own and (named or must_name):
        f1 = 2 * len(named & own) / (len(named) + len(own))
        score = (1 - EVIDENCE_WEIGHT) * score + EVIDENCE_WEIGHT * f1
    return score


def _distance(judged: Judged) -> float:
    gold, verdict = judged.gold, judged.pred.verdict
    distance = abs(gold.support - _SUPPORT[verdict])
    if {Verdict(gold.person), _VERDICTS[verdict]} == _UNSUPPORTED_KINDS:
        distance = min(1.0, distance + CONFUSED)
    return float(distance)


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
    whole = statement_example(example, example.answer, example.label, gold.instruction)
    return [Judged(whole, as_prediction(weakest))]


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


def _extracted(gold: dspy.Example, pred: Any) -> Sequence[Statement]:
    """Return the statements of a prediction, after those are sorted out that change what the answer says."""
    if "raw_verdicts" in pred:
        verdicts: Sequence[Statement] = pred.raw_verdicts
        return verdicts
    carrying = split_answer(gold.answer).stating
    return assign_statements(pred.statements, carrying, gold.question).statements


# Feedback, for an LM that reflects on it.


def _feedback(gold: dspy.Example, pred: Any, pred_name: str, call: Any) -> str:
    if pred is None or pred.get("error"):
        return "The LM gave no reply."
    if "sentences" in gold or pred_name.endswith("extract"):
        return _extraction_feedback(gold, pred)
    judged = judged_statements(gold, pred)
    if not judged:
        return "People did not label this statement."
    asked = call[0][1].get("statement") if call else None
    about = [one for one in judged if one.gold.statement == asked]
    return " ".join(_verdict_feedback(one) for one in about or judged)


def _verdict_feedback(judged: Judged) -> str:
    """Return the verdict, what people said and why, and the chunks that they named."""
    gold, pred = judged
    finer = ""
    if gold.person not in (Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED):
        finer = f" ({gold.person})"
    opinion = f"people say {gold.verdict}{finer}."
    if judged.is_right:
        parts = [f"Right: the verdict is {pred.verdict}, as people say{finer}."]
    elif failed(pred):
        parts = [f"The reply has no verdict; {opinion}"]
    else:
        parts = [f"Wrong: the verdict is {pred.verdict}; {opinion}"]
    if gold.reason:
        parts.append(f"Their reason: {gold.reason}")
    if gold.supporting_chunk_ids:
        ids = ", ".join(map(str, gold.supporting_chunk_ids))
        parts.append(f"The chunks that they named: {ids}.")
    return " ".join(parts)


def _extraction_feedback(gold: dspy.Example, pred: Any) -> str:
    extracted = _extracted(gold, pred)
    if not gold.get("people"):
        judged = judged_statements(gold, pred)
        all_right = all(one.is_right for one in judged)
        verdict = "the right verdict" if all_right else "a wrong verdict"
        return f"People labelled the answer as a whole: {verdict} followed from these statements."
    matches = match_statements(gold.people, extracted, gold.answer)
    matched = Counter(i for match in matches for i in match)
    pairs = list(zip(gold.people, matches, strict=True))
    texts = [(s.text, matched[i]) for i, s in enumerate(extracted)]
    faults = {
        "Not extracted": [text for text, match in pairs if not match],
        "Extracted, but no statement of theirs": [t for t, n in texts if not n],
        "Several of theirs in one": [text for text, n in texts if n > 1],
        "Divided, one of theirs": [text for text, match in pairs if len(match) > 1],
    }
    sentences = [f"{what}: {'; '.join(own)}." for what, own in faults.items() if own]
    if not sentences:
        return "Right: these are the statements that people wrote."
    return f"People wrote: {'; '.join(gold.people)}. {' '.join(sentences)}"
