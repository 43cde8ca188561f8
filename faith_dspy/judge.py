"""What users call: question, context and answer in, a `Judgment` out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar

from faith_dspy.concurrency import awaited, in_order
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import ConfigError, FaithDspyError, InputError, in_short
from faith_dspy.io.conversation import from_conversation
from faith_dspy.io.labels import as_chunks
from faith_dspy.schema import Judgment, RawJudgment, Unscored, digest
from faith_dspy.scoring.score import by_policy, score_answer, unscored, unverified
from faith_dspy.text.sentences import declines, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from faith_dspy.lm import MeteredLM
    from faith_dspy.program.faithfulness import FaithfulnessProgram
    from faith_dspy.schema import Chunk, LabelledExample
    from faith_dspy.scoring.agreement import JudgeAgreement
    from faith_dspy.scoring.classifier import Classifier

_In = TypeVar("_In")
_Out = TypeVar("_Out")

THREADS = 8
"""Answers judged at the same time by an LM that is not embedded. The embedded one has a single slot: more would only
push each other's document out of its prefix cache."""
NO_LM = "none"
"""In place of a model string: a judge that asks no LM. Its classifier goes by lexical features alone."""
BYTES_PER_TOKEN = 2.5
"""Careful guess for the size of a window, of text as UTF-8; English has about 4, Hindi about 3."""


class Judge:
    """Judges whether answers say only what their context supports.

    Untuned, ``Judge(lm="local", granularity="sentence")``, it says what the LM says. A tuned one comes from
    `load_judge`; its verdicts, probability and threshold were fitted to people's labels.

    ``lm`` is ``"local"`` (the embedded model), ``"local:FILE.gguf"``, any DSPy/LiteLLM model string, or a `dspy.LM`.
    It is contacted by the first judgment, not before. With ``"none"`` no LM is asked: the judge goes by lexical features alone,
    and needs a classifier that does. Other keywords are options of `JudgeConfig`.

    ``escalate_to`` is the judge that is asked where this one leaves an answer open: another `Judge`, an LM (the same
    options on that one), or a mapping of the options that change (``{"reasoning": "before"}``; ``lm`` may be among them).
    Left open is what lies in the review_range of a tuned judge's classifier, or within the option `uncertain` of an untuned one, and
    what the LM failed on. Then the other's judgment stands, with the usage of both. It may hand on in its turn.
    """

    def __init__(
        self,
        lm: Any = "local",
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        config: JudgeConfig | None = None,
        classifier: Classifier | None = None,
        manifest: Mapping[str, Any] | None = None,
        escalate_to: Any = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise ConfigError(f"give either config= or single options, got both (options: {', '.join(options)})")
        self.config = config or JudgeConfig.make(**options)
        self.classifier = classifier
        self.manifest = dict(manifest or {})
        """What an export says of its making; empty for an untuned judge."""
        self._given, self._api_base, self._api_key = lm, api_base, api_key
        self._lm: MeteredLM | None = None
        self._program: FaithfulnessProgram | None = None
        if not self.asks_lm:
            self._check_words()
        self.escalate_to: Judge | None = self._next(escalate_to)

    def _check_words(self) -> None:
        stage = self.classifier.statement if self.classifier else None
        if stage is None or any(n == "lm" or n.startswith("lm:") for n in stage.names):
            raise ConfigError(
                f"lm={NO_LM!r} asks no LM, so it needs a classifier= that goes by lexical features alone; `faith-dspy tune` fits one."
            )
        if self.config.granularity is Granularity.STATEMENT:
            raise ConfigError(f"lm={NO_LM!r} cannot take statements from an answer; set granularity='sentence'.")

    def _next(self, given: Any) -> Judge | None:
        if given is None or isinstance(given, Judge):
            return given
        if not isinstance(given, Mapping):
            return Judge(given, config=self.config)
        changed = {k: v for k, v in given.items() if k != "lm"}
        kept = self.config.model_dump(exclude_unset=True, exclude={"instructions"} if "verdicts" in changed else None)
        config = JudgeConfig.make(**{**kept, **changed})
        if "lm" in given:
            return Judge(given["lm"], config=config)
        return Judge(self._given, api_base=self._api_base, api_key=self._api_key, config=config)

    @property
    def asks_lm(self) -> bool:
        """Whether it asks an LM itself."""
        return not (isinstance(self._given, str) and self._given == NO_LM)

    @property
    def chain(self) -> tuple[Judge, ...]:
        """This judge, and those it hands answers on to, in their order."""
        return (self, *(self.escalate_to.chain if self.escalate_to else ()))

    @property
    def lms(self) -> list[MeteredLM]:
        """The LMs of the chain, each once."""
        made = [j.lm for j in self.chain if j.asks_lm]
        return list({(lm.model, lm.endpoint): lm for lm in made}.values())

    def ready(self) -> list[MeteredLM]:
        """Make the prompts and LMs of the whole chain, so that no two threads do; its LMs."""
        for judge in self.chain:
            _ = judge.asks_lm and judge.program
        return self.lms

    def preflight(self) -> None:
        """`LMUnavailableError` unless every LM that it may ask answers."""
        from faith_dspy.lm import preflight

        for lm in self.lms:
            preflight(lm)

    @property
    def program(self) -> FaithfulnessProgram:
        """The DSPy module inside."""
        if self._program is None:
            from faith_dspy.program.faithfulness import FaithfulnessProgram

            self._program = FaithfulnessProgram(self.config)
        return self._program

    @program.setter
    def program(self, program: FaithfulnessProgram) -> None:
        self._program = program

    @property
    def lm(self) -> MeteredLM:
        """The LM, made on first use. `ConfigError` where none is asked."""
        if not self.asks_lm:
            raise ConfigError("this judge asks no LM (lm='none'); `lms` are those of the judges it escalates to.")
        if self._lm is None:
            from faith_dspy.lm import MeteredLM, make_lm

            if isinstance(self._given, str):
                self._lm = make_lm(self._given, api_base=self._api_base, api_key=self._api_key)
            else:
                self._lm = MeteredLM.adopt(self._given)
        return self._lm

    @property
    def lm_name(self) -> str:
        """The model string it was made with, as `make_lm` takes it."""
        return self._given if isinstance(self._given, str) else str(self._given.model)

    @property
    def fingerprint(self) -> str:
        """Hash of what its verdicts depend on: LM, options, prompts with their examples, classifier, and the same of the judge
        it escalates to. Where the LM is does not count."""
        asked = self.program.predictors() if self.asks_lm else []
        predictors = [(p.signature.instructions, [dict(d) for d in p.demos]) for p in asked]
        classifier = self.classifier.model_dump(mode="json") if self.classifier else None
        parts = [self.lm_name, self.config.model_dump(mode="json"), predictors, classifier]
        return digest([*parts, self.escalate_to.fingerprint] if self.escalate_to else parts)

    def __call__(
        self,
        question: str | None = None,
        context: Any = None,
        answer: str | None = None,
        conversation: Sequence[Mapping[str, Any]] | None = None,
    ) -> Judgment:
        """Judge one answer.

        ``context``: texts, `Chunk` objects or mappings with ``text``. Instead of context and answer, ``conversation``
        takes messages with ``role`` and ``content``: the last assistant message is judged against all before it.

        Raises `InputError` for input of a wrong type. Whatever goes wrong with the LM ends in an unscored judgment that
        says why; `preflight` finds out before any work whether it answers.
        """
        question, chunks, answer = _record(question, context, answer, conversation)
        reason = self._not_judged(chunks, answer)
        if reason is not None:
            return reason
        return self.score_answer(self.verify(question, chunks, answer), chunks, question)

    def verify(self, question: str | None, chunks: Sequence[Chunk], answer: str) -> RawJudgment:
        """All LM calls about one answer, without conclusions but for who else has to be asked."""
        seen = self._ask(question, chunks, answer) if self.asks_lm else unverified(answer)
        if self.escalate_to is None or not self.should_escalate(self.score_answer(seen, chunks, question)):
            return seen
        more = self.escalate_to.verify(question, chunks, answer)
        return seen.model_copy(update={"escalated": more, "usage": seen.usage + more.usage})

    def score_answer(self, seen: RawJudgment, chunks: Sequence[Chunk], question: str | None) -> Judgment:
        """The judgment on what was observed, by the last judge that was asked. No LM call."""
        if seen.escalated is None or self.escalate_to is None:
            return score_answer(seen, chunks, question, self.config, self.classifier)
        last = self.escalate_to.score_answer(seen.escalated, chunks, question)
        return last.model_copy(update={"usage": seen.usage, "escalated": last.escalated + 1})

    def should_escalate(self, judgment: Judgment) -> bool:
        """Whether a judgment of its own is too uncertain to stand, or could not be drawn because of the LM."""
        if judgment.unscored is not None:
            return judgment.unscored in (Unscored.PARSE_FAILED, Unscored.LM_FAILED)
        if any(s.verdict is None for s in judgment.statements):
            return True
        low, high = (
            self.classifier.review_range if self.classifier and self.classifier.review_range else self.config.uncertain
        )
        return judgment.ranking is not None and bool(judgment.statements) and low <= judgment.ranking < high

    def _ask(self, question: str | None, chunks: Sequence[Chunk], answer: str) -> RawJudgment:
        from faith_dspy.lm import metered
        from faith_dspy.program.adapter import ADAPTER, called

        lm, program = self.lm, self.program
        if program.window is None and lm.endpoint.num_ctx:
            program.window = int(lm.endpoint.num_ctx * 0.7 * BYTES_PER_TOKEN)
        with metered(lm=lm, trace=None, adapter=ADAPTER) as meter:  # a trace would keep 10,000 contexts
            inputs = {"context": chunks, "answer": answer, "question": question}
            prediction = called(program, **inputs, ask_about=self.config.ask_about)
        return RawJudgment(
            sentences=tuple(prediction.sentences),
            raw_verdicts=tuple(prediction.raw_verdicts),
            fallbacks=prediction.fallbacks,
            extraction=prediction.extraction,
            usage=meter.usage,
        )

    def _not_judged(self, chunks: Sequence[Chunk], answer: str) -> Judgment | None:
        parts = sentences(answer)
        if not any(c.text.strip() for c in chunks):
            why = "there is no context to judge the answer by"
            return unscored(Unscored.NO_CONTEXT, why, RawJudgment(sentences=parts))
        if declines(answer):
            return by_policy(Unscored.ABSTAINED, self.config.abstention, RawJudgment(sentences=parts))
        if len(parts) > self.config.max_statements:
            why = f"the answer has {len(parts)} sentences, max_statements is {self.config.max_statements}"
            return unscored(Unscored.TOO_LONG, why, RawJudgment(sentences=parts))
        return None

    async def acall(self, *args: Any, **kwargs: Any) -> Judgment:
        """As a call, without blocking the event loop; up to 256 at a time in a process.

        Cancelled, it asks nothing more.
        """
        return await awaited(partial(self, *args, **kwargs))

    def verify_all(
        self, examples: Iterable[LabelledExample], num_threads: int | None = None
    ) -> Iterator[tuple[RawJudgment, Judgment | None]]:
        """`verify` for labelled answers, in order; with the judgment where there is nothing to ask an LM about."""

        def one(example: LabelledExample) -> tuple[RawJudgment, Judgment | None]:
            early = self._not_judged(example.context, example.answer)
            if early is not None:
                return RawJudgment(sentences=early.sentences), early
            return self.verify(example.question, example.context, example.answer), None

        return self._in_order(one, examples, num_threads)

    def stream(
        self, records: Iterable[Mapping[str, Any] | InputError], num_threads: int | None = None
    ) -> Iterator[Judgment]:
        """Judge records (mappings with ``question``, ``context``, ``answer`` or ``conversation``) in their order.

        At most twice ``num_threads`` records are taken ahead, so that any number of them fits in memory. A record that
        cannot be judged comes back unscored and never ends the run, an LM that fails likewise (see `preflight`); an
        `InputError` in a record's place says what is wrong with it. Closing the stream, or Ctrl-C, begins nothing more
        and waits for nothing.
        """
        return self._in_order(self._safely, records, num_threads)

    def _in_order(self, work: Callable[[_In], _Out], items: Iterable[_In], num_threads: int | None) -> Iterator[_Out]:
        if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 0):
            raise ConfigError(
                f"num_threads is {num_threads!r}, expected a whole number from 1, or None for the default."
            )
        lms = self.ready()  # before any thread; a option it refuses is no fault of a record
        threads = num_threads or (THREADS if lms and not any(lm.endpoint.sha256 for lm in lms) else 1)
        yield from map(work, items) if threads == 1 else in_order(work, items, threads)

    def batch(
        self, records: Iterable[Mapping[str, Any] | InputError], num_threads: int | None = None
    ) -> list[Judgment]:
        """One judgment per record, in their order.

        As `stream`, but answers over one context are judged after each other, so that the LM's prefix cache holds it.
        """
        records = list(records)
        first: dict[int, int] = {}
        turns = sorted(range(len(records)), key=lambda i: first.setdefault(_same_context(records[i], i), i))
        judged = dict(zip(turns, self.stream((records[i] for i in turns), num_threads), strict=True))
        return [judged[i] for i in range(len(records))]

    def agreement(
        self, labelled: str | Path | Sequence[LabelledExample], num_threads: int | None = None
    ) -> JudgeAgreement:
        """Judge labelled answers and measure the agreement with people on answers, statements and evidence.

        ``labelled``: a labels file, or examples. Labels that the judge was tuned on say nothing about new answers. See
        `measure_agreement` for how each level is compared; needs the ``tune`` extra.
        """
        from faith_dspy.io.labels import read_labels
        from faith_dspy.scoring.agreement import measure_agreement

        examples = read_labels(labelled) if isinstance(labelled, str | PathLike) else list(labelled)
        records = [{"question": e.question, "context": e.context, "answer": e.answer} for e in examples]
        return measure_agreement(examples, self.batch(records, num_threads))

    def _safely(self, record: Mapping[str, Any] | InputError) -> Judgment:
        def unread(why: object) -> Judgment:
            return unscored(Unscored.PARSE_FAILED, f"the record cannot be read: {why}", RawJudgment())

        if isinstance(record, InputError):
            return unread(record)
        if not isinstance(record, Mapping):
            return unread(f"record is {type(record).__name__}, expected a mapping with context and answer")
        if isinstance(record.get("error"), str) and not {"answer", "conversation"} & record.keys():
            return unread(record["error"])  # of a loader that could not read it
        try:
            return self(**{k: record.get(k) for k in ("question", "context", "answer", "conversation")})
        except InputError as exc:
            return unread(exc)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - one bad record never ends a run
            return unscored(Unscored.LM_FAILED, in_short(exc), RawJudgment())

    def save(self, folder: str | Path) -> None:
        """Write the judge as a folder of JSON and Markdown that `load_judge` reads."""
        from faith_dspy.artifact import save_judge

        save_judge(self, folder)

    def copy(self, **changes: Any) -> Self:
        """The same judge with other ``config``, ``classifier``, ``manifest`` or ``escalate_to``; the LM is shared.

        Its prompts and examples are, too, unless a option changes what is asked: then they are the seed's.
        """
        new = type(self)(
            self._given,
            api_base=self._api_base,
            api_key=self._api_key,
            **{
                "config": self.config,
                "classifier": self.classifier,
                "manifest": self.manifest,
                "escalate_to": self.escalate_to,
                **changes,
            },
        )
        new._lm = self._lm
        if new.config.asked == self.config.asked:
            new._program = self._program
        return new


def _same_context(record: Any, i: int) -> int:
    """Equal for records over one context; ``i`` for one without."""
    context = record.get("context") if isinstance(record, Mapping) else None
    return i if context is None else hash(repr(context))


def _record(question: Any, context: Any, answer: Any, conversation: Any) -> tuple[str | None, tuple[Chunk, ...], str]:
    if conversation is not None:
        if context is not None or answer is not None:
            raise InputError("give either conversation, or context and answer; got both")
        question, context, answer = from_conversation(conversation)
    if question is not None and not isinstance(question, str):
        raise InputError(f"question is {type(question).__name__}, expected text or None")
    if not isinstance(answer, str):
        raise InputError(f"answer is {type(answer).__name__}, expected text")
    chunks = as_chunks(context)
    try:
        "".join((question or "", answer, *(c.text for c in chunks))).encode()
    except UnicodeEncodeError as exc:
        raise InputError("the text holds half a character (an unpaired surrogate), expected Unicode text") from exc
    return question, chunks, answer
