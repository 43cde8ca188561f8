"""``faith-dspy demo``: what a tuned judge does, from a recording: no model, no key, no network."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import print_tables

RECORDED = Path(__file__).parent / "recorded"
"""An exported judge. What its LM said about a few answers is stored in it, as in every export."""


def demo(
    html: Annotated[
        Path, typer.Option("--html", help="The page to write. The answers go beside it, as JSON lines.")
    ] = Path("demo.html"),
) -> None:
    """See a tuned judge at work in seconds, with recorded replies of its LM: no model, no key, no network.

    Example: faith-dspy demo
    """
    from faith_dspy.export import load_judge
    from faith_dspy.io.files import check_writable, write_file
    from faith_dspy.io.records import as_chunks
    from faith_dspy.optimize.report.headline import of_judge
    from faith_dspy.report.judgment import described, write_html
    from faith_dspy.schema import RawJudgment

    records = html.with_suffix(".jsonl")
    for path in (html, records):
        check_writable(path)
    judge = load_judge(RECORDED)
    stored = judge.manifest["reference"]
    replies = [RawJudgment.model_validate(r["raw_judgment"]) for r in stored]
    asked = sum(any(v.logit is not None for v in raw.last.raw_verdicts) for raw in replies)
    typer.echo(
        f"{len(stored)} answers, judged now, from recordings: no model, no key, no network.\n"
        f"The LM was asked about {asked} of them, lexical features settled the others.\n"
    )
    items = []
    for r, raw in zip(stored, replies, strict=True):
        record = {name: r[name] for name in ("question", "context", "answer")}
        judgment = judge.score_answer(raw, as_chunks(r["context"]), r["question"])
        items.append((record, judgment))
        typer.echo(f"{r['question']}\n{judgment.pretty()}", nl=False)
        for i in sorted({i for s in judgment.statements for i in s.supporting_chunk_ids}):
            chunk = textwrap.shorten(f"[{i}] {r['context'][i]}", 140, placeholder=" …")
            typer.echo(textwrap.fill(chunk, 79, initial_indent="  ", subsequent_indent="      "))
        typer.echo()
    write_file(records, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record, _ in items))
    write_html(items, html, title="faith-dspy demo: recorded replies", judge=described(judge))
    typer.echo(f"The judge was tuned on people’s labels ({judge.manifest['labels_file']}).")
    print_tables([of_judge(judge, str(RECORDED))])
    typer.echo(
        f"\nThe same as a page: {html}\nThe same live, with the embedded LM (fetched once, 1.1 GB):\n"
        f"  faith-dspy judge {records} --judge {RECORDED}"
    )
