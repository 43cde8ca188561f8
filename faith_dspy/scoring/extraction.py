"""Agreement on extraction: the statements that a judge takes from an answer against those that people took from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from faith_dspy.scoring.matching import word_share
from faith_dspy.scoring.statistics import Estimate, bootstrap
from faith_dspy.text.sentences import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Judgment, LabelledExample
    from faith_dspy.scoring.statistics import Floats


class ExtractionAgreement(BaseModel, extra="forbid", frozen=True):
    """How far a judge takes an answer apart as people did."""

    n: int
    """People's statements."""
    scored: int
    """Those of answers from which the judge took statements."""
    coverage: float
    """``scored / n``."""
    found: Estimate
    """Coverage of people's statements: mean over them of how far each is found (`found_shares`)."""
    fidelity: Estimate
    """Share of the judge's statements that say nothing which neither answer nor question has (`invented`)."""


def found_shares(people: Sequence[str], judge: Sequence[str]) -> list[float]:
    """How far each of the people's statements is found, in [0, 1]: the words it shares with the closest of the judge's.

    The smaller share of the two counts, so that the whole answer in one statement does not cover its parts.
    """
    return [max((min(word_share(t, s), word_share(s, t)) for s in judge), default=0.0) for t in people]


def invented(judge: Sequence[str], known: str) -> list[str]:
    """The judge's statements with a content word that ``known``, answer and question, does not have."""
    return [s for s in judge if word_share(s, known) < 1]


def measure_extraction(pairs: Sequence[tuple[LabelledExample, Judgment]], seed: int = 0) -> ExtractionAgreement | None:
    """Coverage and fidelity of the judge's statements, over answers that people took apart in words of their own.

    None without such an answer, and where every statement of the judge is a piece of its answer as written: then it
    took none, it judged sentences or whole answers. Where it took none from one answer alone, such as an unscored one,
    that counts in `coverage`. 95 % intervals resample groups.
    """
    apart = [(e, j) for e, j in pairs if not _as_written([s.text for s in e.statements], e.answer)]
    if not apart or all(_as_written([s.text for s in j.statements], e.answer) for e, j in pairs):
        return None
    import numpy as np

    rows, groups = [], []
    for e, j in apart:
        said = [s.text for s in j.statements]
        if said:
            known = " ".join([e.question or "", e.answer])
            shares = found_shares([s.text for s in e.statements], said)
            rows.append((sum(shares), len(shares), len(said) - len(invented(said, known)), len(said)))
            groups.append(e.group_key)
    counts = np.array(rows, dtype=np.float64)

    def metrics(w: Floats) -> dict[str, Floats]:
        shares, people, true, judge = (w @ counts).T
        return {"found": shares / people, "fidelity": true / judge}

    why = dict.fromkeys(("found", "fidelity"), "the judge took no statement from any of these answers")
    measured = bootstrap(metrics, len(rows), groups, why, seed=seed) if rows else {k: Estimate(why=why[k]) for k in why}
    n, scored = sum(len(e.statements) for e, _ in apart), int(sum(r[1] for r in rows))
    return ExtractionAgreement(n=n, scored=scored, coverage=scored / n, **measured)


def _as_written(texts: Sequence[str], answer: str) -> bool:
    """Whether all of the texts are the answer, or sentences of it."""
    written = {" ".join(t.split()) for t in (answer, *(s.text for s in sentences(answer)))}
    return {" ".join(t.split()) for t in texts} <= written
