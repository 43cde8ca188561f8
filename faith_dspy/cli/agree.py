"""``faith-dspy agree``: how far a judge agrees with people, once or on a schedule."""

from __future__ import annotations

from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    Details,
    Json,
    JudgeSource,
    Labels,
    Minimum,
    Options,
    Timeout,
    TrackingURI,
    Untuned,
    fail,
    judge_of,
    print_json,
    print_tables,
    say,
)
from faith_dspy.errors import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment, LabelledExample


def agree(
    labels: Labels,
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    timeout: Timeout = None,
    options: Options = None,
    untuned: Untuned = False,
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
            help="With --track: exit 1 when the share of scored answers has changed by more.",
            min=0,
            max=1,
        ),
    ] = 0.2,
    tracking_uri: TrackingURI = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="MLflow experiment of --track.", show_default="faithfulness")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write one HTML page of the disagreements, worst first.")
    ] = None,
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Measure how far a judge agrees with human labels it was not tuned on, and list where it does not, worst first.

    With --unlabelled, also estimate the share of faithful answers in that traffic, by prediction-powered inference from
    the few labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    With --track, monitor a judge in use: run it on a schedule with the same LABELS. Agreement, coverage and drift are
    lines of one MLflow run, and verdicts that flipped since the last time are listed. It exits 1 and says why when
    balanced accuracy is below --min, when the judge has become worse than the last or the first time (paired, 95 %), or
    when coverage has changed. A hosted LM is asked again each time; its cached replies are not used.

    Example: faith-dspy agree new-labels.jsonl --judge judges/mine --json

    Every night at four: 0 4 * * * cd /srv/faith && faith-dspy agree labels.jsonl --judge models:/faithfulness@champion
    --track --min 0.75 || mail -s "The judge has changed" me@example.org
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.io.labels import answer_key, label_set_hash, read_labels, unused_in_labels
    from faith_dspy.optimize.drift import drift_report, drift_tables, ignore_cache, traffic_table
    from faith_dspy.optimize.report.headline import of_judge
    from faith_dspy.report.judgment import described, write_html
    from faith_dspy.report.tables import Table, agreement_tables, disagreements, disagreements_table

    if html is not None:
        check_writable(html)
    examples = sorted(read_labels(labels), key=lambda e: (e.context_key, e.id))  # so that the prefix cache stays warm
    others = read_labels(unlabelled, require_label=False) if unlabelled is not None else []
    labels_hash = label_set_hash(examples)
    say(unused_in_labels(labels))
    the_judge = judge_of(judge, lm, api_base, options, untuned, timeout=timeout)
    the_judge.preflight()
    run = None
    if track or tracking_uri or experiment:
        from faith_dspy.optimize.drift import DriftRun
        from faith_dspy.optimize.tracking.store import EXPERIMENT, connect

        store = connect(tracking_uri, experiment or EXPERIMENT)
        run = DriftRun(store, judge or the_judge.lm_name, labels.name, labels_hash)
    if run is not None:
        ignore_cache(the_judge)
    judged = _judged(the_judge, examples, "judging")
    unscored = Counter(j.unscored.value for j in judged if j.unscored is not None)
    tuned_on = set(the_judge.manifest.get("answer_keys", ()))
    seen = sum(answer_key(e.question, e.context, e.answer) in tuned_on for e in examples)
    if the_judge.manifest.get("label_set_hash") == labels_hash:  # all that older exports say
        seen = len(examples)
    report = drift_report(
        examples,
        judged,
        the_judge.fingerprint,
        earlier=run.earlier if run else (),
        unlabelled=_judged(the_judge, others, "judging the unlabelled") if others else (),
        minimum=minimum,
        max_shift=max_drift,
    )
    wrong, who = disagreements(examples, judged), described(the_judge)
    assert report.agreement.answers is not None  # else there is no report
    three = of_judge(the_judge, judge, report.agreement.answers, seen=seen)
    document = report.agreement.to_json() | {
        "in_three_lines": three.notes,
        "disagreements": [{"id": e.id, "faithful": e.label, "probability": j.ranking} for e, j in wrong],
        "usage": report.usage.model_dump(),
        "replayed": report.replayed.model_dump(),
        "judge": who,
        "version": metadata.version("faith_dspy"),
        "at": report.at,
        "label_set_hash": labels_hash,
        "unscored": dict(unscored),
        "tuned_on_these_labels": seen > 0,
        "answers_of_its_study": seen,
        "alarms": report.alarms,
    }
    tables = [three, disagreements_table(wrong)]
    if unscored:
        tables.append(
            Table("Unscored", notes=tuple(f"{n} {reason.replace('_', ' ')}" for reason, n in unscored.most_common()))
        )
    if details:
        tables += agreement_tables(report.agreement, report.usage, report.replayed, len(examples), who)
    if report.prevalence is not None:
        document["traffic"] = report.prevalence.model_dump(mode="json")
        tables.append(traffic_table(report.prevalence))
    if run is not None:
        fields = {"at", "changes", "new_version", "flips"}
        document["drift"] = {"run_id": run.run_id, "step": run.steps, **report.model_dump(mode="json", include=fields)}
        tables += drift_tables(report)
    if as_json:
        print_json(document)
    else:
        print_tables(tables)
    if html is not None:
        records = [{"id": e.id, **_record(e), "faithful": e.label} for e, _ in wrong]
        title = f"{counted(len(wrong), 'disagreement')} with {labels.name}, worst first"
        write_html(zip(records, (j for _, j in wrong), strict=True), html, title=title, judge=who)
    if run is not None:
        run.log(report)
    fail(report.alarms)


def _judged(judge: Judge, examples: Sequence[LabelledExample], what: str) -> list[Judgment]:
    """Judgments of the examples, with a progress bar."""
    from faith_dspy.lm.metered import metered
    from faith_dspy.report.progress import TerminalView

    out = []
    with TerminalView().task(what, len(examples)) as advance, metered():
        for judgment in judge.stream(map(_record, examples)):
            out.append(judgment)
            advance(1)
    return out


def _record(example: LabelledExample) -> dict[str, Any]:
    return {"question": example.question, "context": example.context, "answer": example.answer}
