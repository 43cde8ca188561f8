"""One tuning run from top to bottom: labels in, champion out."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from datetime import date
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faith_dspy
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.export import save_judge
from faith_dspy.io.files import check_folder, owned
from faith_dspy.io.labels import answer_key, label_set_hash, name_of, unused_in_labels
from faith_dspy.lm.make import identity, make_lm, preflight
from faith_dspy.lm.metered import MAX_FAILURES, metered
from faith_dspy.optimize.classifier.operating_point import BALANCED, operating_point_sentence
from faith_dspy.optimize.compile.optimizers import PROPOSING
from faith_dspy.optimize.data.audit import annotator_agreement
from faith_dspy.optimize.data.splits import Parts, read_parts
from faith_dspy.optimize.report.groups import by_group
from faith_dspy.optimize.report.pages import card
from faith_dspy.optimize.results import StudyResult, StudySetup
from faith_dspy.optimize.select.champion import Promotion, promote
from faith_dspy.optimize.select.cost import cost_sentences
from faith_dspy.optimize.select.evaluate import scorable
from faith_dspy.optimize.select.halving import try_variants
from faith_dspy.optimize.select.modes import as_judged_by
from faith_dspy.optimize.select.plan import Plan, plan
from faith_dspy.optimize.select.trial import Trial, judge_of, try_baselines
from faith_dspy.optimize.stress import stress
from faith_dspy.optimize.tracking.archive import study_json
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.lm.make import LMIdentity
    from faith_dspy.optimize.options import Options, Tracker, View
    from faith_dspy.optimize.select.variants import Budget, Variant
    from faith_dspy.schema import LabelledExample


def run(
    labels: Any, options: Options, view: View, *, test: Any = None, tracker: Callable[[StudySetup], Tracker]
) -> StudyResult:
    """Tune a judge on labels (see `read_labels`), write it to ``options.out``, and return everything that was found.

    Faults in the labels and at the LMs' endpoints are found before any work. Every LM reply is kept in DSPy's cache as
    it comes: a study that was stopped goes on where it stopped when it is run again. Ctrl-C ends it with the champion
    among the finished variants, if the untuned judge is one of them; so does a limit that is reached.
    """
    out = options.out or Path("judges") / (
        Path(name_of(labels)).stem.strip(". ") or "judge"
    )  # a stem of dots is another folder
    if there := next((p for p in (out, *out.parents) if p.is_file()), None):
        raise InputError(f"--out {out}: {there} is a file; expected a folder, or a place where one can be made.")
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        check_folder(out)
        with owned(out):
            return _run(labels, out, options, view, test, tracker)
    finally:
        for folder in made:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def _run(
    labels: Any, out: Path, options: Options, view: View, test: Any, tracker: Callable[[StudySetup], Tracker]
) -> StudyResult:
    started = time.monotonic()
    planned = plan(options.budget, options.variants, options.limits)
    budget = planned.budget
    parts = read_parts(labels, test, (budget.train, budget.dev, budget.test), budget.words, options.seed)
    setup = _set_up(labels, test, options, planned, parts)
    for sentence in filter(None, (unused_in_labels(labels), parts.sentence)):
        view.say(sentence)
    with metered(planned.limits, max_failures=MAX_FAILURES) as meter:
        track = tracker(setup)
        baselines = try_baselines(parts, options.seed)
        for baseline in baselines:
            track.variant(baseline)
        tried = try_variants(planned, parts, options, str(setup.lm["name"]), meter, view, track)
        promotion = promote(tried.trials, baselines, parts, options, meter, view)
        flip_rate, held_back = _flips(promotion, parts, options, view)
        usage, replayed = meter.usage, meter.replayed
    used = setup.split["used"] | ({} if parts.cross_fitted else {"test": len(promotion.test)})
    result = StudyResult(
        **dict(setup) | {"split": setup.split | {"used": used}},
        variants=(*baselines, *tried.results),
        champion=promotion.name,
        test=promotion.tested,
        comparisons=promotion.comparisons,
        costs=promotion.costs,
        costs_in_words=cost_sentences(promotion.costs),
        groups=by_group(promotion.tested[0].predictions, options.seed),
        ceiling=annotator_agreement([*_tuned_on(parts), *(parts.test if test else [])]),
        classifier=promotion.fitted.classifier.model_dump(mode="json")
        | {"learned_from": promotion.fitted.learned_from},
        learning_curve=promotion.learning.points,
        outlook=promotion.learning.outlook,
        usage=usage,
        replayed=replayed,
        notes=(*_notes(promotion, options), *(f"Held back: {why}" for why in held_back)),
        flip_rate=flip_rate,
        held_back=held_back,
        finished=tried.finished,
        version=metadata.version("faith_dspy"),
        date=f"{date.today():%Y-%m-%d}",
        judge_dir=str(out),
        seconds=time.monotonic() - started,
    )
    _export(promotion, tried.trials[promotion.name], result, options, parts, out)
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


def _notes(promotion: Promotion, options: Options) -> tuple[str, ...]:
    if options.operating_point == BALANCED:
        return promotion.notes
    champion, untuned = (t.agreement for t in promotion.tested[:2])
    auroc = promotion.comparisons["untuned"].auroc
    return (*promotion.notes, operating_point_sentence(options.operating_point, champion, untuned, auroc))


def _export(promotion: Promotion, trial: Trial, result: StudyResult, options: Options, parts: Parts, out: Path) -> None:
    """Write the judge to ``out`` with what was measured of it, and with dev answers that loading it reproduces."""
    tested = result.tested("champion")
    judge = promotion.judge
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
    judged = [as_judged_by(judge, e) for e in scorable(trial.dev)]
    escalated, settled = ([e for e in judged if bool(e.raw_judgment.escalated) is side] for side in (True, False))
    reference = [
        (e.example.question, list(e.example.context), e.example.answer, e.raw_judgment)
        for e in [*escalated[:1], *settled, *escalated[1:]][:3]
    ]
    save_judge(judge, out, card=card(result), reference=reference, study=study_json(result))


def _set_up(labels: Any, test: Any, options: Options, planned: Plan, parts: Parts) -> StudySetup:
    """Check that every LM answers, and say what the study is about."""
    lm = make_lm(options.lm, api_base=options.api_base, api_key=options.api_key, **options.times)
    for variant in {(v.lm, v.api_base): v for v in planned.variants}.values():
        preflight(judge_of(variant, options).lm if variant.lm else lm)
    if options.reflection_lm is not None and any(v.optimizer in PROPOSING for v in planned.variants):
        preflight(make_lm(options.reflection_lm, **options.times))
    asked_for = [options.seed, str(options.operating_point), options.reflection_lm, options.prefer, options.max_flips]
    splits = [parts.splits.train, parts.splits.dev, parts.splits.test or parts.test]
    return StudySetup(
        study_id=study_id(splits, identity(lm), planned.budget, planned.variants, asked_for),
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


def study_id(
    parts: Sequence[Sequence[LabelledExample]],
    lm: LMIdentity,
    budget: Budget,
    variants: Sequence[Variant],
    options: object,
) -> str:
    """Hash of all that a study's outcome depends on. A study with the same id goes on in the same MLflow run.

    ``parts``: all examples of train, dev and test, in this order. The LM counts by name, file hash and endpoint; the
    budget by its numbers; variants with every option, their optimizer and order; ``options``, such as the seed; the
    code by its text and the versions of what it computes with. The minutes do not count: a study that ran out of them
    goes on when it is given more. Only LM replies are ever reused, and those by LM and prompt.
    """
    labels = [label_set_hash(part) for part in parts]
    return digest([labels, lm.model_dump(mode="json"), budget._replace(minutes=None), list(variants), options, _code()])


@lru_cache(maxsize=1)
def _code() -> str:
    versions = [metadata.version(name) for name in ("dspy", "scikit-learn")]
    here = Path(__file__).parent  # in a source tree it lies beside the package
    files = {f.resolve() for package in (here, Path(faith_dspy.__file__).parent) for f in package.rglob("*.py")}
    texts = sorted(hashlib.sha256(f.read_bytes()).hexdigest() for f in files)
    return digest([versions, texts])
