"""What a study finds, as data: terminal, MLflow, card and exported judge are made from it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import faith_dspy
from faith_dspy.io.labels import label_set_hash
from faith_dspy.optimize.classifier.operating_point import Cut
from faith_dspy.optimize.classifier.review_range import ReviewRange
from faith_dspy.optimize.diagnostics.ablation import Ablated
from faith_dspy.optimize.diagnostics.groups import Groups
from faith_dspy.optimize.diagnostics.reliability import CalibrationCheck
from faith_dspy.optimize.diagnostics.shortcuts import ShortcutCheck
from faith_dspy.optimize.diagnostics.transfer import Transfer
from faith_dspy.optimize.select.comparison import Comparison
from faith_dspy.optimize.select.optimism import Selection
from faith_dspy.optimize.select.pareto import CostPoint, in_words
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.agreement import Agreement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.lm.endpoint import LMIdentity
    from faith_dspy.optimize.select.variants import Budget, Variant
    from faith_dspy.schema import LabelledExample


Kind = Literal["untuned", "lm", "baseline"]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid")


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
    unscored: str | None = None
    question: str | None = None
    answer: str = ""
    statements: list[dict[str, Any]] = Field(default_factory=list)
    """``text``, ``verdict``, ``confidence``, ``label`` (the person's, or None) of each statement. Where there are any:
    ``chunk_ids`` (as the LM named them, not checked), ``reason``, ``error``, and the ``usage`` of asking about it.
    """
    context: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)
    """Source, domain, language … as the labels file has them, and its ``group``."""
    annotators: Any = None
    """Each person's own label, as given."""
    usage: Usage = Usage()
    """Of judging this answer."""
    extraction: Usage = Usage()
    """The part of it that went into taking statements from the answer."""


class VariantResult(_Result):
    """One variant: program shape × optimizer × classifier, with its agreement on the devset."""

    name: str
    kind: Kind
    description: str
    """One line: what was asked, and how it became a verdict."""
    params: dict[str, str | int | float | bool]
    status: Literal["done", "skipped", "failed"] = "done"
    note: str | None = None
    """Why it was skipped or failed."""
    agreement: Agreement | None = None
    """On the devset. Probabilities and thresholds are cross-fitted: no answer is judged by a classifier that saw it."""
    lm_only: Agreement | None = None
    """The same with a classifier on the LM's probabilities alone, without lexical features."""
    untuned: Agreement | None = None
    """The LM's verdicts as they are, threshold .5; of the untuned judge only."""
    selection: float | None = None
    """What the champion is chosen by: mean of balanced accuracy and AUROC on the devset."""
    usage: Usage = Usage()
    """Of judging the devset."""
    judged: int = 0
    """Answers that usage is about."""
    compile_usage: Usage = Usage()
    """Of compiling the prompts."""
    prompts: dict[str, Any] = Field(default_factory=dict)
    """Per predictor: instructions and demos."""
    search: list[dict[str, Any]] = Field(default_factory=list)
    """Of each instruction of the bank, where it was searched: ``name, auroc, balanced_accuracy, n``."""
    learned: list[str] = Field(default_factory=list)
    """What compiling found, in sentences."""
    seed_prompts: dict[str, Any] = Field(default_factory=dict)
    """The same before compiling; empty where nothing was compiled."""
    predictions: list[PredictionRow] = Field(default_factory=list)
    """On the devset."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Of the fitted classifier: log-odds per standard deviation of each signal."""

    @property
    def cost(self) -> float:
        """Tokens of judging an answer: computed ones, and written ones three times."""
        return (self.usage.computed_tokens + 3 * self.usage.output_tokens) / max(1, self.judged)


class TestResult(_Result):
    """One judge on the testset."""

    name: str
    kind: Kind
    agreement: Agreement
    usage: Usage = Usage()
    predictions: list[PredictionRow] = Field(default_factory=list)


class ClassifierReport(_Result):
    """What is to be known of the champion's classifier. All but what is named ``test`` is cross-fitted on train and dev."""

    cut: Cut
    """The threshold for the user's operating_point."""
    review_range: dict[str, ReviewRange] = Field(default_factory=dict)
    """What goes to a person, and how right the judge is otherwise: ``cross-fitted`` and ``test``."""
    calibration: dict[str, CalibrationCheck] = Field(default_factory=dict)
    """The LM's own probability against the classifier's: ``cross-fitted`` and ``test``; empty where the LM tells none."""
    shortcuts: ShortcutCheck
    ablation: list[Ablated] = Field(default_factory=list)
    """Without the LM, without words, then without each signal, the most missed first."""
    transfer: list[Transfer] = Field(default_factory=list)
    """Per source of the labels, fitted on all others, the worst first; empty with fewer than two sources."""


class StudyResult(_Result):
    """A whole study."""

    study_id: str
    """See `study_id`."""
    labels_file: str
    """File name only."""
    label_set_hash: str
    lm: dict[str, Any]
    budget: str
    seed: int
    split: dict[str, Any]
    """Report of the split: counts, share of faithful answers and groups per part."""
    variants: list[VariantResult]
    champion: str
    """Name of the promoted variant."""
    test: list[TestResult]
    """Champion and untuned first, then the baselines."""
    comparisons: dict[str, Comparison]
    """Champion against the untuned judge and each baseline, on the testset, by name."""
    frontier: tuple[CostPoint, ...] = ()
    """Ways to judge by what they cost, the cheapest first: the champion's words-first forms, and the other variants."""
    selection: Selection | None = None
    """How much of the champion's dev figure comes from having chosen it."""
    groups: Groups | None = None
    """The champion on the testset by source, domain, language, length."""
    ceiling: Agreement | None = None
    """One annotator against the majority of the others, where the labels hold several."""
    seconds: float = 0.0
    usage: Usage = Usage()
    """Everything, compiling included."""
    replayed: int = 0
    """How many of its calls were answered from the cache: nothing was paid for them, and no limit counts them."""
    notes: list[str] = Field(default_factory=list)
    """What a reader must know beside the figures, in sentences."""
    classifier: dict[str, Any] = Field(default_factory=dict)
    classifier_report: ClassifierReport | None = None
    judge_dir: str = ""
    registered: str = ""
    """What became of it in MLflow's registry, in a sentence; empty where it was not registered."""
    finished: bool = True
    """False when it was stopped early: the champion is the best so far."""

    @property
    def frontier_in_words(self) -> list[str]:
        """What the frontier says, a sentence each."""
        return in_words(self.frontier)

    def variant(self, name: str) -> VariantResult:
        """The variant of that name."""
        return next(v for v in self.variants if v.name == name)

    def tested(self, name: str) -> TestResult:
        """The test result of that name."""
        return next(t for t in self.test if t.name == name)


def study_id(
    parts: Sequence[Sequence[LabelledExample]],
    lm: LMIdentity,
    plan: Budget,
    variants: Sequence[Variant],
    options: object,
) -> str:
    """Hash of all that a study's outcome depends on. The same id goes on in the same MLflow run; another is a new run.

    ``parts``: all examples of train, dev and test, in this order. The LM counts by name, file hash and endpoint; the
    budget by its numbers; variants with every option, their optimizer and order; ``options``, such as the seed; the code
    by its text and the versions of what it computes with – prompts, metric and program are in it. Not the minutes: a
    study that ran out of them goes on when it is given more. Nothing but LM replies is ever reused, and those by LM and
    prompt.
    """
    labels = [label_set_hash(part) for part in parts]
    return digest([labels, lm.model_dump(mode="json"), plan._replace(minutes=None), list(variants), options, _code()])


@lru_cache(maxsize=1)
def _code() -> str:
    versions = [metadata.version(name) for name in ("dspy", "scikit-learn")]
    here = Path(__file__).parent  # in a source tree it lies beside the package
    files = {f.resolve() for package in (here, Path(faith_dspy.__file__).parent) for f in package.rglob("*.py")}
    texts = sorted(hashlib.sha256(f.read_bytes()).hexdigest() for f in files)
    return digest([versions, texts])
