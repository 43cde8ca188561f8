"""What a study finds, as frozen data: its judged answers, its judges, and what is known of the champion.

Terminal, MLflow, card and exported judge are made from it. A study.json of another version need not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faith_dspy.errors import counted
from faith_dspy.judge import Judge
from faith_dspy.schema import Judgment, LabelledExample, RawJudgment, Usage
from faith_dspy.scoring.agreement import (
    Agreement,
    JudgeAgreement,
    evidence_counts,
)
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.matching import statement_labels
from faith_dspy.scoring.measure import AnswerFeatures, measure_features
from faith_dspy.scoring.score import statement_values
from faith_dspy.scoring.statistics import Estimate
from faith_dspy.text.features import DIRECTIONS

CHAMPION, UNTUNED, CALIBRATED, FUNCTION, COLUMN, LEXICAL, LENGTH = (
    "champion",
    "untuned",
    "lm-calibrated",
    "function-calibrated",
    "column-calibrated",
    "lexical-baseline",
    "length-baseline",
)
BASELINES = {
    CALIBRATED: "the LM calibrated",
    FUNCTION: "the function calibrated",
    COLUMN: "the column calibrated",
    LEXICAL: "the lexical baseline (no LM)",
    UNTUNED: "the untuned judge",
    LENGTH: "counting words (length alone)",
}
"""What a champion is compared with, and how it is called. The last is no judge: a champion that is not ahead of it may
have learned length."""
CHEAPER = (CALIBRATED, FUNCTION, COLUMN, LEXICAL, UNTUNED)
"""Those of them that are judges."""


def current_name(name: str) -> str:
    """Return what a judge that was measured is called today; earlier exports have another name for one of them."""
    return COLUMN if name == "column-baseline" else name


_Name = Annotated[str, AfterValidator(current_name)]
Verdict = Literal["better", "inconclusive", "worse"]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Result):
    """One answer as one judge judged it: what statistics need, and what study.json keeps of it."""

    id: str
    source: str
    """Answers of one source are never divided, and are resampled together."""
    label: bool
    """Whether people call it faithful."""
    predicted: bool | None
    """Whether the judge passes it; None: unscored."""
    probability: float | None
    """What answers are ranked by (`Judgment.ranking`)."""
    evidence: tuple[int, int, int] | None = None
    """Chunk ids that judge and people both name, the judge, and people; None where people name none."""

    @classmethod
    def of(cls, example: LabelledExample, judgment: Judgment) -> Row:
        """Return what statistics need of an answer and its judgment."""
        counts = evidence_counts(example, judgment)
        both, judge, people = map(sum, zip((0, 0, 0), *counts, strict=True))
        return Row(
            id=example.id,
            source=example.group_key,
            label=bool(example.label),
            predicted=judgment.faithful,
            probability=judgment.ranking,
            evidence=(both, judge, people) if people else None,
        )


class JudgedAnswer(Row):
    """One labelled answer, what the LM said of it, and the judgment that follows. Made once, and handed on."""

    example: LabelledExample
    raw: RawJudgment
    """What was said; without statements where there was nothing to ask about."""
    judgment: Judgment
    """By the judge that is measured; of a fitted one by weights that did not see the answer's source."""
    measured: AnswerFeatures
    """What the replies have in the context: any judge scores them again by it."""
    features: tuple[dict[str, float] | None, ...]
    """Of each statement; None where it could not be judged."""
    labels: tuple[bool | None, ...]
    """Whether people call each statement supported; None: they did not say."""

    @classmethod
    def judged(
        cls,
        example: LabelledExample,
        raw: RawJudgment,
        judgment: Judgment,
    ) -> JudgedAnswer:
        """Return the answer with its features and labels: those of the judge's statements that was asked last."""
        measured = measure_features(raw, example.context, example.question)
        last = raw.last
        return cls(
            **dict(Row.of(example, judgment)),
            example=example,
            raw=raw,
            judgment=judgment,
            measured=measured,
            features=tuple(statement_values(last, measured.last, DIRECTIONS)),
            labels=tuple(statement_labels(last.raw_verdicts, example)),
        )

    def by(self, judge: Judge) -> JudgedAnswer:
        """Return the same replies judged by another judge. No LM call."""
        if not self.raw.raw_verdicts:
            return self
        return self.with_judgment(judge.score_answer(self.raw, self.measured))

    def with_judgment(self, judgment: Judgment) -> JudgedAnswer:
        """With another judgment."""
        row = Row.of(self.example, judgment)
        return self.model_copy(update={**dict(row), "judgment": judgment})


class Difference(Estimate):
    """A minus B."""

    standard_error: float | None = Field(default=None, ge=0)


class Comparison(_Result, extra="ignore"):
    """Judge A against judge B on the same labels. Earlier exports have further fields."""

    n: int
    sources: int | None = None
    """Over which these answers were given; None in exports that do not say."""
    balanced_accuracy: Difference
    """With an operating point that weighs mistakes, accuracy with these weights."""
    verdict: Verdict
    """By the interval of the difference in balanced accuracy; with few sources it is inconclusive."""
    sentence: str


class PromptGain(_Result):
    """Compiled prompts against the seed's own, on answers of the pool that neither saw, the LM calibrated."""

    comparison: Comparison
    compiled: JudgeAgreement
    seed: JudgeAgreement


Learned = Literal["nothing", "the other half", "one half"]
"""What the prompts that judged an answer of the pool had learned from. ``the other half``: compiled on each half of the
sources, and on all for the export; ``one half``: compiled once, on the sources that are left out here."""


class Prompts(_Result):
    """A variant's prompts, and what compiling them took."""

    now: dict[str, Any]
    """Per predictor: instructions and demos."""
    seed: dict[str, Any] = Field(default_factory=dict)
    """The same before compiling; empty where nothing was compiled."""
    learned: Learned = "nothing"
    metric_calls: int = 0
    """Predictions that the optimizer compared with labels."""
    seconds: float = 0.0
    """That compiling took."""
    gain: PromptGain | None = None
    """Over the seed's; None where nothing was compiled, or the seed was not asked."""

    @property
    def changes(self) -> list[str]:
        """What compiling changed, a phrase for each predictor."""
        phrases = []
        for name, prompt in self.now.items():
            parts = []
            if prompt["instructions"] != self.seed[name]["instructions"]:
                parts.append("a new instruction")
            if prompt["demos"]:
                parts.append(counted(len(prompt["demos"]), "example"))
            phrases.append(f"{name}: {' and '.join(parts) or 'as it was'}")
        return phrases


class Cost(_Result):
    """What judging some answers took."""

    usage: Usage
    """Of judging ``judged`` answers."""
    judged: int
    lm_share: float
    """Share of them that an LM was asked about."""
    price: float | None = None
    """Dollars an answer, by LiteLLM's price list; None where an LM has none, as the embedded one."""

    @property
    def tokens(self) -> float:
        """Tokens per answer: computed prompt tokens plus three times the completion tokens."""
        total = self.usage.computed_tokens + 3 * self.usage.output_tokens
        return total / self.judged


class JudgeResult(Cost):
    """What one judge reached on some answers."""

    name: _Name
    levels: JudgeAgreement
    """Agreement on answers, statements and evidence."""
    rows: tuple[Row, ...] = ()
    """Its answers, with their texts (`JudgedAnswer`) unless the study was read from a file."""

    @property
    def answers(self) -> tuple[JudgedAnswer, ...]:
        """Those with their texts."""
        return tuple(row for row in self.rows if isinstance(row, JudgedAnswer))

    @property
    def agreement(self) -> Agreement:
        """On answers."""
        assert self.levels.answers is not None, f"{self.name}: no answer has a label"
        return self.levels.answers


class CandidateResult(JudgeResult):
    """A judge that could be exported, cross-fitted on the pool: to choose by, not agreement with people."""

    variant: str | None
    """The variant that it asks; None without an LM."""
    method: str
    """How replies become verdicts (`faith_dspy.optimize.select.candidates.Method`), or ``cascade``."""
    description: str
    """One line: what is asked, and how replies become verdicts."""
    columns: tuple[str, ...] = ()
    """Columns that every answer it judges has to have: what other judges said."""
    function: str | None = None
    """The function that it asks."""
    params: dict[str, str | int] = Field(default_factory=dict)
    """What its variant was made of: granularity, other options, optimizer, LM and seed; empty without one."""
    prompts: Prompts | None = None
    score: float | None = None
    """What the champion is chosen by (`faith_dspy.optimize.select.champion`)."""
    behind: Difference | None = None
    """Its score minus the best one's, on the answers that both may be measured on; None for the best."""


class SkippedVariant(_Result):
    """A variant that was planned, and became no candidate."""

    name: str
    description: str
    params: dict[str, str | int]
    status: Literal["skipped", "failed"]
    note: str
    """Why."""


class Measured(_Result):
    """The champion and the baselines on the same answers, which none of them learned from."""

    judges: tuple[JudgeResult, ...]
    """The champion first, then those of `BASELINES` that could be measured."""
    comparisons: dict[_Name, Comparison]
    """The champion against each of the others, by name, but for the one that is the champion."""

    def judge(self, name: str) -> JudgeResult | None:
        """Return that judge; None where it was not measured."""
        return next((one for one in self.judges if one.name == name), None)

    @property
    def champion(self) -> JudgeResult:
        """Return the champion's."""
        return self.judges[0]


def have_prices(judges: Sequence[Cost]) -> bool:
    """Tell whether every LM has a price."""
    return all(judge.price is not None for judge in judges if judge.lm_share)


def costs(judges: Sequence[Cost]) -> list[float]:
    """Return what an answer costs by each judge: dollars where every LM has a price, else tokens (`Cost.tokens`)."""
    if have_prices(judges):
        return [judge.price or 0.0 for judge in judges]
    return [judge.tokens for judge in judges]


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
    operating_point: str = "balanced"
    test_file: str | None = None
    """File name of the labels to test on, if they are of a file of their own."""
    split: dict[str, Any]
    """`faith_dspy.optimize.data.pool.Partition.report`."""


class StudyResult(StudySetup):
    """A whole study."""

    candidates: tuple[CandidateResult, ...]
    """On the pool, cross-fitted."""
    skipped: tuple[SkippedVariant, ...] = ()
    champion: str
    """The name of the candidate that is exported."""
    cv: Measured
    """By cross-validation: fit and choose repeated without each fold, which is then judged. These figures are of the
    procedure; the exported judge is fitted on all labels."""
    test: Measured | None = None
    """The exported judge on a test of the user's own; None without one."""
    labelled_by: dict[str, int] = Field(default_factory=dict)
    """Labels by who gave them (`faith_dspy.io.labels.labellers`); empty where the file does not say."""
    columns: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Columns that may hold groups, such as a topic, each with its value by answer: what ``--by`` takes."""
    ceiling: Agreement | None = None
    """One annotator against the majority of the others, where the labels hold several."""
    classifier: Classifier | None = None
    """The champion's."""
    lexical: Classifier | None = None
    """Of the lexical baseline, fitted on the same labels."""
    seconds: float = 0.0
    usage: Usage = Usage()
    """Everything, compiling included."""
    replayed: int = 0
    """Calls answered from the cache: they cost nothing, and no limit counts them."""
    notes: tuple[str, ...] = ()
    """Caveats, one sentence each."""
    flip_rate: float | None = None
    """Share of the verdicts on the pool that injections flipped, over all kinds; None where that was not tried."""
    held_back: tuple[str, ...] = ()
    """Why it may not become champion in MLflow's registry, a sentence each; empty where it may."""
    version: str = ""
    """Of faith_dspy."""
    date: str = ""
    """On which it was finished, ISO 8601."""
    judge_dir: str = ""
    registered: str = Field(default="", exclude=True)
    """What became of it in MLflow's registry, a sentence. Not exported: known only after the export."""
    page: str = Field(default="", exclude=True)
    """Address of its run on MLflow's pages; not exported."""
    finished: bool = True
    """False when it was stopped early: the champion is the best of the variants that were finished."""

    @property
    def measured(self) -> Measured:
        """The figures that people read: on the user's own test, else by cross-validation."""
        return self.test or self.cv

    @property
    def measured_by(self) -> Literal["test", "cross-validation"]:
        """What they were measured by."""
        return "cross-validation" if self.test is None else "test"

    @property
    def chosen(self) -> CandidateResult:
        """The candidate that is exported."""
        return next(c for c in self.candidates if c.name == self.champion)
