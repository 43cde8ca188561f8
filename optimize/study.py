"""One study from top to bottom: split → compile → fit → select on dev → test once → export."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from faith_dspy.errors import ConfigError, FaithDspyError, faults
from faith_dspy.eval_sets.catalog import source_of
from faith_dspy.export import save_judge
from faith_dspy.io.files import check_folder, owned
from faith_dspy.io.labels import answer_key, label_set_hash
from faith_dspy.io.readers import name_of
from faith_dspy.lm.make import LMIdentity, identity, make_lm, preflight
from faith_dspy.lm.metered import MAX_FAILURES, metered
from faith_dspy.optimize.classifier.operating_point import operating_point_sentence
from faith_dspy.optimize.compile.optimizers import PROPOSING
from faith_dspy.optimize.data.audit import annotator_agreement
from faith_dspy.optimize.data.splits import Parts, read_parts
from faith_dspy.optimize.plan import BudgetName, Options, Plan, View, plan
from faith_dspy.optimize.report.pages import card
from faith_dspy.optimize.report.tables import by_group
from faith_dspy.optimize.results import StudyResult, StudySetup
from faith_dspy.optimize.select.cascade import as_asked
from faith_dspy.optimize.select.champion import Promotion, promote
from faith_dspy.optimize.select.evaluate import usable
from faith_dspy.optimize.select.trial import judge_of, try_variants
from faith_dspy.optimize.stress import stress
from faith_dspy.schema import LabelledExample, digest


def tune(
    labels: Any,
    *,
    test: Any = None,
    lm: str = "local",
    api_base: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    reflection_lm: str | None = None,
    operating_point: str = "balanced",
    budget: BudgetName = "quick",
    out: str | Path | None = None,
    prefer: Literal["agreement", "cheapest"] = "agreement",
    max_flips: float | None = None,
    seed: int = 0,
    minutes: float | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    dollars: float | None = None,
    variants: str | Path | Sequence[str] = (),
    tracking_uri: str | None = None,
    experiment: str = "faithfulness",
    register: bool = True,
    view: Any = None,
) -> StudyResult:
    """Tune a judge on human labels, as ``faith-dspy tune`` does, and return what was found.

    ``labels``: a file (JSON lines, CSV, TSV, Parquet), the name of a shipped set, a pandas frame, a Hugging Face
    `Dataset` or `DatasetDict`, or a list of rows or examples. ``test``: labels to test on; else a part of ``labels`` is
    kept aside. ``out``: folder for the champion (default ``judges/<name of labels>``, of labels in memory
    ``judges/labels``); `StudyResult.judge_dir` says where.
    ``timeout``: of each LM, as for `faith_dspy.Judge`.
    ``operating_point``: what the threshold is for: ``balanced``, ``recall=0.9`` (of the unfaithful answers) or
    ``cost=5`` (how much worse it is to pass an unfaithful answer than to stop a faithful one). ``reflection_lm``: the
    LM that proposes instructions (mipro, gepa); default: the judged one. ``prefer``: the champion is the cheapest
    within one standard error of the best (``agreement``), or within two (``cheapest``).
    ``max_flips``: try injections and other perturbations on dev answers, as `faith-dspy stress` does; a champion whose
    verdicts a kind of injection flips in a larger share is exported, but not promoted (`StudyResult.held_back`).
    ``minutes``, LM ``calls``, ``tokens`` (read and written) and ``dollars`` (by LiteLLM's prices): what the whole study
    may spend; a part is kept for the champion's test, and replies that were paid for before are free.
    ``variants``: names from `faith_dspy.optimize.plan.VARIANTS` instead of the budget's (a list, or a text
    with commas between), or a ``.toml`` file that declares them (`faith_dspy.optimize.plan`). ``tracking_uri``:
    MLflow's store (default: MLFLOW_TRACKING_URI, else ``sqlite:///mlflow.db``).

    Raises `InputError` for labels that cannot be used and `LMUnavailableError` for an endpoint that is not there, both
    before any work is done.
    """
    given = {name: value for name, value in locals().items() if name in Options.model_fields}
    from faith_dspy.optimize.tracking.store import connect
    from faith_dspy.optimize.tracking.study_run import MlflowTracker
    from faith_dspy.report.progress import TerminalView

    try:
        options = Options(**given)
    except ValidationError as exc:
        raise ConfigError(faults(exc)) from exc
    return run(
        source_of(labels),
        options,
        view or TerminalView(),
        test=None if test is None else source_of(test),
        # Connected lazily: bad labels must fail before a store is created.
        tracker=lambda setup: MlflowTracker(connect(tracking_uri, experiment), setup, register=register),
    )


def run(
    labels: Any, options: Options, view: View, *, test: Any = None, tracker: Callable[[StudySetup], Any]
) -> StudyResult:
    """Tune a judge on labels (see `read_labels`), write it to ``options.out``, and return everything that was found.

    Faults in the labels and at the LMs' endpoints are found before any work. Every LM reply is kept in DSPy's cache as
    it comes: a study that was stopped goes on where it stopped when it is run again. Ctrl-C ends it with the champion
    among the finished variants, if the untuned judge is one of them; so does a limit that is reached.
    ``tracker`` makes what records the study, such as `MlflowTracker`, a context that is left when the study ends.
    """
    started = time.monotonic()
    stem = Path(name_of(labels)).stem.strip(". ")  # a stem of dots is another folder
    out = options.out or Path("judges") / (stem or "judge")
    planned = plan(options)
    budget = planned.budget
    parts = read_parts(labels, test, (budget.train, budget.dev, budget.test), budget.words, options.seed)
    setup = _set_up(labels, test, options, planned, parts)
    check_folder(out)
    if parts.sentence:
        view.say(parts.sentence)
    with owned(out), metered(planned.limits, max_failures=MAX_FAILURES) as meter, tracker(setup) as track:
        tried = try_variants(planned, parts, options, str(setup.lm["name"]), view, track)
        promotion = promote(tried.trials, parts, options, meter, view)
        compared = {r.name: r for r in tried.results}
        for found in promotion.compared:
            if found.name not in compared:
                track.variant(found)
            compared[found.name] = found
        flip_rate, held_back = _flips(promotion, parts, options, view)
        point = operating_point_sentence(options.operating_point, *(t.agreement for t in promotion.tested[:2]))
        used = setup.split["used"] | ({} if parts.cross_fitted else {"test": len(promotion.test)})
        result = StudyResult(
            **dict(setup) | {"split": setup.split | {"used": used}},
            variants=tuple(compared.values()),
            champion=promotion.name,
            test=promotion.tested,
            comparisons=promotion.comparisons,
            groups=by_group(promotion.test),
            ceiling=annotator_agreement([*_tuned_on(parts), *(parts.test if test else [])]),
            classifier=promotion.judge.chain[-1].classifier,
            learning_curve=promotion.learning,
            usage=meter.usage,
            replayed=meter.replayed,
            notes=(*promotion.notes, *point, *(f"Held back: {why}" for why in held_back)),
            flip_rate=flip_rate,
            held_back=held_back,
            finished=tried.finished,
            version=metadata.version("faith_dspy"),
            date=f"{date.today():%Y-%m-%d}",
            judge_dir=str(out),
            seconds=time.monotonic() - started,
        )
        _export(promotion, result, options, parts, out)
        return result.model_copy(update={"registered": track.finish(result), "page": track.page})


def _flips(promotion: Promotion, parts: Parts, options: Options, view: View) -> tuple[float | None, tuple[str, ...]]:
    """How many verdicts on dev injections flip, and why that holds the champion back; a gate not measured fails."""
    if options.max_flips is None:
        return None, ()
    try:
        with view.task(f"{promotion.name}: stress", None) as advance:
            report = stress(promotion.judge, parts.dev, seed=options.seed, advance=advance)
    except FaithDspyError as exc:
        return None, (f"the stress run on dev was not finished: {str(exc).rstrip('.')}.",)
    if report.flip_rate is not None:
        view.say(
            f"{promotion.name}: {report.flip_rate:.0%} of its verdicts on dev flip; allowed: {options.max_flips:.0%}"
        )
    return report.flip_rate, tuple(report.flipped(options.max_flips))


def _export(promotion: Promotion, result: StudyResult, options: Options, parts: Parts, out: Path) -> None:
    """Write the judge to ``out`` with what was measured of it, and with dev answers that loading it reproduces."""
    tested, judge = result.tested("champion"), promotion.judge
    kept = {"study_id", "label_set_hash", "labels_file", "split", "budget", "seed", "finished", "seconds"}
    judge.manifest = {
        **result.model_dump(mode="json", include=kept),
        "variant": result.champion,
        "operating_point": str(options.operating_point),
        "agreement": tested.levels.to_json(),
        "untuned_agreement": result.tested("untuned").levels.to_json(),
        "lexical_baseline_agreement": result.tested("lexical-baseline").levels.to_json(),
        "comparison": {k: c.model_dump(mode="json") for k, c in result.comparisons.items()},
        "usage": tested.usage.model_dump(mode="json"),
        "answer_keys": sorted(
            {answer_key(e.question, e.context, e.answer) for e in [*_tuned_on(parts), *parts.test]}
        ),  # `agree` on any of them is told
    }
    judged = [as_asked(judge, a) for a in usable(promotion.trial.dev)]
    escalated, settled = ([a for a in judged if bool(a.raw.escalated) is side] for side in (True, False))
    shown = [*escalated[:1], *settled, *escalated[1:]][:3]
    reference = [(a.example.question, list(a.example.context), a.example.answer, a.raw) for a in shown]
    save_judge(judge, out, card=card(result), reference=reference, study=result.model_dump_json(indent=1))


def _set_up(labels: Any, test: Any, options: Options, planned: Plan, parts: Parts) -> StudySetup:
    """Check that every LM answers, and say what the study is about."""
    lm = make_lm(options.lm, api_base=options.api_base, api_key=options.api_key, **options.times)
    for variant in {(v.lm, v.api_base): v for v in planned.variants}.values():
        preflight(judge_of(variant, options).lm if variant.lm else lm)
    if options.reflection_lm is not None and any(v.optimizer in PROPOSING for v in planned.variants):
        preflight(make_lm(options.reflection_lm, **options.times))
    splits = [parts.splits.train, parts.splits.dev, parts.splits.test or parts.test]
    return StudySetup(
        study_id=study_id(splits, identity(lm), planned, options),
        labels_file=Path(name_of(labels)).name,
        label_set_hash=label_set_hash(_tuned_on(parts)),
        test_file=None if test is None else Path(name_of(test)).name,
        lm=identity(lm).model_dump(mode="json"),
        budget=options.budget,
        seed=options.seed,
        split=parts.report,
    )


def _tuned_on(parts: Parts) -> list[LabelledExample]:
    return [*parts.splits.train, *parts.splits.dev, *parts.splits.test]


def study_id(parts: Sequence[Sequence[LabelledExample]], lm: LMIdentity, planned: Plan, options: Options) -> str:
    """Hash of all that a study's outcome depends on, by which its run in MLflow is found again.

    ``parts``: all examples of train, dev and test, in this order. The LM counts by name, file hash and endpoint; the
    budget by its numbers; variants with every option, their optimizer and order. Limits do not count: a study that ran
    out of them goes on when it is given more.
    """
    asked = options.model_dump(mode="json", include={"seed", "operating_point", "reflection_lm", "prefer", "max_flips"})
    budget = planned.budget.model_dump(mode="json", exclude={"minutes"})
    variants = [v.model_dump(mode="json") for v in planned.variants]
    versions = [metadata.version(name) for name in ("faith_dspy", "dspy", "scikit-learn")]
    return digest(
        [[label_set_hash(part) for part in parts], lm.model_dump(mode="json"), budget, variants, asked, versions]
    )
