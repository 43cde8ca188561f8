"""Agreement with people on public labels, set by set: untuned judge, default judge, lexical baseline, champion.

``python -m tests.benchmarks.agreement [LABELS…] [--ask local]``

LABELS: files (default: those of ../shared/data), or a folder with the published files of public sets, each in a folder
of its name, which the loaders of `eval_sets` read.

``--ask`` puts a fixed sample of the answers to an LM, and appends what it said to ``--replies``, as numbers; what is
there already is not asked again. Without it, the tables of ``AGREEMENT.md`` are made from the labels and what was said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from faith_dspy import Judge
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import usable, without_lm
from faith_dspy.report.tables import number, points, with_interval
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.statistics import Estimate, Floats, metric_values
from faith_dspy.text.features import CLASSIFIER_FEATURES

from . import DATA, HERE
from .default_classifier import ENOUGH, METRICS, Default
from .public_labels import ask_lm, read, read_replies, sample, table, write

Draws = np.ndarray[Any, np.dtype[np.float64]]
Paths = Annotated[list[Path] | None, typer.Argument()]

REPLIES = HERE / "results" / "agreement.jsonl"
CARD = HERE / "AGREEMENT.md"
SEED = 0
KEPT = "openai/kept"
"""A judge's LM, which is never asked: its replies are there."""
PARTS = ("LM calibrated", "lexical baseline", "default judge")
"""What a champion is made of, and should never be worse than."""
SHOWN = (
    "untuned judge",
    "LM by sentence",
    "LM calibrated",
    "lexical baseline",
    "default judge",
    "champion",
)
CLOSEST = "champion, else the closest chunks"
EVIDENCE = ("untuned judge", "LM by sentence", "default judge", "champion", CLOSEST)


class Family(NamedTuple):
    """A family's answers of the sample as the LM judged them, those of them that have a score either way."""

    whole: list[JudgedAnswer]
    """As one statement."""
    sentences: list[JudgedAnswer]
    priors: dict[str, Classifier]
    """Default classifiers that were fitted to the other families."""


def families(
    examples: Mapping[str, Sequence[Any]],
    replies: Path,
    lexical: Mapping[str, Classifier],
) -> dict[str, Family]:
    """Of each family the answers asked about; ``lexical``: by family, fitted to all answers of the others."""
    asked = {}
    for f, rows in examples.items():
        by_answer, by_sentence = (
            read_replies(replies, rows, g) for g in ("answer", "sentence")
        )
        both = {a.id for a in usable(by_answer.values())} & {
            a.id for a in usable(by_sentence.values())
        }
        asked[f] = [
            [side[i] for i in sorted(both)] for side in (by_answer, by_sentence)
        ]
    default = Default(
        {f: sentences for f, (_, sentences) in asked.items()},
        ["lm", *CLASSIFIER_FEATURES],
    )
    return {
        f: Family(*sides, {"lexical": lexical[f], "both": default.fit(f)})
        for f, sides in asked.items()
        if sides[0]
    }


class Judged(NamedTuple):
    """A family's answers by every judge of `SHOWN`."""

    answers: dict[str, list[JudgedAnswer]]
    fold_of: dict[str, int]
    """By an answer's id."""


def fitted(
    answers: Sequence[JudgedAnswer],
    names: Sequence[str],
    prior: Classifier | None = None,
) -> Classifier:
    """The classifier that a study fits on these answers."""
    fold_of = assign_folds([a.example for a in answers], SEED)
    return fit_classifier(usable(answers), names, fold_of, prior=prior).classifier


def systems(family: Family) -> Judged:
    """Every judge of `SHOWN`; what is fitted to the family's own labels is cross-fitted by context.

    The champion is the judge by sentence, fitted as a study fits it.
    """
    bare, no_lm = Judge(KEPT, classifier=None), Judge(NO_LM)
    default = Judge(KEPT, classifier=family.priors["both"])
    found = {
        "untuned judge": list(family.whole),
        "LM by sentence": list(family.sentences),
        "default judge": [a.by(default) for a in family.sentences],
    }
    fold_of = {}
    fold_of_source = assign_folds([a.example for a in family.sentences], SEED)
    for k in sorted(set(fold_of_source.values())):
        known, held = (
            [a for a in family.sentences if (fold_of_source[a.source] == k) is side]
            for side in (False, True)
        )
        fold_of |= {a.id: k for a in held}
        unasked, unasked_held = (
            without_lm(a.example for a in side).answers for side in (known, held)
        )
        alone = fitted(known, ["lm"])
        champion = fitted(known, ["lm", *CLASSIFIER_FEATURES], family.priors["both"])
        lexical = fitted(unasked, CLASSIFIER_FEATURES, family.priors["lexical"])
        for name, judge, answers in (
            ("LM calibrated", bare.copy(classifier=alone), held),
            ("lexical baseline", no_lm.copy(classifier=lexical), unasked_held),
            ("champion", bare.copy(classifier=champion), held),
        ):
            found.setdefault(name, []).extend(a.by(judge) for a in answers)
    return Judged(found, fold_of)


def closest(answers: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """The same, with a statement's closest chunks as its evidence where it has none."""
    found = []
    for a in answers:
        named = [
            {"supporting_chunk_ids": s.supporting_chunk_ids or s.closest_chunk_ids}
            for s in a.judgment.statements
        ]
        statements = tuple(
            s.model_copy(update=u)
            for s, u in zip(a.judgment.statements, named, strict=True)
        )
        found.append(
            a.model_copy(
                update={
                    "judgment": a.judgment.model_copy(update={"statements": statements})
                }
            )
        )
    return found


def answer_draws(
    answers: Sequence[JudgedAnswer], fold_of: Mapping[str, int]
) -> dict[str, Draws]:
    """Each of `METRICS`, then on 1,000 resamples of contexts, the same ones for every judge.

    AUROC compares answers of one fold (``fold_of``, by id), for every judge: classifiers of different folds have
    different zeros, which would count against those that are fitted here.
    """
    rows = sorted(answers, key=lambda r: r.id)
    labels, passed = (
        np.array([r.label for r in rows]),
        np.array([bool(r.predicted) for r in rows]),
    )
    ranks = np.array(
        [np.nan if r.probability is None else r.probability for r in rows],
        dtype=np.float64,
    )
    weights = np.vstack([np.ones(len(rows)), *_resampled([r.source for r in rows])])
    values = metric_values(weights, labels, passed, ranks)
    found = {"balanced_accuracy": values["balanced_accuracy"]}
    above = pairs = np.zeros(len(weights))
    for at in (
        np.array([fold_of[r.id] == k for r in rows]) for k in {*fold_of.values()}
    ):
        w, y = weights[:, at], labels[at]
        n = w[:, y].sum(axis=1) * w[:, ~y].sum(axis=1)
        above = above + n * np.nan_to_num(
            metric_values(w, y, passed[at], ranks[at])["auroc"]
        )
        pairs = pairs + n
    with np.errstate(invalid="ignore"):
        return found | {"auroc": above / pairs}


def _resampled(contexts: Sequence[str]) -> Floats:
    """How often each answer is drawn in each of 1,000 resamples of whole contexts."""
    member = np.unique(np.asarray(contexts), return_inverse=True)[1]
    g = int(member.max()) + 1
    counts = np.random.default_rng(SEED).multinomial(g, np.full(g, 1 / g), size=1000)
    return counts[:, member].astype(np.float64)


def interval(draws: Draws) -> Estimate:
    """The first value with the 95 % interval of the others."""
    kept = draws[1:][~np.isnan(draws[1:])]
    if np.isnan(draws[0]) or not len(kept):
        return Estimate(why="all answers have the same label")
    low, high = np.quantile(kept, [0.025, 0.975])
    return Estimate(value=float(draws[0]), low=float(low), high=float(high))


def macro(found: Sequence[Estimate | None]) -> Estimate:
    """Mean of estimates that are independent of each other; its interval is normal, from theirs."""
    known = [e for e in found if e is not None and e.value is not None]
    if not known:
        return Estimate(why="nothing was measured")
    if len(known) == 1:
        return known[0]
    value = float(np.mean([e.value for e in known]))
    spread = [
        (e.high - e.low) / 2 for e in known if e.low is not None and e.high is not None
    ]
    half = math.sqrt(sum(s * s for s in spread)) / len(known)
    return Estimate(value=value, low=value - half, high=value + half)


def answers_table(
    draws: Mapping[str, Mapping[str, Mapping[str, Draws]]],
    n: Mapping[str, int],
    levels: Mapping[str, Mapping[str, JudgeAgreement]],
) -> str:
    """Balanced accuracy and AUROC of every judge by family, and of the champion's statements; the mean last."""
    counted = [f for f in draws if n[f] >= ENOUGH]
    means = {
        s: {
            m: np.mean([draws[f][s][m] for f in counted], axis=0)
            for m in METRICS.values()
        }
        for s in SHOWN
    }
    rows = [(f, n[f], draws[f], [f]) for f in draws]
    total = sum(n[f] for f in counted)
    rows.append((f"**mean of {len(counted)}**", total, means, counted))

    def answers(found: Mapping[str, Draws]) -> str:
        ranked = number(float(found["auroc"][0]))
        return f"{with_interval(interval(found['balanced_accuracy']))} · {ranked}"

    def statements(names: Sequence[str]) -> str:
        found = [a for f in names if (a := levels[f]["champion"].statements)]
        balanced, ranked = (
            macro([getattr(a, m) for a in found]) for m in METRICS.values()
        )
        return f"{with_interval(balanced)} · {number(ranked.value)}" if found else "–"

    return table(
        "Balanced accuracy · AUROC",
        ("set", "n", *SHOWN, "champion, statements"),
        [
            (name, str(count), *(answers(found[s]) for s in SHOWN), statements(names))
            for name, count, found, names in rows
        ],
    )


def cost_table(asked: Mapping[str, Family]) -> str:
    """Calls and tokens an answer, the mean over families with enough answers; what is cross-fitted asks by sentence."""
    counted = [family for family in asked.values() if len(family.whole) >= ENOUGH]
    rows = []
    for name in SHOWN:
        if name == "lexical baseline":
            rows.append((name, "0", "0", "0", "0"))
            continue
        side = "whole" if name == "untuned judge" else "sentences"
        usages = [[a.raw.usage for a in getattr(family, side)] for family in counted]
        figures = [
            np.mean([np.mean([getattr(u, kind) for u in us]) for us in usages])
            for kind in ("calls", "prompt_tokens", "cached_tokens", "output_tokens")
        ]
        rows.append((name, f"{figures[0]:.1f}", *(f"{x:,.0f}" for x in figures[1:])))
    title = "What an answer costs"
    columns = ("judge", "LM calls", "prompt tokens", "of them cached", "completion")
    return table(title, columns, rows)


def evidence_table(agreement: Mapping[str, Mapping[str, JudgeAgreement]]) -> str:
    """F1 of the chunks named, by family and judge, where people named them; the mean last."""
    found = {
        f: {s: judges[s].evidence for s in EVIDENCE} for f, judges in agreement.items()
    }
    found = {f: judges for f, judges in found.items() if all(judges.values())}
    counted = [f for f, judges in found.items() if judges[EVIDENCE[0]].n >= ENOUGH]
    rows = [
        (f, str(judges[EVIDENCE[0]].n), *(with_interval(e.f1) for e in judges.values()))
        for f, judges in found.items()
    ]
    means = [with_interval(macro([found[f][s].f1 for f in counted])) for s in EVIDENCE]
    total = sum(found[f][EVIDENCE[0]].n for f in counted)
    rows.append((f"**mean of {len(counted)}**", str(total), *means))
    return table("Evidence: F1", ("set", "n", *EVIDENCE), rows)


def parts_table(
    draws: Mapping[str, Mapping[str, Mapping[str, Draws]]], n: Mapping[str, int]
) -> str:
    """The champion minus each of its parts, in points: means over families, paired, on the same resamples."""
    counted = [f for f in draws if n[f] >= ENOUGH]

    def minus(part: str, metric: str) -> str:
        differences = [
            draws[f]["champion"][metric] - draws[f][part][metric] for f in counted
        ]
        return points(interval(np.mean(differences, axis=0)))

    rows = [(part, *(minus(part, m) for m in METRICS.values())) for part in PARTS]
    return table(
        "The champion minus each of its parts, in points", ("part", *METRICS), rows
    )


def main(labels: Paths = None, replies: Path = REPLIES, ask: str = "") -> None:
    """Put a sample to the LM ``--ask``, or make the tables."""
    examples = read(labels or sorted(DATA.glob("*.jsonl")))
    if ask:
        ask_lm({f: sample(f, rows) for f, rows in examples.items()}, ask, replies)
        return
    unasked = {f: without_lm(rows).answers for f, rows in examples.items()}
    lexical = Default(unasked, CLASSIFIER_FEATURES)
    asked = families(examples, replies, {f: lexical.fit(f) for f in examples})
    judges = {}
    for f, family in asked.items():
        print(f, flush=True)
        judges[f] = systems(family)
    draws = {
        f: {s: answer_draws(rows, found.fold_of) for s, rows in found.answers.items()}
        for f, found in judges.items()
    }
    n = {f: len(family.sentences) for f, family in asked.items()}
    levels = {
        f: {
            s: measure_agreement([a.example for a in rows], [a.judgment for a in rows])
            for s, rows in (
                found.answers | {CLOSEST: closest(found.answers["champion"])}
            ).items()
        }
        for f, found in judges.items()
    }
    tables = [
        answers_table(draws, n, levels),
        parts_table(draws, n),
        evidence_table(levels),
        cost_table(asked),
    ]
    print(*tables, sep="\n", flush=True)
    write(CARD, tables)


if __name__ == "__main__":
    typer.run(main)
