"""``faith-dspy agree`` and ``stress``: how far a judge agrees with people, and what misleads it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

from faith_dspy.cli import options as cli
from faith_dspy.errors import InputError, counted, import_optional


@cli.with_options
def agree(
    labels: cli.Labels,
    *,
    chosen: cli.ChosenJudge,
    in_batch: cli.InBatch,
    scores: cli.Scores = None,
    by: cli.By = None,
    unlabelled: Annotated[
        Path | None,
        cli.option("--unlabelled", "The same traffic without labels.", "FILE"),
    ] = None,
    minimum: Annotated[
        float | None,
        cli.option(
            "--min", "Exit 1 when the measure is below this.", "SHARE", min=0, max=1
        ),
    ] = None,
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
    junit: Annotated[
        Path | None,
        cli.option(
            "--junit", "Also write what was checked, as JUnit's XML for CI.", "FILE"
        ),
    ] = None,
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
    """Measure how far a judge agrees with labels it was not tuned on; list the disagreements, worst first.

    With --min, it exits 1 when balanced accuracy is below it (an unscored answer counts as wrong), when fewer answers
    are scored than --min-coverage asks for, or when a label is in fewer than ten sources. It always exits 1 when no
    answer could be scored, or the LM stops answering.

    With --unlabelled, also estimate the share of faithful answers in that traffic, by prediction-powered inference from
    the few labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    Both refuse labels that the judge was tuned on.

    --scores measures judges without asking them: --scores ragas_faithfulness,judge_verdict reads two columns. A number
    passes from a threshold that is cross-validated over the sources; !COLUMN reads a higher value, or a yes, the other
    way round. Context and answer may be missing. With several judges – --judge may be repeated, and goes with
    --scores – each is compared with the first, which --min and --unlabelled are for.

    With --track (implied by --tracking-uri and --experiment), monitor a judge in use: run it on a schedule with the
    same LABELS. Each time is a step of the metrics of one MLflow run; --min is the bar. A hosted LM is asked again each
    time; its cached replies are not used.

    Example: faith-dspy agree new-labels.jsonl --judge models:/faithfulness@champion --track --min 0.75
    """
    import_optional("numpy", "Measuring agreement")  # before anything is asked
    from faith_dspy.io.columns import column_names
    from faith_dspy.io.labels import label_set_hash, read_labels
    from faith_dspy.io.readers import check_records
    from faith_dspy.optimize.agree import JudgedLabels, ask_judge, read_judges
    from faith_dspy.optimize.groups import (
        agreement_by_group,
        group_columns,
        groups_of,
        groups_table,
    )
    from faith_dspy.optimize.pass_rate import estimate_share, traffic_table
    from faith_dspy.optimize.recorded import own_sources, with_own_sources
    from faith_dspy.optimize.report.side_by_side import (
        differences,
        side_by_side,
        where_they_differ,
    )
    from faith_dspy.report.judgment import write_html
    from faith_dspy.report.tables import (
        Table,
        agreement_tables,
        disagreements,
        disagreements_table,
    )
    from faith_dspy.scoring.gate import gate_checks, refuse_tuned_on

    cli.check_outputs(labels, html, junit)
    columns = column_names(",".join(scores) if scores else ())
    asked = chosen.each
    if not asked and (chosen.lm or not columns):
        asked = [chosen]
    names = [name.removeprefix("!") for name in columns]
    judges = cli.load_judges(asked)
    read = partial(
        read_labels,
        recorded={*names, *(name for judge in judges for name in judge.columns)},
        further=[by or ""],
        texts=bool(asked),
    )
    examples = sorted(
        read(labels), key=lambda e: (e.context_key, e.id)
    )  # so that the prefix cache stays warm
    examples, alone = with_own_sources(examples)
    label_set = label_set_hash(examples)
    group_of = groups_of(group_columns(examples), by) if by else {}
    traffic = []
    if unlabelled is not None:
        if asked:
            check_records(unlabelled)
        traffic = read(unlabelled, require_label=False, texts=False)
    if judges and (minimum is not None or traffic):
        use = "--unlabelled" if traffic else "--min"
        keys = judges[0].manifest.get("answer_keys", ())
        refuse_tuned_on(keys, examples, labels.name, use)
    runs = []
    if track or tracking_uri or experiment:
        from faith_dspy.optimize.tracking.monitor import MonitorRun
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        store = connect(tracking_uri, experiment or EXPERIMENT)
        both = zip(asked, judges, strict=True)
        for name in (*(one.source or judge.lm_name for one, judge in both), *names):
            runs.append(MonitorRun(store, name, labels.name, label_set))
        for lm in (lm for judge in judges for lm in judge.prepare()):
            # Another model may answer to a hosted one's name by now.
            lm.cache = lm.cache and bool(lm.endpoint.sha256)
    if in_batch.batch and len(judges) != 1:
        raise InputError(f"--batch takes one judge, got {len(judges)}.")
    of_columns = [] if judges else traffic
    recorded = read_judges(columns, examples, of_columns, labels.name)
    judged: list[JudgedLabels] = []
    for choice, judge in zip(asked, judges, strict=True):
        others = [] if judged else traffic  # which the first alone is asked about
        answers = [*examples, *others]
        with in_batch.asked(judge, answers, Path(labels.name)) as ready:
            judged.append(ask_judge(ready, choice.source, examples, others))
    judged += recorded
    first = judged[0]
    agreement = first.result.levels
    share = None
    if first.traffic:
        sources = [e.group_key for e in with_own_sources(traffic)[0]]
        ranking = [judgment.ranking for judgment in first.traffic]
        share = estimate_share(first.result.rows, ranking, sources, first.pass_rate)
    checks = {
        "the LM answers": next((j.outage for j in judged if j.outage), None),
        **gate_checks(examples, first.judgments, minimum, min_coverage),
    }
    failed = list(filter(None, checks.values()))
    reasons = Counter(j.unscored for j in first.judgments if j.unscored)
    unscored = dict(reasons.most_common())
    wrong = disagreements(examples, first.judgments)
    document = agreement.to_json() | {
        "in_three_lines": first.three_lines.notes,
        "disagreements": [
            {"id": e.id, "faithful": e.label, "probability": j.ranking}
            for e, j in wrong
        ],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "label_set_hash": label_set,
        "usage": first.usage,
        "replayed": first.replayed,
        "alarms": failed,
        "judge": first.summary,
        "version": metadata.version("faith_dspy"),
        "unscored": unscored,
        "tuned_on_these_labels": first.seen > 0,
        "answers_of_its_study": first.seen,
        "against_lexical_baseline": first.against_words,
    }
    tables = [first.three_lines]
    results = [one.result for one in judged]
    pairs = differences(results)
    if pairs:
        tables += [
            side_by_side(results, pairs, [one.caveat for one in judged if one.seen]),
            where_they_differ(examples, results),
        ]
        document["judges"] = [result.model_dump(exclude={"rows"}) for result in results]
        document["comparisons"] = pairs
    if by is not None:
        groups = agreement_by_group(first.result.rows, group_of, by)
        document["by"] = groups
        tables.append(groups_table(groups))
    if alone:
        tables.append(own_sources(alone))
    above = [*tables]  # on the page, which shows the disagreements themselves
    tables.append(disagreements_table(wrong, first.column))
    if unscored:
        why_of = {j.unscored: j.detail for j in reversed(first.judgments)}
        notes = tuple(
            f"{n} {reason.replace('_', ' ')}, the first: {why_of[reason]}"
            for reason, n in unscored.items()
        )
        tables.append(Table("Unscored", notes=notes))
    if details:
        tables += agreement_tables(
            agreement, first.usage, first.replayed, len(examples), first.summary
        )
    if share is not None:
        document["traffic"] = share
        tables.append(traffic_table(share))
    if runs:
        document["tracked"] = {"run_id": runs[0].run_id, "step": runs[0].step}
    cli.print_result(as_json, document, tables)
    if html is not None:
        title = f"{counted(len(wrong), 'disagreement')} with {labels.name}, worst first"
        write_html(
            (({**dict(e), "faithful": e.label}, j) for e, j in wrong),
            html,
            title=title,
            judge=first.summary,
            tables=above,
        )
    for run, one, pair in zip(runs, judged, [None, *pairs], strict=False):
        if not one.outage:  # which says nothing about the judge
            of_traffic = share if one is first else None
            usage = one.result.usage
            run.log(one.result.levels, usage, len(examples), of_traffic, pair)
    if junit is not None:
        cli.write_junit(junit, f"faith-dspy agree {labels.name}", checks)
    cli.fail(failed)
    if minimum is not None or min_coverage is not None:
        cli.say(f"passed: {', '.join(checks)}.")


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
    cli.print_result(as_json, report, stress_tables(report))
    cli.fail(report.flipped(max_flips))
