"""``faith-dspy agree`` and ``stress``: how far a judge agrees with people, and what misleads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
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
        cli.option("--track", "Record the result in MLflow."),
    ] = False,
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
    same LABELS. Each time is a step of the metrics of one MLflow run; --min is the bar. A hosted LM is asked again each
    time; its cached replies are not used.

    Example: faith-dspy agree new-labels.jsonl --judge models:/faithfulness@champion --track --min 0.75
    """
    import_optional("numpy", "Measuring agreement")  # before anything is asked
    from faith_dspy.io.files import check_page, check_writable
    from faith_dspy.io.labels import label_set_hash, read_labels
    from faith_dspy.optimize.pass_rate import estimate_share, traffic_table
    from faith_dspy.optimize.report.headline import of_judge
    from faith_dspy.optimize.results import Row
    from faith_dspy.optimize.select.candidates import cost_of
    from faith_dspy.optimize.select.validation import compare_with_words
    from faith_dspy.report.judgment import judge_summary, write_html
    from faith_dspy.report.tables import (
        Table,
        agreement_tables,
        disagreements,
        disagreements_table,
    )
    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import measure_agreement
    from faith_dspy.scoring.gate import count_tuned_on, gate_checks, refuse_tuned_on

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
        from faith_dspy.lm.metered import MeteredLM
        from faith_dspy.optimize.tracking.monitor import MonitorRun
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        store = connect(tracking_uri, experiment or EXPERIMENT)
        name = chosen.source or judge.lm_name
        run = MonitorRun(store, name, labels.name, label_set_hash(examples))
        for lm in judge.prepare():
            # Another model may answer to a hosted one's name by now.
            if isinstance(lm, MeteredLM):
                lm.cache = lm.cache and bool(lm.endpoint.sha256)
    judged, outage = _judged(judge, examples, "judging")
    share = None
    if traffic and not outage:
        rows = list(map(Row.of, examples, judged))
        traffic_judged, outage = _judged(judge, traffic, "judging the unlabelled")
        scores = [judgment.ranking for judgment in traffic_judged]
        share = estimate_share(rows, scores, [e.group_key for e in traffic])
    agreement = measure_agreement(examples, judged)
    assert agreement.answers is not None  # as every answer has a label
    usage = sum((j.usage for j in judged), Usage())
    replayed = sum((j.replayed for j in judged), Usage())
    checks = {
        "the LM answers": outage,
        **gate_checks(examples, judged, minimum, min_coverage),
    }
    unscored = dict(
        Counter(
            j.unscored.value for j in judged if j.unscored is not None
        ).most_common()
    )
    wrong = disagreements(examples, judged)
    judge_name = judge_summary(judge)
    against_words = None if seen else compare_with_words(judge, examples, judged)
    three_lines = of_judge(
        judge,
        chosen.source,
        agreement.answers,
        cost_of([j.usage + j.replayed for j in judged], judge),
        seen=seen,
        against_words=against_words,
    )
    document = agreement.to_json() | {
        "in_three_lines": three_lines.notes,
        "disagreements": [
            {"id": e.id, "faithful": e.label, "probability": j.ranking}
            for e, j in wrong
        ],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "label_set_hash": label_set_hash(examples),
        "usage": usage.model_dump(mode="json"),
        "replayed": replayed.model_dump(mode="json"),
        "alarms": list(filter(None, checks.values())),
        "judge": judge_name,
        "version": metadata.version("faith_dspy"),
        "unscored": unscored,
        "tuned_on_these_labels": seen > 0,
        "answers_of_its_study": seen,
        "against_lexical_baseline": against_words
        and against_words.model_dump(mode="json"),
    }
    tables = [three_lines, disagreements_table(wrong)]
    if unscored:
        reasons = (f"{n} {reason.replace('_', ' ')}" for reason, n in unscored.items())
        tables.append(Table("Unscored", notes=tuple(reasons)))
    if details:
        tables += agreement_tables(
            agreement, usage, replayed, len(examples), judge_name
        )
    if share is not None:
        document["traffic"] = share.model_dump(mode="json")
        tables.append(traffic_table(share))
    if run is not None:
        document["tracked"] = {"run_id": run.run_id, "step": run.step}
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
        run.log(agreement, usage + replayed, len(examples), share)
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
