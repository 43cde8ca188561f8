"""Fit the default classifiers anew, and measure them with each set's family left out.

``python -m tests.benchmarks.default_classifier LABELS… [--rows FILE --rows FILE --log-odds FILE] [--save]``

``none`` is fitted to labelled answers and, with less weight, to faithful ones of them that were changed. ``local`` and
``local:raw`` are fitted to ``--rows``, statements of answers with the answers' labels as `tests.benchmarks.teach.data`
writes them, and to the embedded model's log-odds of them, taught and untaught (`tests.benchmarks.teach.train`). What is
expected beforehand is the sum of both judges' log-odds; labels move the weights from there.

``--save`` replaces the numbers, and the tables of ``DEFAULT.md``.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from faith_dspy import Judge
from faith_dspy.optimize.classifier.fitting import ClassifierData, numbers, weights_of
from faith_dspy.optimize.classifier.logistic import (
    class_weights,
    fit_logistic,
)
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import usable, without_lm
from faith_dspy.report.tables import number, with_interval
from faith_dspy.schema import Chunk, LabelledExample, RawJudgment, Verdict
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.scoring.classifier import (
    DEFAULT_FILE,
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    sign_constraint,
    to_logit,
    to_probability,
)
from faith_dspy.scoring.measure import measure_features
from faith_dspy.text.features import CLASSIFIER_FEATURES

from .perturbations import PERTURBATIONS, Case
from .public_labels import read, table, write

HOME = Path(__file__).parents[2] / "faith_dspy" / "scoring"
ENOUGH = 20
"""Answers of a family to learn from it, and to count in the mean; a smaller one is only measured."""
METRICS = {"balanced accuracy": "balanced_accuracy", "AUROC": "auroc"}
WIDTH, SUM_WIDTH = 0.1, 0.05
"""Standard deviation of the prior on each weight: around small weights, and around the sum (`optimize/LOG.md`)."""
RELATED = {
    "begin": ("begin_wow", "begin_cmu", "begin_tc", "swapped_begin"),
    "expertqa": (
        "expertqa_claims",
        "expertqa",
        "expertqa_long",
        "expertqa_answers",
        "swapped_expertqa",
    ),
    "mtrag": ("mtrag_human_eval", "mtrag", "swapped_mtrag"),
    "qags": ("qags_cnndm", "qags_xsum", "swapped_qags"),
    "dialogue": ("dialfact", "swapped_dialogue"),
}
"""Families over the same contexts or by the same people: they are left out together."""
HOME_OF = {family: home for home, families in RELATED.items() for family in families}
BOUNDS = {"says_opposite": -3.0, "novel_number_count": -0.5, "doubts": 0.03}
"""Features that words settle: the log-odds of a statement with one such, and otherwise wholly supported."""
BOUND_SCALES = (1.0, math.log1p(1), 1.0)
"""What each is for one."""
FITTED = ("novel_words", "novel_in_window", "novel_name_count")
"""The features of `none` that are fitted."""
REVIEW_RANGE = (0.4, 0.6)
"""Of `none`: around .5, where what is in doubt comes to stand."""
WEAKEST = AnswerClassifier(
    names=("weakest",), means=(0.0,), scales=(1.0,), weights=(1.0,), intercept=0.0
)
"""An answer is as probable as its weakest statement: no sentence beside it makes that one truer."""
PERTURBED = ", perturbed"
CHANGED = ("number", "name", "negation")
PERTURBED_SHARE = 0.03
"""Weight of a perturbed family beside one of real answers."""
MOST_PERTURBED = 100
"""Faithful answers of a family that are perturbed."""


def perturbed(rows: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Return faithful answers, and each with one number or name changed or a negation inserted: then it is not."""
    faithful = [e for e in sorted(rows, key=lambda e: e.id) if e.label][:MOST_PERTURBED]
    examples = []
    for e in faithful:
        others = [o for o in faithful if o.context_key != e.context_key]
        for name in CHANGED:
            case = Case(e, others, random.Random(e.id))
            answer = PERTURBATIONS[name](case)
            if answer is not None:
                wrong = {
                    "answer": answer,
                    "id": f"{e.id} {name}",
                    "faithful": False,
                    "statements": (),
                }
                examples.append(e.model_copy(update=wrong))
    return [*faithful, *examples]


def home(family: str) -> str:
    """The name under which a family is left out."""
    family = family.removesuffix(PERTURBED)
    return HOME_OF.get(family, family)


class Default:
    """Fits default classifiers on families of judged answers: features are computed once."""

    def __init__(
        self, judged: Mapping[str, Sequence[JudgedAnswer]], names: Sequence[str]
    ) -> None:
        self.judged = {
            f: known
            for f, rows in judged.items()
            if len(known := usable(rows)) >= ENOUGH
        }
        self.families = np.array(
            [family for family, rows in self.judged.items() for _ in rows]
        )
        self.data = ClassifierData(
            [a for rows in self.judged.values() for a in rows], names
        )
        self.data.by_statement = False  # only answers are labelled in all sets
        self.directions = [float(sign_constraint(n)) for n in names]

    def fit(
        self, left_out: str | None = None, lexical: Classifier | None = None
    ) -> Classifier:
        """Fit on the families that are not ``left_out``, nor related to it; all weigh alike, and in each both labels.

        It learns from the answers' labels, which all sets have. ``lexical`` is the classifier whose log-odds are
        expected to be added to the LM's. The threshold is .5 of a probability at even chances.
        """
        out = left_out and home(left_out)
        data, at = (
            self.data,
            np.array([home(family) != out for family in self.families]),
        )
        weights = np.zeros(len(data.y))
        for family in {*self.families[at]}:
            mine = self.families == family
            share = PERTURBED_SHARE if family.endswith(PERTURBED) else 1.0
            weights[mine] = share * class_weights(data.y[mine]) / mine.sum()
        weights *= at.sum() / weights.sum()
        options = {"width": SUM_WIDTH if lexical else WIDTH, "weights": weights[at]}
        prior = weights_of(lexical, data.names) if lexical else None
        if prior is not None:
            prior.weights[data.names.index("lm")] = (
                1.0  # per log-odd: its scale there is 1
            )
        statement = data.fit_statements(
            at, directions=self.directions, prior=prior, **options
        )
        weakest = np.full(len(data.y), np.inf)
        np.minimum.at(weakest, data.owner, statement.logits(data.x))
        scale = fit_logistic(
            weakest[at, None], data.y[at], [1], width=1.0, weights=weights[at]
        )
        (slope,) = scale.weights / scale.scales
        shift = scale.intercept - slope * scale.means[0]
        fields = numbers(statement.rescaled(slope, shift), data.names)
        return Classifier(
            statement=StatementClassifier(**_rounded(fields)),
            answer=WEAKEST,
            threshold=0.5,
            review_range=REVIEW_RANGE,
            fitted_to="default",
        )


def with_bounds(classifier: Classifier) -> Classifier:
    """Add the features of `BOUNDS`: too rare to be fitted beside the others, they decide whatever else is there."""
    statement = classifier.statement
    most = statement.logit(dict.fromkeys(statement.names, 0.0))
    weights = [bound - most for bound in BOUNDS.values()]
    zeros = (0.0,) * len(BOUNDS)
    longer: dict[str, object] = {
        "names": (*statement.names, *BOUNDS),
        "means": (*statement.means, *zeros),
        "scales": (*statement.scales, *BOUND_SCALES),
        "weights": (*statement.weights, *weights),
    }
    bounded = statement.model_copy(update=_rounded(longer))
    return classifier.model_copy(update={"statement": bounded})


def measured(
    judged: dict[str, list[JudgedAnswer]],
    lm: str,
    classifiers: Mapping[str, Classifier | None],
) -> dict[str, JudgeAgreement]:
    """Agreement on each family by a judge with the classifier of that family."""
    found = {}
    for f, rows in judged.items():
        judge = Judge(lm, classifier=classifiers[f])
        found[f] = measure_agreement(
            [a.example for a in rows], [a.by(judge).judgment for a in rows]
        )
    return found


def agreement_table(title: str, agreement: dict[str, JudgeAgreement]) -> str:
    """Agreement on answers and statements, by family, and the mean of those with `ENOUGH` answers."""
    columns = (
        "set",
        *(
            f"{name} of {what}"
            for what in ("answers", "statements")
            for name in ("n", *METRICS)
        ),
    )
    rows = []
    values: dict[int, list[float]] = {}
    for family, a in agreement.items():
        cells = [family]
        for level in (a.answers, a.statements):
            found = (
                [getattr(level, metric) for metric in METRICS.values()] if level else []
            )
            for i, e in enumerate(
                found if a.answers.n >= ENOUGH else [], len(cells) + 1
            ):
                if e.value is not None:
                    values.setdefault(i, []).append(e.value)
            cells += [str(level.n), *map(with_interval, found)] if level else ["–"] * 3
        rows.append(cells)
    means = [
        number(float(np.mean(values[i]))) if i in values else ""
        for i in range(1, len(columns))
    ]
    return table(title, columns, [*rows, ["**mean**", *means]])


def _rounded(fields: dict[str, object]) -> dict[str, object]:
    def short(value: object) -> object:
        return round(value, 4) + 0.0 if isinstance(value, float) else value

    return {
        k: tuple(map(short, v)) if isinstance(v, tuple) else short(v)
        for k, v in fields.items()
    }


def read_rows(
    paths: Sequence[Path], log_odds: Path, which: str
) -> dict[str, list[JudgedAnswer]]:
    """Answers by family, put together from rows of statements, with the embedded model's verdict on each.

    ``which`` is ``raw`` or ``taught``, an array of the file of log-odds.
    """
    measured_rows = np.load(log_odds)
    answers: dict[tuple[str, str], list[tuple[dict[str, Any], float]]] = {}
    for path in paths:
        rows = [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        here = measured_rows["parts"] == path.stem
        for place, logit in zip(
            measured_rows["rows"][here], measured_rows[which][here], strict=True
        ):
            row = rows[place]
            answers.setdefault((row["family"], row["answer_id"]), []).append(
                (row, float(logit))
            )
    judge = Judge("local", granularity="sentence", classifier=None)
    families: dict[str, list[JudgedAnswer]] = {}
    for (family, name), statements in answers.items():
        families.setdefault(family, []).append(_judged(name, statements, judge))
    return families


def _judged(
    name: str, statements: Sequence[tuple[dict[str, Any], float]], judge: Judge
) -> JudgedAnswer:
    """One answer: its sentences one after the other, each with its verdict."""
    sentences, verdicts, start = [], [], 0
    for index, (row, log_odds) in enumerate(statements):
        text = row["statement"]
        sentences.append(
            {"index": index, "text": text, "start": start, "end": start + len(text)}
        )
        start += len(text) + 1
        logit = to_logit(to_probability(log_odds))
        said = {"label": "Yes", "verdict": Verdict.FULLY_SUPPORTED, "level": 1.0}
        if logit < 0:
            said = {"label": "No", "verdict": Verdict.NOT_SUPPORTED, "level": 0.0}
        about = {
            "text": text,
            "sentence_index": index,
            "logit": logit,
            "probability": to_probability(logit),
        }
        verdicts.append({**about, **said})
    first = statements[0][0]
    example = LabelledExample(
        id=name,
        question=first["question"],
        context=tuple(
            Chunk(id=i, text=text) for i, text in enumerate(first["context"])
        ),
        answer=" ".join(row["statement"] for row, _ in statements),
        faithful=bool(first["answer_label"]),
    )
    raw = RawJudgment.model_validate({"sentences": sentences, "raw_verdicts": verdicts})
    features = measure_features(raw, example.context, example.question)
    return JudgedAnswer.judged(example, raw, judge.score_answer(raw, features))


def with_lm(
    name: str, judged: dict[str, list[JudgedAnswer]], lexical: Default
) -> tuple[dict[str, Classifier], list[str]]:
    """The classifier of an embedded model, and its tables: the model alone, words alone, both."""
    unasked = {
        f: without_lm(a.example for a in rows).answers for f, rows in judged.items()
    }
    both = Default(judged, ["lm", *CLASSIFIER_FEATURES])
    words = {f: lexical.fit(f) for f in judged}
    fitted = {f: both.fit(f, lexical=words[f]) for f in judged}
    alone = measured(judged, "openai/kept", dict.fromkeys(judged))
    tables = [
        agreement_table(f"`{name}` alone: its weakest sentence", alone),
        agreement_table(
            f"The same answers: lexical features alone (`{name}`)",
            measured(unasked, "none", words),
        ),
        agreement_table(
            f"The same answers: `{name}` with both",
            measured(judged, "openai/kept", fitted),
        ),
    ]
    return {name: both.fit(lexical=lexical.fit())}, tables


def main(
    labels: list[Path],
    rows: list[Path] = [],
    log_odds: Path | None = None,
    family: list[str] = [],
    only: list[str] = ["none", "local", "local:raw"],
    save: bool = False,
) -> None:
    """Fit, measure, print; ``--save`` writes the classifiers of ``--only``, and the tables.

    ``family``: of the rows; by default all.
    """
    examples = read(labels)
    print(
        {
            family: dict(Counter(e.label for e in rows))
            for family, rows in examples.items()
        }
    )
    judged = {f: without_lm(rows).answers for f, rows in examples.items()}
    changed = {
        f"{f}{PERTURBED}": without_lm(perturbed(rows)).answers
        for f, rows in examples.items()
    }
    everything = judged | changed
    lexical = Default(everything, CLASSIFIER_FEATURES)
    words = Default(judged, FITTED)
    fits = {f: with_bounds(words.fit(f)) for f in judged}
    agreement = measured(judged, "none", fits)
    tables = [agreement_table("Lexical features alone, no LM", agreement)]
    left_out = {f: fits[f.removesuffix(PERTURBED)] for f in changed}
    tables.append(
        agreement_table(
            "The same: faithful answers, perturbed", measured(changed, "none", left_out)
        )
    )
    fitted = {"none": with_bounds(words.fit())}
    print(fitted["none"].model_dump_json())
    if log_odds:
        for name, which in (("local", "taught"), ("local:raw", "raw")):
            asked = {
                f: answers
                for f, answers in read_rows(rows, log_odds, which).items()
                if not family or f in family
            }
            classifier, more = with_lm(name, asked, lexical)
            fitted |= classifier
            tables += more
    print(*tables, sep="\n", flush=True)
    if save:
        write(HOME / "DEFAULT.md", tables)
        shipped = json.loads((HOME / DEFAULT_FILE).read_text(encoding="utf-8"))
        shipped |= {
            name: fitted[name].model_dump(mode="json")
            for name in only
            if name in fitted
        }
        (HOME / DEFAULT_FILE).write_text(
            json.dumps(shipped, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    typer.run(main)
