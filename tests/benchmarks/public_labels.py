"""Public labelled answers by family, a fixed sample of them, and what the LM said of each, kept as numbers.

The kept file is JSON lines: an answer's id, and for the whole answer and for its sentences the verdicts, log-odds,
chunk ids and tokens. It holds no text; `read_replies` puts the answers' own back in by their offsets.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from faith_dspy import Judge
from faith_dspy.eval_sets.public import PUBLIC, load_public
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.report.tables import Table, number, with_interval
from faith_dspy.schema import Judgment, LabelledExample, RawJudgment, Unscored
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.score import early_judgment
from faith_dspy.scoring.statistics import Estimate
from faith_dspy.text.sentences import split_answer

FAMILIES = {"expertqa_answers": "expertqa_claims"}
"""Sources, as the labels' ``source`` says, that are one family: neither is measured by what the other taught."""
SAMPLE, MAX_CHARACTERS = 50, 2800
"""Answers of a family that the LM is asked about, half of them faithful, and the length of their contexts."""
GRANULARITIES = ("answer", "sentence")
"""What the LM is asked about each of them: the whole answer, as the untuned judge of a study, and each sentence."""
ENOUGH = 20
"""Answers of a family to learn from it, and to count in the mean; a smaller one is only measured."""
METRICS = {"balanced accuracy": "balanced_accuracy", "AUROC": "auroc"}
KEPT = "openai/kept"
"""A judge's LM, which is never asked: its replies are there."""
NOT_ASKED = Judgment(unscored=Unscored.NO_STATEMENTS)
_NOT_KEPT = {
    "sentences": {"__all__": {"text"}},
    "raw_verdicts": {"__all__": {"text", "quotes", "reason", "error"}},
}


def read(paths: Iterable[Path]) -> dict[str, list[LabelledExample]]:
    """Labelled answers by family; one that stands in several files counts once.

    A path is a labels file, or a folder with the published files of public sets, each in a folder of its name.
    """
    families: dict[str, dict[tuple[str, str], LabelledExample]] = {}
    for path in paths:
        rows: Any = path
        if path.is_dir():
            names = [name for name in PUBLIC if (path / name).is_dir()]
            rows = list(chain(*(load_public(name, path / name) for name in names)))
        for e in read_labels(rows):
            source = e.tags.get("source", path.stem)
            family = families.setdefault(FAMILIES.get(source, source), {})
            family.setdefault((e.context_key, e.answer), e)
    return {name: list(family.values()) for name, family in sorted(families.items())}


def sample(family: str, rows: Iterable[LabelledExample]) -> list[LabelledExample]:
    """The answers of a family that the LM is asked about; those over one context follow each other."""
    short = [e for e in rows if sum(len(c.text) for c in e.context) <= MAX_CHARACTERS]
    short.sort(key=lambda e: e.id)
    random.Random(family).shuffle(short)
    drawn: list[LabelledExample] = []
    for label in (True, False):
        drawn += [e for e in short if e.label is label][: SAMPLE // 2]
    return sorted(drawn, key=lambda e: (e.context_key, e.id))


def ask_lm(
    examples: Iterable[LabelledExample],
    lm: str,
    path: Path,
    granularities: Sequence[str] = GRANULARITIES,
) -> None:
    """Ask about each answer that is not in ``path`` yet, and append what is said, answer by answer.

    What the LM failed on is left out, and asked again by the next run.
    """
    asked = {row["id"] for row in _rows(path)}
    left = [e for e in examples if e.id not in asked]
    judges = [_judge(lm, granularity) for granularity in granularities]
    replies = zip(*(judge.stream_raw(left) for judge in judges), strict=True)
    with path.open("a", encoding="utf-8") as file:
        for i, (e, said) in enumerate(zip(left, replies, strict=True), 1):
            raws = [raw for raw, _ in said]
            row = {"id": e.id}
            for granularity, raw in zip(granularities, raws, strict=True):
                row[granularity] = raw.model_dump(
                    mode="json", exclude=_NOT_KEPT, exclude_defaults=True
                )
            if all(v.verdict for raw in raws for v in raw.raw_verdicts):
                file.write(json.dumps(row) + "\n")
                file.flush()
            print(f"{i} of {len(left)} answers", flush=True)


def read_replies(
    path: Path, examples: Iterable[LabelledExample], granularity: str
) -> list[JudgedAnswer]:
    """The answers that the LM was asked about, with what it said, in the order of their ids."""
    by_id = {e.id: e for e in examples}
    judge = _judge(KEPT, granularity)
    answers = []
    for row in sorted(_rows(path), key=lambda row: row["id"]):
        if e := by_id.get(row["id"]):
            raw = _with_text(row[granularity], e.answer)
            early = early_judgment(e.context, split_answer(e.answer), judge.config)
            if early:
                raw = RawJudgment(sentences=raw.sentences)
            answer = JudgedAnswer.judged(e, raw, early or NOT_ASKED)
            answers.append(answer.by(judge))
    return answers


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _judge(lm: str, granularity: Any) -> Judge:
    return Judge(lm, granularity=granularity, classifier=None)


def _with_text(numbers: Mapping[str, Any], answer: str) -> RawJudgment:
    texts: dict[int | None, str] = {None: answer.strip()}
    sentences, verdicts = [], []
    for s in numbers.get("sentences", ()):
        texts[s["index"]] = answer[s["start"] : s["end"]]
        sentences.append(s | {"text": texts[s["index"]]})
    for v in numbers.get("raw_verdicts", ()):
        verdicts.append(v | {"text": texts[v.get("sentence_index")]})
    fields = dict(numbers) | {"sentences": sentences, "raw_verdicts": verdicts}
    return RawJudgment.model_validate(fields)


def family_table(
    title: str,
    columns: Sequence[str],
    numbers: Mapping[str, int],
    cells: Callable[[Sequence[str]], Iterable[str]],
) -> Table:
    """A row by family, and the mean of those with `ENOUGH` answers; ``numbers``: of answers, by family."""
    counted = [family for family, n in numbers.items() if n >= ENOUGH]
    rows = [(family, str(n), *cells([family])) for family, n in numbers.items()]
    total = sum(numbers[family] for family in counted)
    rows.append((f"**mean of {len(counted)}**", str(total), *cells(counted)))
    return Table(title, ("set", "n", *columns), tuple(rows))


def accuracy_and_auroc(levels: Sequence[Agreement]) -> str:
    """Their means over families, the first with its interval."""
    accuracy, auroc = (
        mean([getattr(level, metric) for level in levels])
        for metric in METRICS.values()
    )
    return f"{with_interval(accuracy)} · {number(auroc.value)}"


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of estimates that are independent of each other; its interval is normal, from theirs."""
    if len(estimates) == 1:
        return estimates[0]
    half = 0.0
    for e in estimates:
        if e.low is not None and e.high is not None:
            half = math.hypot(half, (e.high - e.low) / 2 / len(estimates))
    value = fmean(e.value for e in estimates if e.value is not None)
    return Estimate(value=value, low=value - half, high=value + half)


def write(page: Path, tables: str) -> None:
    """Replace the tables of a page; its prose before them stays."""
    prose = page.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    page.write_text(f"{prose}\n\n{tables}", encoding="utf-8")
