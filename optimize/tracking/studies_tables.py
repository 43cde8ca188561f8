"""Studies side by side, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.report.numbers import capitalised, estimate, number
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import StudyResult
    from faith_dspy.optimize.tracking.studies import StudiesCompared
    from faith_dspy.scoring.agreement import Agreement

_REACHED = (
    "untuned, lexical, people: balanced accuracy of the untuned judge, of the lexical baseline, and of one annotator "
    "against the others. Prompt tokens that were not cached, for each answer. In brackets 95 % intervals."
)


def studies_tables(studies: Sequence[StudyResult], compared: StudiesCompared) -> list[Table]:
    """What was tuned on what, what it reached, and what can be told apart."""
    rows = [(str(i), s, {t.name: t for t in s.test}) for i, s in enumerate(studies, 1)]
    tuned = {
        "#": lambda r: r[0],
        "study": lambda r: _end(r[1].judge_dir) or r[1].study_id[:8],
        "labels": lambda r: r[1].labels_file,
        "set": lambda r: r[1].label_set_hash[:6],
        "LM": lambda r: _end(str(r[1].lm.get("name"))),
        "budget": lambda r: r[1].budget,
        "seed": lambda r: str(r[1].seed),
        "min": lambda r: f"{r[1].seconds / 60:.1f}",
    }
    reached = {
        "#": lambda r: r[0],
        "balanced\naccuracy": lambda r: estimate(r[2]["champion"].agreement.balanced_accuracy),
        "AUROC": lambda r: estimate(r[2]["champion"].agreement.auroc),
        "Cohen's κ": lambda r: estimate(r[2]["champion"].agreement.cohen_kappa),
        "untuned": lambda r: _accuracy(r[2]["untuned"].agreement if "untuned" in r[2] else None),
        "lexical": lambda r: _accuracy(r[2]["lexical-baseline"].agreement if "lexical-baseline" in r[2] else None),
        "people": lambda r: _accuracy(r[1].ceiling),
        "prompt\ntokens": lambda r: f"{_tokens(r[1]):.0f}",
    }
    verdicts = [_verdict(i, s) for i, s, _ in rows]
    verdicts += [capitalised(c.sentence) for c in compared.pairs] + compared.sentences
    return [
        table_of("Studies", tuned, rows, caption="set: beginning of the label set's hash; min: minutes of the study."),
        table_of("Champions, each on its own testset", reached, rows, caption=_REACHED),
        Table("Verdict", notes=tuple(verdicts)),
    ]


def _verdict(i: str, s: StudyResult) -> str:
    against = s.comparisons.get("untuned")
    verdict = f"{against.verdict} than the untuned judge" if against else "not compared with the untuned judge"
    n = s.tested("champion").agreement.n
    return f"Study {i}: {s.champion}, {verdict}, {n} test answers{'.' if s.finished else '; stopped early.'}"


def _accuracy(a: Agreement | None) -> str:
    return number(a.balanced_accuracy.value if a else None)


def _tokens(s: StudyResult) -> float:
    champion = s.tested("champion")
    return champion.usage.computed_tokens / max(1, champion.agreement.n)


def _end(text: str) -> str:
    """The last two parts of a path or model name, which distinguish it."""
    return "/".join([p for p in text.split("/") if p][-2:])
