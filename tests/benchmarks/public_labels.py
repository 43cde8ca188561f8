"""Public labelled answers by family, a fixed sample of them, and what the LM said of each, kept as numbers.

The kept file is JSON lines: an answer's id, and for the whole answer and for its sentences the verdicts, log-odds,
chunk ids and tokens. It holds no text; `read_replies` puts the answers' own back in by their offsets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from faith_dspy import Judge
from faith_dspy.eval_sets.public import PUBLIC, load_public
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.schema import LabelledExample, RawJudgment
from faith_dspy.scoring.measure import measure_features
from faith_dspy.scoring.score import early_judgment, judgment_of
from faith_dspy.text.sentences import split_answer

from .log import Log

FAMILIES = {"expertqa_answers": "expertqa_claims"}
"""Sources, as the labels' ``source`` says, that are one family: neither is measured by what the other taught."""
SAMPLE, MAX_CHARACTERS = 50, 2800
"""Answers of a family that the LM is asked about, half of them faithful, and the length of their contexts."""
GRANULARITIES = ("answer", "sentence")
"""What the LM is asked about each of them: the whole answer, as the untuned judge of a study, and each sentence."""
_NOT_KEPT = {
    "sentences": {"__all__": {"text"}},
    "raw_verdicts": {"__all__": {"text", "quotes", "reason", "error"}},
}


def read(paths: Iterable[Path]) -> dict[str, list[LabelledExample]]:
    """Labelled answers by family; one that stands in several files counts once.

    A path is a labels file, or a folder with the published files of public sets, each in a folder of its name.
    """
    found: dict[str, dict[tuple[str, str], LabelledExample]] = {}
    for path in paths:
        rows = [
            load_public(name, path / name) for name in PUBLIC if (path / name).is_dir()
        ]
        for e in read_labels(list(chain(*rows)) if path.is_dir() else path):
            source = e.tags.get("source", path.stem)
            found.setdefault(FAMILIES.get(source, source), {}).setdefault(
                (e.context_key, e.answer), e
            )
    return {
        family: list(examples.values()) for family, examples in sorted(found.items())
    }


def sample(family: str, rows: Iterable[LabelledExample]) -> list[LabelledExample]:
    """The answers of a family that the LM is asked about; those over one context follow each other."""
    short = sorted(
        (e for e in rows if sum(len(c.text) for c in e.context) <= MAX_CHARACTERS),
        key=lambda e: e.id,
    )
    random.Random(family).shuffle(short)
    halves = [
        [e for e in short if e.label is label][: SAMPLE // 2] for label in (True, False)
    ]
    return sorted(
        (e for half in halves for e in half), key=lambda e: (e.context_key, e.id)
    )


def ask_lm(
    examples: Mapping[str, Sequence[LabelledExample]],
    lm: str,
    path: Path,
    granularities: Sequence[str] = GRANULARITIES,
) -> None:
    """Ask about each answer that is not in ``path`` yet, and append what is said, answer by answer.

    What the LM failed on is left out, and asked again by the next run.
    """
    log = Log(path)
    left = [
        (f, e) for f, rows in examples.items() for e in rows if not log.has(id=e.id)
    ]
    judges = [_judge(lm, granularity) for granularity in granularities]
    said = zip(*(judge.stream_raw(e for _, e in left) for judge in judges), strict=True)
    started = time.monotonic()
    for i, ((family, e), replies) in enumerate(zip(left, said, strict=True), 1):
        raws = dict(zip(granularities, (raw for raw, _ in replies), strict=True))
        if not any(
            v.verdict is None for raw in raws.values() for v in raw.raw_verdicts
        ):
            log.add(id=e.id, **{g: _numbers(raw) for g, raw in raws.items()})
        minutes = (time.monotonic() - started) / i * (len(left) - i) / 60
        print(
            f"{i} of {len(left)} answers ({family}), {minutes:.0f} minutes left",
            flush=True,
        )


def read_replies(
    path: Path, examples: Iterable[LabelledExample], granularity: str
) -> dict[str, JudgedAnswer]:
    """The answers that the LM was asked about, with what it said, by their ids."""
    by_id = {e.id: e for e in examples}
    config = _judge("local", granularity).config
    found = {}
    for row in Log(path).rows:
        if e := by_id.get(row["id"]):
            raw = _with_text(row[granularity], e.answer)
            if early := early_judgment(e.context, split_answer(e.answer), config):
                raw = RawJudgment(sentences=raw.sentences)
            features = measure_features(raw, e.context, e.question)
            judgment = early or judgment_of(raw, features, config)
            found[e.id] = JudgedAnswer.judged(e, raw, judgment)
    return found


def _judge(lm: str, granularity: Any) -> Judge:
    return Judge(lm, granularity=granularity, classifier=None)


def _numbers(raw: RawJudgment) -> dict[str, Any]:
    return raw.model_dump(mode="json", exclude=_NOT_KEPT, exclude_defaults=True)


def _with_text(numbers: Mapping[str, Any], answer: str) -> RawJudgment:
    sentences = [
        s | {"text": answer[s["start"] : s["end"]]}
        for s in numbers.get("sentences", ())
    ]
    texts: dict[int | None, str] = {s["index"]: s["text"] for s in sentences} | {
        None: answer.strip()
    }
    verdicts = [
        v | {"text": texts[v.get("sentence_index")]}
        for v in numbers.get("raw_verdicts", ())
    ]
    return RawJudgment.model_validate(
        dict(numbers) | {"sentences": sentences, "raw_verdicts": verdicts}
    )


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table under a heading."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        [f"## {title}", "", *(f"| {' | '.join(cells)} |" for cells in lines), ""]
    )


def write(page: Path, tables: Iterable[str]) -> None:
    """Replace the tables of a page; its prose before them stays."""
    prose = page.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    page.write_text("\n".join([prose, "", *tables]), encoding="utf-8")
