"""One tuning run from top to bottom: labels in, champion out."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import faith_dspy
from faith_dspy.errors import ConfigError, InputError, LimitReachedError
from faith_dspy.io.labels import label_set_hash
from faith_dspy.judge import Judge
from faith_dspy.lm import Limits, identity, make_lm, metered, preflight
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.optimizers import PROPOSING
from faith_dspy.optimize.compile.stages import compiled_judge, prompts_of
from faith_dspy.optimize.data.parts import Parts, read_parts
from faith_dspy.optimize.results import PredictionRow, StudyResult, StudySetup, VariantResult
from faith_dspy.optimize.select import champion
from faith_dspy.optimize.select.evaluate import (
    JudgedExample,
    agreement,
    cross_fitted_rows,
    fit,
    judged_rows,
    scorable,
    usage_of,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.plan import plan
from faith_dspy.optimize.select.spending import Cost, Purse
from faith_dspy.optimize.select.variants import UNTUNED, Budget, Variant
from faith_dspy.schema import digest
from faith_dspy.scoring.annotators import annotator_agreement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from faith_dspy.lm.endpoint import LMIdentity
    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.agreement import Agreement

BASELINES = {
    "lexical-baseline": ("lexical", "lexical features alone, no LM: the lexical features, fitted on the same labels"),
    "length-baseline": ("length", "the answer's length and number of sentences: not evidence"),
    "majority-baseline": ("majority", "the more frequent label, whatever the answer"),
}


class View(Protocol):
    """Where a study shows what it does."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def task(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A progress bar; the function it gives advances it."""


class Tracker(Protocol):
    """Where a study is recorded as it goes. `faith_dspy.optimize.tracking.study_run` is the one for MLflow."""

    def variant(self, result: VariantResult) -> None:
        """A variant is finished."""

    def finish(self, result: StudyResult) -> str:
        """The study is finished. Returns what became of the judge in the registry, a sentence, or nothing."""


class Options(NamedTuple):
    """What a user can say about a study."""

    lm: str = "local"
    api_base: str | None = None
    api_key: str | None = None
    budget: str = "quick"
    seed: int = 0
    out: Path | None = None
    limits: Limits = Limits()
    """Of the whole study; what it costs to test the champion is kept back."""
    variants: tuple[str, ...] | Path = ()
    """Names from `VARIANTS` to try instead of the budget's, or a file that declares them (`plan`)."""
    operating_point: OperatingPoint = BALANCED
    """What the champion's threshold is for."""
    prefer: str = "agreement"
    """``agreement``: the champion is what agrees best; ``cheapest``: what costs least and is not shown to be worse."""
    reflection_lm: str | None = None
    """LM that proposes instructions, as a model string; None: the judged one."""


def run(
    labels: Path, options: Options, view: View, *, test: Path | None = None, tracker: Callable[[StudySetup], Tracker]
) -> StudyResult:
    """Tune a judge on a labels file, write it to ``options.out``, and return everything that was found.

    Faults in the labels and at the LMs' endpoints are found before any work. Every LM reply is kept in DSPy's cache as
    it comes, so that a study that was stopped goes on where it was when it is run again. Ctrl-C ends it with the
    champion among the variants that are finished, if the untuned judge is one of them; so does a limit that is reached.
    """
    started = time.monotonic()
    budget, variants, limits = plan(options.budget, options.variants, options.limits)
    out = options.out or Path("judges") / labels.stem
    _check_out(out)
    parts = read_parts(labels, test, budget, options.seed)
    lm = make_lm(options.lm, api_base=options.api_base, api_key=options.api_key)
    for used in {(v.lm, v.api_base): v for v in variants}.values():
        preflight(_judge(used, options).lm if used.lm else lm)
    if options.reflection_lm and any(v.optimizer in PROPOSING for v in variants):
        preflight(make_lm(options.reflection_lm))
    tuned_on = [*parts.splits.train, *parts.splits.dev, *parts.splits.test]
    tested_on = parts.test if test else []
    setup = StudySetup(
        study_id=study_id(
            [parts.splits.train, parts.splits.dev, parts.splits.test or parts.test],
            identity(lm),
            budget,
            variants,
            [options.seed, str(options.operating_point), options.reflection_lm, options.prefer],
        ),
        labels_file=labels.name,
        label_set_hash=label_set_hash(tuned_on),
        lm=identity(lm).model_dump(mode="json"),
        budget=options.budget,
        seed=options.seed,
        split=parts.report,
    )
    ceiling = annotator_agreement([*tuned_on, *tested_on])
    result = StudyResult(**dict(setup), variants=(), champion="", test=(), comparisons={}, ceiling=ceiling)
    view.say(parts.sentence)
    with metered(limits) as meter:
        purse = Purse(meter)
        study = _Study(options, budget, parts, result, view, purse)
        study.track = tracker(setup)
        study.baselines()
        try:
            for variant in variants:
                if study.judges and budget.minutes is not None and meter.seconds > budget.minutes * 60:
                    study.skip(variant, f"the {budget.minutes:g} minutes for trying variants were over")
                    continue
                try:
                    with purse.keeping(study.to_finish()):
                        study.try_variant(variant)
                except LimitReachedError as exc:
                    study.stop_at(variant, exc)
        except KeyboardInterrupt:
            if all(v.name != UNTUNED for v in result.variants):
                raise
            result.finished = False
            view.say("Stopped. Going on to the test with the best variant so far; press Ctrl-C again to leave at once.")
        judge = champion.promote(study.contest(), result, view)
        result.usage, result.replayed = meter.usage, meter.replayed
    result.seconds = time.monotonic() - started
    champion.export(judge, study.contest(), result, out)
    registered = study.track.finish(result)
    return result.model_copy(update={"registered": registered})


class _Study:
    def __init__(
        self, options: Options, budget: Budget, parts: Parts, result: StudyResult, view: View, purse: Purse
    ) -> None:
        self.options, self.budget, self.parts, self.result, self.view = options, budget, parts, result, view
        self.purse = purse
        self.proposer = make_lm(options.reflection_lm) if options.reflection_lm else None
        self.judges: dict[str, Judge] = {}
        self.seen: dict[str, list[JudgedExample]] = {}
        self.track: Any = None

    def contest(self) -> champion.Contest:
        return champion.Contest(
            judges=self.judges,
            dev=self.seen,
            train=self.parts.train,
            test=self.parts.test,
            seed=self.options.seed,
            purse=self.purse,
            operating_point=self.options.operating_point,
            prefer=self.options.prefer,
        )

    def to_finish(self) -> Cost:
        """What it would cost to test the best variant so far and the untuned judge."""
        if not self.judges:
            return Cost()
        each = champion.to_test(self.result, champion.best(self.result))
        return each.times(len(self.parts.test) * champion.MARGIN)

    def stop_at(self, variant: Variant, limit: LimitReachedError) -> None:
        """A variant that could not be paid for is left out; without the untuned judge there is no study."""
        if not self.judges:
            raise InputError(
                f"{limit} before the untuned judge was measured on the {len(self.parts.dev)} answers of dev; raise the "
                "limit, or give fewer answers with a smaller budget."
            ) from limit
        self.skip(variant, str(limit))

    def baselines(self) -> None:
        """What needs no LM, on the same labels: the bar a judge has to clear."""
        seen = without_lm(self.parts.dev)
        for name, (which, description) in BASELINES.items():
            baseline = VariantResult(name=name, kind="baseline", description=description, params={"classifier": which})
            rows = champion.majority_rows(seen, self.parts.train) if which == "majority" else self._rows(seen, which)[0]
            self._add(baseline, rows)

    def skip(self, variant: Variant, why: str) -> None:
        """Leave a variant out, and say so wherever the others stand."""
        result = self._begin(variant)
        result.status, result.note = "skipped", " ".join(why.split()).rstrip(".")
        self.view.say(f"{variant.name}: skipped, {result.note}")
        self._record(result)

    def _begin(self, variant: Variant) -> VariantResult:
        return VariantResult(
            name=variant.name,
            kind="untuned" if variant.name == UNTUNED else "lm",
            description=variant.description,
            params={
                "granularity": variant.config.granularity.value,
                "instruction": variant.config.instruction,
                "optimizer": variant.optimizer or "none",
                "lm": variant.lm or str(self.result.lm["name"]),
                "seed": _seed(variant, self.options),
            },
        )

    def try_variant(self, variant: Variant) -> None:
        """Compile, judge dev, measure; a variant that cannot be compiled is skipped and says why."""
        result = self._begin(variant)
        judge = _judge(variant, self.options)
        if variant.optimizer:
            result.seed_prompts = prompts_of(judge)
            try:
                judge = self._compile(judge, variant, result)
            except ConfigError as exc:
                self.skip(variant, str(exc))
                return
        with self.view.task(f"{variant.name}: judging dev", len(self.parts.dev)) as advance:
            seen = verify(judge, self.parts.dev, advance)
        self.judges[variant.name], self.seen[variant.name] = judge, seen
        result.prompts = prompts_of(judge)
        result.usage, result.judged = usage_of(seen), len(seen)
        rows, weights = self._rows(seen, "both")
        result.weights = weights
        result.lm_only = agreement(self._rows(seen, "lm")[0], seed=self.options.seed)
        if result.kind == "untuned":
            result.untuned = agreement(*judged_rows(seen, judge), seed=self.options.seed)
        self._add(result, rows)

    def _compile(self, judge: Judge, variant: Variant, result: VariantResult) -> Judge:
        effort = self.budget.effort
        assert variant.optimizer is not None
        with (
            metered() as meter,
            self.view.task(f"{variant.name}: compiling", (effort.candidates + 3) * effort.compare_on) as advance,
        ):
            compiled = compiled_judge(
                judge,
                variant.optimizer,
                self.parts.train,
                self.parts.dev,
                effort,
                _seed(variant, self.options),
                proposer=self.proposer if variant.optimizer in PROPOSING else None,
                advance=advance,
            )
        result.compile_usage = meter.usage
        result.params["instruction"] = compiled.judge.config.instruction
        result.search = tuple(i._asdict() for i in compiled.instructions)
        result.learned = compiled.notes
        if compiled.failed:
            result.learned += (f"the LM failed in {compiled.failed} of {compiled.asked} calls of compiling",)
        for note in result.learned:
            self.view.say(f"{variant.name}: {note}")
        return compiled.judge

    def _rows(self, seen: Sequence[JudgedExample], which: str) -> tuple[list[PredictionRow], dict[str, float]]:
        usable = scorable(seen)
        if not usable:
            why = Counter(o.unscored.unscored for o in seen if o.unscored and o.unscored.unscored)
            reasons = ", ".join(f"{n} {reason.value}" for reason, n in why.items()) or "the LM judged none of them"
            raise InputError(
                f"none of the {len(seen)} answers of dev could be scored ({reasons}); nothing can be fitted."
            )
        try:
            fitted = fit(usable, which, self.options.seed)
        except InputError as exc:
            raise InputError(f"the devset is too small to fit a threshold on: {exc}") from exc
        rows = cross_fitted_rows(seen, usable, fitted)
        stage = fitted.classifier.statement or fitted.classifier.answer
        return rows, dict(zip(stage.names, stage.weights, strict=True))

    def _add(self, result: VariantResult, rows: list[PredictionRow]) -> None:
        result.predictions = tuple(rows)
        result.agreement = agreement(rows, seed=self.options.seed)
        result.selection_score = _selection(result.agreement)
        self._record(result)

    def _record(self, result: VariantResult) -> None:
        self.result.variants += (result,)
        self.track.variant(result)


def _selection(a: Agreement) -> float | None:
    values = [v for v in (a.balanced_accuracy.value, a.auroc.value) if v is not None]
    return sum(values) / 2 * a.coverage if len(values) == 2 else None


def _judge(variant: Variant, options: Options) -> Judge:
    """The variant's program on its own LM, or on the study's."""
    if variant.lm is None:
        return Judge(options.lm, api_base=options.api_base, api_key=options.api_key, config=variant.config)
    return Judge(variant.lm, api_base=variant.api_base, config=variant.config)


def _seed(variant: Variant, options: Options) -> int:
    return options.seed if variant.seed is None else variant.seed


def _check_out(out: Path) -> None:
    there = next(p for p in (out, *out.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        what = "cannot be written to" if there.is_dir() else "is a file"
        raise InputError(f"--out {out}: {there} {what}; expected a folder, or a place where one can be made.")


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
