"""``faith-dspy agree``: how far a judge agrees with people, once or on a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    Json,
    JudgeSource,
    Labels,
    Minimum,
    Options,
    TrackingURI,
    fail,
    judge_of,
    print_json,
    print_tables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.schema import Judgment, LabelledExample


def agree(
    labels: Labels,
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    options: Options = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option("--unlabelled", help="Answers of the same traffic without labels."),
    ] = None,
    minimum: Minimum = None,
    track: Annotated[
        bool,
        typer.Option(
            "--track",
            help="Record the result in MLflow, and compare it with the last and the first one. Implied by "
            "--tracking-uri and --experiment.",
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

    With --unlabelled, also estimate the share of faithful answers in that traffic, by prediction-powered inference from
    the few labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    With --track, monitor a judge in use: run it on a schedule with the same LABELS. Agreement, coverage and drift are
    lines of one MLflow run, and verdicts that flipped since the last time are listed. It exits 1 and says why when
    balanced accuracy is below --min, when the judge has become worse than the last or the first time (paired, 95 %), or
    when scores or coverage drift. A hosted LM is asked again each time; its cached replies are not used.

    Example: faith-dspy agree new-labels.jsonl --judge judges/mine --json

    Every night at four: 0 4 * * * cd /srv/faith && faith-dspy agree anchor.jsonl --judge models:/faithfulness@champion
    --track --min 0.75 || mail -s "The judge has changed" me@example.org
    """
    from faith_dspy.io.labels import label_set_hash, read_labels

    examples = sorted(read_labels(labels), key=lambda e: (e.context_key, e.id))  # so that the prefix cache stays warm
    labels_hash = label_set_hash(examples)
    the_judge = judge_of(judge, lm, api_base, options)
    run = None
    if track or tracking_uri or experiment:
        from faith_dspy.optimize.monitoring.drift_run import WatchRun
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        store = connect(tracking_uri, experiment or EXPERIMENT)
        run = WatchRun(store, judge or the_judge.lm_name, labels.name, labels_hash)
        for its_lm in the_judge.lms:
            # Behind a name on the network another LM may stand by now; the embedded one is its file.
            its_lm.cache = its_lm.cache and bool(its_lm.endpoint.sha256)
    the_judge.preflight()
    from faith_dspy.optimize.monitoring.drift import below, look, watched
    from faith_dspy.optimize.monitoring.tables import drift_tables, traffic_table
    from faith_dspy.report.agreement import agreement_tables
    from faith_dspy.report.tables import Table
    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import measure_agreement

    judgments = _judged(the_judge, examples, "judging")
    found = measure_agreement(examples, judgments)
    usage = sum((j.usage for j in judgments), Usage())
    document = found.to_json() | {
        "usage": usage.model_dump(),
        "label_set_hash": labels_hash,
        "tuned_on_these_labels": the_judge.manifest.get("label_set_hash") == labels_hash,
    }
    tables = agreement_tables(found, usage, len(examples))
    if document["tuned_on_these_labels"]:
        warning = "The judge was tuned on these labels: this is not its agreement with people."
        tables.append(Table("Warning", notes=(warning,)))
    traffic: list[float | None] = []
    if unlabelled is not None:
        from faith_dspy.optimize.monitoring.prevalence import faithful_share

        others = read_labels(unlabelled, require_label=False)
        traffic = [j.ranking for j in _judged(the_judge, others, "judging the unlabelled")]
        share = faithful_share([bool(e.label) for e in examples], [j.ranking for j in judgments], traffic)
        document["traffic"] = share.model_dump(mode="json")
        tables.append(traffic_table(share))
    assert found.answers is not None  # every label says something about the answer
    alarms = below(found.answers, minimum)
    if run is not None:
        scores = [j.ranking for j in judgments]
        now = look(_rows(examples, judgments), scores, found.answers, the_judge.fingerprint, traffic)
        change = watched(now, run.before, minimum=minimum, max_drift=max_drift)
        alarms = change.alarms
        document["watch"] = change.model_dump(mode="json", exclude={"now"}) | {"run_id": run.run_id}
        tables += drift_tables(change)
        n = len(examples)
        run.add(
            change,
            {
                "computed_tokens_per_answer": usage.computed_tokens / n,
                "output_tokens_per_answer": usage.output_tokens / n,
                "seconds_per_answer": usage.seconds / n,
                "evidence_f1": found.evidence.f1.value if found.evidence else None,
                "traffic_faithful_share": document["traffic"]["share"]["powered"]["value"] if traffic else None,
            },
        )
    document["alarms"] = alarms
    if as_json:
        print_json(document)
    else:
        print_tables(tables)
    fail(alarms)


def _rows(examples: Sequence[LabelledExample], judgments: Sequence[Judgment]) -> list[PredictionRow]:
    """What drift compares."""
    from faith_dspy.optimize.results import PredictionRow

    return [
        PredictionRow(id=e.id, group=e.group_key, part="test", label=bool(e.label), predicted=j.faithful,
                      probability=j.probability, answer=e.answer)
        for e, j in zip(examples, judgments, strict=True)
    ]  # fmt: skip


def _judged(judge: Judge, examples: Sequence[LabelledExample], what: str) -> list[Judgment]:
    """Judgments of the examples, with a progress bar."""
    from faith_dspy.lm import metered
    from faith_dspy.report.terminal import TerminalView

    records = ({"question": e.question, "context": e.context, "answer": e.answer} for e in examples)
    out = []
    with TerminalView().task(what, len(examples)) as advance, metered():
        for judgment in judge.stream(records):
            out.append(judgment)
            advance(1)
    return out
