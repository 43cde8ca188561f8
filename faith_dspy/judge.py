"""What users call: question, context and answer in, a `Judgment` out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from faith_dspy.concurrency import in_order
from faith_dspy.config import JudgeConfig
from faith_dspy.conversation import from_conversation
from faith_dspy.errors import ConfigError, FaithDspyError, InputError, in_short
from faith_dspy.labels import as_chunks
from faith_dspy.schema import Judgment, Observation, Unscored, digest
from faith_dspy.scoring import by_policy, conclude, unscored
from faith_dspy.segment import declines, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from faith_dspy.calibration import Head
    from faith_dspy.lm import MeteredLM
    from faith_dspy.program import FaithfulnessProgram
    from faith_dspy.schema import Chunk, LabelledExample

_In = TypeVar("_In")
_Out = TypeVar("_Out")

THREADS = 8
"""Answers judged at the same time by an LM that is not embedded. The embedded one has a single slot: more would only
push each other's document out of its prefix cache."""
BYTES_PER_TOKEN = 2.5
"""Careful guess for the size of a window, of text as UTF-8; English has about 4, Hindi about 3."""


class Judge:
    """Judges whether answers say only what their context supports.

    Untuned, ``Judge(lm="local", granularity="sentence")``, it says what the LM says. A tuned one comes from
    `load_judge`; its verdicts, probability and pass mark were fitted to people's labels.

    ``lm`` is ``"local"`` (the embedded model), ``"local:FILE.gguf"``, any DSPy/LiteLLM model string, or a `dspy.LM`.
    It is contacted by the first judgment, not before. Other keywords are dials of `JudgeConfig`.
    """

    def __init__(
        self,
        lm: Any = "local",
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        config: JudgeConfig | None = None,
        head: Head | None = None,
        manifest: Mapping[str, Any] | None = None,
        **dials: Any,
    ) -> None:
        if config is not None and dials:
            raise ConfigError(f"give either config= or single dials, got both (dials: {', '.join(dials)})")
        self.config = config or JudgeConfig.make(**dials)
        self.head = head
        self.manifest = dict(manifest or {})
        """What an export says of its making; empty for an untuned judge."""
        self._given, self._api_base, self._api_key = lm, api_base, api_key
        self._lm: MeteredLM | None = None
        self._program: FaithfulnessProgram | None = None

    @property
    def program(self) -> FaithfulnessProgram:
        """The DSPy module inside."""
        if self._program is None:
            from faith_dspy.program import FaithfulnessProgram

            self._program = FaithfulnessProgram(self.config)
        return self._program

    @program.setter
    def program(self, program: FaithfulnessProgram) -> None:
        self._program = program

    @property
    def lm(self) -> MeteredLM:
        """The LM, made on first use."""
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
        """Hash of what its verdicts depend on: LM, dials, prompts with their examples, head. Where the LM is does not
        count."""
        predictors = [(p.signature.instructions, [dict(d) for d in p.demos]) for p in self.program.predictors()]
        head = self.head.model_dump(mode="json") if self.head else None
        return digest([self.lm_name, self.config.model_dump(mode="json"), predictors, head])

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

        Raises `InputError` for input of a wrong type, `LMUnavailableError` when the endpoint is not there. Whatever
        else goes wrong with the LM ends in an unscored judgment that says why.
        """
        question, chunks, answer = _record(question, context, answer, conversation)
        reason = self._not_judged(chunks, answer)
        if reason is not None:
            return reason
        return conclude(self.observe(question, chunks, answer), chunks, question, self.config, self.head)

    def observe(self, question: str | None, chunks: Sequence[Chunk], answer: str) -> Observation:
        """All LM calls about one answer, without conclusions."""
        import dspy

        from faith_dspy.lm import metered

        lm = self.lm
        if self.program.window is None and lm.endpoint.num_ctx:
            self.program.window = int(lm.endpoint.num_ctx * 0.7 * BYTES_PER_TOKEN)
        with metered() as meter, dspy.context(lm=lm, trace=None):  # a trace would keep 10,000 contexts
            prediction = self.program(context=chunks, answer=answer, question=question)
        return Observation(
            sentences=tuple(prediction.sentences),
            findings=tuple(prediction.findings),
            fallbacks=prediction.fallbacks,
            extraction=prediction.extraction,
            usage=meter.usage,
        )

    def _not_judged(self, chunks: Sequence[Chunk], answer: str) -> Judgment | None:
        nothing = Observation(sentences=sentences(answer))
        if not any(c.text.strip() for c in chunks):
            return unscored(Unscored.NO_CONTEXT, "there is no context to judge the answer by", nothing)
        if declines(answer):
            return by_policy(Unscored.ABSTAINED, self.config.abstention, nothing)
        if len(nothing.sentences) > self.config.max_statements:
            return unscored(
                Unscored.TOO_LONG,
                f"the answer has {len(nothing.sentences)} sentences, max_statements is {self.config.max_statements}",
                nothing,
            )
        return None

    async def acall(self, *args: Any, **kwargs: Any) -> Judgment:
        """As a call, without blocking the event loop."""
        return await asyncio.to_thread(self, *args, **kwargs)

    def observe_all(
        self, examples: Iterable[LabelledExample], num_threads: int | None = None
    ) -> Iterator[tuple[Observation, Judgment | None]]:
        """`observe` for labelled answers, in order; with the judgment where there is nothing to ask an LM about."""

        def one(example: LabelledExample) -> tuple[Observation, Judgment | None]:
            early = self._not_judged(example.context, example.answer)
            if early is not None:
                return Observation(sentences=early.sentences), early
            return self.observe(example.question, example.context, example.answer), None

        return self._in_order(one, examples, num_threads)

    def stream(
        self, records: Iterable[Mapping[str, Any] | InputError], num_threads: int | None = None
    ) -> Iterator[Judgment]:
        """Judge records (mappings with ``question``, ``context``, ``answer`` or ``conversation``) in their order.

        Only a few records are taken ahead, so that any number of them fits in memory. A record that cannot be judged
        comes back unscored and never ends the run – an `InputError` in a record's place says what is wrong with it; an
        endpoint that is not there ends it. Closing the stream, or Ctrl-C, begins nothing more and waits for nothing.
        """
        return self._in_order(self._safely, records, num_threads)

    def _in_order(self, work: Callable[[_In], _Out], items: Iterable[_In], num_threads: int | None) -> Iterator[_Out]:
        _ = self.program  # made once, before any thread; a dial it refuses is no fault of a record
        threads = num_threads or (1 if self.lm.endpoint.sha256 else THREADS)
        yield from map(work, items) if threads == 1 else in_order(work, items, threads)

    def batch(
        self, records: Iterable[Mapping[str, Any] | InputError], num_threads: int | None = None
    ) -> list[Judgment]:
        """`stream` as a list: one judgment per record, in order."""
        return list(self.stream(records, num_threads))

    def _safely(self, record: Mapping[str, Any] | InputError) -> Judgment:
        try:
            if isinstance(record, InputError):
                raise record
            if not isinstance(record, Mapping):
                raise InputError(f"record is {type(record).__name__}, expected a mapping with context and answer")
            if isinstance(record.get("error"), str) and not {"answer", "conversation"} & record.keys():
                raise InputError(record["error"])  # of a loader that could not read it
            return self(**{k: record.get(k) for k in ("question", "context", "answer", "conversation")})
        except InputError as exc:
            return unscored(Unscored.PARSE_FAILED, f"the record cannot be read: {exc}", Observation())
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - one bad record never ends a run
            return unscored(Unscored.LM_FAILED, in_short(exc), Observation())

    def save(self, folder: str | Path) -> None:
        """Write the judge as a folder of JSON and Markdown that `load_judge` reads."""
        from faith_dspy.artifact import save_judge

        save_judge(self, folder)

    def copy(self, **changes: Any) -> Self:
        """The same judge with other ``config``, ``head`` or ``manifest``; the LM is shared.

        Its prompts and examples are, too, unless a dial changes what is asked: then they are the seed's.
        """
        new = type(self)(
            self._given,
            api_base=self._api_base,
            api_key=self._api_key,
            **{"config": self.config, "head": self.head, "manifest": self.manifest, **changes},
        )
        new._lm = self._lm
        if new.config.asked == self.config.asked:
            new._program = self._program
        return new


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
