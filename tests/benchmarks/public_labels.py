"""Public labelled answers by family, a fixed sample of them, and what the LM said of each, kept as numbers.

The kept file is JSON lines: an answer's id, and for the whole answer and for its sentences the verdicts, log-odds,
chunk ids and tokens. It holds no text; `read_replies` puts the answers' own back in by their offsets.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy import Judge
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.schema import RawJudgment
from faith_dspy.scoring.score import judgment_without_lm, score_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from faith_dspy.schema import LabelledExample

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared" / "data"
FAMILIES = {"expertqa_answers": "expertqa_claims"}
"""Sources, as the labels' ``source`` says, that are one family: neither is measured by what the other taught."""
SAMPLE, MAX_CHARACTERS = 50, 2800
"""Answers of a family that the LM is asked about, half of them faithful, and the length of their contexts."""
GRANULARITIES = ("answer", "sentence")
"""What the LM is asked about each of them: the whole answer, as the untuned judge of a study, and each sentence."""
_NOT_KEPT = {"sentences": {"__all__": {"text"}}, "raw_verdicts": {"__all__": {"text", "quotes", "reason", "error"}}}


def read(paths: Iterable[Path]) -> dict[str, list[LabelledExample]]:
    """Labelled answers by family; one that stands in several files counts once."""
    found: dict[str, dict[tuple[str, str], LabelledExample]] = {}
    for path in paths:
        for e in read_labels(path):
            source = e.tags.get("source", path.stem)
            found.setdefault(FAMILIES.get(source, source), {}).setdefault((e.context_key, e.answer), e)
    return {family: list(examples.values()) for family, examples in sorted(found.items())}


def sample(family: str, rows: Iterable[LabelledExample]) -> list[LabelledExample]:
    """The answers of a family that the LM is asked about; those over one context follow each other."""
    short = sorted((e for e in rows if sum(len(c.text) for c in e.context) <= MAX_CHARACTERS), key=lambda e: e.id)
    random.Random(family).shuffle(short)
    halves = [[e for e in short if e.label is label][: SAMPLE // 2] for label in (True, False)]
    return sorted((e for half in halves for e in half), key=lambda e: (e.context_key, e.id))


def ask(examples: Mapping[str, Sequence[LabelledExample]], lm: str, path: Path) -> None:
    """Ask about each answer of the sample that is not in ``path`` yet, and append what is said, answer by answer.

    What the LM failed on is left out, and asked again by the next run.
    """
    there = {row["id"] for row in _rows(path)}
    left = [(f, e) for f, rows in examples.items() for e in sample(f, rows) if e.id not in there]
    judges = [_judge(lm, granularity) for granularity in GRANULARITIES]
    said = zip(*(judge.verify_all(e for _, e in left) for judge in judges), strict=True)
    started = time.monotonic()
    with path.open("a", encoding="utf-8") as out:
        for i, ((family, e), replies) in enumerate(zip(left, said, strict=True), 1):
            raws = dict(zip(GRANULARITIES, (raw for raw, _ in replies), strict=True))
            if not any(v.verdict is None for raw in raws.values() for v in raw.raw_verdicts):
                out.write(json.dumps({"id": e.id} | {g: _numbers(raw) for g, raw in raws.items()}) + "\n")
                out.flush()
            minutes = (time.monotonic() - started) / i * (len(left) - i) / 60
            print(f"{i} of {len(left)} answers ({family}), {minutes:.0f} minutes left", flush=True)


def read_replies(path: Path, examples: Iterable[LabelledExample], granularity: str) -> dict[str, JudgedAnswer]:
    """The answers that the LM was asked about, with what it said, by their ids."""
    by_id = {e.id: e for e in examples}
    config = _judge("local", granularity).config
    found = {}
    for row in _rows(path):
        if e := by_id.get(row["id"]):
            raw = _with_text(row[granularity], e.answer)
            if early := judgment_without_lm(e.context, e.answer, config):
                raw = RawJudgment(sentences=raw.sentences)
            found[e.id] = JudgedAnswer.of(e, raw, early or score_answer(raw, e.context, e.question, config))
    return found


def _judge(lm: str, granularity: Any) -> Judge:
    return Judge(lm, granularity=granularity, classifier=None)


def _numbers(raw: RawJudgment) -> dict[str, Any]:
    return raw.model_dump(mode="json", exclude=_NOT_KEPT, exclude_defaults=True)


def _with_text(numbers: Mapping[str, Any], answer: str) -> RawJudgment:
    sentences = [s | {"text": answer[s["start"] : s["end"]]} for s in numbers.get("sentences", ())]
    texts: dict[int | None, str] = {s["index"]: s["text"] for s in sentences} | {None: answer.strip()}
    verdicts = [v | {"text": texts[v.get("sentence_index")]} for v in numbers.get("raw_verdicts", ())]
    return RawJudgment.model_validate(dict(numbers) | {"sentences": sentences, "raw_verdicts": verdicts})


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
