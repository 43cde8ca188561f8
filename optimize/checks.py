"""What a study checks about its champion, as frozen data: comparisons, costs, and a diagnosis.

No producer is imported here: producers import this.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import Estimate


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Difference(_Result):
    """A minus B, with its interval."""

    value: float | None = Field(default=None, allow_inf_nan=False)
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    p_value: float | None = Field(default=None, ge=0, le=1)
    """Two-sided, from the same resamples."""
    standard_error: float | None = Field(default=None, ge=0)
    why: str | None = None
    """Why the value or its interval is None."""


class McNemar(_Result):
    """Exact McNemar test on the answers only one of the two judges got right."""

    only_a_right: int
    only_b_right: int
    p_value: float = Field(ge=0, le=1)


class Comparison(_Result):
    """Judge A against judge B on the same labels."""

    n: int
    balanced_accuracy: Difference
    auroc: Difference
    mcnemar: McNemar
    verdict: Literal["better", "not shown better", "worse"]
    """By the interval of the difference in balanced accuracy: above 0, across it, below it."""
    more_labels: int | None
    """Labels beyond these n to exclude 0, should the difference stay as it is; None when it is excluded, or never will
    be. With that many the chance to succeed is about one half."""
    sentence: str
    p_holm: float | None = Field(default=None, ge=0, le=1)
    """Of the difference in balanced accuracy, corrected for the comparisons made beside it; None where it is the only
    or the primary one."""


class CostPoint(_Result):
    """One way to judge: its agreement and its cost per answer."""

    name: str
    n: int
    """Answers it was measured on: the champion's modes on train and dev, other variants on dev."""
    balanced_accuracy: Estimate
    """Predictions are cross-fitted: to choose by, not agreement with people."""
    auroc: Estimate
    lm_share: float
    """Share of the answers an LM is asked about."""
    calls: float
    computed_tokens: float
    """Prompt tokens that the server computes. Of the answers over one context, the first that the LM is asked about
    pays for reading it."""
    output_tokens: float
    seconds: float
    ask_about: str = "all"
    """The option of `JudgeConfig`: every statement, or the weakest uncovered one."""
    escalates_within: tuple[float, float] | None = None
    """Of a cascade: probabilities (low, high) of the lexical judge within which the LM is asked. None: no cascade.
    Equal ends: lexical features alone."""
    difference: Difference
    """Mean of balanced accuracy and AUROC minus that of the reference, on the answers both judged; interval of 90 %
    from resampled groups, so that its lower end is a one-sided bound of 95 %."""
    cheaper_mode: bool = False
    """Whether it is the reference with fewer LM calls: a cascade, fewer statements, or lexical features alone."""
    reference: bool = False
    """Whether it is what the others are compared with: the champion with the LM asked about everything."""
    exported: bool = False
    """Whether it is what the study exports."""
    cheapest: bool = False
    """Whether it is the cheapest that is shown to be at most two points worse than the reference."""

    @property
    def cost(self) -> float:
        """Tokens per answer, as `VariantResult.cost`: computed prompt tokens plus three times the completion tokens."""
        return self.computed_tokens + 3 * self.output_tokens


class ThresholdChoice(_Result):
    """A threshold, and what it reaches on the probabilities it was chosen on. Intervals are 95 %."""

    operating_point: str
    threshold: float = Field(ge=0, le=1)
    balanced_accuracy: Estimate
    recall_unfaithful: Estimate
    """Share of the unfaithful answers it stops."""
    recall_faithful: Estimate
    """Share of the faithful answers it passes."""
    cost: Estimate | None = None
    """Mean cost per answer, in faithful answers stopped; only where the operating point is a cost."""
    note: str | None = None
    """What so few labels cannot assure."""


class ReviewRangeCheck(_Result):
    """Probabilities too close to the threshold to rely on, and how good the judge is outside of them."""

    low: float
    high: float
    """An answer needs review when ``low <= probability < high``."""
    sure: float
    """How often the judge should be right on each side."""
    inside: float
    """Share of the answers that need review."""
    passed_right: Estimate
    """Share of the answers passed above the range that are faithful (Wilson's interval)."""
    stopped_right: Estimate
    """Share of the answers stopped below the range that are unfaithful."""
    balanced_accuracy: Estimate
    """Outside of the range."""
    sentence: str


class CalibrationCheck(_Result):
    """Calibration of the LM's own probability, and of the classifier's, on the same answers."""

    n: int
    """Answers for which both are known."""
    before: Estimate
    """Expected calibration error of the LM's own probability of the weakest statement."""
    after: Estimate
    """The same of the classifier's probability."""


class ShortcutCheck(_Result):
    """The judge's probability against the answer's length, which is not evidence."""

    alone: dict[str, Estimate]
    """AUROC of each length feature alone; below 0.5 longer answers are more often unfaithful."""
    auroc: Estimate
    """Of the judge's probability, all answers."""
    within: Estimate
    """The same over pairs of answers from one third by length: what length cannot explain."""


class Ablated(_Result):
    """The classifier without some of its features, cross-fitted. Differences are the full classifier minus this one,
    paired on resamples of whole groups."""

    without: str
    """A feature's name, ``the LM`` or ``lexical features``."""
    balanced_accuracy: Difference
    """Above 0: the features help."""
    auroc: Difference
    """Above 0: the features help."""


class GroupResult(_Result):
    """One group of test answers."""

    facet: str
    """What is grouped by: a tag of the labels file, such as ``source``, or ``language``."""
    name: str
    n: int
    agreement: Agreement | None = None
    """None with too few answers of a label to measure it."""


class Diagnosis(_Result):
    """What is known of the champion beside its agreement. All but ``test`` entries and groups is cross-fitted on train
    and dev."""

    threshold: ThresholdChoice
    """For the user's operating point."""
    review_range: dict[str, ReviewRangeCheck] = Field(default_factory=dict)
    """What needs review, and how right the judge is otherwise: ``cross-fitted`` and ``test``."""
    calibration: dict[str, CalibrationCheck] = Field(default_factory=dict)
    """The LM's own probability against the classifier's: ``cross-fitted`` and ``test``; empty where the LM has none."""
    shortcuts: ShortcutCheck
    ablation: tuple[Ablated, ...] = ()
    """Without the LM, without lexical features, then without each feature, the most missed first."""
    groups: tuple[GroupResult, ...] = ()
    """The champion on the testset by source, domain, language …"""
