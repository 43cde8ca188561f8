"""Fit the default classifiers anew, and measure them with each set's family left out.

``python -m tests.benchmarks.default_classifier LABELS… [--save]``

``none`` is fitted to labelled answers. ``local`` is fitted to the embedded model's replies on a part of them, and on
faithful ones with one thing changed (`asked`), kept as numbers in ``results/local.jsonl``; what is not there is asked.
What is expected beforehand is the sum of both judges' log-odds, the LM's counted twice; labels move the weights a
little from there. ``local:raw`` stays as it was fitted.

``--save`` replaces the numbers, and the tables of ``DEFAULT.md``.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import typer

from faith_dspy import Judge
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import ClassifierData, numbers, slopes_of
from faith_dspy.optimize.classifier.logistic import (
    class_weights,
    fit_logistic,
)
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import usable, without_lm
from faith_dspy.report.tables import Table, markdown
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.classifier import (
    DEFAULT_FILE,
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    sign_constraint,
)

from .perturbations import PERTURBATIONS, Case
from .public_labels import (
    ENOUGH,
    KEPT,
    accuracy_and_auroc,
    ask_lm,
    family_table,
    read,
    read_replies,
    write,
)

HOME = Path(__file__).parents[2] / "faith_dspy" / "scoring"
REPLIES = Path(__file__).parent / "results" / "local.jsonl"
WIDTH, SUM_WIDTH = 0.1, 0.05
"""Standard deviation of the prior on each weight: around small weights, and around the sum (`optimize/LOG.md`)."""
BOUNDS = {"says_opposite": -3.0, "novel_number_count": -0.5, "doubts": 0.03}
"""Features that words settle: the log-odds of a statement with one such, and otherwise wholly supported."""
BOUND_SCALES = (1.0, math.log1p(1), 1.0)
"""What each is for one."""
FITTED = ("novel_words", "novel_in_window", "novel_name_count")
"""The features of `none` that are fitted."""
BESIDE_LM = ("lm", *FITTED, "says_opposite", "novel_number_count")
LM_WEIGHT, NUMBER_SHARE = 2.0, 0.5
"""The prior beside an LM: its own weight, and what is left of that of a missing value, of which it may know better."""
REVIEW_RANGE = (0.4, 0.6)
"""Of `none`: around .5, where what is in doubt comes to stand."""
WEAKEST = AnswerClassifier(
    names=("weakest",), means=(0.0,), scales=(1.0,), weights=(1.0,), intercept=0.0
)
"""An answer is as probable as its weakest statement: no sentence beside it makes that one truer."""
PERTURBED = ", perturbed"
PERTURBED_SHARE = 0.03
"""Weight of a perturbed family beside one of real answers."""
MOST_PERTURBED = 100
"""Faithful answers of a family that are perturbed."""


def perturbed(rows: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Return faithful answers, and each with one number or name changed or a negation inserted: then it is not."""
    faithful = [e for e in sorted(rows, key=lambda e: e.id) if e.label][:MOST_PERTURBED]
    changed = (_changed(e, faithful) for e in faithful)
    return [*faithful, *chain.from_iterable(changed)]


def _changed(
    e: LabelledExample, answers: Sequence[LabelledExample]
) -> list[LabelledExample]:
    others = [o for o in answers if o.context_key != e.context_key]
    examples = []
    for name, perturb in PERTURBATIONS.items():
        answer = perturb(Case(e, others, random.Random(e.id)))
        if answer is not None:
            wrong = {
                "answer": answer,
                "id": f"{e.id} {name}",
                "faithful": False,
                "statements": (),
            }
            examples.append(e.model_copy(update=wrong))
    return examples


def asked(
    family: str, rows: Sequence[LabelledExample]
) -> dict[str, list[LabelledExample]]:
    """Return the answers of a family that the LM is asked about: 20 of each label, and ten with up to two changes."""
    short = [e for e in rows if sum(len(c.text) for c in e.context) <= 2500]
    short = sorted((e for e in short if len(e.answer) <= 900), key=lambda e: e.id)
    random.Random(f"{family}b2").shuffle(short)
    real = [
        e
        for label in (True, False)
        for e in [o for o in short if o.label is label][:20]
    ]
    faithful = [e for e in short if e.label][:30]
    swapped: list[LabelledExample] = []
    for e in faithful:
        changed = _changed(e, faithful)
        random.Random(e.id).shuffle(changed)
        if changed and sum(bool(o.label) for o in swapped) < 10:
            swapped += [e, *changed[:2]]
    return {family: real, f"{family}{PERTURBED}": swapped}


def home(family: str) -> str:
    """The name under which a family is left out: with those over the same contexts or by the same people."""
    return family.removesuffix(PERTURBED).partition("_")[0]


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
        prior = slopes_of(lexical, data.names)
        if lexical is not None:
            prior[data.names.index("lm")] = LM_WEIGHT
            prior[data.names.index("novel_number_count")] *= NUMBER_SHARE
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


Classifiers = Mapping[str, Classifier | None]
"""By family."""
Judged = Mapping[str, Sequence[JudgedAnswer]]
"""Answers by family."""


def agreement_table(
    title: str, judges: Mapping[str, tuple[str, Judged, Classifiers]]
) -> Table:
    """Agreement of judges on families of answers, by each family's classifier: by name the LM, answers, classifiers."""
    agreement = {}
    for name, (lm, judged, classifiers) in judges.items():
        agreement[name] = {}
        for family, answers in judged.items():
            judge = Judge(lm, classifier=classifiers[family])
            judgments = [a.by(judge).judgment for a in answers]
            measured = measure_agreement([a.example for a in answers], judgments)
            agreement[name][family] = measured.answers
    numbers = {f: level.n for f, level in next(iter(agreement.values())).items()}

    def cells(families: Sequence[str]) -> Iterator[str]:
        for by_family in agreement.values():
            yield accuracy_and_auroc([by_family[f] for f in families])

    return family_table(title, tuple(judges), numbers, cells)


def _rounded(fields: dict[str, object]) -> dict[str, object]:
    def short(value: object) -> object:
        return round(value, 4) + 0.0 if isinstance(value, float) else value

    return {
        k: tuple(map(short, v)) if isinstance(v, tuple) else short(v)
        for k, v in fields.items()
    }


def main(labels: list[Path], save: bool = False) -> None:
    """Ask, fit, measure, print; ``--save`` writes the classifiers and the tables."""
    examples = read(labels)
    answers = {f: without_lm(rows).answers for f, rows in examples.items()}
    changed = {
        f"{f}{PERTURBED}": without_lm(perturbed(rows)).answers
        for f, rows in examples.items()
    }
    words = Default(answers, FITTED)
    fits = {f: with_bounds(words.fit(f)) for f in answers}
    of_changed = {f: fits[f.removesuffix(PERTURBED)] for f in changed}
    parts: dict[str, list[LabelledExample]] = {}
    for family, rows in examples.items():
        if len(rows) >= ENOUGH:
            parts |= asked(family, rows)
    ask_lm(chain.from_iterable(parts.values()), "local", REPLIES, ["sentence"])
    said = {f: read_replies(REPLIES, rows, "sentence") for f, rows in parts.items()}
    unasked = {f: without_lm(a.example for a in said[f]).answers for f in said}
    lexical = {f: with_bounds(words.fit(f)) for f in said}
    both = Default(said, BESIDE_LM)
    fitted = {"none": with_bounds(words.fit())}
    fitted["local"] = both.fit(lexical=fitted["none"])
    with_lm = {
        "LM alone": (KEPT, said, dict.fromkeys(said)),
        "lexical": (NO_LM, unasked, lexical),
        "both": (KEPT, said, {f: both.fit(f, lexical=lexical[f]) for f in said}),
    }
    tables = [
        agreement_table(
            "`none`: answers as they are", {"lexical": (NO_LM, answers, fits)}
        ),
        agreement_table(
            "`none`: faithful answers, and each with one thing changed",
            {"lexical": (NO_LM, changed, of_changed)},
        ),
        agreement_table(
            "`local`: the LM's weakest sentence, lexical features, both", with_lm
        ),
    ]
    text = markdown(tables)
    print(text)
    if save:
        write(HOME / "DEFAULT.md", text)
        shipped = json.loads((HOME / DEFAULT_FILE).read_text(encoding="utf-8"))
        shipped |= {name: c.model_dump(mode="json") for name, c in fitted.items()}
        (HOME / DEFAULT_FILE).write_text(
            json.dumps(shipped, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    typer.run(main)
