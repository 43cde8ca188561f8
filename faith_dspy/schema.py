"""The data that crosses our boundaries: what goes into a judge, what comes out, what people labelled."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator


class Verdict(StrEnum):
    """What the context says about one statement."""

    FULLY_SUPPORTED = "fully_supported"
    PARTIALLY_SUPPORTED = "partially_supported"
    NO_EVIDENCE = "no_evidence"
    CONTRADICTORY = "contradictory"
    NOT_SUPPORTED = "not_supported"
    """Not fully supported, and nothing more is known: binary judges, and labels that do not tell the two apart."""

    @property
    def is_supported(self) -> bool:
        """The binary view: only a fully supported statement counts as supported."""
        return self is Verdict.FULLY_SUPPORTED


class Unscored(StrEnum):
    """Why an answer has no score. Never turned into 0, 1 or NaN."""

    NO_STATEMENTS = "no_statements"
    ABSTAINED = "abstained"
    NO_CONTEXT = "no_context"
    PARSE_FAILED = "parse_failed"
    """The record cannot be read, or the LM's replies about statements that decide have no verdict in them."""
    LM_FAILED = "lm_failed"
    """The LM gave no reply about statements that decide."""
    TOO_LONG = "too_long"
    """It has more sentences than `max_sentences`."""
    LANGUAGE = "language"
    """Without an LM: answer and context differ in language or script, or the script does not divide words."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Chunk(_Frozen):
    """One piece of the context."""

    id: int = Field(ge=0)
    """0-based position in the context."""
    text: str
    source: str | None = None
    """A URL, a file, a tool's name. Shown, never judged."""


class Sentence(_Frozen):
    """A piece of the answer as written: ``answer[start:end] == text``."""

    index: int
    start: int
    end: int
    text: str


class Statement(_Frozen):
    """One factual assertion taken from the answer."""

    text: str
    sentence_index: int | None = None
    """The sentence it was taken from; None where the whole answer is one statement."""


class QuoteSpan(_Frozen):
    """Where a quote stands: ``context[chunk_id].text[start:end]``."""

    chunk_id: int
    start: int
    end: int


class StatementVerdict(Statement):
    """A statement with the judge's verdict."""

    verdict: Verdict | None = None
    """None when it could not be judged; it still counts in the denominator, as not supported."""
    supporting_chunk_ids: tuple[int, ...] = ()
    """0-based ids of chunks that carry the verdict; every id exists in the context."""
    cited_chunk_ids: tuple[int, ...] = ()
    """0-based ids of the chunks that the answer itself cites for it, whether they support it or not."""
    citations_support: bool | None = None
    """Whether the chunks it cites support it without the others; None where it cites none, or that could not be
    checked."""
    found_by: tuple[Literal["cited", "quoted", "shared_words"], ...] = ()
    """How each of those was found: by the LM's citation or quote, or, where the LM named none, by shared words."""
    closest_chunk_ids: tuple[int, ...] = ()
    """Where to look, whatever the verdict: at most two chunks that have most of its words. They support nothing."""
    quotes: tuple[str, ...] = ()
    quote_spans: tuple[QuoteSpan, ...] = ()
    reason: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    """Probability that the statement is fully supported; calibrated when the judge was tuned."""
    missing: tuple[str, ...] | None = None
    """Words, names and numbers of the statement that the context does not contain; None where its chunks are named."""
    features: dict[str, float] = Field(default_factory=dict)
    """What the classifier made the confidence from (`faith_dspy.text.features`); empty for an untuned judge."""
    error: str | None = None

    @property
    def is_supported(self) -> bool | None:
        """None when unjudged."""
        return None if self.verdict is None else self.verdict.is_supported


class Usage(_Frozen):
    """What calls of an LM cost. A reply from the cache keeps its token counts, and costs no seconds and no dollars."""

    calls: int = 0
    prompt_tokens: int = 0
    """All prompt tokens, cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens the server took from its prefix cache."""
    output_tokens: int = 0
    seconds: float = 0.0
    dollars: float | None = 0.0
    """By LiteLLM's price list; None where it has no price, as soon as one call has none. 0 for the embedded model."""

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens the server had to read: prompt minus cached."""
        return self.prompt_tokens - self.cached_tokens

    def __add__(self, other: Usage) -> Usage:
        return self._with(other, 1)

    def __sub__(self, other: Usage) -> Usage:
        return self._with(other, -1)

    def _with(self, other: Usage, sign: int) -> Usage:
        added: dict[str, Any] = dict.fromkeys(vars(self))
        for name, value in vars(self).items():
            change = vars(other)[name]
            if value is not None and change is not None:
                added[name] = value + sign * change
        return Usage.model_construct(**added)


class Citations(_Frozen):
    """How good the citations of an answer are, as ALCE defines it (`faith_dspy.scoring.citations`)."""

    precision: float | None = Field(default=None, ge=0, le=1)
    """Share of the citations that support their statement, where all it cites supports it."""
    recall: float | None = Field(default=None, ge=0, le=1)
    """Share of the statements that are supported by what they cite alone."""
    cited: int = 0
    """Citations of chunks, each once a statement, and of what does not exist."""
    unknown: tuple[str, ...] = ()
    """Cited numbers and names that no chunk has."""
    unchecked: int = 0
    """Statements whose citations could not be checked; they count in neither share."""


class Judgment(_Frozen):
    """A judge's verdict on one answer. `score`, `faithful` and `level` are None exactly when `unscored` says why;
    `probability` then, too, and where no classifier gives one."""

    id: str | int | None = None
    turn: int | None = None
    """Of each answer in a conversation, the number of its message, from 0; None where an answer is judged alone."""
    score: float | None = Field(default=None, ge=0, le=1)
    """Faithfulness in [0, 1]: the verdicts' weights over the statements asked about."""
    faithful: bool | None = None
    """``probability >= threshold``; see there. False while a statement is unjudged."""
    probability: float | None = Field(default=None, ge=0, le=1)
    """Chance that a person would call the answer faithful; None for an untuned judge."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """The probability, else the score, that the answer had to reach. None: every statement had to be supported."""
    statement_threshold: float | None = Field(default=None, ge=0, le=1)
    """The confidence from which a statement is supported; None where the verdicts are the LM's own."""
    fitted_to: Literal["labels", "default"] | None = None
    """What `probability` was fitted to: the user's ``labels``, or other sets' (``default``). None without one."""
    level: str | None = None
    """Not At All, Not Generally, Neutral/Mixed, Generally Yes or Completely Yes: where the probability (else the score)
    lies on a scale whose middle is the threshold, from which up the answer is `faithful`."""
    needs_review: bool | None = None
    """Whether the probability lies in the review range, too close to the threshold; None without a probability."""
    unscored: Unscored | None = None
    statements: tuple[StatementVerdict, ...] = ()
    sentences: tuple[Sentence, ...] = ()
    """The answer's sentences; those no statement points at carry none."""
    citations: Citations | None = None
    """Precision and recall of the answer's citations; None where it cites nothing, or is unscored."""
    dropped_chunk_ids: int = 0
    """Chunk ids the LM named that do not exist in the context. Not shown as evidence."""
    dropped_quotes: int = 0
    """Quotes the LM gave that are in no chunk. Not shown as evidence."""
    fallbacks: int = 0
    """Statements that a joint reply left out or garbled, asked one by one."""
    stand_ins: int = 0
    """Sentences judged as written, as the LM's statements are missing, useless or leave something out."""
    escalated: int = 0
    """Whether (1) or not (0) the answer was escalated to the next judge (`escalate_to`)."""
    detail: str | None = None
    """Why the answer is unscored, or how many statements could not be judged."""
    usage: Usage = Usage()
    replayed: Usage = Usage()
    """Replies taken from the cache, which were paid for before; `usage` is what was paid now."""

    pretty: ClassVar[Callable[[Judgment], str]]
    to_html: ClassVar[Callable[[Judgment, str | Path], None]]
    """How it is shown is what `faith_dspy.report.judgment` adds: these two, `repr`, and its view in notebooks."""

    @cached_property
    def input(self) -> Any:
        """What was judged (`faith_dspy.io.inputs.AnswerInput`), which pages show; None for one that was read from a
        file. It is no field: neither dumped nor compared."""
        return None

    @model_validator(mode="after")
    def _scored_or_says_why(self) -> Judgment:
        if (self.score is None) != (self.unscored is not None):
            raise ValueError(
                f"score={self.score!r} does not go with unscored={self.unscored!r}: give exactly one"
            )
        if self.unscored is not None and any(
            v is not None for v in (self.faithful, self.probability, self.level)
        ):
            raise ValueError(
                "an unscored judgment has no faithful, probability or level"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return its public fields as plain JSON values, the same keys whether scored or not: what rows, frames, pages
        and adapters show of it. Left out are the answer's sentences and the features behind each confidence."""
        fields = self.model_dump(
            mode="json",
            exclude={"sentences": True, "statements": {"__all__": {"features"}}},
        )
        return fields | {"verdict_counts": self.verdict_counts}

    @property
    def verdict_counts(self) -> dict[str, int]:
        """Statements per verdict, every verdict a key; those without one count as ``unjudged``."""
        counts = dict.fromkeys((*(v.value for v in Verdict), "unjudged"), 0)
        return counts | Counter(
            s.verdict.value if s.verdict else "unjudged" for s in self.statements
        )

    @property
    def supported(self) -> int:
        """How many statements are fully supported."""
        return sum(s.is_supported is True for s in self.statements)

    @property
    def ranking(self) -> float | None:
        """What AUROC is measured on: the probability, else the weakest confidence of a statement, else the score."""
        if self.score is None or self.probability is not None:
            return self.probability
        confidences = [
            s.confidence for s in self.statements if s.confidence is not None
        ]
        lacking = [
            s for s in self.statements if s.confidence is None and not s.is_supported
        ]
        return min(confidences) if confidences and not lacking else self.score


class RawVerdict(Statement, extra="ignore"):
    """What the LM said about one statement, before evidence check and classifier."""

    label: str | None = None
    """The LM's own word for it."""
    verdict: Verdict | None = None
    probability: float | None = None
    """Of support; None if the LM gives none."""
    logit: float | None = None
    """Log-odds of support, clipped at ±6; ±2 for a label whose probability the LM does not give."""
    chunk_ids: tuple[int, ...] = ()
    quotes: tuple[str, ...] = ()
    reason: str | None = None
    level: float | None = Field(default=None, ge=0, le=1)
    """How much support its label stands for."""
    cited_support: bool | None = None
    """Whether the chunks that the answer cites for it support it alone; None where the LM was not asked."""
    error: str | None = None
    lm_failed: bool = False


class RawJudgment(_Frozen, extra="ignore"):
    """What the LM said about one answer, before evidence check and classifier: it can be scored again for free."""

    sentences: tuple[Sentence, ...] = ()
    raw_verdicts: tuple[RawVerdict, ...] = ()
    joint_fallbacks: int = 0
    extraction_fallbacks: int = 0
    scores: dict[str, float] = Field(default_factory=dict)
    """What other judges said of the answer, by column (`JudgeConfig.scores`); a higher number is more faithful."""
    escalated_to: RawJudgment | None = Field(
        default=None, validation_alias=AliasChoices("escalated_to", "escalated")
    )
    """That of the judge it was escalated to; ``escalated`` in exports of earlier versions."""
    usage: Usage = Usage()
    """Including that of the judges it was escalated to, and replies taken from the cache."""
    cached_usage: Usage = Field(default=Usage(), exclude=True)
    """The part of `usage` that came from the cache. It says nothing about the next run, and is not exported."""

    @property
    def last(self) -> RawJudgment:
        """That of the judge whose judgment stands."""
        return self.escalated_to or self

    def without_usage(self) -> RawJudgment:
        """Return the same without its cost, which differs each time."""
        following = self.escalated_to and self.escalated_to.without_usage()
        return self.model_copy(update={"usage": Usage(), "escalated_to": following})


class LabelledStatement(_Frozen, extra="ignore"):
    """A statement with a person's verdict; fields of others are left out."""

    text: str = Field(min_length=1)
    verdict: Verdict | None = None
    """A statement without one is not used."""
    supporting_chunk_ids: tuple[int, ...] | None = None
    reason: str | None = None


class LabelledExample(_Frozen):
    """One line of a labels file. Any one of `statements`, `faithful`, `score` is label enough."""

    id: str
    question: str | None = None
    context: tuple[Chunk, ...]
    answer: str
    statements: tuple[LabelledStatement, ...] = ()
    faithful: bool | None = None
    score: float | None = Field(default=None, ge=0, le=1)
    annotators: Any = None
    group: str | None = None
    """Examples of one group are never split between train, dev and test. Default: the context. A study writes the
    source here, which joins near-same contexts, too."""
    split: str | None = None
    """``train``, ``dev`` or ``test`` when the set fixes its parts."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Source, language, domain and the like, for results per group."""
    columns: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    """What else stands in its row, such as a topic or another judge's score: neither label nor text, and never
    written."""

    @property
    def label(self) -> bool | None:
        """Faithful or not: `faithful`, else all statements fully supported, else score 1; None when none is given."""
        if self.faithful is not None:
            return self.faithful
        if verdicts := [s.verdict for s in self.statements if s.verdict is not None]:
            return all(v.is_supported for v in verdicts)
        return None if self.score is None else self.score >= 1.0

    @property
    def labelled_by(self) -> str | None:
        """Who gave the label: ``person``, ``model`` or a name; None where the file does not say."""
        return self.tags.get("labelled_by")

    @property
    def group_key(self) -> str:
        """Their source: examples with the same one are never split, and are one draw of an interval."""
        return self.group or self.context_key

    @property
    def context_key(self) -> str:
        """Hash of the context's texts: equal for examples over the same document."""
        return digest([c.text for c in self.context])


def digest(value: Any) -> str:
    """Return sixteen hex digits of the SHA-256 of ``value`` as canonical JSON."""
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
