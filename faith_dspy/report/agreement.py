"""A judge's agreement with people, as tables."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from faith_dspy.errors import counted
from faith_dspy.report.numbers import NONE, each, estimate, number
from faith_dspy.report.tables import Table, table_of
from faith_dspy.report.wording import signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.schema import Judgment, LabelledExample, Usage
    from faith_dspy.scoring.agreement import Agreement, JudgeAgreement

_METRICS = {
    "balanced accuracy": "balanced_accuracy",
    "AUROC": "auroc",
    "Cohen's κ": "cohen_kappa",
    "weighted κ": "weighted_kappa",
    "MCC": "mcc",
    "unfaithful ones failed (recall)": "recall_unfaithful",
    "faithful ones passed (recall)": "recall_faithful",
    "F1 of the unfaithful": "f1_unfaithful",
    "calibration error (ECE)": "ece",
}
_STATEMENTS = "Agreement on statements"
_LEVELS = (
    (
        _STATEMENTS,
        "statements",
        {"balanced\naccuracy": "balanced_accuracy", "AUROC": "auroc", "Cohen's κ": "cohen_kappa"},
    ),
    (
        "Agreement on evidence: the chunk ids named",
        "evidence",
        {"precision": "precision", "recall": "recall", "F1": "f1"},
    ),
    ("Agreement on extraction", "extraction", {"people's statements found": "found", "fidelity": "fidelity"}),
)
"""Of each level below answers: the table's title, the field of `JudgeAgreement`, and the fields of its columns."""


def agreement_tables(
    found: JudgeAgreement, usage: Usage, replayed: Usage, answers: int, judge: str | None = None
) -> list[Table]:
    """Agreement on all levels that the labels tell, what judging so many answers cost, and who judged."""
    levels = {k: a for k, a in (("answers", found.answers), ("statements", found.statements)) if a is not None}
    rows = [(name, *(estimate(getattr(a, field, None)) for a in levels.values())) for name, field in _METRICS.items()]
    rows = [row for row in rows if set(row[1:]) != {NONE}]
    rows.append(("scored", *(_scored(a) for a in levels.values())))
    tables = [
        Table(
            "Agreement with people",
            ("", *levels),
            tuple(rows),
            caption="In brackets 95 % intervals, from resampling contexts. For statements read supported for faithful.",
            notes=(found.measured,),
        ),
        *(t for t in level_tables({"the judge": found}) if t.title != _STATEMENTS),
    ]
    whole = usage + replayed
    cost = (
        f"{each(whole.computed_tokens, answers)} prompt tokens that were not cached, "
        f"{each(whole.output_tokens, answers)} completion tokens, {each(whole.seconds, answers)} seconds."
    )
    again = f"{replayed.calls:,} of {counted(whole.calls, 'call')} from the cache: no seconds, and not paid again."
    notes = (cost, *([again] if replayed.calls else []))
    return [*tables, Table("Cost of an answer", notes=notes, caption=signed(judge))]


def disagreements(
    examples: Sequence[LabelledExample], judgments: Sequence[Judgment]
) -> list[tuple[LabelledExample, Judgment]]:
    """The answers that people and judge call differently, worst first: the farther from its threshold the judge is."""
    pairs = zip(examples, judgments, strict=True)
    wrong = [(e, j) for e, j in pairs if None not in (e.label, j.faithful) and e.label != j.faithful]
    return sorted(wrong, key=lambda pair: _sure(pair[1]), reverse=True)


def _sure(judgment: Judgment) -> float:
    threshold = 0.5 if judgment.threshold is None else judgment.threshold
    return 0.0 if judgment.ranking is None else abs(judgment.ranking - threshold)


def disagreements_table(found: Sequence[tuple[LabelledExample, Judgment]], most: int = 10) -> Table:
    """The worst of them, in a line or two each."""
    columns = {
        "people": lambda d: "faithful" if d[0].label else "unfaithful",
        "judge": lambda d: number(d[1].ranking),
        "answer": lambda d: textwrap.shorten(d[0].answer, 120, placeholder=" …"),
        "id": lambda d: d[0].id,
    }
    more = f", the {most} worst" if len(found) > most else ""
    caption = (
        "people: their label; judge: its probability that the answer is faithful, on the other side of the threshold."
    )
    return table_of(
        f"{counted(len(found), 'disagreement')}{more}", columns, found[:most], caption=caption if found else ""
    )


def level_tables(judges: Mapping[str, JudgeAgreement]) -> list[Table]:
    """Each judge's agreement on statements, evidence, extraction and graded verdicts, as far as it was measured."""
    tables = []
    for title, level, fields in _LEVELS:
        known = {name: found for name, j in judges.items() if (found := getattr(j, level)) is not None}
        rows = [
            (name, f"{f.scored}/{f.n}", *(estimate(getattr(f, field)) for field in fields.values()))
            for name, f in known.items()
        ]
        if rows:
            tables.append(
                Table(title, ("judge", "scored", *fields), tuple(rows), caption="In brackets 95 % intervals.")
            )
    graded = {
        name: {"weighted κ": s.weighted_kappa} | {f"recall of {v}": e for v, e in s.recall_by_verdict.items()}
        for name, j in judges.items()
        if (s := j.statements) is not None and s.recall_by_verdict
    }
    if graded:
        metrics = dict.fromkeys(m for found in graded.values() for m in found)
        cells = [(m.replace("_", " "), *(estimate(found.get(m)) for found in graded.values())) for m in metrics]
        caption = "Recall: of people's statements with that verdict, the share that the judge gave it, too."
        tables.append(Table("Agreement on graded verdicts", ("", *graded), tuple(cells), caption=caption))
    return tables


def _scored(a: Agreement) -> str:
    return f"{a.scored} of {a.n} ({a.coverage:.0%})"
