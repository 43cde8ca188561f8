"""Agreement with people on public labels, set by set: untuned judge, default judge, lexical baseline, champion.

``python -m tests.benchmarks.agreement [LABELS…] [--ask local]``

LABELS: files (default: those of ../shared/data), or a folder with the published files of public sets, each in a folder
of its name, which the loaders of `eval_sets` read.

``--ask`` puts a fixed sample of the answers to an LM, and appends what it said to ``--replies``, as numbers; what is
there already is not asked again. Without it, the tables of ``AGREEMENT.md`` are made from the labels and what was said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from faith_dspy import Judge
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import usable, without_lm
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import NONE, Table, markdown, points, with_interval
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.text.features import CLASSIFIER_FEATURES

from . import DATA, HERE
from .default_classifier import Default
from .public_labels import (
    ENOUGH,
    GRANULARITIES,
    KEPT,
    accuracy_and_auroc,
    ask_lm,
    family_table,
    mean,
    read,
    read_replies,
    sample,
    write,
)

REPLIES = HERE / "results" / "agreement.jsonl"
CARD = HERE / "AGREEMENT.md"
SEED = 0
FEATURES = ["lm", *CLASSIFIER_FEATURES]
PARTS = ("LM calibrated", "lexical baseline", "default judge")
"""What a champion is made of, and should never be worse than."""
JUDGES = ("untuned judge", "LM by sentence", *PARTS, "champion")
CLOSEST = "champion, else the closest chunks"
EVIDENCE = ("untuned judge", "LM by sentence", "default judge", "champion", CLOSEST)

Answers = list[JudgedAnswer]
Agreements = Mapping[str, Mapping[str, JudgeAgreement]]
"""By family and judge."""


def replies_of(rows: Sequence[LabelledExample], path: Path) -> tuple[Answers, Answers]:
    """The answers that were asked about, as one statement and by sentence: those that have a score either way."""
    whole, sentences = (usable(read_replies(path, rows, g)) for g in GRANULARITIES)
    both = {a.id for a in whole} & {a.id for a in sentences}
    return [a for a in whole if a.id in both], [a for a in sentences if a.id in both]


def judged_by(
    whole: Answers, sentences: Answers, lexical: Classifier, default: Classifier
) -> dict[str, Answers]:
    """A family's answers by every judge of `JUDGES`, in one order.

    What is fitted to the family's own labels is cross-fitted by context. ``lexical`` and ``default`` are fitted to the
    other families. The champion is the judge by sentence, fitted as a study fits it.
    """
    lm, no_lm = Judge(KEPT, classifier=None), Judge(NO_LM)
    unasked = without_lm(a.example for a in sentences).answers
    fits = {
        "LM calibrated": (lm, sentences, ["lm"], None),
        "lexical baseline": (no_lm, unasked, CLASSIFIER_FEATURES, lexical),
        "champion": (lm, sentences, FEATURES, default),
    }
    shipped = lm.copy(classifier=default)
    judged = {
        "untuned judge": whole,
        "LM by sentence": sentences,
        "default judge": [a.by(shipped) for a in sentences],
    }
    fold_of = assign_folds([a.example for a in sentences], SEED)
    for name, (judge, answers, features, prior) in fits.items():
        judged[name] = []
        for fold in sorted(set(fold_of.values())):
            others = [a for a in answers if fold_of[a.source] != fold]
            inner = assign_folds([a.example for a in others], SEED)
            fit = fit_classifier(usable(others), features, inner, prior=prior)
            fitted = judge.copy(classifier=fit.classifier)
            judged[name] += [a.by(fitted) for a in answers if fold_of[a.source] == fold]
        judged[name].sort(key=lambda a: a.id)
    return judged


def with_closest_chunks(a: JudgedAnswer) -> JudgedAnswer:
    """The same, with a statement's closest chunks as its evidence where it has none."""
    statements = []
    for s in a.judgment.statements:
        ids = s.supporting_chunk_ids or s.closest_chunk_ids
        statements.append(s.model_copy(update={"supporting_chunk_ids": ids}))
    update = {"statements": tuple(statements)}
    return a.with_judgment(a.judgment.model_copy(update=update))


def measured(judged: Mapping[str, Answers]) -> dict[str, JudgeAgreement]:
    """Agreement of each judge on one family."""
    closest = [with_closest_chunks(a) for a in judged["champion"]]
    agreement = {}
    for name, answers in {**judged, CLOSEST: closest}.items():
        examples = [a.example for a in answers]
        agreement[name] = measure_agreement(examples, [a.judgment for a in answers])
    return agreement


def answers_table(agreement: Agreements) -> Table:
    """Balanced accuracy and AUROC of every judge by family, and of the champion's statements."""

    def cells(families: Sequence[str]) -> Iterator[str]:
        for judge in JUDGES:
            yield accuracy_and_auroc([agreement[f][judge].answers for f in families])
        statements = [agreement[f]["champion"].statements for f in families]
        known = [level for level in statements if level]
        yield accuracy_and_auroc(known) if known else NONE

    numbers = {f: judges["champion"].answers.n for f, judges in agreement.items()}
    columns = (*JUDGES, "champion, statements")
    return family_table("Balanced accuracy · AUROC", columns, numbers, cells)


def evidence_table(agreement: Agreements) -> Table:
    """F1 of the chunks named, by family and judge, where people named them."""
    numbers = {}
    for family, judges in agreement.items():
        if all(judges[judge].evidence for judge in EVIDENCE):
            numbers[family] = judges["champion"].evidence.n

    def cells(families: Sequence[str]) -> Iterator[str]:
        for judge in EVIDENCE:
            evidence = [agreement[f][judge].evidence for f in families]
            yield with_interval(mean([level.f1 for level in evidence]))

    return family_table("Evidence: F1", EVIDENCE, numbers, cells)


def parts_table(families: Sequence[Mapping[str, Answers]]) -> Table:
    """The champion minus each of its parts, in points: means over families, paired."""
    rows = []
    for part in PARTS:
        pairs = [compare(judged["champion"], judged[part]) for judged in families]
        rows.append((part, points(mean([pair.balanced_accuracy for pair in pairs]))))
    title = "The champion minus each of its parts, in points"
    return Table(title, ("part", "balanced accuracy"), tuple(rows))


def cost_table(families: Sequence[Mapping[str, Answers]]) -> Table:
    """Calls and tokens an answer, the mean over families."""
    kinds = {
        "LM calls": ("calls", ".1f"),
        "prompt tokens": ("prompt_tokens", ".0f"),
        "of them cached": ("cached_tokens", ".0f"),
        "completion": ("output_tokens", ".0f"),
    }
    rows = []
    for judge in JUDGES:
        cells = []
        for kind, form in kinds.values():
            used = [[getattr(a.raw.usage, kind) for a in f[judge]] for f in families]
            cells.append(format(fmean(map(fmean, used)), form))
        rows.append((judge, *cells))
    return Table("What an answer costs", ("judge", *kinds), tuple(rows))


def main(
    labels: Annotated[list[Path] | None, typer.Argument()] = None,
    replies: Path = REPLIES,
    ask: str = "",
) -> None:
    """Put a sample to the LM ``--ask``, or make the tables."""
    examples = read(labels or sorted(DATA.glob("*.jsonl")))
    if ask:
        samples = (sample(family, rows) for family, rows in examples.items())
        ask_lm(list(chain.from_iterable(samples)), ask, replies)
        return
    unasked = {f: without_lm(rows).answers for f, rows in examples.items()}
    asked = {f: replies_of(rows, replies) for f, rows in examples.items()}
    lexical = Default(unasked, CLASSIFIER_FEATURES)
    default = Default({f: sentences for f, (_, sentences) in asked.items()}, FEATURES)
    judged = {}
    for family, sides in asked.items():
        if sides[0]:
            print(family, flush=True)
            fits = lexical.fit(family), default.fit(family)
            judged[family] = judged_by(*sides, *fits)
    agreement = {family: measured(by_judge) for family, by_judge in judged.items()}
    counted = [
        judges for judges in judged.values() if len(judges["champion"]) >= ENOUGH
    ]
    tables = [
        answers_table(agreement),
        parts_table(counted),
        evidence_table(agreement),
        cost_table(counted),
    ]
    text = markdown(tables)
    print(text)
    write(CARD, text)


if __name__ == "__main__":
    typer.run(main)
