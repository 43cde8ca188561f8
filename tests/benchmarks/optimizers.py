"""Whether compiling the prompt helps: each optimizer on each set, its prompt against the seed prompt, the LM alone.

    python -m tests.benchmarks.optimizers NAME=LABELS… --out tests/benchmarks/results/optimizers.jsonl [--lm local]

Statements of short contexts, as many supported as not, in parts of their own contexts: train to learn from, dev to
compare candidates on, test asked once for each prompt. The LM answers with a verdict and chunk ids. ``--out`` has a
line per statement and prompt – numbers, no text – and one per compiled prompt with what it cost; run again, it goes
on. Without labels it prints the tables of what is there. ``--prompts FOLDER`` takes what was compiled: demos are text
of the sets.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy
import numpy as np

from faith_dspy import Judge
from faith_dspy.config import Granularity
from faith_dspy.errors import FaithDspyError
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.compile.examples import balanced, statement_examples
from faith_dspy.optimize.compile.judge import Stage, compile_judge, prompts_of
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS, Effort
from faith_dspy.optimize.data.splits import split
from faith_dspy.report.tables import estimate, points
from faith_dspy.scoring.statistics import Estimate, by_source, weighted_auroc

from .log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.statistics import Floats

EFFORT = Effort(demos=4, candidates=2, compare_on=16)
MAX_CHARACTERS = 1600
"""Of a context: a call takes seconds, and there are hundreds."""
TESTED = 44
"""Statements of the test part, half of them supported."""
SEED = "seed prompt"
METRICS = {"auroc": "AUROC", "balanced_accuracy": "balanced accuracy", "f1": "evidence F1"}


def parts(path: Path) -> dict[str, Sequence[LabelledExample]]:
    """Labelled answers over short contexts by part. Of a test part with a ``level``, only the ``hard`` ones."""
    short = [e for e in read_labels(path) if sum(len(c.text) for c in e.context) <= MAX_CHARACTERS]
    train, dev, test, _ = split(short)
    hard = [e for e in test if e.tags.get("level") == "hard"]
    return {"train": train, "dev": dev, "test": hard or test}


def tested(examples: Sequence[LabelledExample]) -> list[dspy.Example]:
    """`TESTED` statements at most, as many supported as not, those of one context in turn (the prefix cache)."""
    rows = statement_examples(examples, Granularity.SENTENCE, "supported")
    of_each = min(TESTED // 2, *(sum(r.supported is label for r in rows) for label in (True, False)))
    return sorted(balanced(rows, 2 * of_each, 0), key=lambda r: (r.context, r.statement))


def ask(judge: Judge, prompt: str, name: str, rows: Sequence[dspy.Example], log: Log) -> None:
    """What the LM says about the test part with this judge's prompt."""
    stage = Stage(judge.program.verify)
    with dspy.context(lm=judge.lm):
        for i, row in enumerate(rows):
            if log.has(set=name, prompt=prompt, i=i):
                continue
            said = stage(**row.inputs())
            log.add(
                set=name,
                prompt=prompt,
                i=i,
                context=sorted({tuple(r.context) for r in rows}).index(tuple(row.context)),
                supported=row.supported,
                gold=list(row.supporting_chunk_ids),
                logit=said.get("logit"),
                cited=list(said.get("supporting_chunk_ids") or []),
            )
            print(f"{name}: {prompt}: test {i + 1}/{len(rows)}", end="\r", flush=True)


def run(name: str, path: Path, lm: str, log: Log, optimizers: Sequence[str], prompts: Path | None) -> None:
    """Compile with each optimizer on one set, and ask about its test part with each prompt."""
    found = parts(path)
    rows = tested(found["test"])
    judge = Judge(lm, granularity="sentence", cite=True, classifier=None)
    ask(judge, SEED, name, rows, log)
    for optimizer in optimizers:
        if log.has(set=name, prompt=optimizer, done=True):
            continue
        started = time.monotonic()
        print(f"{name}: {optimizer}: compiling, for minutes", flush=True)
        with metered() as meter:
            try:
                compiled = compile_judge(judge, optimizer, found["train"], EFFORT, 0)
            except FaithDspyError as exc:
                log.add(set=name, prompt=optimizer, done=True, failed=str(exc)[:300])
                continue
        minutes = (time.monotonic() - started) / 60
        ask(compiled.judge, optimizer, name, rows, log)
        seen = prompts_of(compiled.judge)["verify.predict"]
        log.add(
            set=name,
            prompt=optimizer,
            done=True,
            calls=meter.usage.calls,
            replayed=meter.replayed,
            prompt_tokens=meter.usage.prompt_tokens,
            output_tokens=meter.usage.output_tokens,
            minutes=round(minutes, 1),
            demos=len(seen["demos"]),
            own_words=seen["instructions"] != prompts_of(judge)["verify.predict"]["instructions"],
        )
        if prompts:
            prompts.mkdir(parents=True, exist_ok=True)
            (prompts / f"{name}-{optimizer}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


def measured(rows: Sequence[Mapping[str, Any]], seed_rows: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Metrics of one prompt, and under ``… gain`` the paired differences to the seed prompt, by context.

    Of several sets the mean, sets weighing alike.
    """
    sets = np.array([r.get("set", "") for r in rows])
    contexts = [f"{r.get('set', '')} {r['context']}" for r in rows]
    places = [np.flatnonzero(sets == name) for name in dict.fromkeys(sets)]
    why = dict.fromkeys((m + end for m in METRICS for end in ("", " gain")), "undefined on these statements")

    def metrics(w: Floats) -> dict[str, Floats]:
        def mean(said: Sequence[Mapping[str, Any]]) -> dict[str, Floats]:
            found = [_values([said[i] for i in at], w[:, at]) for at in places]
            return {m: np.mean([f[m] for f in found], axis=0) for m in METRICS}

        own, seed = mean(rows), mean(seed_rows)
        return own | {f"{m} gain": own[m] - seed[m] for m in METRICS}

    found = by_source(metrics, len(rows), contexts)
    return {name: found[name].estimate(reason, -1.0) for name, reason in why.items()}


def _values(said: Sequence[Mapping[str, Any]], w: Floats) -> dict[str, Floats]:
    """Metrics of what was said about one set, weighted."""
    y = np.array([r["supported"] for r in said], dtype=bool)
    # A reply without a label passes nothing: it ranks with the least supported.
    logit = np.array([-99.0 if r["logit"] is None else r["logit"] for r in said])
    gold, cited = [set(r["gold"]) for r in said], [set(r["cited"]) if r["gold"] else set() for r in said]
    both = np.array([len(g & c) for g, c in zip(gold, cited, strict=True)], dtype=np.float64)
    named, wanted = np.array([*map(len, cited)], dtype=np.float64), np.array([*map(len, gold)], dtype=np.float64)
    right = (logit >= 0) == y
    with np.errstate(invalid="ignore"):
        return {
            "auroc": weighted_auroc(w, y, logit),
            "balanced_accuracy": ((w @ (right & y)) / (w @ y) + (w @ (right & ~y)) / (w @ ~y)) / 2,
            "f1": 2 * (w @ both) / (w @ (named + wanted)),
        }


def tables(log: Log) -> str:
    """A table for each set, and one of their mean, in Markdown."""
    metrics = [f"{m}, gain" for m in METRICS.values()]
    sets = list(dict.fromkeys(r["set"] for r in log.rows))
    asked: dict[str, dict[str, list[Any]]] = {}  # by prompt and set, where all of its statements were asked about
    out = []
    for name in sets:
        mine = [r for r in log.rows if r["set"] == name]
        n = sum(r["prompt"] == SEED for r in mine)
        columns = ["prompt", *metrics, "calls (replayed)", "tokens read + written", "minutes"]
        contexts = len({r["context"] for r in mine if r["prompt"] == SEED})
        out += [f"## {name}: {n} statements of the test part, {contexts} contexts", "", *_head(columns)]
        for prompt in dict.fromkeys(r["prompt"] for r in mine):
            rows = [r for r in mine if r["prompt"] == prompt and "i" in r]
            cost = next((r for r in mine if r["prompt"] == prompt and "done" in r), {})
            if failed := cost.get("failed"):
                out.append(f"| {prompt} | failed: {failed} |" + " – |" * (len(columns) - 2))
            if len(rows) < n:
                continue
            asked.setdefault(prompt, {})[name] = rows
            kept = cost and not cost["demos"] and not cost["own_words"]
            cells = [f"{prompt} (kept the seed prompt)" if kept else prompt]
            cells += _cells(prompt, rows, asked[SEED][name])
            if cost:
                cells += [f"{cost['calls']} ({cost['replayed']})"]
                cells += [f"{cost['prompt_tokens']:,} + {cost['output_tokens']:,}", f"{cost['minutes']:.0f}"]
            else:
                cells += ["–"] * 3
            out.append(f"| {' | '.join(cells)} |")
        out.append("")
    out += [f"## Mean of the {len(sets)} sets", "", *_head(["prompt", *metrics])]
    for prompt, found in asked.items():
        if len(found) == len(sets):
            rows, seed_rows = ([r for name in sets for r in side[name]] for side in (found, asked[SEED]))
            out.append(f"| {' | '.join([prompt, *_cells(prompt, rows, seed_rows)])} |")
    return "\n".join(out)


def _head(columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _cells(prompt: str, rows: Sequence[Mapping[str, Any]], seed_rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = measured(rows, seed_rows)
    return [estimate(found[m]) + ("" if prompt == SEED else f", {points(found[m + ' gain'])}") for m in METRICS]


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is left to run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", nargs="*", metavar="NAME=LABELS")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lm", default="local")
    parser.add_argument("--optimizers", nargs="*", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--prompts", type=Path, metavar="FOLDER")
    given = parser.parse_args(argv)
    log = Log(given.out)
    for pair in given.labels:
        name, _, path = pair.partition("=")
        run(name, Path(path), given.lm, log, given.optimizers, given.prompts)
    print(tables(log))


if __name__ == "__main__":
    main()
