"""How a judgment is put into words, in the terminal and on HTML pages alike."""

from __future__ import annotations

from datetime import date
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import counted
from faith_dspy.scoring.default import fitted_to

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, StatementVerdict

UNJUDGED = "unjudged"


class Wording(NamedTuple):
    """A verdict for readers: a mark of one cell, words, and a style of rich."""

    mark: str
    words: str
    style: str


WORDING = {
    "contradictory": Wording("!", "contradicted", "bold red"),
    "not_supported": Wording("✗", "not supported", "red"),
    "no_evidence": Wording("✗", "no evidence", "red"),
    "partially_supported": Wording("◐", "partly supported", "yellow"),
    UNJUDGED: Wording("?", "not judged", "yellow"),
    "fully_supported": Wording("✓", "supported", "green"),
}
"""By verdict, the worst first: a sentence is coloured by the first that one of its statements has."""


def supported(judgment: Judgment) -> str:
    """What the score counts: ``1 of 2 statements supported``; nothing without statements."""
    n = len(judgment.statements)
    return f"{judgment.supported} of {counted(n, 'statement')} supported" if n else ""


def grounds(statement: StatementVerdict) -> str | None:
    """Why the statement has its verdict: the LM's reason, else what the context lacks; None where its chunks tell."""
    if said := statement.reason or statement.error:
        return said
    if statement.missing is None:
        return None
    words = f"not in the context: {', '.join(statement.missing)}" if statement.missing else ""
    if statement.is_supported:
        return f"supported in other words; {words}" if words else None
    return words or "the context has its words, but does not say this with them"


def notes_on(judgment: Judgment) -> list[str]:
    """Where a reply of the LM could not be used as it is, a sentence each."""
    not_shown = "the LM named: not in the context, so not shown."
    counts = (
        (
            judgment.stand_ins,
            "sentence",
            "judged as written: the LM's statements were missing or left something out.",
        ),
        (judgment.dropped_chunk_ids, "chunk id", not_shown),
        (judgment.dropped_quotes, "quote", not_shown),
    )
    return [f"{counted(n, what)} {said}" for n, what, said in counts if n]


def described(judge: Judge) -> str:
    """A judge in one line: what it was tuned on, its LMs, and the beginning of its fingerprint."""
    made = judge.manifest
    tuned = f"{made['variant']}, tuned on {made['labels_file']}" if "variant" in made else fitted_to(judge.classifier)
    lms = ", then ".join(j.lm_name if j.asks_lm else "lexical features" for j in judge.chain)
    return f"{tuned} · {lms} · fingerprint {judge.fingerprint[:8]}"


def signed(judge: str | None = None) -> str:
    """The line under every report: judge, version and date."""
    who = f"Judge: {judge} · " if judge else ""
    return f"{who}faith_dspy {metadata.version('faith_dspy')} · {date.today():%Y-%m-%d}"
