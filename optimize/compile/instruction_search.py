"""The bank of seed instructions searched without any LM that proposes: every one is asked, the labels choose."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from faith_dspy.errors import ConfigError
from faith_dspy.optimize.compile.task import Figure, Found, Stage, Task, balanced
from faith_dspy.program.signatures import BANK
from faith_dspy.program.verifier import Verifier
from faith_dspy.scoring.thresholds import balanced_threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDS = 5
MIN_ANSWERED = 0.8
"""Share of the statements an instruction has to get a label for, to be compared with others."""


class Asked:
    """What the LM answered, per instruction: log-odds of support of the same labelled statements."""

    def __init__(
        self, logits: dict[str, list[float]], labels: Sequence[bool], groups: Sequence[str], seed: int
    ) -> None:
        self.logits, self.labels, self.groups = logits, list(labels), list(groups)
        keys = sorted(set(groups))
        random.Random(seed).shuffle(keys)
        self._fold = {key: i % FOLDS for i, key in enumerate(keys)}

    def credits(self, name: str) -> list[float]:
        """Per statement n / (2 · n of its class) if the verdict agrees, else 0: their mean is the balanced accuracy.

        The cut a statement is judged by was found on the statements of other contexts.
        """
        scores = self.logits[name]
        n, positive = len(self.labels), sum(self.labels)
        size = {True: positive, False: n - positive}
        fold = [self._fold[g] for g in self.groups]
        out = [0.0] * n
        for k in set(fold):
            others = [i for i in range(n) if fold[i] != k]
            known = [self.labels[i] for i in others]
            cut = balanced_threshold(known, [scores[i] for i in others]) if len(set(known)) == 2 else 0.0
            for i in range(n):
                if fold[i] == k and (scores[i] >= cut) is self.labels[i]:
                    out[i] = n / (2 * size[self.labels[i]])
        return out

    def gain(self, name: str, over: str) -> tuple[float, float]:
        """Balanced accuracy won by asking ``name`` instead of ``over``, and its paired standard error by context."""
        won = [a - b for a, b in zip(self.credits(name), self.credits(over), strict=True)]
        return paired(won, self.groups)

    def figure(self, name: str) -> Figure:
        """AUROC, and balanced accuracy with cross-fitted cuts."""
        from sklearn.metrics import roc_auc_score

        auroc = float(roc_auc_score(self.labels, self.logits[name]))
        return Figure(name, auroc, sum(self.credits(name)) / len(self.labels), len(self.labels))


def paired(won: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """Mean of paired differences, and its standard error with whole groups as the sample (Cameron & Miller 2015)."""
    mean = sum(won) / len(won)
    by_group: dict[str, float] = {}
    for group, w in zip(groups, won, strict=True):
        by_group[group] = by_group.get(group, 0.0) + w - mean
    return mean, math.sqrt(sum(s * s for s in by_group.values())) / len(won)


def search(task: Task) -> Found:
    """The verifier with the instruction that agrees best with people.

    A few dozen statements tell little, and most instructions say much the same. So the present one stays unless another
    is better by more than the paired standard error.
    """
    asked = ask(task)
    chosen = choose(asked, task.config.instruction)
    config = task.config.model_copy(update={"instruction": chosen})
    figures = [asked.figure(name) for name in asked.logits]
    note = f"asks {chosen}, of {len(asked.logits)} instructions tried"
    return Found(Stage(Verifier(config)), tuple(figures), note)


def ask(task: Task) -> Asked:
    """Every instruction asked about the same statements, document by document, so that prefix caches hold it."""
    rows = balanced(task.train, task.effort.compare_on, task.seed)
    rows.sort(key=lambda r: (r.context, r.statement))
    names = list(dict.fromkeys((task.config.instruction, *BANK)))
    stages = {
        name: Stage(Verifier(task.config.model_copy(update={"instruction": name, "cite": False}))) for name in names
    }
    told: list[dict[str, float]] = []
    for row in rows:
        told.append({})
        for name in names:
            seen = stages[name](**row.inputs())
            task.metric(row, seen)
            if (logit := seen.get("logit")) is not None:
                told[-1][name] = logit
    # What an LM cannot answer is no candidate; the others are compared on the same statements or not at all.
    names = [n for n in names if n == names[0] or sum(n in t for t in told) >= MIN_ANSWERED * len(rows)]
    kept = [(r, t) for r, t in zip(rows, told, strict=True) if all(n in t for n in names)]
    labels = [r.supported for r, _ in kept]
    if min(sum(labels), len(labels) - sum(labels)) < 2:
        raise ConfigError(
            f"search compares instructions on statements that all of them answered: of {len(rows)} there are "
            f"{sum(labels)} supported and {len(labels) - sum(labels)} unsupported; at least 2 of each are needed."
        )
    logits = {n: [t[n] for _, t in kept] for n in names}
    return Asked(logits, labels, ["\n".join(r.context) for r, _ in kept], task.seed)


def choose(asked: Asked, default: str) -> str:
    """The default instruction, or a better one."""
    others = [name for name in asked.logits if name != default]
    if not others:
        return default
    best = max(others, key=lambda name: sum(asked.credits(name)))
    won, error = asked.gain(best, default)
    return best if won > error else default
