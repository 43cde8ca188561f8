"""Several studies compared: paired where they were tested on the same answers, spread where only seeds differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.report.tables import capitalised
from faith_dspy.optimize.select.comparison import compare_rows
from faith_dspy.report.tables import Table, estimate, number, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import Comparison, Row, StudyResult
    from faith_dspy.scoring.agreement import Agreement

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
    """Compare studies.

    Of the studies tested on the same answers (same ids, groups and labels), the first is compared with each of the
    others, paired. Studies of the same labels, LM and budget with
    different seeds give the mean and spread of their test figures.

    Raises `InputError` for fewer than two studies, or the same one twice.
    """
    if len(studies) < 2:
        raise InputError(f"expected at least two studies to compare, got {len(studies)}.")
    ids = [s.study_id for s in studies]
    if twice := next((i for i in ids if ids.count(i) > 1), None):
        raise InputError(f"study {twice} is named twice; name each once.")
    tests: defaultdict[object, list[int]] = defaultdict(list)
    seeds: defaultdict[object, list[StudyResult]] = defaultdict(list)
    for i, s in enumerate(studies):
        tests[_answers(s)].append(i)
        seeds[s.label_set_hash, s.lm.get("name"), s.budget].append(s)
    pairs: list[Comparison] = []
    for first, *others in tests.values():
        against = (
            compare_champions(studies[first], studies[i], f"study {first + 1}", f"study {i + 1}") for i in others
        )
        pairs += [c for c in against if c is not None]
    spreads = [_spread(found) for found in seeds.values() if len({s.seed for s in found}) > 1]
    return StudiesCompared(pairs, spreads + [_SIDE_BY_SIDE] * (len(tests) > 1))


def compare_champions(a: StudyResult, b: StudyResult, name_a: str = "A", name_b: str = "B") -> Comparison | None:
    """Study a's champion against study b's, paired; None where they were tested on different answers."""
    if _answers(a) != _answers(b):
        return None
    return compare_rows(_rows(a), _rows(b), (name_a, name_b))


def studies_tables(studies: Sequence[StudyResult], compared: StudiesCompared) -> list[Table]:
    """What each reached, and what can be told apart."""
    columns = {
        "#": lambda r: str(r[0]),
        "study": lambda r: _end(r[1].judge_dir) or r[1].study_id[:8],
        "balanced\naccuracy": lambda r: estimate(r[1].tested("champion").agreement.balanced_accuracy),
        "AUROC": lambda r: estimate(r[1].tested("champion").agreement.auroc),
        "untuned": lambda r: _accuracy(r[1].tested("untuned").agreement),
        "lexical": lambda r: _accuracy(r[1].tested("lexical-baseline").agreement),
        "people": lambda r: _accuracy(r[1].ceiling),
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
    """The champion's test predictions, ordered by answer."""
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


def _accuracy(a: Agreement | None) -> str:
    return number(a.balanced_accuracy.value if a else None)


def _end(text: str) -> str:
    """The last two parts of a path or model name, which distinguish it."""
    return "/".join([p for p in text.split("/") if p][-2:])
