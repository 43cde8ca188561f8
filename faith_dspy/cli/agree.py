"""``faith-dspy agree``: how far a judge agrees with people, once or on a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    Json,
    JudgeSource,
    Options,
    TrackingURI,
    judge_of,
    print_json,
    stdout,
)


def agree(
    labels: Annotated[Path, typer.Argument(help="Labels file.")],
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    options: Options = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option("--unlabelled", help="Answers of the same traffic without labels."),
    ] = None,
    minimum: Annotated[
        float | None, typer.Option("--min", help="Exit 1 when balanced accuracy is below this.", min=0, max=1)
    ] = None,
    track: Annotated[
        bool,
        typer.Option(
            "--track",
            help="Keep this look in MLflow, and compare it with the last and the first. --tracking-uri and "
            "--experiment say so, too.",
        ),
    ] = False,
    max_drift: Annotated[
        float,
        typer.Option(
            "--max-drift",
            help="With --track: exit 1 when scores (Kolmogorov–Smirnov distance) or coverage have moved by more.",
            min=0,
            max=1,
        ),
    ] = 0.2,
    tracking_uri: TrackingURI = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="MLflow experiment of --track.", show_default="faithfulness")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how far a judge agrees with human labels it was not tuned on.

    With --unlabelled also the share of faithful answers in that traffic, by prediction-powered inference from the few
    labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    With --track it is a watch, to be run on a schedule against the same anchor LABELS: agreement, coverage and drift
    become lines of one MLflow run, the verdicts that flipped since the last time are listed, and it exits 1 with a
    sentence that says why when balanced accuracy is below --min, when the judge has become worse than the last or the
    first time (paired, 95 %), or when scores or coverage drift. A hosted LM is asked anew each time, not the cache.

    Example: faith-dspy agree new-labels.jsonl --judge judges/mine --json

    Every night at four: 0 4 * * * cd /srv/faith && faith-dspy agree anchor.jsonl --judge models:/faithfulness@champion
    --track --min 0.75 || mail -s "The judge has changed" me@example.org
    """
    from faith_dspy.io.labels import label_set_hash, read_labels
    from faith_dspy.lm import metered
    from faith_dspy.report.study import agreement_view
    from faith_dspy.report.terminal import TerminalView

    examples = read_labels(labels)
    labels_hash = label_set_hash(examples)
    the_judge = judge_of(judge, lm, api_base, options)
    run = None
    if track or tracking_uri or experiment:
        from faith_dspy.optimize.monitoring.drift_run import WatchRun
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        run = WatchRun(
            connect(tracking_uri, experiment or EXPERIMENT), judge or the_judge.lm_name, labels.name, labels_hash
        )
    the_judge.preflight()
    for its_lm in the_judge.lms if run is not None else ():
        # Behind a name on the network another LM may stand by now; the embedded one is its file.
        its_lm.cache = its_lm.cache and bool(its_lm.endpoint.sha256)
    from faith_dspy.optimize.monitoring.drift import below, look, sentences, watched
    from faith_dspy.optimize.select.evaluate import agreement, evidence, judged_rows, usage_of, verify

    with TerminalView().task("judging", len(examples)) as advance, metered():
        seen = verify(the_judge, examples, advance)
    rows, ranking = judged_rows(seen, the_judge)
    found = agreement(rows, ranking)
    named = evidence(seen, the_judge)
    usage = usage_of(seen)
    document = {
        **found.model_dump(mode="json"),
        **({"evidence_f1": named.model_dump(mode="json")} if named else {}),
        "usage": usage.model_dump(),
        "label_set_hash": labels_hash,
        "tuned_on_these_labels": the_judge.manifest.get("label_set_hash") == labels_hash,
    }
    share, more = None, []
    if unlabelled is not None:
        from faith_dspy.optimize.monitoring.prevalence import faithful_share

        others = read_labels(unlabelled, require_label=False)
        with TerminalView().task("judging the unlabelled", len(others)) as advance:
            more = judged_rows(verify(the_judge, others, advance), the_judge)[1]
        share = faithful_share([r.label for r in rows], ranking, more)
        document["traffic"] = share.model_dump(mode="json")
    alarms, changes = below(found, minimum), []
    if run is not None:
        seen_now = look(rows, ranking, found, the_judge.fingerprint, more)
        change = watched(seen_now, run.before, minimum=minimum, max_drift=max_drift)
        alarms, changes = change.alarms, sentences(change) or ["The first look: there is nothing to compare it with."]
        document["watch"] = change.model_dump(mode="json", exclude={"now"}) | {"run_id": run.run_id}
    document["alarms"] = alarms
    if as_json:
        print_json(document)
    else:
        tuned = bool(document["tuned_on_these_labels"])
        stdout().print(agreement_view(found, usage, share, evidence=named, tuned_on_these=tuned))
        if run is not None:
            from faith_dspy.report.watch import watch_view

            stdout().print(watch_view(changes, change.flips))
    if run is not None:
        n = len(examples)
        run.add(
            change,
            {
                "computed_tokens_per_answer": usage.computed_tokens / n,
                "output_tokens_per_answer": usage.output_tokens / n,
                "seconds_per_answer": usage.seconds / n,
                "evidence_f1": named.value if named else None,
                "traffic_faithful_share": share.share.powered.value if share else None,
            },
        )
    for alarm in alarms:
        typer.echo(f"alarm: {alarm}", err=True)
    if alarms:
        raise typer.Exit(1)
