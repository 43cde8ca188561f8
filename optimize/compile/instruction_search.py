"""Search the bank of seed instructions: each one is asked, and labels choose. No LM proposes anything."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from faith_dspy.errors import ConfigError
from faith_dspy.optimize.classifier.operating_point import stable_threshold
from faith_dspy.optimize.compile.examples import balanced
from faith_dspy.optimize.compile.task import Compiled, Stage, Task
from faith_dspy.program.program import Verifier
from faith_dspy.program.signatures import BANK

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDS = 5
MIN_ANSWERED = 0.8
"""Share of the statements for which an instruction must get a label to be compared with others."""


def search(task: Task) -> Compiled[Stage]:
    """The verifier with the instruction that agrees best with people.

    A few dozen statements show little, and most instructions ask much the same. So the present one stays unless
    another is better by more than the paired standard error.
    """
    from sklearn.metrics import roc_auc_score

    logits, labels, contexts = ask_bank(task)
    credits = {name: balanced_credits(values, labels, contexts, task.seed) for name, values in logits.items()}
    present = task.config.instruction
    best = max((n for n in credits if n != present), key=lambda n: sum(credits[n]), default=present)
    gain, error = mean_gain([a - b for a, b in zip(credits[best], credits[present], strict=True)], contexts)
    chosen = best if gain > error else present
    n = len(labels)
    results = tuple(
        {
            "name": name,
            "auroc": float(roc_auc_score(labels, values)),
            "balanced_accuracy": sum(credits[name]) / n,  # with cross-fitted thresholds
            "n": n,
        }
        for name, values in logits.items()
    )
    verifier = Verifier(task.config.model_copy(update={"instruction": chosen}))
    return Compiled(Stage(verifier), results, (f"asks {chosen}, of {len(logits)} instructions tried",))


def ask_bank(task: Task) -> tuple[dict[str, list[float]], list[bool], list[str]]:
    """Log-odds of support by instruction, and labels and contexts of the same statements.

    All instructions are asked about one statement, and all statements of one context, before the next, so that the
    server's prefix cache holds the context. An instruction that the LM often leaves unanswered is no candidate; the
    others are compared on the statements that all of them answered.
    """
    rows = balanced(task.train, task.effort.compare_on, task.seed)
    rows.sort(key=lambda r: (r.context, r.statement))
    stages = {
        name: Stage(Verifier(task.config.model_copy(update={"instruction": name, "cite": False})))
        for name in dict.fromkeys((task.config.instruction, *BANK))
    }
    answers: list[dict[str, float]] = []
    for row in rows:
        answers.append({})
        for name, stage in stages.items():
            prediction = stage(**row.inputs())
            task.metric(row, prediction)
            if (logit := prediction.get("logit")) is not None:
                answers[-1][name] = logit
    enough = MIN_ANSWERED * len(rows)
    names = [n for n in stages if n == task.config.instruction or sum(n in a for a in answers) >= enough]
    kept = [(r, a) for r, a in zip(rows, answers, strict=True) if all(n in a for n in names)]
    labels = [r.supported for r, _ in kept]
    if min(sum(labels), len(labels) - sum(labels)) < 2:
        raise ConfigError(
            f"search compares instructions on statements that all of them answered: of {len(rows)} there are "
            f"{sum(labels)} supported and {len(labels) - sum(labels)} unsupported; at least 2 of each are needed."
        )
    return {n: [a[n] for _, a in kept] for n in names}, labels, ["\n".join(r.context) for r, _ in kept]


def balanced_credits(logits: Sequence[float], labels: Sequence[bool], groups: Sequence[str], seed: int) -> list[float]:
    """Per statement n / (2 · n of its class) if the verdict agrees, else 0: their mean is the balanced accuracy.

    The threshold for a statement is fitted on the statements of other groups, in `FOLDS` folds.
    """
    import numpy as np

    keys = sorted(set(groups))
    random.Random(seed).shuffle(keys)
    fold_of = {key: i % FOLDS for i, key in enumerate(keys)}
    fold = np.array([fold_of[g] for g in groups])
    x, y = np.array(logits), np.array(labels, dtype=bool)
    right = np.zeros(len(y), dtype=bool)
    for held in (fold == f for f in range(FOLDS)):
        known = y[~held]
        both = 0 < known.sum() < len(known)
        threshold = stable_threshold(x[~held], known.astype(np.float64)) if both else 0.0
        right[held] = (x[held] >= threshold) == y[held]
    credit = len(y) / (2 * np.where(y, y.sum(), (~y).sum()))
    return [float(c) for c in np.where(right, credit, 0.0)]


def mean_gain(gains: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """Mean of paired differences, and its standard error with whole groups as the sample (Cameron & Miller 2015)."""
    mean = sum(gains) / len(gains)
    by_group: dict[str, float] = {}
    for group, gain in zip(groups, gains, strict=True):
        by_group[group] = by_group.get(group, 0.0) + gain - mean
    return mean, math.sqrt(sum(s * s for s in by_group.values())) / len(gains)
