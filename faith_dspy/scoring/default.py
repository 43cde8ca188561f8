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
    """By LM: ``none`` (lexical features alone), ``local`` (the embedded model)."""
    text = files("faith_dspy.scoring").joinpath(FILE).read_text(encoding="utf-8")
    return {name: Classifier.model_validate(numbers) for name, numbers in json.loads(text).items()}


def default_classifier(lm: str, config: JudgeConfig) -> Classifier | None:
    """The default classifier for the replies of that LM, ``none`` for no LM.

    None for an LM it was not fitted to, and where the options ask for something else: verdicts on whole answers or
    finer than supported or not, or a threshold on the score. Such a judge is untuned.
    """
    whole, finer = config.granularity is Granularity.ANSWER, config.verdicts != "binary"
    if whole or finer or config.threshold is not None:
        return None
    return default_classifiers().get(lm)


def fitted_to(classifier: Classifier | None) -> str:
    """What a judge with that classifier was fitted to, in words."""
    if classifier is None:
        return "untuned judge"
    return "tuned judge" if classifier.fitted_to == "labels" else "default judge, not fitted to your labels"
