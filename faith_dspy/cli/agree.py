"""``faith-dspy agree`` and ``stress``: how far a judge agrees with people, and what misleads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from faith_dspy.cli import options as cli
from faith_dspy.errors import LMUnavailableError, counted, import_optional

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample


@cli.with_options
def agree(
    labels: cli.Labels,
    *,
    chosen: cli.ChosenJudge,
    unlabelled: Annotated[
        Path | None,
        cli.option("--unlabelled", "The same traffic without labels.", "FILE"),
    ] = None,
    minimum: cli.Minimum = None,
    min_coverage: Annotated[
        float | None,
        cli.option(
            "--min-coverage",
            "Exit 1 when a smaller share is scored.",
            "SHARE",
            min=0,
            max=1,
            show_default="0.9 with --min",
        ),
    ] = None,
    junit: cli.JUnit = None,
    track: Annotated[
        bool,
        cli.option(
            "--track", "Record the result in MLflow; compare it with earlier ones."
        ),
    ] = False,
    max_drift: Annotated[
        float,
        cli.option(
            "--max-drift",
            "With --track: largest change of coverage.",
            "SHARE",
            min=0,
            max=1,
        ),
    ] = 0.2,
    tracking_uri: cli.TrackingURI = None,
    experiment: Annotated[
        str | None,
        cli.option(
            "--experiment",
            "MLflow experiment of --track.",
            "NAME",
            show_default="faithfulness",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        cli.option("--html", "Also write an HTML page of the disagreements.", "FILE"),
    ] = None,
    details: cli.Details = False,
    as_json: cli.Json = False,
) -> None:
    """Measure how far a judge agrees with human labels it was not tuned on; list the disagreements, worst first.

    With --min, it exits 1 when balanced accuracy is below it (an unscored answer counts as wrong), when fewer answers
    are scored than --min-coverage asks for, or when a label is in fewer than ten sources. It always exits 1 when no
    answer could be scored, or the LM stops answering.

    With --unlabelled, also estimate the share of faithful answers in that traffic, by prediction-powered inference from
    the few labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    Both refuse labels that the judge was tuned on.

    With --track (implied by --tracking-uri and --experiment), monitor a judge in use: run it on a schedule with the
    same LABELS. Agreement, coverage and drift are lines of one MLflow run, and verdicts that flipped since the last
    time are listed. It also exits 1 when the judge has become worse than the last or the first time (paired, 95 %), or
    when coverage has changed by more than --max-drift. A hosted LM is asked again each time; its cached replies are not
    used.

    Example: faith-dspy agree new-labels.jsonl --judge models:/faithfulness@champion --track --min 0.75
    """
    import_optional("numpy", "Measuring agreement")  # before anything is asked
    from faith_dspy.io.files import check_page, check_writable
    from faith_dspy.io.labels import label_set_hash, read_labels
    from faith_dspy.optimize import drift
    from faith_dspy.optimize.report.headline import of_judge
    from faith_dspy.report.judgment import judge_summary, write_html
    from faith_dspy.report.tables import (
        Table,
        agreement_tables,
        disagreements,
        disagreements_table,
    )
    from faith_dspy.scoring.gate import count_tuned_on, refuse_tuned_on

    for path in filter(None, (html, junit)):
        check_writable(path, Path(labels))
    if html is not None:
        check_page(html)
    examples = sorted(
        read_labels(labels), key=lambda e: (e.context_key, e.id)
    )  # so that the prefix cache stays warm
    traffic = (
        read_labels(unlabelled, require_label=False) if unlabelled is not None else []
    )
    judge = chosen.load()
    answer_keys = judge.manifest.get("answer_keys", ())
    if minimum is not None or traffic:
        use = "--unlabelled" if traffic else "--min"
        refuse_tuned_on(answer_keys, examples, labels.name, use)
    seen = count_tuned_on(answer_keys, examples)
    run = None
    if track or tracking_uri or experiment:
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        store = connect(tracking_uri, experiment or EXPERIMENT)
        run = drift.DriftRun(
            store, chosen.source or judge.lm_name, labels.name, label_set_hash(examples)
        )
        drift.ignore_cache(judge)
    judged, outage = _judged(judge, examples, "judging")
    rows = drift.judged_rows(examples, judged)
    share = None
    if traffic and not outage:
        traffic_judged, outage = _judged(judge, traffic, "judging the unlabelled")
        scores = [judgment.ranking for judgment in traffic_judged]
        share = drift.estimate_share(rows, scores, [e.group_key for e in traffic])
    report = drift.drift_report(
        examples,
        judged,
        judge.fingerprint,
        share=share,
        earlier=run.earlier if run and not outage else (),
        minimum=minimum,
        min_coverage=min_coverage,
        max_shift=max_drift,
    )
    unscored = dict(
        Counter(
            j.unscored.value for j in judged if j.unscored is not None
        ).most_common()
    )
    wrong = disagreements(examples, judged)
    judge_name = judge_summary(judge)
    assert report.agreement.answers is not None  # else there is no report
    three_lines = of_judge(judge, chosen.source, report.agreement.answers, seen=seen)
    document = report.agreement.to_json() | {
        "in_three_lines": three_lines.notes,
        "disagreements": [
            {"id": e.id, "faithful": e.label, "probability": j.ranking}
            for e, j in wrong
        ],
        **report.model_dump(
            mode="json", include={"at", "label_set_hash", "usage", "replayed", "alarms"}
        ),
        "judge": judge_name,
        "version": metadata.version("faith_dspy"),
        "unscored": unscored,
        "tuned_on_these_labels": seen > 0,
        "answers_of_its_study": seen,
    }
    tables = [three_lines, disagreements_table(wrong)]
    if unscored:
        reasons = (f"{n} {reason.replace('_', ' ')}" for reason, n in unscored.items())
        tables.append(Table("Unscored", notes=tuple(reasons)))
    if details:
        tables += agreement_tables(
            report.agreement, report.usage, report.replayed, len(examples), judge_name
        )
    if share is not None:
        document["traffic"] = share.model_dump(mode="json")
        tables.append(drift.traffic_table(share))
    if run is not None:
        fields = {"at", "changes", "new_version", "flips"}
        document["drift"] = {
            "run_id": run.run_id,
            "step": run.steps,
            **report.model_dump(mode="json", include=fields),
        }
        tables += drift.drift_tables(report)
    cli.print_result(as_json, document, tables)
    if html is not None:
        title = f"{counted(len(wrong), 'disagreement')} with {labels.name}, worst first"
        write_html(
            (({**dict(e), "faithful": e.label}, j) for e, j in wrong),
            html,
            title=title,
            judge=judge_name,
        )
    if run is not None and not outage:  # which says nothing about the judge
        run.log(report)
    checks = {"the LM answers": outage, **report.checks}
    if junit is not None:
        cli.write_junit(junit, f"faith-dspy agree {labels.name}", checks)
    cli.fail(filter(None, checks.values()))


@cli.with_options
def stress(
    labels: cli.Labels,
    *,
    chosen: cli.ChosenJudge,
    answers: Annotated[
        int,
        cli.option(
            "--answers", "Labelled answers to try, half of them faithful.", "N", min=2
        ),
    ] = 50,
    seed: Annotated[
        int, cli.option("--seed", "Seed of the choice and of the injections.", "N")
    ] = 0,
    max_flips: cli.MaxFlips = None,
    as_json: cli.Json = False,
) -> None:
    """Put orders to the judge inside the data, and count how many verdicts they flip.

    105 injections of 15 kinds stand in the answer, the context, the question or a tool's result, and order the
    opposite of the label. Each answer costs up to 16 judgments.
    """
    import_optional("numpy", "A stress test")
    from faith_dspy.io.labels import read_labels
    from faith_dspy.lm.metered import metered
    from faith_dspy.optimize.stress import stress, stress_tables
    from faith_dspy.report.progress import TerminalView

    examples = read_labels(labels)
    judge = chosen.load()
    judge.preflight()
    with TerminalView().bar("judging", None) as advance, metered():
        report = stress(judge, examples, answers=answers, seed=seed, advance=advance)
    cli.print_result(as_json, report.model_dump(mode="json"), stress_tables(report))
    cli.fail(report.flipped(max_flips))


def _judged(
    judge: Judge, examples: Sequence[LabelledExample], what: str
) -> tuple[list[Judgment], str | None]:
    """Judgments of the examples, with a progress bar; where the LM stops answering, the rest is unscored and the
    reason is said."""
    from faith_dspy.lm.metered import metered
    from faith_dspy.report.progress import TerminalView
    from faith_dspy.schema import Judgment, Unscored

    judged: list[Judgment] = []
    try:
        judge.preflight()
        with TerminalView().task(what, len(examples)) as advance, metered():
            for judgment in judge.stream(examples):
                judged.append(judgment)
                advance(1)
    except LMUnavailableError as exc:
        lost = Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))
        return judged + [lost] * (len(examples) - len(judged)), str(exc)
    return judged, None
