"""Several studies compared: paired where they were tested on the same answers, spread where only seeds differ."""

from __future__ import annotations

from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.optimize.select.comparison import Side, compare, holm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import Comparison, PredictionRow, StudyResult

METRICS = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC", "cohen_kappa": "Cohen's κ"}
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
    others, paired, with p-values corrected for their number (Holm 1979). Studies of the same labels, LM and budget with
    different seeds give the mean and spread of their test figures.

    Raises `InputError` for fewer than two studies, or the same one twice.
    """
    if len(studies) < 2:
        raise InputError(f"expected at least two studies to compare, got {len(studies)}.")
    ids = [s.study_id for s in studies]
    if twice := next((i for i in ids if ids.count(i) > 1), None):
        raise InputError(f"study {twice} is named twice; name each once.")
    tests: dict[tuple[object, ...], list[int]] = {}
    seeds: dict[tuple[object, ...], list[StudyResult]] = {}
    for i, s in enumerate(studies):
        tests.setdefault(tuple((r.id, r.group, r.label) for r in _rows(s)), []).append(i)
        seeds.setdefault((s.label_set_hash, s.lm.get("name"), s.budget), []).append(s)
    return StudiesCompared(
        [pair for at in tests.values() for pair in _pairs(studies, at)],
        [_spread(found) for found in seeds.values() if len({s.seed for s in found}) > 1]
        + [_SIDE_BY_SIDE] * (len(tests) > 1),
    )


def _rows(study: StudyResult) -> list[PredictionRow]:
    """The champion's test predictions, ordered by answer."""
    return sorted(study.tested("champion").predictions, key=lambda r: (r.id, r.group))


def _pairs(studies: Sequence[StudyResult], at: Sequence[int]) -> list[Comparison]:
    first, *others = at
    rows = _rows(studies[first])
    labels, groups = [r.label for r in rows], [r.group for r in rows]
    found = {
        str(i): compare(
            labels, Side.of(rows), Side.of(_rows(studies[i])), groups, names=(f"study {first + 1}", f"study {i + 1}")
        )
        for i in others
    }
    return list(holm(found, primary="").values())


def _spread(studies: Sequence[StudyResult]) -> str:
    """Mean ± SD (n − 1) and range of the champions' test figures, in words."""
    figures = []
    for metric, name in METRICS.items():
        estimates = [getattr(s.tested("champion").agreement, metric).value for s in studies]
        values = [v for v in estimates if v is not None]
        if len(values) > 1:
            figures.append(f"{name} {mean(values):.2f} ± {stdev(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    same = len({tuple(r.id for r in _rows(s)) for s in studies}) == 1
    test = "all on the same test answers" if same else "each on its own test answers, whose luck is in the spread"
    champions = [s.champion for s in studies]
    won = sorted(set(champions), key=lambda n: (-champions.count(n), n))
    counts = ", ".join(f"{name} {champions.count(name)} of {len(champions)}" for name in won)
    return (
        f"{len(studies)} seeds of {studies[0].labels_file}, mean ± SD (lowest to highest): {'; '.join(figures)}; "
        f"{test}. Champion: {counts}."
    )
