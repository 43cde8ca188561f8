"""Fit the default classifier anew, and measure it with each set's family left out.

``python -m tests.benchmarks.default_classifier LABELS… [--replies FILE] [--write]``

``--replies`` is what `tests.benchmarks.agreement` kept of the LM. ``--write`` replaces the numbers, and the tables of
``DEFAULT.md``.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from faith_dspy import Judge
from faith_dspy.optimize.classifier.fitting import ClassifierData, numbers
from faith_dspy.optimize.classifier.logistic import class_weights, fit, probabilities_of
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import usable, without_lm
from faith_dspy.optimize.stress import PERTURBATIONS
from faith_dspy.report.tables import estimate, number
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.classifier import (
    AGGREGATES,
    DEFAULT_FILE,
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    aggregates,
    direction,
)
from faith_dspy.text.features import CLASSIFIER_FEATURES

from .public_labels import read, read_replies, table, write

HOME = Path(__file__).parents[2] / "faith_dspy" / "scoring"
ENOUGH = 20
"""Answers of a family to learn from it, and to count in the mean; a smaller one is only measured."""
METRICS = {"balanced accuracy": "balanced_accuracy", "AUROC": "auroc"}
WIDTH = 0.1
"""Standard deviation of the prior on each weight (`optimize/LOG.md`)."""
LM_PRIOR = 8
"""Prior weight of the LM, in lexical features. With that of a user's own labels, 3, words outvoted the LM where they
have nothing to say: where single words were changed (`optimize/LOG.md`)."""
PERTURBED = ", perturbed"
CHANGED = ("number", "name", "negation")
MOST_PERTURBED = 100
"""Faithful answers of a family that are perturbed."""


def perturbed(rows: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Return faithful answers, and each with one number or name changed or a negation inserted: then it is not."""
    faithful = [e for e in sorted(rows, key=lambda e: e.id) if e.label][:MOST_PERTURBED]
    examples = []
    for e in faithful:
        others = [o for o in faithful if o.context_key != e.context_key]
        for name in CHANGED:
            fields = PERTURBATIONS[name].make(e, others, random.Random(e.id))
            if fields is not None:
                wrong = {**fields, "id": f"{e.id} {name}", "faithful": False, "statements": ()}
                examples.append(e.model_copy(update=wrong))
    return [*faithful, *examples]


class Default:
    """Fits default classifiers on families of judged answers: features are computed once."""

    def __init__(self, judged: dict[str, list[JudgedAnswer]], names: Sequence[str]) -> None:
        self.judged = {f: known for f, rows in judged.items() if len(known := usable(rows)) >= ENOUGH}
        self.families = np.array([family for family, rows in self.judged.items() for _ in rows])
        self.data = ClassifierData([a for rows in self.judged.values() for a in rows], names)
        self.data.source = "answers"  # which all sets have
        self.directions = [LM_PRIOR if n == "lm" else float(direction(n)) for n in names]

    def fit(self, left_out: str | None = None) -> Classifier:
        """Families weigh alike, and in each of them both labels. Learns from the answers' labels, which all sets have.

        Its threshold is .5 of a probability at even chances.
        """
        out = {left_out, f"{left_out}{PERTURBED}"}
        data, at = self.data, np.flatnonzero([family not in out for family in self.families])
        weights = np.zeros(len(data.y))
        for family in {*self.families[at]}:
            mine = self.families == family
            weights[mine] = class_weights(data.y[mine]) / mine.sum()
        weights *= len(at) / weights.sum()
        options = {"width": WIDTH, "weights": weights[at]}
        statement = data.fit_statements(at, directions=self.directions, **options)
        x = self.answer_features(statement.logits(data.x))
        answer = fit(x[at], data.y[at], [direction(n) for n in AGGREGATES], **options)
        return Classifier(
            statement=StatementClassifier(**_rounded(numbers(statement, data.names))),
            answer=AnswerClassifier(**_rounded(numbers(answer, AGGREGATES))),
            threshold=0.5,
            fitted_to="default",
        )

    def answer_features(self, logits: np.ndarray) -> np.ndarray:
        """The answer classifier's features, shape (answers, `AGGREGATES`), from log-odds of each row."""
        ends = np.searchsorted(self.data.owner, np.arange(1, len(self.data.y)))  # rows lie answer by answer
        per_answer = [aggregates(p.tolist()) for p in np.split(probabilities_of(logits), ends)]
        return np.array([[a.get(n, np.nan) for n in AGGREGATES] for a in per_answer])


def measured(
    judged: dict[str, list[JudgedAnswer]], lm: str, classifiers: Mapping[str, Classifier | None]
) -> dict[str, JudgeAgreement]:
    """Agreement on each family by a judge with the classifier of that family."""
    found = {}
    for f, rows in judged.items():
        judge = Judge(lm, classifier=classifiers[f])
        found[f] = measure_agreement([a.example for a in rows], [a.by(judge).judgment for a in rows])
    return found


def agreement_table(title: str, agreement: dict[str, JudgeAgreement]) -> str:
    """Agreement on answers and statements, by family, and the mean of those with `ENOUGH` answers."""
    columns = ("set", *(f"{name} of {what}" for what in ("answers", "statements") for name in ("n", *METRICS)))
    rows = []
    values: dict[int, list[float]] = {}
    for family, a in agreement.items():
        cells = [family]
        for level in (a.answers, a.statements):
            found = [getattr(level, metric) for metric in METRICS.values()] if level else []
            for i, e in enumerate(found if a.answers.n >= ENOUGH else [], len(cells) + 1):
                values.setdefault(i, []).append(e.value)
            cells += [str(level.n), *map(estimate, found)] if level else ["–"] * 3
        rows.append(cells)
    means = [number(float(np.mean(values[i]))) if i in values else "" for i in range(1, len(columns))]
    return table(title, columns, [*rows, ["**mean**", *means]])


def _rounded(fields: dict[str, object]) -> dict[str, object]:
    def short(value: object) -> object:
        return round(value, 4) + 0.0 if isinstance(value, float) else value

    return {k: tuple(map(short, v)) if isinstance(v, tuple) else short(v) for k, v in fields.items()}


def main() -> None:
    """Fit, measure, print; and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", nargs="+", type=Path)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    examples = read(given.labels)
    print({family: dict(Counter(e.label for e in rows)) for family, rows in examples.items()})
    judged = {f: without_lm(rows) for f, rows in examples.items()}
    changed = {f"{f}{PERTURBED}": without_lm(perturbed(rows)) for f, rows in examples.items()}
    lexical = Default(judged | changed, CLASSIFIER_FEATURES)
    found = measured(judged, "none", {f: lexical.fit(f) for f in judged})
    tables = [agreement_table("Lexical features alone, no LM", found)]
    left_out = {f: lexical.fit(f.removesuffix(PERTURBED)) for f in changed}
    tables.append(agreement_table("The same: faithful answers, perturbed", measured(changed, "none", left_out)))
    fitted = {"none": lexical.fit()}
    if given.replies:
        asked = {f: list(read_replies(given.replies, rows, "sentence").values()) for f, rows in examples.items()}
        unasked = {f: without_lm(e.example for e in rows) for f, rows in asked.items()}
        both = Default(asked, ["lm", *CLASSIFIER_FEATURES])
        fitted |= {"local": both.fit()}
        tables += [
            agreement_table(
                "A sample of them: the embedded LM alone", measured(asked, "openai/kept", dict.fromkeys(asked))
            ),
            agreement_table(
                "The same: lexical features alone", measured(unasked, "none", {f: lexical.fit(f) for f in asked})
            ),
            agreement_table("The same: both", measured(asked, "openai/kept", {f: both.fit(f) for f in asked})),
        ]
    print(*tables, sep="\n", flush=True)
    if given.write:
        write(HOME / "DEFAULT.md", tables)
        shipped = {name: classifier.model_dump(mode="json") for name, classifier in fitted.items()}
        (HOME / DEFAULT_FILE).write_text(json.dumps(shipped, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
