"""The default classifier: numbers fitted to public human labels, for users who have none yet.

``DEFAULT.md`` says which, and how it agreed with people on each set while it had seen the others only.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from faith_dspy.config import Granularity
from faith_dspy.scoring.classifier import Classifier

if TYPE_CHECKING:
    from faith_dspy.config import JudgeConfig

FILE = "default_classifier.json"


@cache
def default_classifiers() -> dict[str, Classifier]:
    """By LM: ``none`` (lexical features alone), ``local`` (the embedded model), ``other`` (any other)."""
    text = files("faith_dspy.scoring").joinpath(FILE).read_text(encoding="utf-8")
    return {name: Classifier.model_validate(numbers) for name, numbers in json.loads(text).items()}


def default_classifier(lm: str, config: JudgeConfig) -> Classifier | None:
    """The default classifier for the replies of that LM, ``none`` for no LM.

    None where the options ask for something else than it was fitted to: verdicts on whole answers, or a threshold on
    the score. Such a judge is untuned.
    """
    if lm != "none" and (config.granularity is Granularity.ANSWER or config.threshold is not None):
        return None
    found = default_classifiers()
    return found.get(lm, found.get("other"))


def fitted_to(classifier: Classifier | None) -> str:
    """What a judge with that classifier was fitted to, in words."""
    if classifier is None:
        return "untuned"
    return "tuned" if classifier.fitted_to == "labels" else "default classifier, not fitted to your labels"
