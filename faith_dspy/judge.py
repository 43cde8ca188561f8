"""What users call: question, context and answer in, a `Judgment` out."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import faith_dspy.report.judgment  # noqa: F401 - gives a `Judgment` its pretty() and to_html()
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import (
    ConfigError,
    FaithDspyError,
    InputError,
    LMUnavailableError,
    PendingReplyError,
    import_optional,
    short_message,
)
from faith_dspy.export import save_judge
from faith_dspy.io.columns import read_scores
from faith_dspy.io.inputs import AnswerInput, log_once
from faith_dspy.io.labels import read_labels
from faith_dspy.io.readers import is_table, open_records, read_inputs, with_judgments
from faith_dspy.lm.addresses import provider_of, require_endpoint
from faith_dspy.lm.function import PREFIX, FunctionLM, is_function
from faith_dspy.lm.make import is_local
from faith_dspy.schema import (
    Chunk,
    Judgment,
    RawJudgment,
    Statement,
    StatementVerdict,
    Unscored,
    digest,
)
from faith_dspy.scoring.classifier import Classifier, default_classifier, describe_fit
from faith_dspy.scoring.measure import AnswerFeatures, measure_features
from faith_dspy.scoring.score import (
    early_judgment,
    judgment_of,
    lacking_scores,
    raw_judgment_without_lm,
    unscored,
)
from faith_dspy.text.features import DIRECTIONS
from faith_dspy.text.sentences import SplitAnswer, split_answer

if TYPE_CHECKING:  # they load DSPy or numpy
    from faith_dspy.batch import Batch
    from faith_dspy.lm.metered import Meter, MeteredLM
    from faith_dspy.program.program import FaithfulnessProgram
    from faith_dspy.scoring.agreement import JudgeAgreement

THREADS = 8  # answers judged at the same time, unless the LM is embedded
NO_LM = "none"  # in place of a model string: no LM, lexical features alone
_ESCALATED = (Unscored.PARSE_FAILED, Unscored.LM_FAILED, Unscored.LANGUAGE)
"""Why an answer that has no score goes to the next judge."""


class Judge:
    """Judge whether answers say only what their context supports.

    ``Judge(lm="local")`` has the default classifier, fitted to public labels and none of the user's; with
    ``classifier=None`` it is untuned and reports what the LM says. `load_judge` gives one tuned on the user's labels.

        >>> judge = Judge("none")  # no LM: lexical features decide
        >>> judgment = judge(context=["The kettle holds 2 litres."], answer="It has a whistle and a lamp.")
        >>> judgment.faithful, judgment.statements[0].missing
        (False, ('whistle', 'lamp'))

    Args:
        lm: ``"local"`` (the embedded model), ``"local:FILE.gguf"``, any DSPy/LiteLLM model string, or a `dspy.LM`.
            It is contacted by the first judgment, not before. With ``"none"`` no LM is asked: lexical features decide.
            Or a function of claims, or its name ``"python:package.module:function"`` (`faith_dspy.lm.function`).
        api_base: The address of an endpoint of your own.
        api_key: Its key.
        config: All options at once, in place of ``options``.
        classifier: Numbers fitted on labels; ``"default"``: those fitted to public labels, where there are any for the
            LM and the options; None: what the LM says counts.
        manifest: What an export says of its making.
        escalate_to: The judge that is asked where this one's probability is in the review range of its classifier (or
            options), or its LM failed; or an LM with the same options. Its judgment then stands, with the usage of
            both.
        timeout: Seconds to wait for a reply to begin or go on.
        context_window: Tokens of prompt and reply together; longer contexts are read window by window.
        thinking_tokens: Tokens of a model's thoughts, as for `faith_dspy.lm.make.make_lm`.
        options: Single options of `JudgeConfig`.

    Raises:
        ConfigError: An option, or a combination of options, does not exist or does not go with the LM.
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
        if "function" in options:
            name = options["function"]
            raise ConfigError(
                f"got function={name!r} for a new judge, expected it for an exported one: a new judge asks a function "
                "as its LM, by its name 'python:module:function'."
            )
        if config is not None and options:
            raise ConfigError(
                f"give either config= or single options, got both (options: {', '.join(options)})"
            )
        if isinstance(lm, str):
            lm = lm.strip()
        if is_function(lm):
            lm = FunctionLM.of(lm)
        if not lm or not (isinstance(lm, str) or hasattr(lm, "model")):
            raise ConfigError(
                f"lm is {lm!r}; expected 'local', a model string like openai/gpt-4o-mini, a dspy.LM, or a function."
            )
        self._lm = lm
        self.config = config or JudgeConfig.make(**options)
        self._uses_default = classifier == "default"
        if classifier == "default":
            classifier = default_classifier(self.lm_name, self.config)
        self._classifier = classifier
        self.fitted_prompts: str | None = None
        """Hash of the prompts that the classifier was fitted with; None: the seed's."""
        self.manifest = dict(manifest or {})
        """What an export says of its making; empty for a judge that was neither loaded nor fitted."""
        self._address: dict[str, Any] = {"api_base": api_base, "api_key": api_key}
        self.limits: dict[str, Any] = {
            "timeout": timeout,
            "context_window": context_window,
            "thinking_tokens": thinking_tokens,
        }
        """As they were given, or None."""
        self._check_options()
        if escalate_to is not None and not isinstance(escalate_to, Judge):
            escalate_to = Judge(
                escalate_to,
                config=self.config,
                classifier="default" if self._uses_default or classifier else None,
                timeout=timeout,
                thinking_tokens=thinking_tokens,
                **self._shared_address(escalate_to),
            )
        if escalate_to is not None and escalate_to.escalate_to is not None:
            raise ConfigError(
                "escalate_to is a judge that escalates itself; a cascade has two judges."
            )
        self.escalate_to: Judge | None = escalate_to

    def __repr__(self) -> str:
        return f"<Judge {self.lm_name!r}, by {self.config.granularity.value}, {describe_fit(self.classifier)}>"

    @overload
    def __call__(
        self,
        question: str | None = None,
        context: Any = None,
        answer: str | None = None,
        conversation: Any = None,
        *,
        scores: Mapping[str, Any] | None = None,
    ) -> Judgment: ...

    @overload
    def __call__(
        self, *, conversation: Any, turns: Literal["all"]
    ) -> list[Judgment]: ...

    def __call__(
        self,
        question: str | None = None,
        context: Any = None,
        answer: str | None = None,
        conversation: Any = None,
        turns: Literal["last", "all"] = "last",
        scores: Mapping[str, Any] | None = None,
    ) -> Any:
        """Judge one answer, or each of a conversation.

            >>> judge = Judge("none")
            >>> judge("How long?", ["Lamps: 30 days."], "Kettles can be returned within 90 days.").faithful
            False

        Args:
            question: What the answer answers, if anything.
            context: Texts, `Chunk` objects or mappings with ``text``.
            answer: The answer.
            conversation: Messages with ``role`` and ``content``, in place of context and answer: the last assistant
                message is judged against all before it.
            turns: ``all`` judges each answer of the conversation against what was retrieved for it.
            scores: What other judges said of the answer, by column, for a judge that reads `columns`.

        Returns:
            The judgment; of all turns a list, each with the number of its message, ``turn``. A fault of the LM gives
            an unscored one that says why.

        Raises:
            InputError: Input of a wrong type.
            LMUnavailableError: The LM never answered, because its address, its key or its name is wrong.
        """
        if not isinstance(scores, Mapping | None):
            raise InputError(
                f"got scores={scores!r}, expected them by column, as {{'ragas_faithfulness': 0.7}}."
            )
        columns = self.columns if turns == "last" else []
        unread = [name for name in scores or () if name not in columns]
        if unread:
            raise InputError(
                f"got scores of {unread}, which this judge does not read; it reads {columns or 'no scores'}."
            )
        input = AnswerInput.make(question, context, answer, conversation)
        if turns == "all" and conversation is not None:
            return self.batch({"conversation": conversation}, turns="all")
        if turns != "last":
            raise InputError(
                f"got turns={turns!r}, expected 'last', or 'all' with a conversation."
            )
        _, judgment = self.judge_input(replace(input, row=scores))
        return _of_input(judgment, input)

    async def acall(self, *args: Any, **kwargs: Any) -> Judgment:
        """Judge without blocking the event loop, at most DSPy's ``async_max_workers`` at a time. Once cancelled, it
        makes no further LM call."""
        from faith_dspy.lm.metered import run_async

        return await run_async(partial(self, *args, **kwargs))

    def batch(
        self,
        records: Any,
        num_threads: int | None = None,
        *,
        turns: Literal["last", "all"] = "last",
        progress: bool = False,
    ) -> Any:
        """Judge records, answers over the same context one after the other, for the LM's prefix cache.

            >>> records = [{"context": ["Lamps: 30 days."], "answer": "Kettles: 90 days."}]
            >>> [judgment.faithful for judgment in Judge("none").batch(records)]
            [False]

        Args:
            records: What `stream` takes.
            num_threads: Answers that are judged at the same time; None: as the LM can take it.
            turns: ``all`` judges each answer of a conversation, as a call does.
            progress: Whether to show a bar.

        Returns:
            One judgment per record or turn, in their order; of a pandas frame or a Hugging Face `Dataset`, the same
            with columns ``judge_score`` …. If the endpoint dies, those not judged by then are unscored.

        Raises:
            InputError: No records, or a file that cannot be read.
            LMUnavailableError: The endpoint never answered.
        """
        if turns != "last" and (turns != "all" or is_table(records)):
            raise InputError(
                f"got turns={turns!r}, expected 'last', or 'all' with a list or a file: a table has a row a record."
            )
        inputs = read_inputs(records, self.columns, turns)
        first: dict[tuple[Chunk, ...], int] = {}  # over each context
        order = sorted(
            range(len(inputs)), key=lambda i: first.setdefault(inputs[i].chunks, i)
        )
        judgments: Iterable[Judgment] = self.stream(
            (inputs[i] for i in order), num_threads
        )
        if progress:
            from tqdm import tqdm

            judgments = tqdm(
                judgments, "judging", len(inputs), leave=False, mininterval=1
            )
        judged: dict[int, Judgment] = {}
        try:
            judged.update(zip(order, judgments, strict=True))
        except LMUnavailableError as exc:
            if not any(
                one.usage.calls or one.replayed.calls for one in judged.values()
            ):
                raise  # it never answered: a key, a name or an address is wrong
            dead = unscored(Unscored.LM_FAILED, str(exc), RawJudgment())
            for i in order:
                judged.setdefault(i, _of_input(dead, inputs[i]))
        ordered = [judged[i] for i in range(len(inputs))]
        return with_judgments(records, ordered) if is_table(records) else ordered

    async def abatch(self, *args: Any, **kwargs: Any) -> Any:
        """Judge as `batch` does, awaited as `acall` is."""
        from faith_dspy.lm.metered import run_async

        return await run_async(partial(self.batch, *args, **kwargs))

    def stream(
        self, records: Any, num_threads: int | None = None
    ) -> Generator[Judgment, None, None]:
        """Judge records one after the other, at most twice ``num_threads`` read ahead.

        Closing the stream, or Ctrl-C, begins no further LM call and waits for those in flight.

        Args:
            records: Mappings with ``question``, ``context``, ``answer`` or ``conversation``, other libraries' names and
                objects (`AnswerInput.of`), a single mapping, a file, a pandas frame or a Hugging Face `Dataset`.
            num_threads: Answers that are judged at the same time; None: as the LM can take it.

        Yields:
            The judgment of each record, with its ``id``, in their order; unscored where the record could not be judged,
            or the LM failed on it.

        Raises:
            InputError: No records, or a file that cannot be read.
            LMUnavailableError: To 20 calls in a row the endpoint had no answer.
        """
        for _, judgment in self.stream_raw(records, num_threads):
            yield judgment

    def submit(self, records: Any, path: str | Path) -> Batch:
        """Submit records to the provider's batch interface: half the price, judgments within a day.

        Args:
            records: What `batch` takes, but no iterator.
            path: A small file that notes what waits. With the same judge, records and file, in this process or another,
                nothing is submitted twice.

        Returns:
            The batch, with ``id``, ``status``, ``cost``, ``collect()`` and ``cancel()``.

        Raises:
            ConfigError: The LM has no batch interface.
            LMUnavailableError: The provider cannot be reached.
        """
        from faith_dspy.batch import Batch

        batch = Batch(self, records, path)
        with suppress(PendingReplyError):
            batch.ready()
        return batch

    def agreement(
        self, labelled: Any, num_threads: int | None = None
    ) -> JudgeAgreement:
        """Judge labelled answers and measure the agreement with people on answers, statements and evidence.

        Args:
            labelled: Labels as `faith_dspy.tune` takes them. Those that the judge was tuned on say nothing about new
                answers.
            num_threads: Answers that are judged at the same time.

        Returns:
            Agreement with 95 % intervals over sources; `measure_agreement` says how each level is compared.

        Raises:
            LabelsError: The labels cannot be read.
            MissingExtraError: The ``tune`` extra is not installed.
        """
        import_optional("numpy", "Measuring agreement")  # before anything is judged
        from faith_dspy.scoring.agreement import measure_agreement

        examples = read_labels(labelled, recorded=self.columns)
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
        import_optional("scipy", "Fitting a judge")
        from faith_dspy.optimize.select.candidates import fit_on_labels

        examples = read_labels(labelled, recorded=self.columns)
        return fit_on_labels(self, examples, method, operating_point, num_threads)

    def save(self, folder: str | Path) -> None:
        """Write the judge as a folder of JSON and Markdown that `load_judge` reads."""
        save_judge(self, folder)

    def with_reasons(self) -> Self:
        """Return the same judge with ``reasons="unsupported"``, in its cascade, too."""
        config = self.config.model_copy(update={"reasons": "unsupported"})
        following = self.escalate_to and self.escalate_to.with_reasons()
        return self.copy(config=config, escalate_to=following)

    def copy(self, **changes: Any) -> Self:
        """Return the same judge with another ``config``, ``classifier``, ``manifest`` or ``escalate_to``.

        The LM is shared. The program is, too, unless the new config asks something else: then its prompts are the
        seed's.
        """
        settings: dict[str, Any] = {
            **self._address,
            **self.limits,
            "config": self.config,
            "manifest": self.manifest,
            "escalate_to": self.escalate_to,
            "classifier": "default" if self._uses_default else self._classifier,
        }
        new = type(self)(self._lm, **settings | changes)
        if "lm" in vars(self):
            new.lm = self.lm
        is_same = new.config.program_options == self.config.program_options
        if "program" in vars(self) and is_same:
            new.program = self.program
            new.fitted_prompts = self.fitted_prompts
            fitted = changes.get("classifier")
            if isinstance(fitted, Classifier):  # to these prompts
                new.classifier = fitted
        return new

    # How it judges, from a stream of records to one statement

    def stream_raw(
        self, records: Any, num_threads: int | None = None
    ) -> Iterator[tuple[RawJudgment, Judgment]]:
        """Yield what the LMs say about each answer, as `stream` does, and the judgment on it: what a study keeps."""
        from faith_dspy.lm.metered import MAX_FAILURES, Meter

        if num_threads is not None and (
            type(num_threads) is not int or num_threads < 1
        ):
            raise ConfigError(
                f"num_threads is {num_threads!r}, expected a whole number from 1, or None."
            )
        threads = num_threads or self.default_threads
        meter = Meter(max_failures=MAX_FAILURES)
        waiting: deque[Future[tuple[RawJudgment, Judgment]]] = deque()
        with open_records(records) as opened, ThreadPoolExecutor(threads) as pool:
            self.prepare()  # a refused option is no fault of a record
            try:
                for input in map(AnswerInput.of, opened):
                    run = copy_context().run
                    waiting.append(pool.submit(run, self._judge_one, input, meter))
                    while waiting and (len(waiting) > 2 * threads or waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                meter.stop()  # judgments in flight begin no further call
                pool.shutdown(wait=False, cancel_futures=True)

    def _judge_one(
        self, input: AnswerInput, meter: Meter
    ) -> tuple[RawJudgment, Judgment]:
        """Return the same as `judge_input`, and unscored what the LM or the record fails on."""
        from faith_dspy.lm.metered import metered

        raw = RawJudgment()
        try:
            # DSPy's history of 10,000 prompts would be gigabytes
            with metered(meter=meter, disable_history=True):
                raw, judgment = self.judge_input(input)
        except PendingReplyError:
            judgment = unscored(Unscored.LM_FAILED, "it is in a batch", raw)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - one bad record never ends a run
            judgment = unscored(Unscored.LM_FAILED, short_message(exc), raw)
        return raw, _of_input(judgment, input)

    def judge_input(self, input: AnswerInput) -> tuple[RawJudgment, Judgment]:
        """Return what the LMs say about one answer, and the judgment on it: every call, batch and study comes here."""
        if input.problem is not None:
            why = f"the record cannot be read: {input.problem}"
            raw = RawJudgment()
            return raw, unscored(Unscored.PARSE_FAILED, why, raw)
        answer = split_answer(input.answer)
        classifier = self.classifier
        scores = read_scores(input.row, self.config.scores)
        raw = RawJudgment(sentences=answer.sentences, scores=scores)
        early = early_judgment(input.chunks, answer, self.config)
        early = early or lacking_scores(raw, classifier)
        if early is not None:
            return raw, early
        raw = (
            self._ask(answer, input)
            if self.asks_lm
            else raw_judgment_without_lm(answer)
        )
        raw = raw.model_copy(update={"scores": scores})
        features = measure_features(
            raw,
            input.chunks,
            input.question,
            names=DIRECTIONS.keys() & classifier.statement.names if classifier else (),
            citations_from=self.config.citations_from,
        )
        judgment = judgment_of(raw, features, self.config, classifier)
        if self.escalate_to is not None and self.should_escalate(judgment):
            following, judgment = self.escalate_to.judge_input(input)
            raw = _with_usage(raw, following, escalated_to=following)
            judgment = _escalated(judgment, raw)
        elif self.asks_lm and (judgment.citations or self._wants_reasons):
            raw = self._ask_further(raw, features, judgment, input)
            judgment = judgment_of(raw, features, self.config, classifier)
        return raw, judgment

    def _ask(self, answer: SplitAnswer, input: AnswerInput) -> RawJudgment:
        """Ask for the answer's statements, and for a verdict on each."""
        with self._metered() as meter:
            extracted = self.program.extract_statements(answer, input.question)
            verified = self.program.verify_statements(
                extracted.statements, input.chunks, input.question
            )
        return RawJudgment(
            sentences=answer.sentences,
            raw_verdicts=tuple(verified.verdicts),
            joint_fallbacks=verified.fallbacks,
            extraction_fallbacks=extracted.fallbacks,
            usage=meter.usage,
            cached_usage=meter.replayed,
        )

    def _ask_further(
        self,
        raw: RawJudgment,
        features: AnswerFeatures,
        judgment: Judgment,
        input: AnswerInput,
    ) -> RawJudgment:
        """Ask once more about each statement that is supported by other chunks than it cites, on the cited alone, and
        about each that the LM calls unsupported, why."""
        verdicts = list(raw.raw_verdicts)
        with self._metered() as meter:
            for i, statement in enumerate(judgment.statements):
                verdict = verdicts[i]
                update: dict[str, Any] = {}
                is_own = statement.verdict is verdict.verdict  # not the classifier's
                fails = statement.is_supported is False and is_own
                if statement.is_supported and features.statements[i].by_cited:
                    update["cited_support"] = self._ask_by_cited(statement, input)
                elif self._wants_reasons and fails and verdict.reason is None:
                    nearest = verdict.chunk_ids or statement.closest_chunk_ids
                    update["reason"] = self.program.explain(
                        verdict, input.chunks, input.question, nearest
                    )
                verdicts[i] = verdict.model_copy(update=update)
        cost = RawJudgment(usage=meter.usage, cached_usage=meter.replayed)
        return _with_usage(raw, cost, raw_verdicts=tuple(verdicts))

    def _ask_by_cited(
        self, statement: StatementVerdict, input: AnswerInput
    ) -> bool | None:
        """Return whether the LM says that the chunks that a statement cites support it; None where it says nothing."""
        cited = [c for c in input.chunks if c.id in statement.cited_chunk_ids]
        alone = Statement(text=statement.text)
        (reply,), _ = self.program.verify_statements([alone], cited, input.question)
        return None if reply.verdict is None else reply.verdict.is_supported

    @property
    def _wants_reasons(self) -> bool:
        return self.config.reasons == "unsupported" and self.function is None

    def _metered(self) -> AbstractContextManager[Meter]:
        """Make its LM DSPy's, and count its calls."""
        from faith_dspy.lm.metered import metered

        return metered(lm=self.lm, trace=None)  # a trace would keep 10,000 contexts

    def should_escalate(self, judgment: Judgment) -> bool:
        """Return whether a judgment of its own is too uncertain to stand, or is missing because the LM failed."""
        if judgment.unscored is not None:
            return judgment.unscored in _ESCALATED
        for statement in judgment.statements:
            if statement.verdict is None or statement.features.get("contradictions"):
                return True
        is_own = judgment.fitted_to != "default" and judgment.needs_review is not None
        if is_own or not judgment.statements:
            return bool(judgment.needs_review)
        low, high = self.config.review_range
        return judgment.ranking is not None and low <= judgment.ranking < high

    def score_answer(self, raw: RawJudgment, features: AnswerFeatures) -> Judgment:
        """Return the judgment on what the LMs said, by the last judge that was asked.

        Args:
            raw: What they said.
            features: What that has in the context, by `measure_features`: once for any number of judges.
        """
        if raw.escalated_to is None or self.escalate_to is None:
            return judgment_of(raw, features, self.config, self.classifier)
        judgment = self.escalate_to.score_answer(raw.last, features.last)
        return _escalated(judgment, raw)

    # What it is made of

    @property
    def lm_name(self) -> str:
        """The model string it was made with, as `make_lm` takes it."""
        return self._lm if isinstance(self._lm, str) else str(self._lm.model)

    @property
    def asks_lm(self) -> bool:
        """Whether it asks an LM itself."""
        return not (isinstance(self._lm, str) and self._lm == NO_LM)

    @property
    def function(self) -> FunctionLM | None:
        """The function that it asks in the place of an LM."""
        return self._lm if isinstance(self._lm, FunctionLM) else None

    @property
    def _has_prompts(self) -> bool:
        """Whether it asks an LM, and no function, which takes none."""
        return self.asks_lm and self.function is None

    @cached_property
    def lm(self) -> MeteredLM | FunctionLM:
        """The LM, made on first use, or the function. `ConfigError` if it asks none, or was loaded without it."""
        if not self.asks_lm:
            raise ConfigError(
                "this judge asks no LM (lm='none'); `prepare()` returns those of its cascade."
            )
        if self.function is not None:
            return self.function.require()
        from faith_dspy.lm.make import make_lm, to_metered_lm

        if isinstance(self._lm, str):
            stored = self.manifest.get("lm") or {}
            require_endpoint(stored, self.lm_name, self._address["api_base"])
            return make_lm(self._lm, **self._address, **self.limits)
        return to_metered_lm(self._lm, **self.limits)

    @cached_property
    def program(self) -> FaithfulnessProgram:
        """The `dspy.Module` inside. It can be called, compiled by any optimizer of DSPy, and replaced by the result."""
        from faith_dspy.program.function import FunctionProgram
        from faith_dspy.program.program import FaithfulnessProgram

        make = FaithfulnessProgram if self.function is None else FunctionProgram
        return make(self.config)

    @property
    def classifier(self) -> Classifier | None:
        """Numbers fitted on labels; None for an untuned judge, and while the prompts are not those it was fitted with.

        A judge whose prompts were compiled or changed reports what the LM says until it is fitted again.
        """
        if self._classifier is None or "program" not in vars(self):
            return self._classifier
        if self.fitted_prompts is None:
            self.fitted_prompts = type(self.program)(self.config).prompts_hash
        if self.program.prompts_hash == self.fitted_prompts:
            return self._classifier
        log_once(
            "the prompts have changed since the classifier was fitted: neither it nor its thresholds and agreement "
            "figures are used until the judge is fitted again (judge.fit(labelled), or a study)."
        )
        return None

    @classifier.setter
    def classifier(self, classifier: Classifier | None) -> None:
        self._classifier, self._uses_default = classifier, False
        self.fitted_prompts = None
        if "program" in vars(self):
            self.fitted_prompts = self.program.prompts_hash

    @property
    def cascade(self) -> tuple[Judge, ...]:
        """This judge and the one it escalates to."""
        return (self,) if self.escalate_to is None else (self, self.escalate_to)

    @property
    def columns(self) -> list[str]:
        """Columns of the records that it reads beside question, context and answer: what other judges said."""
        scores = [name for judge in self.cascade for name in judge.config.scores]
        return list(dict.fromkeys(name.removeprefix("!") for name in scores))

    @property
    def default_threads(self) -> int:
        """`THREADS`; 1 without an LM, with an embedded one, whose prefix cache holds one context, or with a function,
        which need not be safe in several threads."""
        names = [judge.lm_name for judge in self.cascade if judge.asks_lm]
        is_embedded = any(name.startswith(("local", PREFIX)) for name in names)
        return THREADS if names and not is_embedded else 1

    @property
    def fingerprint(self) -> str:
        """Hash of all that verdicts depend on: LM, options, prompts, classifier, and those of `escalate_to`."""
        parts = [
            self.lm_name,
            self.config.model_dump(mode="json", exclude={"reasons"}),
            self.program.shown_prompts if self.asks_lm else [],
            self.classifier and self.classifier.model_dump(mode="json"),
        ]
        if self.function is not None:
            parts.append(self.function.sha256)
        if self.escalate_to:
            parts.append(self.escalate_to.fingerprint)
        return digest(parts)

    def prepare(self) -> list[MeteredLM | FunctionLM]:
        """Build the programs and LMs of the cascade before threads start, and return the LMs, each once. The embedded
        model is fetched where its file is missing."""
        lms = {}
        for judge in self.cascade:
            if judge.asks_lm:
                _ = judge.program
                lms[judge.lm.model, judge.lm.endpoint] = judge.lm
        return [*lms.values()]

    def preflight(self) -> None:
        """Raise `LMUnavailableError` unless every LM of the cascade answers."""
        from faith_dspy.lm.make import preflight

        for lm in self.prepare():
            preflight(lm)

    def _check_options(self) -> None:
        """Refuse options that mean nothing without an LM."""
        if self._has_prompts:
            return
        usual = JudgeConfig().program_options
        does = "judges by lexical features and the default classifier"
        if self.function is not None:
            does = "is a function, which takes no prompt"
            if self.config.granularity is Granularity.ANSWER:
                usual["granularity"] = Granularity.ANSWER
        unused = []
        for name, value in self.config.program_options.items():
            if value != usual[name]:
                unused.append(f"{name}={value!r}")
        if not self.asks_lm:
            fitted, threshold = self._classifier, self.config.threshold
            if self._uses_default and threshold is not None:
                unused.append(f"threshold={threshold}")
            if fitted is None or "lm" in fitted.statement.names:
                unused.append("this classifier (--untuned: classifier=None)")
        if unused:
            raise ConfigError(
                f"lm={self.lm_name!r} {does}; {unused[0]} needs an LM. Leave it out, or name an LM."
            )

    def _shared_address(self, second: Any) -> dict[str, Any]:
        """Return address and key for the second LM of a cascade: the first one's, where one provider serves both."""
        settings = getattr(self._lm, "kwargs", self._address)
        address = {name: settings.get(name) for name in self._address}
        is_here = not isinstance(second, str) or is_local(second) or is_function(second)
        if is_here or not any(address.values()):
            return {}
        own = provider_of(self.lm_name)
        if self._has_prompts and provider_of(second) != own:
            raise ConfigError(
                f"escalate_to={second!r} is another provider's than {self.lm_name}, whose address and key are not its "
                "own: give a Judge with its own, escalate_to=Judge(…, api_base=…, api_key=…)."
            )
        return address


def _of_input(judgment: Judgment, input: AnswerInput) -> Judgment:
    """Return the judgment with what it is about."""
    judgment = judgment.model_copy(update={"id": input.id, "turn": input.turn})
    vars(judgment)["input"] = input  # of a cached property, as functools sets it
    return judgment


def _with_usage(raw: RawJudgment, other: RawJudgment, **changes: Any) -> RawJudgment:
    """Return what the LM said with changes, and what another one cost, too."""
    changes["usage"] = raw.usage + other.usage
    changes["cached_usage"] = raw.cached_usage + other.cached_usage
    return raw.model_copy(update=changes)


def _escalated(judgment: Judgment, raw: RawJudgment) -> Judgment:
    """Return the judgment of the judge that an answer was escalated to, with the usage of both."""
    paid = {"usage": raw.usage - raw.cached_usage, "replayed": raw.cached_usage}
    return judgment.model_copy(update={**paid, "escalated": 1})
