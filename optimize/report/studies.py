"""Several studies compared: paired where they were tested on the same answers, spread where only seeds differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.report.tables import capitalised
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import Table, estimate, number, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import Comparison, Row, StudyResult

_METRICS = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC", "cohen_kappa": "Cohen's κ"}
_SIDE_BY_SIDE = (
    "Studies tested on different answers stand side by side only: part of their difference is the luck of the answers."
)


class StudiesCompared(NamedTuple):
    """What several studies tell together."""

    pairs: list[Comparison]
    """Champions tested on the same answers: the first study's against each other's."""
    sentences: list[str]
    """The mean and spread over seeds, and what a reader must know beside the figures."""


def compare_studies(studies: Sequence[StudyResult]) -> StudiesCompared:
    """Of the studies tested on the same answers (same ids, groups and labels), the first against each of the others,
    paired; of those that differ by their seed alone, mean and spread. `InputError` for fewer than two studies."""
    if len(studies) < 2:
        raise InputError(f"expected at least two studies to compare, got {len(studies)}.")
    tests: defaultdict[object, list[int]] = defaultdict(list)
    seeds: defaultdict[object, list[StudyResult]] = defaultdict(list)
    for i, s in enumerate(studies):
        tests[_answers(s)].append(i)
        seeds[s.label_set_hash, s.lm.get("name"), s.budget].append(s)
    pairs = [
        compare(_rows(studies[first]), _rows(studies[i]), (f"study {first + 1}", f"study {i + 1}"))
        for first, *others in tests.values()
        for i in others
    ]
    spreads = [_spread(found) for found in seeds.values() if len({s.seed for s in found}) > 1]
    return StudiesCompared(pairs, spreads + [_SIDE_BY_SIDE] * (len(tests) > 1))


def compare_champions(a: StudyResult, b: StudyResult) -> Comparison | None:
    """Study a's champion against study b's, paired; None where they were tested on different answers."""
    return compare(_rows(a), _rows(b)) if _answers(a) == _answers(b) else None


def studies_tables(studies: Sequence[StudyResult], compared: StudiesCompared) -> list[Table]:
    """What each reached, and what can be told apart."""
    columns = {
        "#": lambda r: str(r[0]),
        "study": lambda r: _end(r[1].judge_dir) or r[1].study_id[:8],
        "balanced\naccuracy": lambda r: estimate(r[1].tested("champion").agreement.balanced_accuracy),
        "AUROC": lambda r: estimate(r[1].tested("champion").agreement.auroc),
        "untuned": lambda r: number(r[1].tested("untuned").agreement.balanced_accuracy.value),
        "lexical": lambda r: number(r[1].tested("lexical-baseline").agreement.balanced_accuracy.value),
        "people": lambda r: number(r[1].ceiling.balanced_accuracy.value if r[1].ceiling else None),
    }
    numbered = list(enumerate(studies, 1))
    sentences = [_verdict(i, s) for i, s in numbered] + [capitalised(c.sentence) for c in compared.pairs]
    return [
        table_of(
            "Champions, each on its own testset",
            columns,
            numbered,
            caption="untuned, lexical, people: balanced accuracy of the untuned judge, of the lexical baseline, and of "
            "one annotator against the others. In brackets 95 % intervals.",
        ),
        Table("Verdict", notes=(*sentences, *compared.sentences)),
    ]


def _rows(study: StudyResult) -> list[Row]:
    return sorted(study.tested("champion").rows, key=lambda r: (r.id, r.source))


def _answers(study: StudyResult) -> tuple[tuple[str, str, bool], ...]:
    """What a study was tested on; labels that were corrected since make other answers."""
    return tuple((r.id, r.source, r.label) for r in _rows(study))


def _spread(studies: Sequence[StudyResult]) -> str:
    """Mean ± SD (n − 1) and range of the champions' test figures, in words."""
    figures = []
    for metric, name in _METRICS.items():
        estimates = [getattr(s.tested("champion").agreement, metric).value for s in studies]
        values = [v for v in estimates if v is not None]
        if len(values) > 1:
            figures.append(f"{name} {mean(values):.2f} ± {stdev(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    same = len({_answers(s) for s in studies}) == 1
    test = "all on the same test answers" if same else "each on its own test answers, whose luck is in the spread"
    champions = Counter(s.champion for s in studies)
    counts = ", ".join(f"{name} {n} of {len(studies)}" for name, n in champions.most_common())
    return (
        f"{len(studies)} seeds of {studies[0].labels_file}, mean ± SD (lowest to highest): {'; '.join(figures)}; "
        f"{test}. Champion: {counts}."
    )


def _verdict(i: int, s: StudyResult) -> str:
    verdict, n = s.comparisons["untuned"].verdict, s.tested("champion").agreement.n
    made = f"{s.labels_file} ({s.label_set_hash[:6]}), {_end(str(s.lm.get('name')))}, {s.budget}, seed {s.seed}"
    took = f"{s.seconds / 60:.1f} minutes" + ("" if s.finished else ", stopped early")
    return f"Study {i}: {s.champion}, {verdict} than the untuned judge on {counted(n, 'test answer')}; {made}; {took}."


def _end(text: str) -> str:
    """The last two parts of a path or model name, which distinguish it."""
    return "/".join([p for p in text.split("/") if p][-2:])
