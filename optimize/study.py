"""One study from top to bottom: read → ask → candidates → choose → cross-validate → export. Start here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import ConfigError, FaithDspyError, InputError, describe_invalid
from faith_dspy.eval_sets.catalog import source_of
from faith_dspy.eval_sets.public import taught_defaults
from faith_dspy.export import save_judge
from faith_dspy.io.columns import read_scores
from faith_dspy.io.files import check_folder, owned
from faith_dspy.io.labels import label_set_hash, labellers
from faith_dspy.io.readers import name_of
from faith_dspy.judge import NO_LM
from faith_dspy.lm.make import identity, preflight
from faith_dspy.lm.metered import MAX_FAILURES, metered
from faith_dspy.optimize.classifier.fitting import check_recall
from faith_dspy.optimize.data.labels import annotator_agreement
from faith_dspy.optimize.data.pool import read_partition
from faith_dspy.optimize.groups import group_columns
from faith_dspy.optimize.plan import (
    BudgetName,
    Options,
    Study,
    Variant,
    View,
    plan,
)
from faith_dspy.optimize.recorded import read_column
from faith_dspy.optimize.report.headline import notes_of
from faith_dspy.optimize.report.pages import card, write_report
from faith_dspy.optimize.results import (
    LEXICAL,
    CandidateResult,
    PromptGain,
    Prompts,
    StudyResult,
    StudySetup,
)
from faith_dspy.optimize.select.ask import (
    Replies,
    ask_variants,
    judge_of,
    reflection_lm_of,
    usable,
)
from faith_dspy.optimize.select.candidates import (
    Candidate,
    as_asked,
    candidates,
    fit_judge,
    measure_judge,
)
from faith_dspy.optimize.select.champion import Choice, choose, difference
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.optimize.select.validation import (
    cross_validate,
    judge_test,
    measure,
    rivals_of,
)
from faith_dspy.optimize.stress import stress
from faith_dspy.schema import digest
from faith_dspy.scoring.gate import words_key


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
    scores: str | Sequence[str] = (),
    operating_point: str = "balanced",
    budget: BudgetName = "quick",
    out: str | Path | None = None,
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
    """Tune a judge on labels, as ``faith-dspy tune`` does.

        >>> result = tune("labels.jsonl", lm="openai/gpt-4o-mini", out="judges/mine")  # doctest: +SKIP
        >>> load_judge(result.judge_dir)  # doctest: +SKIP
        <Judge 'openai/gpt-4o-mini', by sentence, tuned judge>

    Args:
        labels: a file (JSON lines, CSV, TSV, Parquet), the name of a shipped set, a pandas frame, a Hugging Face
            `Dataset` or `DatasetDict`, or a list of rows or examples.
        test: labels of your own to test on, which nothing learns from; so are rows of ``labels`` with ``split: test``.
            Without them, and beside them, every label is cross-validated: it teaches, and it tests what others taught.
        lm: the LM that judges: ``local``, a model string of DSPy's, or ``none``: words alone.
        api_base: the address of your own endpoint.
        api_key: its key; else the provider's environment variable counts.
        timeout: seconds to wait for a reply of any LM, as for `faith_dspy.Judge`.
        reflection_lm: the LM that writes instructions (gepa, mipro, guidelines); default: the judged one.
        reflection_api_base: the address of its endpoint; ``api_base`` is the judged LM's alone.
        scores: columns of ``labels`` with what other judges said – numbers or verdicts; a list, or a text with commas
            between. Each is a candidate, by itself, with lexical features, and with the LM.
        operating_point: what the threshold is for: ``balanced``, ``recall=0.9`` (of the unfaithful answers) or
            ``cost=5`` (how much worse it is to pass an unfaithful answer than to fail a faithful one).
        budget: how much is tried, and on how many answers (`faith_dspy.optimize.plan.BUDGETS`).
        out: folder for the champion (default ``judges/<name of labels>``, of labels in memory ``judges/labels``).
        max_flips: try injections on the pool, as `faith-dspy stress` does; a champion whose verdicts a kind of
            injection flips in a larger share is exported, but not promoted.
        seed: of the folds and the optimizers.
        minutes: that the whole study may take; with ``calls`` of LMs, ``tokens`` (read and written) and ``dollars`` (by
            LiteLLM's prices) it is a stop. Replies that were paid for before are free.
        calls: see ``minutes``.
        tokens: see ``minutes``.
        dollars: see ``minutes``.
        variants: instead of the budget's: names from `faith_dspy.optimize.plan.VARIANTS` (a list, or a text with commas
            between; ``lexical``: no LM), `faith_dspy.optimize.plan.Variant` objects, or a ``.toml`` file that declares
            them.
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
    among the variants asked so far; a limit that is reached ends it without one. ``tracker`` makes what records the
    study, such as `MlflowTracker`, a context that is left when the study ends.
    """
    budget, variants = plan(options)
    point = options.operating_point
    partition = read_partition(
        labels, test, budget.pool, budget.words, options.seed, options.scores
    )
    for column in options.scores:
        read = read_column(column, partition.labelled, name_of(labels))
        view.say(f"Column: {read.direction}.")
    study = Study(options, budget, variants, partition, view)
    setup = _set_up(labels, test, study)
    out = _folder(labels, options)
    view.say(partition.sentence)
    taught = taught_defaults(e.id for e in partition.pool)
    warnings = [] if taught is None else [_SEEN_BY_DEFAULTS.format(taught)]
    for warning in warnings:
        view.say(warning)
    with (
        owned(out),
        metered(options.limits, max_failures=MAX_FAILURES) as meter,
        tracker(setup) as track,
    ):
        asked = ask_variants(study, str(setup.lm["model"]), meter)
        fold_of = partition.fold_of
        tried = candidates(asked.lexical, asked.replies, fold_of, point)
        choice = choose(tried, point)
        rivals = rivals_of(choice.champion, tried, asked.untuned)
        with view.task("cross-validation", None):
            validated = cross_validate(asked, fold_of, point)
        tested = None
        if partition.test:
            on_test = judge_test(rivals, asked.lexical.answers, study)
            tested = measure(on_test, rivals, point)
        result = StudyResult(
            **dict(setup),
            candidates=_results(tried, choice, fold_of),
            skipped=tuple(asked.skipped),
            champion=choice.champion.name,
            cv=measure(validated, rivals, point),
            test=tested,
            labelled_by=labellers([*partition.pool, *partition.test]),
            columns=group_columns([*partition.pool, *partition.test]),
            ceiling=annotator_agreement(partition.answers),
            classifier=choice.champion.judge.cascade[-1].classifier,
            lexical=rivals[LEXICAL].judge.classifier,
            usage=meter.usage,
            replayed=meter.replayed.calls,
            **_stressed(choice.champion, study),
            finished=asked.finished,
            version=metadata.version("faith_dspy"),
            date=f"{date.today():%Y-%m-%d}",
            judge_dir=str(out),
            seconds=meter.seconds,
        )
        notes = [*notes_of(result, choice.reason), *warnings]
        result = result.model_copy(update={"notes": tuple(notes)})
        _export(choice.champion, asked.lexical, result, study, out)
        update = {"registered": track.finish(result), "page": track.page}
        return result.model_copy(update=update)


def _set_up(labels: Any, test: Any, study: Study) -> StudySetup:
    """Check that every LM answers, and say what the study is about."""
    options, partition = study.options, study.labels
    unfaithful = sum(not e.label for e in partition.pool)
    check_recall(options.operating_point, unfaithful)
    about_lm = _reach_lms(study)
    return StudySetup(
        study_id=study_id(study, about_lm),
        labels_file=Path(name_of(labels)).name,
        label_set_hash=label_set_hash(partition.labelled),
        test_file=None if test is None else Path(name_of(test)).name,
        lm=about_lm,
        budget=options.budget,
        seed=options.seed,
        operating_point=str(options.operating_point),
        split=partition.report,
    )


def _reach_lms(study: Study) -> dict[str, Any]:
    """Return which LM judges; `LMUnavailableError` unless it, those of variants, and what writes instructions
    answer."""
    variants = sorted(study.variants, key=lambda v: v.lm is not None)
    if not variants:
        return {"model": NO_LM}
    by_address: dict[Any, Any] = {}
    for variant in variants:
        address = variant.lm, variant.api_base
        by_address.setdefault(address, judge_of(variant, study.options).lm)
    lms = [*by_address.values()]
    reflection_lm = reflection_lm_of(study.options)
    if reflection_lm is not None and any(v.optimizer for v in variants):
        lms.append(reflection_lm)
    for lm in lms:
        preflight(lm)
    return identity(lms[0]).model_dump(mode="json")


def _results(
    tried: Sequence[Candidate], choice: Choice, fold_of: Mapping[str, int]
) -> tuple[CandidateResult, ...]:
    """Return what each candidate reached on the pool, cross-fitted, and how far it is behind the best."""
    asked = {c.replies.name: c.replies for c in tried}
    prompts = {name: _prompts(replies, fold_of) for name, replies in asked.items()}
    best = choice.best
    return tuple(
        CandidateResult(
            **dict(measure_judge(c.name, c.answers, c.judge)),
            variant=c.replies.name if c.asks_lm else None,
            method=c.method,
            description=c.description,
            columns=tuple(c.judge.columns),
            function=next((j.lm_name for j in c.judge.cascade if j.function), None),
            params=c.replies.params,
            prompts=prompts[c.replies.name],
            score=choice.scores.get(c.name),
            behind=None if c is best else difference(c.answers, best.answers),
        )
        for c in tried
    )


def _prompts(replies: Replies, fold_of: Mapping[str, int]) -> Prompts | None:
    """Return a variant's prompts, and what they gain over the seed's, both calibrated on the same answers, where the
    seed was asked, too."""
    prompts = replies.prompts
    if prompts is None or not replies.seed:
        return prompts
    try:
        before, after = (
            fit_judge(replies.judge, answers, "lm", fold_of)
            for answers in (replies.seed, replies.answers)
        )
    except InputError:
        return prompts
    seed = measure_judge(replies.name, before.answers, before.judge)
    compiled = measure_judge(replies.name, after.answers, after.judge)
    names = replies.name, "its seed prompt"
    gain = PromptGain(
        comparison=compare(compiled.rows, seed.rows, names),
        compiled=compiled.levels,
        seed=seed.levels,
    )
    return prompts.model_copy(update={"gain": gain})


def _folder(labels: Any, options: Options) -> Path:
    """Return where the judge goes; checked before any work."""
    stem = Path(name_of(labels)).stem.strip(". ")  # a stem of dots is another folder
    out = options.out or Path("judges") / (stem or "judge")
    check_folder(out)
    return out


def _stressed(champion: Candidate, study: Study) -> dict[str, Any]:
    """Return how many verdicts injections flipped on the pool, and why that holds the champion back: a gate that could
    not be measured fails."""
    name, allowed = champion.name, study.options.max_flips
    if allowed is None:
        return {}
    pool, seed = study.labels.pool, study.options.seed
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


_SEEN_BY_DEFAULTS = (
    "Warning: the shipped defaults, which every candidate with lexical features starts from, were fitted to answers of "
    "{}: the figures flatter."
)
_IN_MANIFEST = {
    "study_id",
    "label_set_hash",
    "labels_file",
    "split",
    "budget",
    "seed",
    "operating_point",
    "finished",
    "seconds",
}


def _export(
    champion: Candidate,
    lexical: Replies,
    result: StudyResult,
    study: Study,
    out: Path,
) -> None:
    """Write the judge to ``out`` with what was measured of it, and with answers that loading it reproduces."""
    measured, judge = result.measured, champion.judge
    figures = measured.model_dump(mode="json", include={"comparisons"})
    own = result.model_dump(mode="json", include={*_IN_MANIFEST, "lexical"})
    keys = {words_key(e.context, e.answer) for e in study.labels.labelled}
    judge.manifest = {
        "lexical_baseline": own.pop("lexical"),
        **own,
        "variant": result.champion,
        "agreement": measured.champion.levels.to_json(),
        "agreement_by": result.measured_by,
        "comparison": figures["comparisons"],
        "usage": measured.champion.usage.model_dump(mode="json"),
        "answer_keys": sorted(keys),  # `agree` on any of them is told
    }
    if out.is_absolute():  # an export names no place
        result = result.model_copy(update={"judge_dir": out.name})
    save_judge(
        judge,
        out,
        card=card(result),
        reference=_references(champion, lexical),
        study={
            "study.json": result.model_dump_json(indent=1),
            "report.html": write_report(result),
        },
    )


def _references(champion: Candidate, lexical: Replies) -> list[tuple[Any, ...]]:
    """Three answers of the pool, one of them escalated where the judge is a cascade."""
    answers = usable(champion.replies.answers)
    first = (champion.first or lexical).answers
    judged = as_asked(champion.judge, answers, first)
    escalated = [a for a in judged if a.raw.escalated_to]
    settled = [a for a in judged if not a.raw.escalated_to]
    chosen = [*escalated[:1], *settled, *escalated[1:]][:3]
    return [
        (a.example.question, list(a.example.context), a.example.answer, a.raw)
        for a in chosen
    ]


def study_id(study: Study, lm: Mapping[str, Any]) -> str:
    """Hash of all that a study's outcome depends on, by which its run in MLflow is found again.

    The LM counts by name, file hash and endpoint; the budget by its numbers; variants with every option, their
    optimizer and order. Limits do not count: a study that ran out of them goes on when it is given more.
    """
    counted = {
        "seed",
        "operating_point",
        "reflection_lm",
        "reflection_api_base",
        "max_flips",
        "scores",
    }
    packages = "faith_dspy", "dspy", "scikit-learn"
    options, partition = study.options, study.labels
    return digest(
        [
            [label_set_hash(part) for part in (partition.pool, partition.test)],
            dict(lm),
            study.budget.model_dump(mode="json", exclude={"minutes"}),
            [v.model_dump(mode="json") for v in study.variants],
            options.model_dump(mode="json", include=counted),
            [
                [e.id, read_scores(e.columns, options.scores)]
                for e in partition.labelled
            ],
            [metadata.version(name) for name in packages],
        ]
    )
