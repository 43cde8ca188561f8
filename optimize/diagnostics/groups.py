"""Agreement by kind of answer – source, domain, language, length – and whether the worst is worse than chance makes it.

The worst of many groups looks bad even where all are alike, so it is held against what the worst of as many would look
like by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.optimize.checks import GroupResult, Groups
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.annotators import annotator_agreement
from faith_dspy.scoring.metrics import metric_values
from faith_dspy.scoring.statistics import resample_weights
from faith_dspy.text.tokens import language_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.scoring.statistics import Floats

MIN_CLASS = 8
"""Scored answers of each label a group needs before it gets a figure; below, one answer moves it by six points."""
MAX_FEW = 3
"""A facet with more groups that are too small to measure has one line for all of them."""
_ALPHA = 0.05
_READ = 2_000  # characters from which a language is guessed


class _Slice(NamedTuple):
    facet: str
    name: str
    at: list[int]


def by_group(rows: Sequence[PredictionRow], seed: int = 0, n_resamples: int = 1000) -> Groups:
    """Agreement of one judge on each group of its test answers, and the worst one in words.

    Groups come from the labels file's tags, from the answer's language (guessed where the file does not say) and from
    the third of the answers' lengths it is in. Each is held against all other answers: ``t = difference / SE``, both
    from one cluster bootstrap of the whole testset, and p is the share of resamples whose *lowest* centred t over all
    groups is as low (single-step min-T: Westfall & Young 1993, §2.6), which keeps the chance of one false alarm among
    all groups at 5 %. Unscored answers are out of the figures, as in `measure`; each group has its coverage.
    """
    slices = _slices(rows)
    measured = [s for s in slices if _enough(rows, s.at)]
    tested = _behind(rows, measured, seed, n_resamples)
    found = []
    for s in _pooled(slices, measured):
        part = [rows[i] for i in s.at]
        behind, p_value = tested.get((s.facet, s.name), (None, None))
        found.append(
            GroupResult(
                facet=s.facet,
                name=s.name,
                n=len(part),
                faithful=sum(r.label for r in part),
                agreement=_measure(part, seed, n_resamples) if s in measured else None,
                behind=behind,
                p_value=p_value,
                ceiling=_ceiling(part, rows, seed),
            )
        )
    known = [i for i, g in enumerate(found) if g.agreement and g.agreement.balanced_accuracy.value is not None]
    worst = min(known, key=lambda i: found[i].agreement.balanced_accuracy.value, default=None)  # type: ignore[union-attr,return-value,arg-type]
    if len(known) < 2 or worst is None:
        return Groups(groups=tuple(found), sentence=f"No two groups have {MIN_CLASS} answers of each label to compare.")
    return Groups(groups=tuple(found), worst=worst, sentence=_sentence(found, worst, len(known)))


def _slices(rows: Sequence[PredictionRow]) -> list[_Slice]:
    """Facets that tell answers apart, their groups by size."""
    lengths = sorted(len(r.answer.split()) for r in rows)
    short, long = lengths[(len(rows) - 1) // 3], lengths[2 * (len(rows) - 1) // 3]
    names: dict[str, dict[str, list[int]]] = {}
    for i, row in enumerate(rows):
        words = len(row.answer.split())
        between = f"{short + 1}–{long} words"
        length = f"≤ {short} words" if words <= short else f"> {long} words" if words > long else between
        # Guessed with some of the context: an answer may be three words.
        language = row.tags.get("language") or language_of(" ".join([row.answer, *row.context])[:_READ])
        for facet, name in {**row.tags, "language": language, "length": length}.items():
            names.setdefault(facet, {}).setdefault(" ".join(name.split()), []).append(i)  # a name is a line of a table
    out = []
    for facet, groups in names.items():
        missing = sorted(set(range(len(rows))) - {i for at in groups.values() for i in at})
        if missing:
            groups["(not given)"] = missing
        if len(groups) > 1:
            out += [_Slice(facet, n, at) for n, at in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))]
    # Facets that divide the answers alike say the same twice: the first is kept.
    divisions: dict[frozenset[tuple[int, ...]], str] = {}
    for facet in dict.fromkeys(s.facet for s in out):
        divisions.setdefault(frozenset(tuple(s.at) for s in out if s.facet == facet), facet)
    return [s for s in out if s.facet in divisions.values()]


def _pooled(slices: Sequence[_Slice], measured: Sequence[_Slice]) -> list[_Slice]:
    """The slices to show: those that can be measured, and the others of a facet as one where they are many."""
    out = []
    for facet in dict.fromkeys(s.facet for s in slices):
        few = [s for s in slices if s.facet == facet and s not in measured]
        told = [s for s in slices if s.facet == facet and s in measured]
        if len(few) > MAX_FEW:
            at = sorted(i for s in few for i in s.at)
            few = [_Slice(facet, f"{len(few)} small ones", at)] if told or facet != "group" else []
        out += [*told, *few]
    return out


def _enough(rows: Sequence[PredictionRow], at: Sequence[int]) -> bool:
    labels = [rows[i].label for i in at if rows[i].predicted is not None]
    return min(sum(labels), len(labels) - sum(labels)) >= MIN_CLASS


def _measure(part: Sequence[PredictionRow], seed: int, n_resamples: int) -> Agreement:
    return measure(
        [r.label for r in part],
        [r.predicted for r in part],
        [r.probability for r in part],
        groups=[r.group for r in part],
        seed=seed,
        n_resamples=n_resamples,
    )


def _ceiling(part: Sequence[PredictionRow], everything: Sequence[PredictionRow], seed: int) -> Agreement | None:
    if not any(r.annotators for r in part):
        return None
    return annotator_agreement(_labelled(part), among=_labelled(everything), seed=seed)


def _labelled(rows: Sequence[PredictionRow]) -> list[LabelledExample]:
    return [LabelledExample(id=r.id, context=(), answer=r.answer, annotators=r.annotators, group=r.group) for r in rows]


def _behind(
    rows: Sequence[PredictionRow], slices: Sequence[_Slice], seed: int, n_resamples: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Per group: difference to all other answers, and its corrected one-sided p."""
    import numpy as np

    scored = [i for i, r in enumerate(rows) if r.predicted is not None]
    place = {i: k for k, i in enumerate(scored)}
    slices = [s for s in slices if _enough(rows, sorted(set(scored) - set(s.at)))]
    if not slices:
        return {}
    y = np.array([rows[i].label for i in scored], dtype=bool)
    p = np.array([rows[i].predicted for i in scored], dtype=bool)
    members = np.zeros((len(slices), len(scored)), dtype=bool)
    for k, s in enumerate(slices):
        members[k, [place[i] for i in s.at if i in place]] = True

    def differences(w: Floats) -> Floats:
        def accuracy(part: Floats) -> Floats:
            none = np.full(len(y), np.nan)
            return metric_values(part, y, p, none)["balanced_accuracy"]

        return np.column_stack([accuracy(w * m) - accuracy(w * ~m) for m in members])

    value = differences(np.ones((1, len(y))))[0]
    groups = [rows[i].group for i in scored]
    draws = np.concatenate([differences(w) for w in resample_weights(len(y), groups, n_resamples, seed)])
    draws = draws[~np.isnan(draws).any(axis=1)]
    if len(draws) <= n_resamples / 2:
        return {}
    error = draws.std(axis=0, ddof=1)
    told = error > 1e-9
    lowest = ((draws - value)[:, told] / error[told]).min(axis=1) if told.any() else np.zeros(0)
    out = {}
    for s, d, se, ok in zip(slices, value, error, told, strict=True):
        if ok:
            out[s.facet, s.name] = float(d), (1 + int((lowest <= d / se).sum())) / (1 + len(lowest))
    return out


def _sentence(found: Sequence[GroupResult], worst: int, n: int) -> str:
    g = found[worst]
    e = g.agreement.balanced_accuracy if g.agreement else None
    assert e is not None
    assert e.value is not None
    interval = "" if e.low is None or e.high is None else f" [{e.low:.2f}, {e.high:.2f}]"
    text = (
        f"Worst of the {n} groups that could be measured: {g.facet} {g.name!r}, balanced accuracy {e.value:.2f}"
        f"{interval} on {g.n} answers"
    )
    if g.behind is None or g.p_value is None:
        text += "; whether it is worse than the rest cannot be told."
    else:
        points = f"{round(100 * g.behind):+d} points against the rest"
        told = g.p_value < _ALPHA
        said = (
            "worse than the rest"
            if told
            else "not shown worse than the rest, as the worst of so many looks so by chance"
        )
        text += f", {points}: {said} (p = {g.p_value:.2g}, corrected for {n} groups)."
    others = [o for o in found if o is not g and o.p_value is not None and o.p_value < _ALPHA]
    if others:
        text += " Also worse than the rest: " + ", ".join(f"{o.facet} {o.name!r}" for o in others) + "."
    return text
