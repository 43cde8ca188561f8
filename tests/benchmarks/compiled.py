"""Whether compiling prompts helps: each optimizer's against the seed prompt, the LM alone.

    python -m tests.benchmarks.compiled NAME=LABELS… --out FILE.jsonl [--lm local] [--minutes 38] [--extraction]

Answers over short contexts are divided by source: one half to compile on, the other to ask about with each prompt, as
many statements supported as not where there are enough. ``gepa`` has the judged LM as its own reflector; ``gepa by
hand`` and ``guidelines by hand`` have a scripted one in its place: an endpoint that replays instructions that we wrote
by hand from the half to compile on (``compiled_by_hand.json``), in place of a strong reflector's.
``--extraction`` takes answers apart and compiles extraction together with verification.

``--out`` has a line per statement and prompt – numbers, no text –, and one per compiled prompt with what it cost. Run
again, it goes on where it stopped; with ``--minutes`` it begins no prompt after so many. Without labels it prints the
tables of what is there.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import dspy
import numpy as np
import typer

from faith_dspy import Judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.io.labels import read_labels
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.compile.examples import (
    answer_examples,
    balanced,
    statement_examples,
)
from faith_dspy.optimize.compile.judge import compile_judge, prompts_of
from faith_dspy.optimize.compile.metric import statement_f1
from faith_dspy.optimize.compile.optimizers import Effort
from faith_dspy.optimize.data.splits import deal, with_sources
from faith_dspy.optimize.plan import Variant
from faith_dspy.program.signatures import ExtractStatements
from faith_dspy.report.tables import points, with_interval
from faith_dspy.schema import Statement
from faith_dspy.scoring.statistics import by_source, weighted_auroc
from tests.support.chat_server import ChatServer

from .log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.statistics import Floats

BY_HAND = json.loads(Path(__file__).with_name("compiled_by_hand.json").read_text())
SEED = "seed"
PROMPTS = (
    SEED,
    "labelled",
    "mistakes",
    "guidelines by hand",
    "gepa by hand",
    "guidelines",
    "gepa",
    "mipro",
)
EXTRACTED = (SEED, "gepa by hand", "gepa")
METRICS = {
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "ids": "chunk ids F1",
    "statements": "statements F1",
}
Row = dict[str, Any]


def halves(
    path: Path, characters: int
) -> tuple[list[LabelledExample], list[LabelledExample]]:
    """Labelled answers over contexts of at most so many characters: to compile on, and to ask about."""
    labelled = [e for e in with_sources(read_labels(path)) if e.label is not None]
    short = [e for e in labelled if sum(len(c.text) for c in e.context) <= characters]
    part_of = deal(short, [1, 1], 1, 0)
    pairs = list(zip(short, part_of, strict=True))
    first, second = ([e for e, part in pairs if part == k] for k in (0, 1))
    return first, second


def reflector(name: str, instruction: str) -> ChatServer:
    """An endpoint that replays the instructions written by hand for a set, one after the other; their lines as rules
    where it is asked for rules. ``instruction``: the seed's, whose last paragraph each of them keeps."""
    ask = instruction.strip().rpartition("\n\n")[2]
    turns = {"verify": 0, "extract": 0}

    def says(asked: Any) -> str:
        text = asked["messages"][-1]["content"]
        fields = re.findall(r"`(\w+)`", asked["messages"][0]["content"])
        current = text.partition("examples_with_feedback")[0]
        kind = "extract" if "take an answer apart" in current else "verify"
        texts = BY_HAND["extraction" if kind == "extract" else name]
        if "rules" in fields:
            lines = texts[0].splitlines()[1:]
            rules = [line.removeprefix("- ") for line in lines]
            listed = "\n".join(rules)
            return f"[[ ## rules ## ]]\n{listed}\n\n[[ ## completed ## ]]"
        written = texts[turns[kind] % len(texts)]
        turns[kind] += 1
        last = ask
        if kind == "extract":
            last = ExtractStatements.instructions.rpartition("\n\n")[2]
        return (
            f"[[ ## new_instruction ## ]]\n{written}\n\n{last}\n\n[[ ## completed ## ]]"
        )

    return ChatServer(says=says)


class Benchmark(NamedTuple):
    """What is asked of one LM, and where it is kept."""

    log: Log
    lm: str
    minutes: float
    tested: int
    characters: int
    calls: int
    extraction: bool
    started: float = time.monotonic()

    @property
    def effort(self) -> Effort:
        """Of every optimizer."""
        return Effort(demos=4, candidates=2, compare_on=16, metric_calls=self.calls)

    def run(self, name: str, path: Path) -> None:
        """Compile with each optimizer on one set, and ask about its other half with each prompt."""
        train, test = halves(path, self.characters)
        extracts = self.extraction
        cite = any(s.supporting_chunk_ids for e in train for s in e.statements)
        place = f"{name}, extracted statements" if extracts else name
        for prompt in EXTRACTED if extracts else PROMPTS:
            done = self.log.has(set=place, prompt=prompt, done=True)
            minutes = (time.monotonic() - self.started) / 60
            if done or minutes > self.minutes:
                continue
            print(f"{place}: {prompt}, after {minutes:.0f} minutes", flush=True)
            optimizer = None if prompt == SEED else prompt.removesuffix(" by hand")
            granularity = "statement" if extracts else "sentence"
            declared = {"granularity": granularity, "cite": cite and not extracts}
            if optimizer is not None:
                declared["optimizer"] = optimizer
            config = Variant(name="own", **declared).config
            judge = Judge(self.lm, config=config, classifier=None)
            try:
                self._try(judge, optimizer, prompt, place, (train, test))
            except FaithDspyError as exc:
                why = " ".join(str(exc).split())[:200]
                self.log.add(set=place, prompt=prompt, done=True, failed=why)

    def _try(
        self,
        judge: Judge,
        optimizer: str | None,
        prompt: str,
        place: str,
        parts: tuple[list[LabelledExample], list[LabelledExample]],
    ) -> None:
        train, test = parts
        seed, started = prompts_of(judge), time.monotonic()
        calls = 0
        with metered() as meter:
            if optimizer is not None:
                text = seed["verify.predict"]["instructions"]
                name = place.partition(",")[0]
                with closing(reflector(name, text)) as server:
                    proposer = None
                    if prompt.endswith("by hand"):
                        proposer = make_lm(
                            "openai/by-hand", api_base=server.base, cache=False
                        )
                        server.models = []
                    compiled = compile_judge(
                        judge, optimizer, train, self.effort, 0, proposer=proposer
                    )
                judge, calls = compiled.judge, compiled.metric_calls
            minutes = (time.monotonic() - started) / 60
            compiling = meter.usage
        with metered() as meter:
            self._ask(judge, prompt, place, test)
        self.log.add(
            set=place,
            prompt=prompt,
            done=True,
            metric_calls=calls,
            compile_tokens=compiling.computed_tokens + compiling.output_tokens,
            minutes=round(minutes, 1),
            tokens=meter.usage.computed_tokens,
            changed=prompts_of(judge) != seed,
        )

    def _ask(
        self, judge: Judge, prompt: str, place: str, test: list[LabelledExample]
    ) -> None:
        if judge.config.granularity == "statement":
            self._ask_answers(judge, prompt, place, test)
            return
        rows = statement_examples(test, judge.config.granularity, "binary")
        rows = balanced(rows, self.tested, 0)
        rows.sort(key=lambda r: (r.context, r.statement))  # for the prefix cache
        with dspy.context(lm=judge.lm):
            for i, row in enumerate(rows):
                if self.log.has(set=place, prompt=prompt, i=i):
                    continue
                prediction = judge.program.verify(**row.inputs())
                self.log.add(
                    set=place,
                    prompt=prompt,
                    i=i,
                    source=hash_of(row.context),
                    supported=row.supported,
                    logit=prediction.get("logit"),
                    gold=list(row.supporting_chunk_ids),
                    cited=list(prediction.get("supporting_chunk_ids") or []),
                )

    def _ask_answers(
        self, judge: Judge, prompt: str, place: str, test: list[LabelledExample]
    ) -> None:
        rows = balanced(answer_examples(test), self.tested // 4, 0)
        with dspy.context(lm=judge.lm):
            for i, row in enumerate(rows):
                if self.log.has(set=place, prompt=prompt, i=i):
                    continue
                prediction = judge.program(**row.inputs())
                logits = [
                    v.logit for v in prediction.raw_verdicts if v.logit is not None
                ]
                texts = [Statement(text=text) for text in prediction.statements]
                self.log.add(
                    set=place,
                    prompt=prompt,
                    i=i,
                    source=hash_of(row.context),
                    supported=row.supported,
                    logit=min(logits, default=None),
                    statements=statement_f1(row.people, texts, row.answer),
                )


def hash_of(context: Sequence[str]) -> int:
    """A number for a context: the log holds no text."""
    return sum(ord(c) * (i + 1) for i, c in enumerate("\n".join(context)))


def values(rows: Sequence[Row], w: Floats) -> dict[str, Floats]:
    """Metrics of what one prompt said, weighted: the verdict by the LM's own Yes or No."""
    y = np.array([r["supported"] for r in rows], dtype=bool)
    # A reply without a label passes nothing: it ranks with the least supported.
    logit = np.array([-99.0 if r["logit"] is None else r["logit"] for r in rows])
    right = (logit >= 0) == y
    counts = []
    for r in rows:
        gold, cited = set(r.get("gold") or ()), set(r.get("cited") or ())
        counts.append((len(gold & cited), len(cited) if gold else 0, len(gold)))
    both, named, wanted = np.array(counts, dtype=np.float64).T
    f1 = np.array([r.get("statements", np.nan) for r in rows], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = ((w @ (right & y)) / (w @ y) + (w @ (right & ~y)) / (w @ ~y)) / 2
        return {
            "balanced_accuracy": accuracy,
            "auroc": weighted_auroc(w, y, logit),
            "ids": 2 * (w @ both) / (w @ (named + wanted)),
            "statements": (w @ f1) / w.sum(axis=1),
        }


def cells(rows: Sequence[Row], seed: Sequence[Row]) -> list[str]:
    """Each metric with its interval, and its gain over the seed prompt, paired, over contexts."""

    def metrics(w: Floats) -> dict[str, Floats]:
        own, base = values(rows, w), values(seed, w)
        return own | {f"{m} gain": own[m] - base[m] for m in METRICS}

    sources = [f"{r['set']} {r['source']}" for r in rows]
    labels = [bool(r["supported"]) for r in rows]
    found = by_source(metrics, len(rows), sources, labels)
    texts = []
    for m in METRICS:
        gain = points(found[f"{m} gain"].estimate("undefined", -1.0))
        figure = with_interval(found[m].estimate("undefined", -1.0))
        texts.append(figure if rows is seed else f"{figure}, {gain}")
    return texts


def tables(log: Log) -> str:
    """A table for each set, and one over all statements, in Markdown."""
    out = []
    together: dict[str, list[Row]] = {}
    places = list(dict.fromkeys(r["set"] for r in log.rows))
    whole = [place for place in places if "extracted" not in place]
    for place in places:
        mine = [r for r in log.rows if r["set"] == place]
        by_prompt = {
            prompt: [r for r in mine if r["prompt"] == prompt and "i" in r]
            for prompt in dict.fromkeys(r["prompt"] for r in mine)
        }
        seed = by_prompt[SEED]
        contexts = len({r["source"] for r in seed})
        out += [f"## {place}: {len(seed)} over {contexts} contexts", "", *_head()]
        for prompt, rows in by_prompt.items():
            ends = [r for r in mine if r["prompt"] == prompt and "done" in r]
            end: Mapping[str, Any] = ends[0] if ends else {}
            if "failed" in end:
                out.append(f"| {prompt} | failed: {end['failed']} |")
            elif end and len(rows) == len(seed):
                name = (
                    prompt
                    if end["changed"] or prompt == SEED
                    else f"{prompt} (kept the seed)"
                )
                out.append(_line([name, *cells(rows, seed), *_costs(end, len(rows))]))
                if place in whole:
                    together.setdefault(prompt, []).extend(rows)
        out.append("")
    if len(whole) > 1:
        out += ["## All statements", "", *_head()]
        complete = {
            p: rows for p, rows in together.items() if len(rows) == len(together[SEED])
        }
        for prompt, rows in complete.items():
            out.append(_line([prompt, *cells(rows, together[SEED]), "", "", ""]))
    return "\n".join(out)


def _costs(end: Mapping[str, Any], n: int) -> list[str]:
    compiling = f"{end['compile_tokens']:,} in {end['minutes']:.0f} min"
    return [f"{end['tokens'] / n:,.0f}", str(end["metric_calls"]), compiling]


def _head() -> list[str]:
    titles = ["prompt", *(f"{m}, gain" for m in METRICS.values())]
    titles += ["prompt tokens each", "metric calls", "tokens to compile"]
    return [_line(titles), "|---" * len(titles) + "|"]


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def main(
    out: Annotated[Path, typer.Option()],
    labels: Annotated[list[str] | None, typer.Argument()] = None,
    lm: str = "local",
    minutes: float = 38.0,
    tested: int = 48,
    characters: int = 1600,
    calls: int = 100,
    extraction: bool = False,
) -> None:
    """Run what is left to run of NAME=LABELS …, and print the tables.

    ``tested``: statements of a set. ``characters``: of a context. ``calls``: of GEPA's metric.
    """
    benchmark = Benchmark(Log(out), lm, minutes, tested, characters, calls, extraction)
    for pair in labels or ():
        name, _, path = pair.partition("=")
        benchmark.run(name, Path(path))
    print(tables(benchmark.log))


if __name__ == "__main__":
    typer.run(main)
