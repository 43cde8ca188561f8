"""Does tuning help LMs of known strength? Studies of scripted LMs, their champions tested on answers of other sources.

``python -m tests.benchmarks.known_lms [--draws 20] [--data FOLDER]``

Each LM is an endpoint on loopback (`KnownLM`) that has read the labels and separates them with a set AUROC.

A draw takes whole sources of a labels file until it has so many labels. The study's own functions make the candidates
from the replies, choose, and cross-validate (`tests/benchmarks/studied.py`); at most `MAX_TEST` answers of other
sources test what would be exported, and what would be printed of it. Rows go to ``results/known_lms.jsonl`` as they
come, the table to KNOWN_LMS.md.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

from faith_dspy import Judge
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.data.pool import with_sources
from faith_dspy.optimize.plan import VARIANTS
from faith_dspy.optimize.results import CHAMPION, LEXICAL, JudgedAnswer, Prompts
from faith_dspy.optimize.select.ask import Replies
from faith_dspy.optimize.select.comparison import label_metrics
from faith_dspy.program.reply import LABEL_LOGIT, expected_support
from faith_dspy.program.signatures import INSTRUCTIONS, Instruction
from faith_dspy.schema import LabelledExample, RawVerdict, Usage
from faith_dspy.scoring.statistics import metric_values
from tests.support.files import write_lines
from tests.support.scripted_lm import CHARACTERS_PER_TOKEN, Asks, distribution

from . import DATA, HERE
from .known_lm import BADLY_PLACED, KnownLM
from .log import Log
from .public_labels import read
from .studied import SHAPES, Unasked, answerable, study, unasked_answers

RESULTS = HERE / "results" / "known_lms.jsonl"
CARD = HERE / "KNOWN_LMS.md"
SIZES = (24, 60, 150, 400)
MAX_TEST = 300
MIN_TEST = 200
MAX_ANSWERS = 700
"""Of a public set."""
COMMAND_LABELS, COMMAND_TEST = 60, 120
"""Of a study by the command line."""
METRICS = ("balanced_accuracy", "auroc")
CLAIMS = ("expertqa_claims", "factcheck_gpt", "wice_oracle")
PROMPT, JOINT_PROMPT, JOINT_REPLY, REASON = 320, 2000, 35, 30
"""Characters of prompts beside context and statement, and of replies beside labels."""
SAID_BY = ("In brief: ", "We read: ", "As visitors note: ", "By the guide: ")
"""What the sentences of a synthetic source's answers begin with."""


class Strength(NamedTuple):
    """An LM of the bench."""

    name: str
    model: str
    """By whose price LiteLLM counts its dollars; the endpoint is always ours."""
    auroc: float
    offset: float
    probabilities: bool

    def serve(self, examples: Sequence[LabelledExample], seed: int = 0) -> KnownLM:
        """Start its endpoint, which knows these answers; ``seed``: of its noise."""
        return KnownLM(
            examples,
            self.auroc,
            offset=self.offset,
            probabilities=self.probabilities,
            seed=seed,
        )


def strengths() -> list[Strength]:
    """Weak, medium and strong; well and badly placed at .5; with and without token probabilities."""
    models = {
        0.65: "openai/gpt-4.1-nano",
        0.88: "openai/gpt-4o-mini",
        0.97: "openai/gpt-4o",
    }
    placements = {"well placed": 0.0, "badly placed": BADLY_PLACED}
    lms = []
    for auroc, model in models.items():
        for placed, offset in placements.items():
            name = f"{auroc:.2f}".lstrip("0") + f", {placed}"
            lms.append(Strength(name, model, auroc, offset, probabilities=True))
            lms.append(
                Strength(
                    f"{name}, labels only", model, auroc, offset, probabilities=False
                )
            )
    return lms


def synthetic(sources: int = 175, seed: int = 0) -> list[LabelledExample]:
    """Make reports on invented towns, three sentences an answer; words tell every second unfaithful one."""
    rng = random.Random(seed)
    examples = []
    for i in range(sources):
        syllables = (
            ("Bra", "Kel", "Dor", "Mun", "Sel"),
            ("ve", "ti", "lo"),
            ("n", "rt", "x"),
        )
        town = "".join(map(rng.choice, syllables)) + f"-{i}"
        bridges, year, price = (
            rng.randint(3, 90),
            rng.randint(1700, 1990),
            rng.randint(100, 900),
        )
        context = [
            f"{town} has {bridges} bridges and a harbour.",
            f"Its theatre opened in {year}.",
            f"A house there costs {price} thousand crowns, and {price + 1} is asked for one by the harbour.",
            f"Its museum closed in {year + 7}, when {bridges + 2} paintings were sold.",
        ]
        for j, said_by in enumerate(SAID_BY):
            faithful = rng.random() < 0.5
            true = (
                f"A house costs {price} thousand crowns",
                f"Who lives there must find {price} thousand or more",
            )
            invented = f"A duke of Orland rebuilt the {rng.choice(['tower', 'abbey', 'mill'])} after a fire"
            swapped = f"The theatre of {town} closed in {year + 7}"
            last = rng.choice(true) if faithful else rng.choice((invented, swapped))
            said = [
                f"There are {bridges} bridges in {town}",
                f"The theatre of {town} opened in {year}",
                last,
            ]
            row = {
                "id": f"town-{i}-{j}",
                "group": town,
                "question": f"What is {town} like?",
                "context": context,
                "answer": " ".join(f"{said_by}{sentence}." for sentence in said),
                "faithful": faithful,
            }
            examples.append(parse_example(row))
    return examples


def label_sets(data: Path) -> dict[str, list[LabelledExample]]:
    """Return labelled answers with their sources, by set; the public ones where their files are."""
    sets = {"synthetic": with_sources(synthetic())}
    if data.is_dir():
        for name, files in (("ragtruth", ("ragtruth_qa",)), ("claims", CLAIMS)):
            families = read([data / f"{file}.jsonl" for file in files])
            labelled = [
                e for rows in families.values() for e in rows if e.label is not None
            ]
            sets[name] = with_sources(
                random.Random(0).sample(labelled, min(len(labelled), MAX_ANSWERS))
            )
    return {name: answerable(examples) for name, examples in sets.items()}


def draw(
    examples: Sequence[LabelledExample], labels: int, seed: int
) -> tuple[list[str], list[str]]:
    """Draw ids of a pool of so many answers over whole sources, and of at most `MAX_TEST` answers over others."""
    by_source: dict[str, list[str]] = {}
    for e in examples:
        by_source.setdefault(e.group_key, []).append(e.id)
    sources = sorted(by_source)
    random.Random(seed).shuffle(sources)
    pool: list[str] = []
    while len(pool) < labels:
        pool += by_source[sources.pop()]
    test = [answer_id for source in sources for answer_id in by_source[source]]
    return pool[:labels], test[:MAX_TEST]


def replies_of(
    server: KnownLM, model: str, examples: Sequence[LabelledExample], unasked: Unasked
) -> list[Replies]:
    """What judges of every shape get from the endpoint.

    It is read off the endpoint without HTTP, which would take an hour; a test asks both ways, and gets the same.
    """
    by_sentence = {a.id: a for a in unasked.lexical.answers}
    asked = []
    for shape, config in SHAPES.items():
        judge = Judge(
            model, api_base=server.base, api_key="none", classifier=None, config=config
        )
        is_whole = config.granularity is Granularity.ANSWER
        base = unasked.whole if is_whole else by_sentence
        answers = [replied(server, base[e.id], config) for e in examples]
        described = VARIANTS[shape].description
        asked.append(Replies(shape, described, {}, judge, answers, Prompts(now={})))
    return asked


def replied(server: KnownLM, answer: JudgedAnswer, config: JudgeConfig) -> JudgedAnswer:
    """An answer with what the endpoint says of each of its statements."""
    instruction = INSTRUCTIONS[config.verdicts]
    statements = answer.raw.raw_verdicts
    jointly = config.verification == "joint" and len(statements) > 1
    asks = Asks(tuple(instruction.labels), config.reasoning != "none", jointly, 0)
    context = " ".join(chunk.text for chunk in answer.example.context)
    verdicts = [_verdict(server, v, context, asks, instruction) for v in statements]
    usage = _usage(asks, len(context), [len(v.text) for v in statements])
    raw = answer.raw.model_copy(
        update={"raw_verdicts": tuple(verdicts), "usage": usage}
    )
    features = [
        f | {"lm": v.logit} for f, v in zip(answer.features, verdicts, strict=True)
    ]
    return answer.model_copy(update={"raw": raw, "features": tuple(features)})


def _verdict(
    server: KnownLM,
    statement: RawVerdict,
    context: str,
    asks: Asks,
    instruction: Instruction,
) -> RawVerdict:
    messages = [{"role": "user", "content": context}]
    logit = server.log_odds(statement.text, messages, asks)
    shares = distribution(instruction.labels, logit)
    label = max(shares, key=shares.__getitem__)
    level = instruction.labels[label]
    said: dict[str, Any] = {
        "label": label,
        "verdict": instruction.verdicts[label],
        "level": level,
    }
    if server.tells:
        said |= expected_support(shares, instruction)
    else:
        said |= {
            "logit": LABEL_LOGIT if level == 1.0 else -LABEL_LOGIT,
            "probability": None,
        }
    return statement.model_copy(update=said)


def _usage(asks: Asks, context: int, statements: Sequence[int]) -> Usage:
    """Tokens by the lengths of texts, as the endpoint counts them, roughly."""
    calls = 1 if asks.jointly else len(statements)
    prompts = calls * (context + (JOINT_PROMPT if asks.jointly else PROMPT)) + sum(
        statements
    )
    written = len(statements) * (
        (JOINT_REPLY if asks.jointly else 3) + REASON * asks.reasons
    )
    tokens = {
        "prompt_tokens": prompts // CHARACTERS_PER_TOKEN,
        "output_tokens": written // CHARACTERS_PER_TOKEN + calls,
    }
    return Usage(calls=calls, **tokens)


def lm_calibrated(
    pool: Sequence[JudgedAnswer], test: Sequence[JudgedAnswer]
) -> list[float]:
    """Margins by the weakest statement's log-odds alone: an offset, fitted with both labels weighing alike.

    Written for the bench, without the product's fit.
    """
    model = LogisticRegression(C=1e6, class_weight="balanced")
    model.fit([[_weakest(a)] for a in pool], [a.label for a in pool])
    if (
        model.coef_[0][0] < 0
    ):  # few labels of a weak LM: nobody would use it turned round
        return [0.0] * len(test)
    margins = model.decision_function([[_weakest(a)] for a in test])
    return [float(margin) for margin in margins]


def _weakest(answer: JudgedAnswer) -> float:
    logits = [v.logit for v in answer.raw.last.raw_verdicts if v.logit is not None]
    return min(logits, default=0.0)


def measured(
    answers: Sequence[JudgedAnswer], margins: Sequence[float]
) -> dict[str, float]:
    """Balanced accuracy and AUROC of margins by which answers pass."""
    labels, ranks = (
        np.array([a.label for a in answers], dtype=bool),
        np.array(margins, dtype=np.float64),
    )
    values = metric_values(np.ones((1, len(labels))), labels, ranks >= 0, ranks)
    return {metric: float(values[metric][0]) for metric in METRICS}


def reached(answers: Sequence[JudgedAnswer]) -> dict[str, float]:
    """Balanced accuracy and AUROC of judged answers."""
    values = label_metrics(answers)(np.ones((1, len(answers))))
    return {name: float(v[0]) for name, v in zip(METRICS, values, strict=True)}


def one(
    asked: Sequence[Replies],
    lexical: Replies,
    pool: Sequence[str],
    test: Sequence[str],
) -> Any:
    """Study one draw, and return its row: what was exported, what its user reads, and what it and what is free reach on
    the test."""
    started = time.process_time()
    studied = study(lexical, asked, pool, test)
    seconds = time.process_time() - started
    answer_of = {a.id: a for r in asked if r.name == "sentence" for a in r.answers}
    sentences, others = ([answer_of[i] for i in ids] for ids in (pool, test))
    printed = studied.printed.champion.agreement.balanced_accuracy.value
    return {
        "exported": studied.choice.champion.name,
        "champion": reached(studied.tested[CHAMPION]),
        "LM calibrated": measured(others, lm_calibrated(sentences, others)),
        "lexical": reached(studied.tested[LEXICAL]),
        "printed": {"balanced_accuracy": printed, "gain": studied.printed_gain},
        "candidates": {
            name: round(score, 4) for name, score in studied.choice.scores.items()
        },
        "seconds": round(seconds, 2),
    }


def run(
    log: Log,
    sets: Mapping[str, Sequence[LabelledExample]],
    draws: range,
    lms: Sequence[Strength],
) -> None:
    """Study every draw that the log does not have, LM by LM."""
    lexical = {name: unasked_answers(examples) for name, examples in sets.items()}
    for lm in lms:
        for seed in draws:
            # Another LM of the same strength each time: else the luck of one would be in all draws.
            replies: dict[str, list[Replies]] = {}
            for labels in SIZES:
                key = {"lm": lm.name, "labels": labels, "draw": seed}
                if log.has(**key):
                    continue
                large = sorted(
                    name for name in sets if len(sets[name]) >= labels + MIN_TEST
                )
                name = large[seed % len(large)]
                if name not in replies:
                    with closing(lm.serve(sets[name], seed)) as server:
                        replies[name] = replies_of(
                            server, lm.model, sets[name], lexical[name]
                        )
                pool, test = draw(sets[name], labels, seed)
                row = one(replies[name], lexical[name].lexical, pool, test)
                log.add(**key, set=name, test=len(test), **row)


def by_command_line(
    lm: Strength, examples: Sequence[LabelledExample], unasked: Unasked, seed: int
) -> dict[str, Any]:
    """Tune and measure one draw by ``faith-dspy tune`` and ``agree`` over HTTP, beside the same draw by `one`."""
    pool, test = draw(examples, COMMAND_LABELS, seed)
    parts = {"pool": pool, "others": test[:COMMAND_TEST]}
    by_id = {e.id: e for e in examples}
    with closing(lm.serve(examples)) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, ids in parts.items():
            write_lines(folder / f"{part}.jsonl", (_row(by_id[i]) for i in ids))
        endpoint = ["--api-base", server.base]
        tuned_on = [
            "pool.jsonl",
            "--variants",
            ",".join(SHAPES),
            "--lm",
            lm.model,
            "--out",
            "judge",
        ]
        _command(
            folder,
            "tune",
            *tuned_on,
            *endpoint,
            "--tracking-uri",
            f"sqlite:///{folder}/mlflow.db",
        )
        report = _command(
            folder, "agree", "others.jsonl", "--judge", "judge", *endpoint, "--json"
        )
        study = json.loads(
            (folder / "judge" / "study.json").read_text(encoding="utf-8")
        )
        replies = replies_of(server, lm.model, examples, unasked)
    row = one(replies, unasked.lexical, pool, parts["others"])
    answers = json.loads(report)["answers"]
    tuned = {metric: answers[metric]["value"] for metric in METRICS}
    return {
        "draw": seed,
        "exported": study["champion"],
        "agree": tuned,
        "bench": row["champion"],
        "by": row["exported"],
    }


def _row(e: LabelledExample) -> dict[str, Any]:
    row = {
        "id": e.id,
        "group": e.group_key,
        "question": e.question,
        "answer": e.answer,
        "faithful": e.label,
    }
    statements = [
        {"text": s.text, "verdict": s.verdict}
        for s in e.statements
        if s.verdict is not None
    ]
    return (
        row
        | {"context": [chunk.text for chunk in e.context]}
        | ({"statements": statements} if statements else {})
    )


def _command(folder: Path, *arguments: str) -> str:
    """What a command prints."""
    program = [str(Path(sys.executable).with_name("faith-dspy")), *arguments]
    environment = os.environ | {
        "OPENAI_API_KEY": "none",
        "DSPY_CACHEDIR": str(folder / "cache"),
    }
    return subprocess.run(
        program,
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def interval(values: Sequence[float]) -> str:
    """Mean in points, with its 95 % interval, t over draws."""
    mean = 100 * float(np.mean(values))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    half = 100 * error * float(student.ppf(0.975, len(values) - 1))
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def printed_error(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was printed minus what the exported judge reached, in points: mean and root mean square."""
    errors = [
        row["printed"]["balanced_accuracy"] - row["champion"]["balanced_accuracy"]
        for row in rows
    ]
    points = 100 * np.array(errors)
    return f"{points.mean():+.1f}, {np.sqrt((points**2).mean()):.1f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line by LM and number of labels."""
    columns = ("LM", "labels", "LM calibrated", "lexical", "champion")
    columns += ("− LM calibrated", "− lexical", "printed − reached: mean, RMSE")
    lines = [f"| {' | '.join(columns)} |", "|---|" + "--:|" * 7]
    for lm in dict.fromkeys(row["lm"] for row in rows):
        for labels in SIZES:
            own = [row for row in rows if row["lm"] == lm and row["labels"] == labels]
            if len(own) < 2:
                continue
            cells = [lm, str(labels)]
            for judge in ("LM calibrated", "lexical", "champion"):
                cells.append(
                    f"{np.mean([row[judge]['balanced_accuracy'] for row in own]):.3f}"
                )
            accuracy = np.array([row["champion"]["balanced_accuracy"] for row in own])
            for other in ("LM calibrated", "lexical"):
                theirs = [row[other]["balanced_accuracy"] for row in own]
                cells.append(interval(accuracy - theirs))
            cells.append(printed_error(own))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(
    draws: int = 20,
    lms: str = "",
    data: Path = DATA,
    out: Path = RESULTS,
    card: Path = CARD,
    commands: int = 0,
) -> None:
    """Study the draws that are missing, and write the table.

    ``lms``: only those with one of these parts in their name, ; between them. ``commands``: only so many draws, by
    faith-dspy tune and agree.
    """
    parts = lms.split(";")
    chosen = [lm for lm in strengths() if any(part in lm.name for part in parts)]
    if commands:
        examples = with_sources(synthetic())
        unasked = unasked_answers(examples)
        for seed, lm in enumerate(chosen[:commands]):
            print(lm.name, by_command_line(lm, examples, unasked, seed), flush=True)
        return
    log = Log(out)
    run(log, label_sets(data), range(draws), chosen)
    prose = "# LMs of known strength"
    if card.exists():
        prose = card.read_text(encoding="utf-8").partition("\n| LM")[0].rstrip()
    made = f"Made on {date.today():%-d %B %Y}."
    card.write_text(f"{prose}\n\n{table(log.rows)}\n\n{made}\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
