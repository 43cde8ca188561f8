"""Studies side by side, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.report.numbers import NONE, capitalised, estimate, number
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from faith_dspy.optimize.tracking.studies import StudiesCompared
    from faith_dspy.scoring.agreement import Agreement


def studies_tables(compared: StudiesCompared) -> list[Table]:
    """What was tuned on what, what it reached, and what can be told apart."""
    numbered = list(enumerate(compared.studies, 1))

    tuned = {
        "#": lambda i: str(i[0]),
        "study": lambda i: _end(i[1].source),
        "labels": lambda i: i[1].labels_file,
        "set": lambda i: i[1].label_set_hash[:6],
        "LM": lambda i: _end(i[1].lm),
        "budget": lambda i: i[1].budget or NONE,
        "seed": lambda i: NONE if i[1].seed is None else str(i[1].seed),
        "min": lambda i: NONE if i[1].minutes is None else f"{i[1].minutes:.1f}",
    }
    reached = {
        "#": lambda i: str(i[0]),
        "balanced\naccuracy": lambda i: estimate(i[1].agreement.balanced_accuracy),
        "AUROC": lambda i: estimate(i[1].agreement.auroc),
        "Cohen's κ": lambda i: estimate(i[1].agreement.cohen_kappa),
        "untuned": lambda i: _accuracy(i[1].untuned),
        "lexical": lambda i: _accuracy(i[1].baseline),
        "people": lambda i: _accuracy(i[1].ceiling),
        "prompt\ntokens": lambda i: NONE if i[1].tokens is None else f"{i[1].tokens:.0f}",
    }
    verdicts = []
    for i, s in numbered:
        verdict = f"{s.verdict} than the untuned judge" if s.verdict else "not compared with the untuned judge"
        verdicts.append(
            f"Study {i}: {s.champion}, {verdict}, {s.agreement.n} test answers"
            + ("." if s.finished else "; stopped early.")
        )
    verdicts += [capitalised(p.comparison.sentence) for p in compared.pairs]
    verdicts += [s.sentence for s in compared.seeds] + compared.notes
    return [
        table_of(
            "Studies", tuned, numbered, caption="set: beginning of the label set's hash; min: minutes of the study."
        ),
        table_of(
            "Champions, each on its own testset",
            reached,
            numbered,
            caption="untuned, lexical, people: balanced accuracy of the untuned judge, of the lexical baseline, and of "
            "one annotator against the others. Prompt tokens that were not cached, for each answer. In brackets 95 % "
            "intervals.",
        ),
        Table("Verdict", notes=tuple(verdicts)),
    ]


def _accuracy(a: Agreement | None) -> str:
    return number(a.balanced_accuracy.value) if a else NONE


def _end(text: str) -> str:
    """The last two parts of a path or model name, which distinguish it."""
    return "/".join([p for p in text.split("/") if p][-2:])
