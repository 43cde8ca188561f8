"""What a study finds, as frozen data. Terminal, MLflow, card and exported judge are made from it.

What a study checks about its champion – comparisons, costs, diagnosis – is in `faith_dspy.optimize.checks`. A
study.json of another version need not load.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.optimize.checks import Comparison, CostPoint, Diagnosis
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, StatementAgreement
from faith_dspy.scoring.evidence import EvidenceAgreement

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
    part: Literal["train", "dev", "test"]
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
    annotators: Any = None
    """Each annotator's label, as given."""
    usage: Usage = Usage()
    """Of judging this answer."""
    extraction: Usage = Usage()
    """The share of ``usage`` spent on extracting statements."""


class VariantResult(_Result):
    """One variant – program shape × optimizer × LM × seed – and its agreement on the devset."""

    name: str
    kind: Kind
    description: str
    """One line: what the LM is asked, and how replies become verdicts."""
    params: dict[str, str | int | float | bool]
    status: Literal["done", "skipped", "failed"] = "done"
    note: str | None = None
    """Why it was skipped or failed."""
    agreement: Agreement | None = None
    """On answers. Probabilities and thresholds are cross-fitted: no answer is judged by a classifier that saw it."""
    lm_only: Agreement | None = None
    """The same with a classifier on the LM's probabilities alone, without lexical features."""
    untuned: Agreement | None = None
    """The LM's verdicts as they are, threshold .5; only for the untuned judge."""
    statements: StatementAgreement | None = None
    """The LM's verdicts on statements, before any classifier; None without labelled statements."""
    evidence: EvidenceAgreement | None = None
    """On the chunk ids the judge names; None where no label names any."""
    selection_score: float | None = None
    """What the champion is chosen by: mean of balanced accuracy and AUROC on the devset, times coverage."""
    usage: Usage = Usage()
    """Of judging the devset."""
    judged: int = 0
    """Number of answers that ``usage`` covers."""
    compile_usage: Usage = Usage()
    prompts: dict[str, Any] = Field(default_factory=dict)
    """Per predictor: instructions and demos."""
    seed_prompts: dict[str, Any] = Field(default_factory=dict)
    """The same before compiling; empty where nothing was compiled."""
    search: tuple[dict[str, Any], ...] = ()
    """Of each instruction of the bank, where it was searched: ``name, auroc, balanced_accuracy, n``."""
    learned: tuple[str, ...] = ()
    """What compiling found, a sentence each."""
    predictions: tuple[PredictionRow, ...] = ()
    """On the devset."""

    @property
    def cost(self) -> float:
        """Tokens per answer: computed prompt tokens plus three times the completion tokens."""
        return (self.usage.computed_tokens + 3 * self.usage.output_tokens) / max(1, self.judged)


class TestResult(_Result):
    """One judge on the testset."""

    name: str
    kind: Kind
    agreement: Agreement
    """On answers."""
    statements: StatementAgreement | None = None
    """On statements; None without labelled statements."""
    evidence: EvidenceAgreement | None = None
    """On the chunk ids the judge names; None where no label names any."""
    usage: Usage = Usage()
    predictions: tuple[PredictionRow, ...] = ()


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
    split: dict[str, Any]
    """Report of the split: counts, share of faithful answers and groups per part; ``used``: answers judged."""


class StudyResult(StudySetup):
    """A whole study."""

    variants: tuple[VariantResult, ...]
    champion: str
    """Name of the promoted variant."""
    test: tuple[TestResult, ...]
    """The champion and the untuned judge first, then the baselines."""
    comparisons: dict[str, Comparison]
    """The champion against the untuned judge and each baseline, on the testset, by name."""
    costs: tuple[CostPoint, ...] = ()
    """Cost–quality table, the cheapest first: the champion, its cheaper modes, and the other variants."""
    costs_in_words: tuple[str, ...] = ()
    """What a reader should take from ``costs``, a sentence each."""
    diagnosis: Diagnosis | None = None
    """What is known of the champion's classifier beside its agreement."""
    ceiling: Agreement | None = None
    """One annotator against the majority of the others, where the labels hold several."""
    classifier: dict[str, Any] = Field(default_factory=dict)
    """The champion's, as numbers, and ``learned_from``."""
    seconds: float = 0.0
    usage: Usage = Usage()
    """Everything, compiling included."""
    replayed: int = 0
    """Calls answered from the cache: they cost nothing, and no limit counts them."""
    notes: tuple[str, ...] = ()
    """What a reader must know beside the figures, a sentence each."""
    judge_dir: str = ""
    registered: str = ""
    """What became of it in MLflow's registry, a sentence; empty where it was not registered."""
    finished: bool = True
    """False when it was stopped early: the champion is the best of the variants that were finished."""

    def variant(self, name: str) -> VariantResult:
        """The variant of that name."""
        return next(v for v in self.variants if v.name == name)

    def tested(self, name: str) -> TestResult:
        """The test result of that name."""
        return next(t for t in self.test if t.name == name)
