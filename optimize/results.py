"""What a study finds, as frozen data: its judged answers, its judges, and what is known of the champion.

Terminal, MLflow, card and exported judge are made from it. A study.json of another version need not load.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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

UNTUNED, CALIBRATED, LEXICAL, LENGTH = (
    "untuned",
    "lm-calibrated",
    "lexical-baseline",
    "length-baseline",
)
CHEAPER = {
    CALIBRATED: "the LM calibrated",
    LEXICAL: "the lexical baseline (no LM)",
    UNTUNED: "the untuned judge",
}
"""Judges that a champion is compared with on the testset, and how they are called."""
COUNTING_WORDS = "counting words (length alone)"
"""How the length baseline is called, which is no judge: a champion that is not ahead of it may have learned length."""
Verdict = Literal["better", "inconclusive", "worse"]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Result):
    """One answer as one judge judged it: what statistics need, and what study.json keeps of it."""

    id: str
    source: str
    """Answers of one source are never split, and are resampled together."""
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
    """By the judge that is measured; of a fitted one on the pool by weights that did not see the answer's source."""
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

    def rejudged(self, **update: Any) -> JudgedAnswer:
        """With other values in its judgment."""
        return self.with_judgment(self.judgment.model_copy(update=update))

    def with_judgment(self, judgment: Judgment) -> JudgedAnswer:
        """With another judgment."""
        row = Row.of(self.example, judgment)
        return self.model_copy(update={**dict(row), "judgment": judgment})


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
    p_value: float | None = None
    """Of no difference in balanced accuracy (`faith_dspy.optimize.select.comparison.sign_flips`)."""
    verdict: Verdict
    """By interval and p of the difference in balanced accuracy; with few sources it is inconclusive."""
    more_labels: int | None
    """Labels beyond these n with an even chance to decide, should the difference stay; None where none is needed."""
    more_sources: int | None = None
    """Contexts that they are over."""
    sentence: str


class PromptGain(_Result):
    """Compiled prompts against the seed's own, on answers of the pool that neither saw, the LM calibrated."""

    comparison: Comparison
    compiled: JudgeAgreement
    seed: JudgeAgreement
    metric_calls: int
    """Predictions that the optimizer compared with labels."""
    seconds: float
    """That compiling took."""


def word_diff(before: str, after: str) -> list[tuple[str, str]]:
    """Return word by word what is the ``same``, ``gone`` and ``new``, each with its text.

    Joined, all but the new is ``before``, and all but the gone ``after``.
    """
    a, b = (re.findall(r"^\s+|\S+\s*", text) for text in (before, after))
    pieces = []
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for kind, a1, a2, b1, b2 in matcher.get_opcodes():
        gone, new = "".join(a[a1:a2]), "".join(b[b1:b2])
        if kind == "equal":
            pieces.append(("same", new))
        else:
            pieces += [("gone", gone), ("new", new)]
    return [(kind, text) for kind, text in pieces if text]


class JudgeResult(_Result):
    """One judge on one part: on the pool to choose by, on test to believe."""

    name: str
    kind: Literal["untuned", "lm", "baseline"]
    levels: JudgeAgreement = JudgeAgreement(
        answers=None,
        statements=None,
        evidence=None,
    )
    """Agreement on answers, statements and evidence; on the pool, answers are cross-fitted. Without answers where it
    was skipped."""
    usage: Usage = Usage()
    """Of judging ``judged`` answers."""
    judged: int = 0
    lm_share: float = 0.0
    """Share of them that an LM was asked about."""
    price: float | None = None
    """Dollars an answer, by LiteLLM's price list; None where an LM has none, as the embedded one."""
    rows: tuple[Row, ...] = ()
    """Its answers, with their texts (`JudgedAnswer`) unless the study was read from a file."""

    description: str = ""
    """One line: what is asked, and how replies become verdicts."""
    params: dict[str, str | int] = Field(default_factory=dict)
    """What a variant was made of: granularity, instruction, optimizer, LM and seed; empty for others."""
    status: Literal["done", "skipped", "failed"] = "done"
    note: str | None = None
    """Why it was skipped, or failed."""
    score: float | None = None
    """What the champion is chosen by (`faith_dspy.optimize.select.champion`)."""
    behind: Difference | None = None
    """Its score minus the best one's, on the answers that both may be measured on; None for the best."""
    prompts: dict[str, Any] = Field(default_factory=dict)
    """Per predictor: instructions and demos."""
    seed_prompts: dict[str, Any] = Field(default_factory=dict)
    """The same before compiling; empty where nothing was compiled."""

    gain: PromptGain | None = None
    """Of its compiled prompts over the seed's; None where nothing was compiled, or it could not be measured."""

    @property
    def changes(self) -> list[str]:
        """What compiling changed in the prompts, a sentence for each predictor."""
        sentences = []
        for name, prompt in self.prompts.items():
            seed = self.seed_prompts.get(name, prompt)
            pieces = word_diff(seed["instructions"], prompt["instructions"])
            parts = []
            if prompt["demos"]:
                parts.append(counted(len(prompt["demos"]), "example"))
            for what, kind in (("put in", "new"), ("taken out", "gone")):
                texts = [" ".join(text.split()) for k, text in pieces if k == kind]
                words = " … ".join(filter(None, texts))
                if words:
                    parts.append(f"{what} “{shortened(words)}”")
            sentences.append(f"{name}: {', '.join(parts) or 'as it was'}")
        return sentences

    @property
    def answers(self) -> tuple[JudgedAnswer, ...]:
        """Those with their texts."""
        return tuple(row for row in self.rows if isinstance(row, JudgedAnswer))

    @property
    def agreement(self) -> Agreement:
        """On answers, of a judge that was measured."""
        assert self.levels.answers is not None, f"{self.name} was not measured"
        return self.levels.answers

    @property
    def cost(self) -> float:
        """Tokens per answer: computed prompt tokens plus three times the completion tokens."""
        return (self.usage.computed_tokens + 3 * self.usage.output_tokens) / max(
            1, self.judged
        )


def have_prices(results: Sequence[JudgeResult]) -> bool:
    """Tell whether every LM has a price."""
    return all(r.price is not None for r in results if r.lm_share)


def costs(results: Sequence[JudgeResult]) -> list[float]:
    """Return what an answer costs by each judge: dollars where every LM has a price, else tokens
    (`JudgeResult.cost`)."""
    if have_prices(results):
        return [r.price or 0.0 for r in results]
    return [r.cost for r in results]


MAX_QUOTED = 300
"""Characters of a change that are quoted."""


def shortened(text: str) -> str:
    """Return a text cut at a length that fits a table's note."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]} …"


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
    """`Parts.report`."""


class StudyResult(StudySetup):
    """A whole study."""

    variants: tuple[JudgeResult, ...]
    """All candidates on the pool; and the variants that were skipped."""
    champion: str
    """The name of one of them."""
    test: tuple[JudgeResult, ...]
    """The champion, the LM calibrated, the lexical baseline, the untuned judge, the length baseline."""
    comparisons: dict[str, Comparison]
    """The champion against each of the others, on the testset, by name."""
    ceiling: Agreement | None = None
    """One annotator against the majority of the others, where the labels hold several."""
    classifier: Classifier | None = None
    """The champion's; None for the untuned judge."""
    evidence_weight: float | None = None
    """Of chunk ids in the choice; None where labels name none."""
    opened: int | None = None
    """How many studies have opened this testset, this one included; None where nobody counts."""
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

    def variant(self, name: str) -> JudgeResult:
        """Return what was measured of it on the pool."""
        return next(v for v in self.variants if v.name == name)

    def tested(self, name: str) -> JudgeResult:
        """Return the test result of that name."""
        return next(t for t in self.test if t.name == name)
