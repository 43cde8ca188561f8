"""Several studies compared: paired where they were tested on the same answers, side by side where not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.report.tables import capitalised
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import Table, estimate, number, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import Comparison, Row, StudyResult

_SIDE_BY_SIDE = (
    "Studies tested on different answers stand side by side only: "
    "part of their difference is the luck of the answers."
)


def compare_studies(studies: Sequence[StudyResult]) -> list[Comparison]:
    """Compare, paired, of the studies tested on the same answers (same ids, groups and labels) the first with each of
    the others. `InputError` for fewer than two studies."""
    if len(studies) < 2:
        raise InputError(
            f"expected at least two studies to compare, got {len(studies)}."
        )
    positions: defaultdict[object, list[int]] = defaultdict(list)
    for i, study in enumerate(studies):
        positions[_answers(study)].append(i)
    pairs = []
    for first, *others in positions.values():
        for other in others:
            names = (f"study {first + 1}", f"study {other + 1}")
            pairs.append(compare(_rows(studies[first]), _rows(studies[other]), names))
    return pairs


def compare_champions(a: StudyResult, b: StudyResult) -> Comparison | None:
    """Compare study a's champion with study b's, paired; None where they were tested on different answers."""
    return compare(_rows(a), _rows(b)) if _answers(a) == _answers(b) else None


def studies_tables(
    studies: Sequence[StudyResult], pairs: Sequence[Comparison]
) -> list[Table]:
    """What each reached, and what can be told apart."""

    def accuracy(study: StudyResult, judge: str) -> str:
        return number(study.tested(judge).agreement.balanced_accuracy.value)

    columns = {
        "#": lambda row: str(row[0]),
        "study": lambda row: _end(row[1].judge_dir) or row[1].study_id[:8],
        "balanced\naccuracy": lambda row: estimate(
            row[1].tested("champion").agreement.balanced_accuracy
        ),
        "AUROC": lambda row: estimate(row[1].tested("champion").agreement.auroc),
        "untuned": lambda row: accuracy(row[1], "untuned"),
        "lexical": lambda row: accuracy(row[1], "lexical-baseline"),
        "people": lambda row: number(
            row[1].ceiling.balanced_accuracy.value if row[1].ceiling else None
        ),
    }
    numbered = list(enumerate(studies, 1))
    notes = [_verdict(i, study) for i, study in numbered]
    notes += [capitalised(pair.sentence) for pair in pairs]
    if len({_answers(study) for study in studies}) > 1:
        notes.append(_SIDE_BY_SIDE)
    return [
        table_of(
            "Champions, each on its own testset",
            columns,
            numbered,
            caption="untuned, lexical, people: balanced accuracy of the untuned judge, of the lexical baseline, and of "
            "one annotator against the others. In brackets 95 % intervals.",
        ),
        Table("Verdict", notes=tuple(notes)),
    ]


def _rows(study: StudyResult) -> list[Row]:
    return sorted(study.tested("champion").rows, key=lambda row: (row.id, row.source))


def _answers(study: StudyResult) -> tuple[tuple[str, str, bool], ...]:
    """What a study was tested on; labels that were corrected since make other answers."""
    return tuple((row.id, row.source, row.label) for row in _rows(study))


def _verdict(i: int, study: StudyResult) -> str:
    verdict = study.comparisons["untuned"].verdict
    on = counted(study.tested("champion").agreement.n, "test answer")
    labels = f"{study.labels_file} ({study.label_set_hash[:6]})"
    options = f"{labels}, {_end(str(study.lm.get('name')))}, {study.budget}, seed {study.seed}"
    minutes = f"{study.seconds / 60:.1f} minutes" + (
        "" if study.finished else ", stopped early"
    )
    return f"Study {i}: {study.champion}, against the untuned judge {verdict} on {on}; {options}; {minutes}."


def _end(text: str) -> str:
    """The last two parts of a path or model name, which distinguish it."""
    return "/".join([part for part in text.split("/") if part][-2:])
