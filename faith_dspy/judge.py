"""What users call: question, context and answer in, a `Judgment` out."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from functools import cached_property, partial
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import (
    ConfigError,
    FaithDspyError,
    LMUnavailableError,
    need,
    short_message,
)
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.labels import read_labels
from faith_dspy.io.readers import is_table, open_records, read_inputs, with_judgments
from faith_dspy.lm.addresses import provider_of
from faith_dspy.lm.make import decision_model, is_local
from faith_dspy.schema import (
    Chunk,
    Judgment,
    LabelledExample,
    RawJudgment,
    Unscored,
    digest,
)
from faith_dspy.scoring.citations import needs_verdict
from faith_dspy.scoring.classifier import Classifier, default_classifier, describe_fit
from faith_dspy.scoring.score import (
    early_judgment,
    raw_judgment_without_lm,
    score_answer,
    unscored,
)

if TYPE_CHECKING:  # they load DSPy or numpy
    from faith_dspy.lm.metered import MeteredLM
    from faith_dspy.program.program import FaithfulnessProgram
    from faith_dspy.scoring.agreement import JudgeAgreement

log = getLogger(__name__)
THREADS = 8  # answers judged at the same time, unless the LM is embedded
NO_LM = "none"  # in place of a model string: no LM, lexical features alone
NEEDS_TEXT_OUTPUT: dict[str, tuple[Any, ...]] = {
    "granularity": ("statement",),
    "reasoning": ("after", "before"),
    "cite": (True,),
    "quote": (True,),
    "confidence": ("samples",),
}
"""Options, and their values, that need an LM that writes text."""


class Judge:
    """Judges whether answers say only what their context supports.

    ``Judge(lm="local")`` has the default classifier, fitted to public labels and none of the user's; with
    ``classifier=None`` it is untuned and reports what the LM says. `load_judge` gives one tuned on the user's labels.

    ``lm`` is ``"local"`` (the embedded model), ``"local:FILE.gguf"``, any DSPy/LiteLLM model string, a `dspy.LM`, or a
    decision model: ``"typesafe/NAME"``, or a `dspy.experimental.TypeSafe`.
    It is contacted by the first judgment, not before. With ``"none"`` no LM is asked: lexical features decide.
    ``api_base``, ``api_key``, ``timeout`` (seconds a call may take, its retries included), ``context_window`` (tokens;
    longer contexts are read window by window) and ``thinking_tokens`` are as for `faith_dspy.lm.make.make_lm`. Other
    keywords are options of `JudgeConfig`.

    ``escalate_to`` is the judge that is asked where this one's probability is in the review range of its classifier (or
    options), or its LM failed; or an LM with the same options. Its judgment then stands, with the usage of both.
    """

    def __init__(
        self,
        lm: Any = "local",
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        config: JudgeConfig | None = None,
        classifier: Classifier | Literal["default"] | None = "default",
        manifest: Mapping[str, Any] | None = None,
        escalate_to: Any = None,
        timeout: float | None = None,
        context_window: int | None = None,
        thinking_tokens: int | None = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise ConfigError(
                f"give either config= or single options, got both (options: {', '.join(options)})"
            )
        if not lm or not (isinstance(lm, str) or hasattr(lm, "model")):
            raise ConfigError(
                f"lm is {lm!r}; expected 'local', a model string like openai/gpt-4o-mini, or a dspy.LM."
            )
        lm = lm.strip() if isinstance(lm, str) else lm
        self.config = config or JudgeConfig.make(**options)
        self._given = lm
        self._uses_default = classifier == "default"
        self._classifier = (
            default_classifier(self.lm_name, self.config)
            if classifier == "default"
            else classifier
        )
        self.fitted_prompts: str | None = None
        """Hash of the prompts that the classifier was fitted with; None: the seed's."""
        self._said_unfitted = False
        self.manifest = dict(manifest or {})
        """What an export says of its making; empty for a judge that was not loaded from one."""
        self._endpoint: dict[str, Any] = {
            "api_base": api_base,
            "api_key": api_key,
            "timeout": timeout,
            "context_window": context_window,
            "thinking_tokens": thinking_tokens,
        }
        needing = [
            f"{k}={v!r}"
            for k, v in self.config.program_options.items()
            if v in NEEDS_TEXT_OUTPUT.get(k, ())
        ]
        if needing and decision_model(lm):
            raise ConfigError(
                f"{self.lm_name} answers questions with probabilities and writes no text; {needing[0]} needs an LM "
                "that writes. Leave it out, or name such an LM."
            )
        if not self.asks_lm:
            usual = JudgeConfig().program_options
            odd = [
                f"{k}={v!r}"
                for k, v in self.config.program_options.items()
                if v != usual[k]
            ]
            if self._uses_default and self.config.threshold is not None:
                odd.append(f"threshold={self.config.threshold}")
            if self._classifier is None or "lm" in self._classifier.statement.names:
                odd.append("a classifier of its own (--untuned)")
            if odd:
                raise ConfigError(
                    f"lm={NO_LM!r} judges by lexical features and the default classifier; {odd[0]} needs an LM. "
                    "Leave it out, or name an LM."
                )
        if not (escalate_to is None or isinstance(escalate_to, Judge)):
            settings = {
                "timeout": timeout,
                "thinking_tokens": thinking_tokens,
            } | self._shared_address(escalate_to)
            escalate_to = Judge(
                escalate_to,
                config=self.config,
                classifier=classifier and "default",
                **settings,
            )
        if escalate_to is not None and escalate_to.escalate_to is not None:
            raise ConfigError(
                "escalate_to is a judge that escalates itself; a cascade has two judges."
            )
        self.escalate_to: Judge | None = escalate_to

    def __repr__(self) -> str:
        return f"<Judge {self.lm_name!r}, by {self.config.granularity.value}, {describe_fit(self.classifier)}>"

    def _shared_address(self, second: Any) -> dict[str, Any]:
        """Return address and key for the second LM of a cascade: the first one's, where one provider serves both."""
        address = {name: self._endpoint[name] for name in ("api_base", "api_key")}
        if not isinstance(self._given, str):
            address = {name: self._given.kwargs.get(name) for name in address}
        if not isinstance(second, str) or is_local(second) or not any(address.values()):
            return {}
        if self.asks_lm and provider_of(second) != provider_of(self.lm_name):
            raise ConfigError(
                f"escalate_to={second!r} is another provider's than {self.lm_name}, whose address and key are not its "
                "own: give a Judge with its own, escalate_to=Judge(…, api_base=…, api_key=…)."
            )
        return address

    @property
    def classifier(self) -> Classifier | None:
        """Numbers fitted on labels; None for an untuned judge, and while the prompts are not those it was fitted with.

        A judge whose prompts were compiled or changed reports what the LM says until it is fitted again.
        """
        if self._classifier is None or not self.has_changed_prompts:
            return self._classifier
        if not self._said_unfitted:
            self._said_unfitted = True
            log.warning(
                "the prompts have changed since the classifier was fitted: neither it nor its thresholds and agreement "
                "figures are used until the judge is fitted again (judge.fit(labelled), or a study)."
            )
        return None

    @classifier.setter
    def classifier(self, classifier: Classifier | None) -> None:
        self._classifier, self._uses_default = classifier, False
        self.fitted_prompts = (
            self.program.prompts_hash if "program" in vars(self) else None
        )

    @property
    def has_changed_prompts(self) -> bool:
        """Whether the prompts are others than those that the classifier was fitted with."""
        if "program" not in vars(self):
            return False
        if self.fitted_prompts is None:
            self.fitted_prompts = type(self.program)(self.config).prompts_hash
        return self.program.prompts_hash != self.fitted_prompts

    @cached_property
    def program(self) -> FaithfulnessProgram:
        """The `dspy.Module` inside. It can be called, compiled by any optimizer of DSPy, and replaced by the result."""
        from faith_dspy.program.program import FaithfulnessProgram

        return FaithfulnessProgram(self.config)

    @cached_property
    def lm(self) -> MeteredLM:
        """The LM, made on first use. `ConfigError` if the judge asks none."""
        if not self.asks_lm:
            raise ConfigError(
                "this judge asks no LM (lm='none'); `lms` are those of the judges it escalates to."
            )
        from faith_dspy.export import require_endpoint
        from faith_dspy.lm.capabilities import Capabilities
        from faith_dspy.lm.make import make_lm, to_metered_lm

        stored = self.manifest.get("lm") or {}
        if isinstance(self._given, str):
            require_endpoint(stored, self.lm_name, self._endpoint["api_base"])
            lm = make_lm(self._given, **self._endpoint)
        else:
            lm = to_metered_lm(
                self._given,
                **{
                    name: self._endpoint[name] for name in ("timeout", "context_window")
                },
            )
        known = stored.get("capabilities")
        is_same = (
            stored.get("model") == self.lm_name
            and stored.get("api_base_hash") == lm.endpoint.salt
        )
        if known and is_same and not lm.capabilities.answered:
            lm.capabilities = Capabilities.model_validate(known)
        return lm

    @property
    def lm_name(self) -> str:
        """The model string it was made with, as `make_lm` takes it."""
        given = self._given if isinstance(self._given, str) else str(self._given.model)
        return decision_model(self._given) or given

    @property
    def context_window(self) -> int | None:
        """Tokens of the LM's prompt and reply together, if it was given."""
        window: int | None = self._endpoint["context_window"]
        return window

    @property
    def asks_lm(self) -> bool:
        """Whether it asks an LM itself."""
        return not (isinstance(self._given, str) and self._given == NO_LM)

    @property
    def cascade(self) -> tuple[Judge, ...]:
        """This judge and the one it escalates to."""
        return (self,) if self.escalate_to is None else (self, self.escalate_to)

    @property
    def lms(self) -> list[MeteredLM]:
        """The LMs of the chain, each once."""
        return list(
            {
                (j.lm.model, j.lm.endpoint): j.lm for j in self.cascade if j.asks_lm
            }.values()
        )

    @property
    def default_threads(self) -> int:
        """`THREADS`; 1 without an LM, or with an embedded one, whose prefix cache holds one context."""
        return (
            THREADS
            if self.lms and not any(lm.endpoint.sha256 for lm in self.lms)
            else 1
        )

    @property
    def fingerprint(self) -> str:
        """Hash of all that verdicts depend on: LM, options, prompts, classifier, and those of `escalate_to`."""
        predictors = self.program.shown_prompts if self.asks_lm else []
        classifier = (
            self.classifier.model_dump(mode="json") if self.classifier else None
        )
        following = [self.escalate_to.fingerprint] if self.escalate_to else []
        return digest(
            [
                self.lm_name,
                self.config.model_dump(mode="json"),
                predictors,
                classifier,
                *following,
            ]
        )

    def prepare(self) -> list[MeteredLM]:
        """Make the programs and LMs of the whole chain, so that no two threads do; returns the LMs."""
        for judge in self.cascade:
            _ = judge.asks_lm and judge.program
        return self.lms

    def preflight(self) -> None:
        """`LMUnavailableError` unless every LM of the chain answers."""
        from faith_dspy.lm.make import preflight

        for lm in self.lms:
            preflight(lm)

    def __call__(
        self,
        question: str | None = None,
        context: Any = None,
        answer: str | None = None,
        conversation: Any = None,
    ) -> Judgment:
        """Judge one answer.

        ``context``: texts, `Chunk` objects or mappings with ``text``. Instead of context and answer, ``conversation``
        takes messages with ``role`` and ``content``: the last assistant message is judged against all before it.

        Raises `InputError` for input of a wrong type, and `LMUnavailableError` for an LM that never answered, because
        its address, its key or its name is wrong. Any other fault of the LM gives an unscored judgment that says why.
        """
        return self.judge_input(
            AnswerInput.make(question, context, answer, conversation)
        )[1]

    async def acall(self, *args: Any, **kwargs: Any) -> Judgment:
        """Judge without blocking the event loop, at most DSPy's ``async_max_workers`` at a time. Once cancelled, it
        makes no further LM call."""
        from faith_dspy.lm.metered import run_async

        return await run_async(partial(self, *args, **kwargs))

    def batch(
        self, records: Any, num_threads: int | None = None, *, progress: bool = False
    ) -> Any:
        """One judgment per record, in their order; of a pandas frame or a Hugging Face `Dataset`, the same with columns
        ``judge_score`` …. ``records`` may also be a file, or a single mapping.

        Like `stream`, but answers over the same context are judged one after the other, for the LM's prefix cache. If
        the endpoint dies, those not judged by then come back unscored. ``progress``: show a bar.
        """
        inputs = read_inputs(records)
        first: dict[tuple[Chunk, ...], int] = {}
        order = sorted(
            range(len(inputs)), key=lambda i: first.setdefault(inputs[i].chunks, i)
        )
        found: Iterable[Judgment] = (
            j for _, j in self._judge_all((inputs[i] for i in order), num_threads)
        )
        if progress:
            from tqdm import tqdm

            found = tqdm(found, "judging", len(inputs), leave=False, mininterval=1)
        judged: dict[int, Judgment] = {}
        try:
            judged.update(zip(order, found, strict=True))
        except LMUnavailableError as exc:
            if not any(
                judgment.usage.calls or judgment.replayed.calls
                for judgment in judged.values()
            ):
                raise  # it never answered: a key, a name or an address is wrong
            dead = unscored(Unscored.LM_FAILED, str(exc), RawJudgment())
            judged = {
                i: dead.model_copy(update={"id": inputs[i].id}) for i in order
            } | judged
        ordered = [judged[i] for i in range(len(inputs))]
        return with_judgments(records, ordered) if is_table(records) else ordered

    async def abatch(
        self, records: Any, num_threads: int | None = None
    ) -> list[Judgment]:
        """`batch`, as `acall`."""
        from faith_dspy.lm.metered import run_async

        return await run_async(partial(self.batch, records, num_threads))

    def stream(
        self, records: Any, num_threads: int | None = None
    ) -> Generator[Judgment, None, None]:
        """Judge what `batch` takes, in its order: records (mappings with ``question``, ``context``, ``answer`` or
        ``conversation``), a file, a table. Other libraries' names and objects are understood (`AnswerInput.of`); a
        judgment has its record's ``id``.

        At most twice ``num_threads`` records are read ahead. A record that cannot be judged comes back unscored, as
        does one that the LM failed on. Closing the stream, or Ctrl-C, begins no further LM call and waits for those in
        flight. Raises `LMUnavailableError` after 20 calls in a row to which the endpoint had no answer.
        """
        if isinstance(records, str | PathLike | Mapping) or is_table(records):
            with open_records(records) as opened:
                yield from (
                    judgment
                    for _, judgment in self._judge_all(
                        map(AnswerInput.of, opened), num_threads
                    )
                )
        else:
            yield from (
                judgment
                for _, judgment in self._judge_all(
                    map(AnswerInput.of, records), num_threads
                )
            )

    def agreement(
        self, labelled: Any, num_threads: int | None = None
    ) -> JudgeAgreement:
        """Judge labelled answers and measure the agreement with people on answers, statements and evidence.

        ``labelled``: labels as `faith_dspy.tune` takes them. Those that the judge was tuned on say nothing about new
        answers. See `measure_agreement` for how each level is compared; needs the ``tune`` extra.
        """
        need("numpy", "Measuring agreement")  # before anything is judged
        from faith_dspy.scoring.agreement import measure_agreement

        examples = read_labels(labelled)
        return measure_agreement(examples, self.batch(examples, num_threads))

    def fit(
        self,
        labelled: Any,
        method: Literal["features", "lm", "default"] = "features",
        *,
        operating_point: str = "balanced",
        num_threads: int | None = None,
    ) -> Self:
        """Judge labelled answers, and fit a classifier and thresholds to the replies of these prompts.

        Args:
            labelled: labels as `faith_dspy.tune` takes them, both kinds over at least two contexts each.
            method: ``features``, the LM with lexical features (without an LM these alone); ``lm``, the LM calibrated:
                slope, offset and threshold, nothing else; ``default``, the shipped classifier, where there is one for
                these replies, with a slope, offset and threshold of its own.
            operating_point: what the threshold is for, as in `faith_dspy.tune`.
            num_threads: answers that are judged at the same time.

        Returns:
            The fitted judge; this one stays as it is. How far it agrees with people, other labels say: `agreement`.

        Raises:
            InputError: the labels, or those whose answers could be judged, are too few.
        """
        need("scipy", "Fitting a judge")
        from faith_dspy.optimize.select.candidates import fit_on_labels

        return fit_on_labels(
            self, read_labels(labelled), method, operating_point, num_threads
        )

    def stream_raw(
        self, examples: Iterable[LabelledExample], num_threads: int | None = None
    ) -> Iterator[tuple[RawJudgment, Judgment]]:
        """What the LMs say about labelled answers, in order, and the judgments on it: what a study keeps."""
        return self._judge_all(map(AnswerInput.of, examples), num_threads)

    def score_answer(
        self, raw: RawJudgment, chunks: Sequence[Chunk], question: str | None
    ) -> Judgment:
        """The judgment on what the LMs said, by the last judge that was asked."""
        if raw.escalated is None or self.escalate_to is None:
            return score_answer(raw, chunks, question, self.config, self.classifier)
        judgment = self.escalate_to.score_answer(raw.escalated, chunks, question)
        return judgment.model_copy(
            update={
                "usage": raw.usage - raw.replayed,
                "replayed": raw.replayed,
                "escalated": 1,
            }
        )

    def should_escalate(self, judgment: Judgment) -> bool:
        """Whether a judgment of its own is too uncertain to stand, or is missing because the LM failed."""
        if judgment.unscored is not None:
            return judgment.unscored in (
                Unscored.PARSE_FAILED,
                Unscored.LM_FAILED,
                Unscored.LANGUAGE,
            )
        if any(
            s.verdict is None or s.features.get("contradictions")
            for s in judgment.statements
        ):
            return True
        low, high = (
            self.classifier and self.classifier.review_range
        ) or self.config.review_range
        return (
            judgment.ranking is not None
            and bool(judgment.statements)
            and low <= judgment.ranking < high
        )

    def judge_input(self, given: AnswerInput) -> tuple[RawJudgment, Judgment]:
        """What the LMs say about one answer, and the judgment on it: every call, batch, run and study comes here."""
        if given.problem is not None:
            raw = RawJudgment()
            return raw, unscored(
                Unscored.PARSE_FAILED,
                f"the record cannot be read: {given.problem}",
                raw,
            )
        if early := early_judgment(given.chunks, given.answer, self.config):
            return RawJudgment(sentences=early.sentences), early
        raw = self.ask(given)
        judgment = self.score_answer(raw, given.chunks, given.question)
        if self.asks_lm and any(map(needs_verdict, judgment.statements)):
            raw = self._ask_about_citations(raw, judgment, given)
            judgment = self.score_answer(raw, given.chunks, given.question)
        if self.escalate_to is not None and self.should_escalate(judgment):
            following, _ = self.escalate_to.judge_input(given)
            spent = {
                "usage": raw.usage + following.usage,
                "replayed": raw.replayed + following.replayed,
            }
            raw = raw.model_copy(update={"escalated": following, **spent})
            judgment = self.score_answer(raw, given.chunks, given.question)
        return raw, judgment

    def _ask_about_citations(
        self, raw: RawJudgment, judgment: Judgment, given: AnswerInput
    ) -> RawJudgment:
        """Ask once more about each statement that is supported by other chunks than it cites, on the cited alone."""
        verdicts, usage, replayed = [], raw.usage, raw.replayed
        by_id = {chunk.id: chunk for chunk in given.chunks}
        for verdict, statement in zip(
            raw.raw_verdicts, judgment.statements, strict=True
        ):
            if needs_verdict(statement):
                cited = tuple(by_id[i] for i in statement.cited_chunk_ids)
                alone = self.ask(
                    AnswerInput(given.question, cited, statement.text), split=False
                )
                usage, replayed = usage + alone.usage, replayed + alone.replayed
                supported = [
                    v.verdict is not None and v.verdict.is_supported
                    for v in alone.raw_verdicts
                ]
                if not any(v.verdict is None for v in alone.raw_verdicts):
                    verdict = verdict.model_copy(
                        update={"cited_support": bool(supported) and all(supported)}
                    )
            verdicts.append(verdict)
        return raw.model_copy(
            update={
                "raw_verdicts": tuple(verdicts),
                "usage": usage,
                "replayed": replayed,
            }
        )

    def ask(self, given: AnswerInput, *, split: bool = True) -> RawJudgment:
        """What the LM of this judge says about one answer; without ``split`` about each of its sentences as written."""
        if not self.asks_lm:
            return raw_judgment_without_lm(given.answer)
        from faith_dspy.lm.metered import metered

        program = self.program
        if not split and program.extract is not None:
            program = copy(program)
            program.extract = None
        with metered(
            lm=self.lm, trace=None
        ) as meter:  # a trace would keep 10,000 contexts
            prediction = program(
                context=given.chunks,
                answer=given.answer,
                question=given.question,
                ask_about=self.config.ask_about,
            )
        return RawJudgment(
            **prediction, usage=meter.usage, replayed=meter.usage - meter.paid
        )

    def _judge_all(
        self, inputs: Iterable[AnswerInput], num_threads: int | None
    ) -> Iterator[tuple[RawJudgment, Judgment]]:
        from faith_dspy.lm.metered import MAX_FAILURES, Meter, metered

        if num_threads is not None and (
            type(num_threads) is not int or num_threads < 1
        ):
            raise ConfigError(
                f"num_threads is {num_threads!r}, expected a whole number from 1, or None."
            )
        self.prepare()  # before any thread; an option that it refuses is no fault of a record
        meter = Meter(max_failures=MAX_FAILURES)

        def judged(given: AnswerInput) -> tuple[RawJudgment, Judgment]:
            raw = RawJudgment()
            try:
                with metered(meter=meter):
                    raw, judgment = self.judge_input(given)
            except FaithDspyError:
                raise
            except Exception as exc:  # noqa: BLE001 - one bad record never ends a run
                judgment = unscored(Unscored.LM_FAILED, short_message(exc), raw)
            return raw, judgment.model_copy(update={"id": given.id})

        threads = num_threads or self.default_threads
        waiting: deque[Future[tuple[RawJudgment, Judgment]]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                for given in inputs:
                    waiting.append(pool.submit(copy_context().run, judged, given))
                    while waiting and (len(waiting) > 2 * threads or waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                meter.stop()  # judgments in flight begin no further call
                pool.shutdown(wait=False, cancel_futures=True)

    def save(self, folder: str | Path) -> None:
        """Write the judge as a folder of JSON and Markdown that `load_judge` reads."""
        from faith_dspy.export import save_judge

        save_judge(self, folder)

    def copy(self, **changes: Any) -> Self:
        """The same judge with another ``config``, ``classifier``, ``manifest`` or ``escalate_to``; the LM is shared.

        The program is shared, too, unless the new config asks something else: then its prompts are the seed's.
        """
        kept: dict[str, Any] = {
            name: getattr(self, name) for name in ("config", "manifest", "escalate_to")
        }
        kept["classifier"] = "default" if self._uses_default else self._classifier
        new = type(self)(self._given, **self._endpoint, **(kept | changes))
        if "lm" in vars(self):
            new.lm = self.lm
        if (
            "program" in vars(self)
            and new.config.program_options == self.config.program_options
        ):
            new.program = self.program
            new.fitted_prompts = self.fitted_prompts
            if changes.get("classifier", "default") != "default":
                new.fitted_prompts = self.program.prompts_hash
        return new
