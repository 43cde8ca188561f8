"""One study from top to bottom: read → ask → candidates → choose → fit → test → export. Start here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import ConfigError, FaithDspyError, describe_invalid
from faith_dspy.eval_sets.catalog import source_of
from faith_dspy.export import save_judge
from faith_dspy.io.files import check_folder, owned
from faith_dspy.io.labels import answer_key, label_set_hash
from faith_dspy.io.readers import name_of
from faith_dspy.lm.make import LMIdentity, identity, make_lm, preflight
from faith_dspy.lm.metered import MAX_FAILURES, metered
from faith_dspy.optimize.classifier.fitting import check_recall
from faith_dspy.optimize.compile.metric import EVIDENCE_WEIGHT
from faith_dspy.optimize.data.labels import annotator_agreement
from faith_dspy.optimize.data.splits import read_parts
from faith_dspy.optimize.plan import (
    BudgetName,
    Options,
    Plan,
    Prefer,
    Study,
    Variant,
    View,
    plan,
)
from faith_dspy.optimize.report.headline import notes_of
from faith_dspy.optimize.report.pages import card
from faith_dspy.optimize.results import LEXICAL, UNTUNED, StudyResult, StudySetup
from faith_dspy.optimize.select.ask import ask_variants, judge_of, usable
from faith_dspy.optimize.select.candidates import Candidate, as_asked, candidates
from faith_dspy.optimize.select.champion import choose, open_testset
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
    reflection_api_base: str | None = None,
    operating_point: str = "balanced",
    budget: BudgetName = "quick",
    out: str | Path | None = None,
    prefer: Prefer = "agreement",
    evidence_weight: float = EVIDENCE_WEIGHT,
    max_flips: float | None = None,
    seed: int = 0,
    minutes: float | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    dollars: float | None = None,
    variants: str | Path | Sequence[str | Variant] = (),
    tracking_uri: str | None = None,
    experiment: str = "faithfulness",
    register: bool = True,
    view: Any = None,
) -> StudyResult:
    """Tune a judge on human labels, as ``faith-dspy tune`` does.

        >>> result = tune("labels.jsonl", lm="openai/gpt-4o-mini", out="judges/mine")  # doctest: +SKIP
        >>> load_judge(result.judge_dir)  # doctest: +SKIP
        <Judge 'openai/gpt-4o-mini', by sentence, tuned judge>

    Args:
        labels: a file (JSON lines, CSV, TSV, Parquet), the name of a shipped set, a pandas frame, a Hugging Face
            `Dataset` or `DatasetDict`, or a list of rows or examples.
        test: labels to test on; else a part of ``labels`` is kept aside.
        lm: the LM that judges: ``local``, or a model string of DSPy's.
        api_base: the address of your own endpoint.
        api_key: its key; else the provider's environment variable counts.
        timeout: seconds a call of any LM may take, as for `faith_dspy.Judge`.
        reflection_lm: the LM that proposes instructions (gepa, mipro, guidelines), and the teacher (bootstrap);
            default: the judged one. With it, a study that tries ``statement`` tries ``statement-gepa``, too.
        reflection_api_base: the address of its endpoint; ``api_base`` is the judged LM's alone.
        operating_point: what the threshold is for: ``balanced``, ``recall=0.9`` (of the unfaithful answers) or
            ``cost=5`` (how much worse it is to pass an unfaithful answer than to fail a faithful one).
        budget: how much is tried, and on how many answers (`faith_dspy.optimize.plan.BUDGETS`).
        out: folder for the champion (default ``judges/<name of labels>``, of labels in memory ``judges/labels``).
        prefer: ``agreement`` exports the best candidate, or a cheaper one that is not inferior; ``cheapest``
            the cheapest within one standard error of the best.
        evidence_weight: of the F1 of chunk ids, in the optimizers' metric and in the choice, where labels name chunks.
        max_flips: try injections on the pool, as `faith-dspy stress` does; a champion whose
            verdicts a kind of injection flips in a larger share is exported, but not promoted.
        seed: of the split, the folds, and the optimizers.
        minutes: that the whole study may take; with ``calls`` of LMs, ``tokens`` (read and written) and ``dollars`` (by
            LiteLLM's prices) it is a stop. Replies that were paid for before are free.
        calls: see ``minutes``.
        tokens: see ``minutes``.
        dollars: see ``minutes``.
        variants: instead of the budget's: names from `faith_dspy.optimize.plan.VARIANTS` (a list, or a text with commas
            between), `faith_dspy.optimize.plan.Variant` objects, or a ``.toml`` file that declares them.
        tracking_uri: MLflow's store (default: MLFLOW_TRACKING_URI, else ``sqlite:///mlflow.db``).
        experiment: MLflow's experiment.
        register: whether the champion goes into MLflow's registry.
        view: where progress is shown; default: the terminal.

    Returns:
        Everything that was measured; `StudyResult.judge_dir` is the folder of the judge.

    Raises:
        InputError: labels or options that cannot be used.
        LMUnavailableError: an endpoint that is not there, found before any work, or dies.
        LimitReachedError: a limit was reached; run again with a higher one, and it goes on where it stopped.
    """
    values = {k: v for k, v in locals().items() if k in Options.model_fields}
    from faith_dspy.optimize.tracking.store import connect
    from faith_dspy.optimize.tracking.tracker import MlflowTracker
    from faith_dspy.report.progress import TerminalView

    try:
        options = Options(**values)
    except ValidationError as exc:
        raise ConfigError(describe_invalid(exc)) from exc
    return run(
        source_of(labels),
        options,
        view or TerminalView(),
        test=None if test is None else source_of(test),
        # Connected lazily: bad labels must fail before a store is created.
        tracker=lambda setup: MlflowTracker(
            connect(tracking_uri, experiment), setup, register=register
        ),
    )


def run(
    labels: Any,
    options: Options,
    view: View,
    *,
    test: Any = None,
    tracker: Callable[[StudySetup], Any],
) -> StudyResult:
    """Tune a judge on labels (see `read_labels`) and write it to ``options.out``.

    Faults in the labels and at the LMs' endpoints are found before any work. Every LM reply is kept in DSPy's cache as
    it comes: a study that was stopped goes on where it stopped when it is run again. Ctrl-C ends it with the champion
    among the variants asked so far, if the untuned judge is one of them; a limit that is reached ends it without one.
    ``tracker`` makes what records the study, such as `MlflowTracker`, a context that is left when the study ends.
    """
    planned = plan(options)
    budget = planned.budget
    sizes = budget.pool, budget.test
    parts = read_parts(labels, test, sizes, budget.words, options.seed)
    study = Study(planned, options, parts, view)
    setup = _set_up(labels, test, study)
    out = _folder(labels, options)
    view.say(parts.sentence)
    with (
        owned(out),
        metered(options.limits, max_failures=MAX_FAILURES) as meter,
        tracker(setup) as track,
    ):
        asked = ask_variants(study, str(setup.lm["name"]), meter)
        tried = candidates(
            asked.replies, parts.pool, options.seed, options.operating_point
        )
        choice = choose(tried, options.prefer, options.evidence_weight)
        opened = None
        if not parts.cross_fitted:
            opened = track.count_openings(label_set_hash(parts.test))
        tested = open_testset(choice.champion, tried, asked.replies, study)
        stressed = _stressed(choice.champion, study)
        result = StudyResult(
            **dict(setup),
            variants=(*choice.compared, *asked.skipped),
            champion=choice.champion.result.name,
            test=tested.results,
            comparisons=tested.comparisons,
            ceiling=annotator_agreement(parts.labelled),
            classifier=choice.champion.judge.cascade[-1].classifier,
            evidence_weight=_evidence_weight(study),
            opened=opened,
            usage=meter.usage,
            replayed=meter.replayed.calls,
            **stressed,
            finished=asked.finished,
            version=metadata.version("faith_dspy"),
            date=f"{date.today():%Y-%m-%d}",
            judge_dir=str(out),
            seconds=meter.seconds,
        )
        notes = notes_of(result, choice.reason, options.operating_point)
        result = result.model_copy(update={"notes": tuple(notes)})
        _export(choice.champion, result, study, out)
        update = {"registered": track.finish(result), "page": track.page}
        return result.model_copy(update=update)


def _set_up(labels: Any, test: Any, study: Study) -> StudySetup:
    """Check that every LM answers, and say what the study is about."""
    planned, options, parts, _ = study
    check_recall(options.operating_point, sum(not e.label for e in parts.pool))
    timeout = options.timeout
    lm = make_lm(
        options.lm,
        api_base=options.api_base,
        api_key=options.api_key,
        timeout=timeout,
    )
    for variant in {(v.lm, v.api_base): v for v in planned.variants}.values():
        preflight(judge_of(variant, options).lm if variant.lm else lm)
    compiles = any(v.optimizer for v in planned.variants)
    if options.reflection_lm is not None and compiles:
        reflection_lm = make_lm(
            options.reflection_lm,
            api_base=options.reflection_api_base,
            timeout=timeout,
        )
        preflight(reflection_lm)
    splits = parts.splits
    all_parts = [splits.pool, splits.test or parts.test]
    return StudySetup(
        study_id=study_id(all_parts, identity(lm), planned, options),
        labels_file=Path(name_of(labels)).name,
        label_set_hash=label_set_hash([*splits.pool, *splits.test]),
        test_file=None if test is None else Path(name_of(test)).name,
        lm=identity(lm).model_dump(mode="json"),
        budget=options.budget,
        seed=options.seed,
        split=parts.report,
    )


def _folder(labels: Any, options: Options) -> Path:
    """Return where the judge goes; checked before any work."""
    stem = Path(name_of(labels)).stem.strip(". ")  # a stem of dots is another folder
    out = options.out or Path("judges") / (stem or "judge")
    check_folder(out)
    return out


def _stressed(champion: Candidate, study: Study) -> dict[str, Any]:
    """Return how many verdicts injections flipped on the pool, and why that holds the champion back: a gate that could
    not be measured fails."""
    name, allowed = champion.result.name, study.options.max_flips
    if allowed is None:
        return {}
    pool, seed = study.parts.pool, study.options.seed
    try:
        with study.view.task(f"{name}: stress", None) as advance:
            report = stress(champion.judge, pool, seed=seed, advance=advance)
    except FaithDspyError as exc:
        why = f"the stress run on the pool was not finished: {str(exc).rstrip('.')}."
        return {"held_back": (why,)}
    rate = report.flip_rate
    if rate is not None:
        study.view.say(
            f"{name}: {rate:.0%} of its verdicts flip; allowed: {allowed:.0%}"
        )
    return {"flip_rate": rate, "held_back": tuple(report.flipped(allowed))}


def _evidence_weight(study: Study) -> float | None:
    """Return the weight of chunk ids in the choice; None where people name none."""
    named = [s.supporting_chunk_ids for e in study.parts.pool for s in e.statements]
    return study.options.evidence_weight if any(named) else None


_IN_MANIFEST = {
    "study_id",
    "label_set_hash",
    "labels_file",
    "split",
    "budget",
    "seed",
    "finished",
    "seconds",
}


def _export(
    champion: Candidate,
    result: StudyResult,
    study: Study,
    out: Path,
) -> None:
    """Write the judge to ``out`` with what was measured of it, and with answers that loading it reproduces."""
    tested, judge = result.tested("champion"), champion.judge
    untuned, lexical = result.tested(UNTUNED), result.tested(LEXICAL)
    labelled = study.parts.labelled
    keys = {answer_key(e.question, e.context, e.answer) for e in labelled}
    compared = result.model_dump(mode="json", include={"comparisons"})
    judge.manifest = {
        **result.model_dump(mode="json", include=_IN_MANIFEST),
        "variant": result.champion,
        "operating_point": str(study.options.operating_point),
        "agreement": tested.levels.to_json(),
        "untuned_agreement": untuned.levels.to_json(),
        "lexical_baseline_agreement": lexical.levels.to_json(),
        "comparison": compared["comparisons"],
        "usage": tested.usage.model_dump(mode="json"),
        "answer_keys": sorted(keys),  # `agree` on any of them is told
    }
    save_judge(
        judge,
        out,
        card=card(result),
        reference=_references(champion),
        study=result.model_dump_json(indent=1),
    )


def _references(champion: Candidate) -> list[tuple[Any, ...]]:
    """Three answers of the pool, one of them escalated where the judge is a cascade."""
    answers = champion.result.answers
    if champion.replies is not None:
        answers = tuple(champion.replies.answers)
    judged = [as_asked(champion.judge, a) for a in usable(answers)]
    escalated = [a for a in judged if a.raw.escalated]
    settled = [a for a in judged if not a.raw.escalated]
    references = []
    for a in [*escalated[:1], *settled, *escalated[1:]][:3]:
        e = a.example
        references.append((e.question, list(e.context), e.answer, a.raw))
    return references


def study_id(
    parts: Sequence[Sequence[LabelledExample]],
    lm: LMIdentity,
    planned: Plan,
    options: Options,
) -> str:
    """Hash of all that a study's outcome depends on, by which its run in MLflow is found again.

    ``parts``: all examples of pool and test, in this order. The LM counts by name, file hash and endpoint; the budget
    by its numbers; variants with every option, their optimizer and order. Limits do not count: a study that ran out of
    them goes on when it is given more.
    """
    counted = {
        "seed",
        "operating_point",
        "reflection_lm",
        "reflection_api_base",
        "prefer",
        "max_flips",
        "evidence_weight",
    }
    packages = "faith_dspy", "dspy", "scikit-learn"
    return digest(
        [
            [label_set_hash(part) for part in parts],
            lm.model_dump(mode="json"),
            planned.budget.model_dump(mode="json", exclude={"minutes"}),
            [v.model_dump(mode="json") for v in planned.variants],
            options.model_dump(mode="json", include=counted),
            [metadata.version(name) for name in packages],
        ]
    )
