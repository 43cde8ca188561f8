"""What a study finds, as frozen data: its variants, the test, and what is known of the champion.

Terminal, MLflow, card and exported judge are made from it. A study.json of another version need not load.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, EvidenceAgreement, JudgeAgreement, StatementAgreement
from faith_dspy.scoring.statistics import Estimate

Kind = Literal["untuned", "lm", "baseline"]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StatementRow(_Result):
    """One statement of an answer, as the judge and people see it."""

    text: str
    verdict: str | None = None
    """A `Verdict`'s value; None: unjudged."""
    confidence: float | None = None
    """The judge's probability that it is supported."""
    label: bool | None = None
    """Whether people call it supported; None: they did not say."""
    chunk_ids: tuple[int, ...] = ()
    """As the LM named them, not checked."""
    reason: str | None = None
    error: str | None = None
    """Why it is unjudged."""
    usage: Usage | None = None
    """Of the calls about this statement; None where there were none."""


class PredictionRow(_Result):
    """One answer as one variant judged it."""

    id: str
    group: str
    part: Literal["dev", "test"] = "dev"
    label: bool
    """Whether people call it faithful."""
    predicted: bool | None
    """Whether the judge passes it; None: unscored."""
    probability: float | None
    """What answers are ranked by: the calibrated probability, or the LM's own for the untuned judge."""
    unscored: str | None = None
    """The reason, where it is unscored."""
    question: str | None = None
    answer: str = ""
    statements: tuple[StatementRow, ...] = ()
    context: tuple[str, ...] = ()
    tags: dict[str, str] = Field(default_factory=dict)
    """Source, domain, language … as the labels file has them, and its ``group``."""
    usage: Usage = Usage()
    """Of judging this answer."""
    extraction: Usage = Usage()
    """The share of ``usage`` spent on extracting statements."""


class _Measured(_Result):
    """What was measured of one judge on one part."""

    name: str
    kind: Kind
    statements: StatementAgreement | None = None
    """On statements, of a variant by the LM's verdicts, before any classifier; None without labelled statements."""
    evidence: EvidenceAgreement | None = None
    """On the chunk ids the judge names; None where no label names any."""
    usage: Usage = Usage()
    """Of judging the part."""
    predictions: tuple[PredictionRow, ...] = ()


class VariantResult(_Measured):
    """One variant – program shape × optimizer × LM × seed – and its agreement on the devset."""

    description: str
    """One line: what the LM is asked, and how replies become verdicts."""
    params: dict[str, str | int] = Field(default_factory=dict)
    """What it was made of: granularity, instruction, optimizer, LM and seed; empty for a baseline."""
    status: Literal["done", "dropped", "skipped"] = "done"
    """Dropped: measured on a part of dev only, where others were better."""
    note: str | None = None
    """Why it was dropped or skipped."""
    agreement: Agreement | None = None
    """On answers, cross-fitted, or of a baseline fitted on train: no answer is judged by a classifier that saw it."""
    lm_only: Agreement | None = None
    """The same with a classifier on the LM's probabilities alone, without lexical features."""
    untuned: Agreement | None = None
    """The LM's verdicts as they are, threshold .5; only for the untuned judge."""
    selection_score: float | None = None
    """What the champion is chosen by: mean of balanced accuracy and AUROC on the devset, times coverage."""
    judged: int = 0
    """Number of answers that ``usage`` covers."""
    compile_usage: Usage = Usage()
    prompts: dict[str, Any] = Field(default_factory=dict)
    """Per predictor: instructions and demos."""
    seed_prompts: dict[str, Any] = Field(default_factory=dict)
    """The same before compiling; empty where nothing was compiled."""
    search: tuple[dict[str, Any], ...] = ()
    """Of each instruction of the bank, where it was searched: ``name, auroc, balanced_accuracy, n``."""

    @property
    def cost(self) -> float:
        """Tokens per answer: computed prompt tokens plus three times the completion tokens."""
        return (self.usage.computed_tokens + 3 * self.usage.output_tokens) / max(1, self.judged)


class TestsetResult(_Measured):
    """One judge on the testset."""

    agreement: Agreement
    """On answers."""

    @property
    def levels(self) -> JudgeAgreement:
        """Agreement on all levels."""
        return JudgeAgreement(answers=self.agreement, statements=self.statements, evidence=self.evidence)


class Difference(Estimate):
    """A minus B."""

    standard_error: float | None = Field(default=None, ge=0)


class Comparison(_Result):
    """Judge A against judge B on the same labels."""

    n: int
    sources: int | None = None
    """Over which these answers were given; None in exports that do not say."""
    balanced_accuracy: Difference
    auroc: Difference
    verdict: Literal["better", "not shown better", "worse"]
    """By the interval of the difference in balanced accuracy: above 0, across it, below it. With few sources nothing is
    shown (`SHOWN_FROM`)."""
    more_labels: int | None
    """Labels beyond these n with an even chance to exclude 0, should the difference stay; None where none is needed."""
    sentence: str


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
    """Prompt tokens that the server computes; of the answers over a context the first to be asked about reads it."""
    output_tokens: float
    seconds: float
    ask_about: str = "all"
    """The option of `JudgeConfig`: every statement, or the weakest uncovered one."""
    escalates_within: tuple[float, float] | None = None
    """Of a cascade: the lexical judge's probabilities within which the LM is asked; equal ends: it never is."""
    difference: Difference
    """Mean of balanced accuracy and AUROC minus the reference's, on the answers both judged; a 90 % interval."""
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
    recall_unfaithful: Estimate
    """Share of the unfaithful answers it stops."""
    recall_faithful: Estimate
    """Share of the faithful answers it passes."""
    note: str | None = None
    """What so few labels cannot assure."""


class GroupResult(_Result):
    """One group of test answers."""

    facet: str
    """What is grouped by: a tag of the labels file, such as ``source``, or ``language``."""
    name: str
    n: int
    agreement: Agreement | None = None
    """None with too few answers of a label."""


class CurvePoint(_Result):
    """Agreement on the testset with so many labels to fit on. Mean over the draws; 95 % of them lie in the interval.
    With 0 labels it is the default judge's, or the untuned one's where the champion has no default classifier to start
    from; with all the champion's: one draw, without an interval."""

    labels: int
    draws: int
    balanced_accuracy: Estimate
    auroc: Estimate


class StudySetup(_Result):
    """What is known of a study before anything is judged."""

    study_id: str
    """Hash of everything the outcome depends on (`faith_dspy.optimize.study.study_id`)."""
    labels_file: str
    """File name only."""
    label_set_hash: str
    lm: dict[str, Any]
    budget: str
    seed: int
    test_file: str | None = None
    """File name of the labels to test on; None: a part of ``labels_file``."""
    split: dict[str, Any]
    """Report of the split: counts, share of faithful answers and groups per part; ``used``: answers judged, ``hashes``:
    of these."""


class StudyResult(StudySetup):
    """A whole study."""

    variants: tuple[VariantResult, ...]
    champion: str
    """Name of the promoted variant."""
    test: tuple[TestsetResult, ...]
    """The champion and the untuned judge first, then the default judge and the baselines."""
    comparisons: dict[str, Comparison]
    """The champion against the untuned judge and each baseline, on the testset, by name."""
    costs: tuple[CostPoint, ...] = ()
    """Cost–quality table, the cheapest first: the champion, its cheaper modes, and the other variants."""
    costs_in_words: tuple[str, ...] = ()
    """What a reader should take from ``costs``, a sentence each."""
    groups: tuple[GroupResult, ...] = ()
    """The champion on the testset by source, domain, language …"""
    ceiling: Agreement | None = None
    """One annotator against the majority of the others, where the labels hold several."""
    classifier: dict[str, Any] = Field(default_factory=dict)
    """The champion's, as numbers, and ``learned_from``."""
    learning_curve: tuple[CurvePoint, ...] = ()
    outlook: str = ""
    """What the next hundred labels would probably bring, a sentence."""
    seconds: float = 0.0
    usage: Usage = Usage()
    """Everything, compiling included."""
    replayed: int = 0
    """Calls answered from the cache: they cost nothing, and no limit counts them."""
    notes: tuple[str, ...] = ()
    """What a reader must know beside the figures, a sentence each."""
    flip_rate: float | None = None
    """Share of the verdicts on dev that injections flipped, over all kinds; None where that was not tried."""
    held_back: tuple[str, ...] = ()
    """Why it may not become champion in MLflow's registry, a sentence for each kind of injection that flips more
    verdicts than allowed; empty where it may."""
    version: str = ""
    """Of faith_dspy."""
    date: str = ""
    """On which it was finished, ISO 8601."""
    judge_dir: str = ""
    registered: str = Field(default="", exclude=True)
    """What became of it in MLflow's registry, a sentence; empty where it was not registered. Not exported: known only
    after the export."""
    page: str = Field(default="", exclude=True)
    """Address of its run on MLflow's pages; not exported."""
    finished: bool = True
    """False when it was stopped early: the champion is the best of the variants that were finished."""

    def variant(self, name: str) -> VariantResult:
        """The variant of that name."""
        return next(v for v in self.variants if v.name == name)

    def tested(self, name: str) -> TestsetResult:
        """The test result of that name."""
        return next(t for t in self.test if t.name == name)
