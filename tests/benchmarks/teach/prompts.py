"""Write labelled statements as the judge's own prompts, in token ids: what `train` reads on any machine.

``python -m tests.benchmarks.teach.prompts TRAIN.jsonl --evaluate FILE… --out prompts.npz``

A row of the files has ``family``, ``source``, ``context`` (list of chunks), ``question``, ``statement``, ``label`` (1:
people call the statement supported) and ``verdict``. Half of the training rows ask the seed prompt; the others ask in
the other phrasings and verdict scales that a judge can be set to. Parts of the file, beside those that are measured on:

- ``train`` and ``validation``: a prompt, and its right label.
- ``small_talk``: sentences of small talk (`talk`); the model is held to what it said of them untaught.
- ``written``: prompts that take an answer apart, or ask for a reason or citations; the model is held to the reply that
  it wrote untaught, its labels apart.
- ``joint``: prompts that ask for all verdicts at once, each with the right reply.

Token ids are renumbered to those that occur, so that the tables of embeddings can be cut to them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import openvino_genai

from faith_dspy.config import JudgeConfig
from faith_dspy.lm.model_file import EMBEDDED, fetch
from faith_dspy.program.prompt import CompactAdapter, JointAdapter
from faith_dspy.program.signatures import (
    INSTRUCTIONS,
    ExtractStatements,
    build_verification_signature,
)

from . import talk

MAX_TOKENS = 1400
"""Tokens of a prompt; a longer one is left out."""
SPOKEN_SHARE = 0.06
"""Share of the training rows whose statement is put as somebody would say it."""
KEPT_SHARE, WRITTEN_SHARE, JOINT_SHARE = 0.04, 0.03, 0.03
"""Prompts of the other parts, as shares of the training rows."""
VALIDATION_SHARE = 0.02
"""Share of the training sources that are only measured on."""
LABELS = {
    "binary": {"fully_supported": "Yes", "unsupported": "No"},
    "graded": {
        "fully_supported": "fully",
        "partially_supported": "partly",
        "no_evidence": "nothing",
        "contradictory": "contradicts",
    },
    "five_level": {
        "fully_supported": "completely",
        "partially_supported": "mixed",
        "contradictory": "not",
    },
}
"""The label that is right for a verdict, by scale; ``unsupported`` is every verdict but full support."""
PHRASINGS: list[tuple[dict[str, Any], float]] = [
    ({}, 0.74),
    ({"cite": True}, 0.08),
    ({"reasoning": "after"}, 0.04),
    ({"verdicts": "graded"}, 0.09),
    ({"verdicts": "five_level", "granularity": "answer"}, 0.05),
]
"""Options of a judge, and the share of the training rows that are asked in this way. The shipped weights were taught
with three more wordings of the question, which had .22 of the rows and are no options any more."""


class Tokenizer:
    """The embedded model's, with its chat template."""

    def __init__(self) -> None:
        self._tokenizer = openvino_genai.Tokenizer(fetch(EMBEDDED))

    def prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        return self.encode(
            self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        )

    def encode(self, text: str) -> list[int]:
        ids: list[int] = (
            self._tokenizer.encode(text, add_special_tokens=False)
            .input_ids.data[0]
            .tolist()
        )
        return ids


class Writer:
    """Turns rows into prompts; a row whose verdict a phrasing cannot express is asked in the seed's."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.adapter = CompactAdapter()

    def messages(
        self, signature: type[dspy.Signature], inputs: dict[str, Any]
    ) -> list[int]:
        return self.tokenizer.prompt(self.adapter.format(signature, [], inputs))

    def verdict(
        self, row: dict[str, Any], options: dict[str, Any]
    ) -> tuple[list[int], int]:
        """Token ids of the prompt, and the first one of its right label."""
        name = options.get("verdicts", "binary")
        label = right_label(row, name)
        if label is None:
            return self.verdict(row, {})
        inputs = {
            "context": row["context"],
            "question": row.get("question"),
            "statement": row["statement"],
        }
        return self.messages(signature_for(**options), inputs), self.tokenizer.encode(
            label
        )[0]

    def written(self, rows: list[dict[str, Any]], chance: random.Random) -> list[int]:
        """A prompt whose reply is more than a label: statements, a reason, or citations."""
        if chance.random() < 0.6:
            inputs = {
                "question": rows[0].get("question"),
                "sentences": [row["statement"] for row in rows],
            }
            return self.messages(ExtractStatements, inputs)
        options = [{"reasoning": "after"}, {"reasoning": "before"}, {"cite": True}]
        ids, _ = self.verdict(rows[0], chance.choice(options))
        return ids

    def joint(self, rows: list[dict[str, Any]]) -> tuple[list[int], int]:
        """A prompt that asks for all verdicts at once, with its right reply; where the reply begins."""
        statements = [row["statement"] for row in rows]
        inputs = {
            "context": dict(enumerate(rows[0]["context"])),
            "question": rows[0].get("question") or "",
            "statements": dict(enumerate(statements, 1)),
        }
        signature = build_verification_signature(
            JudgeConfig(verification="joint"), joint=True
        )
        prompt = self.tokenizer.prompt(JointAdapter().format(signature, [], inputs))
        verdicts = [
            {"statement": number, "verdict": right_label(row, "binary")}
            for number, row in enumerate(rows, 1)
        ]
        reply = json.dumps({"verdicts": verdicts}) + "<|im_end|>"
        return prompt + self.tokenizer.encode(reply), len(prompt)


@cache
def signature_for(**options: Any) -> type[dspy.Signature]:
    return build_verification_signature(JudgeConfig(**options))


def right_label(row: dict[str, Any], instruction: str) -> str | None:
    """The label that people's verdict is under an instruction; None where its labels do not tell."""
    labels = LABELS[instruction]
    verdict = (
        "fully_supported" if row["label"] else row.get("verdict") or "not_supported"
    )
    if "unsupported" in labels and not row["label"]:
        verdict = "unsupported"
    return labels.get(verdict)


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def choose(
    rows: list[dict[str, Any]], count: int, chance: random.Random
) -> list[dict[str, Any]]:
    """Rows of all families: each has its share, the larger ones what the smaller ones leave; labels alternate."""
    families: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        families[row["family"]].append(row)
    chosen: list[dict[str, Any]] = []
    for number, family in enumerate(sorted(families, key=lambda f: len(families[f]))):
        share = (count - len(chosen)) // (len(families) - number)
        halves = [
            [row for row in families[family] if row["label"] == label]
            for label in (1, 0)
        ]
        for half, other in (halves, halves[::-1]):
            chance.shuffle(half)
            chosen.extend(half[: max(share // 2, share - len(other))])
    chance.shuffle(chosen)
    return chosen


def training_prompts(
    rows: list[dict[str, Any]], writer: Writer, chance: random.Random
) -> Iterator[dict[str, Any]]:
    """Prompts with their right label; ``part`` is one of those above, without those measured on."""
    sources = sorted({row["source"] for row in rows})
    validation = set(
        chance.sample(sources, max(1, round(len(sources) * VALIDATION_SHARE)))
    )
    options, shares = zip(*PHRASINGS, strict=True)
    by_source: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_source[row["source"]].append(row)
        measured = row["source"] in validation
        phrasing = {} if measured else chance.choices(options, shares)[0]
        spoken = (
            not measured and talk.is_english(row) and chance.random() < SPOKEN_SHARE
        )
        asked = talk.in_conversation(row, chance) if spoken else row
        ids, label = writer.verdict(asked, phrasing)
        yield {
            "ids": ids,
            "label": label,
            "part": "validation" if measured else "train",
        }
    others = [row for row in rows if row["source"] not in validation]
    english = [row for row in others if talk.is_english(row)]
    for row in chance.sample(english, round(len(rows) * KEPT_SHARE)):
        ids, _ = writer.verdict(talk.small_talk(row, chance), {})
        yield {"ids": ids, "label": -1, "part": "small_talk"}
    for row in chance.sample(others, round(len(rows) * WRITTEN_SHARE)):
        answer = some_of(by_source[row["source"]], chance)
        if talk.is_english(row) and chance.random() < 0.3:
            answer.insert(chance.randint(0, 1), talk.small_talk(row, chance))
        yield {"ids": writer.written(answer, chance), "label": -1, "part": "written"}
    by_context: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in others:
        by_context[json.dumps(row["context"])].append(row)
    several = [rows for rows in by_context.values() if len(rows) > 1]
    count = min(len(several), round(len(rows) * JOINT_SHARE))
    for rows_of_context in chance.sample(several, count):
        ids, start = writer.joint(some_of(rows_of_context, chance))
        yield {"ids": ids, "label": -1, "part": "joint", "start": start}


def some_of(rows: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Return one to five rows with different statements."""
    different = list({row["statement"]: row for row in rows}.values())
    return chance.sample(different, min(len(different), chance.randint(1, 5)))


def evaluation_prompts(
    rows: Iterable[dict[str, Any]], writer: Writer, part: str
) -> Iterator[dict[str, Any]]:
    """The seed prompt for each row; ``row`` is its place in the file."""
    for number, row in enumerate(rows):
        ids, label = writer.verdict(row, {})
        yield {"ids": ids, "label": label, "part": part, "row": number}


def save(prompts: list[dict[str, Any]], tokenizer: Tokenizer, path: Path) -> None:
    """Arrays of renumbered ids, one after the other, with where each prompt ends."""
    labels = [
        tokenizer.encode(label)[0]
        for name in LABELS
        for label in INSTRUCTIONS[name].labels
    ]
    flat = np.concatenate([np.array(p["ids"], np.int32) for p in prompts])
    vocabulary = np.union1d(flat, labels)
    renumbered = np.full(vocabulary.max() + 1, -1, np.int32)
    renumbered[vocabulary] = np.arange(len(vocabulary))
    targets = [
        p["label"] if p["label"] < 0 else renumbered[p["label"]] for p in prompts
    ]
    yes, no = (renumbered[tokenizer.encode(word)[0]] for word in ("Yes", "No"))
    np.savez_compressed(
        path,
        vocabulary=vocabulary,
        tokens=renumbered[flat].astype(
            np.uint16 if len(vocabulary) < 1 << 16 else np.int32
        ),
        ends=np.cumsum([len(p["ids"]) for p in prompts]),
        targets=np.array(targets, np.int32),
        parts=np.array([p["part"] for p in prompts]),
        rows=np.array([p.get("row", -1) for p in prompts], np.int32),
        starts=np.array([p.get("start", 0) for p in prompts], np.int32),
        end=renumbered[tokenizer.encode("<|im_end|>")[0]],
        yes_no=np.array([yes, no], np.int32),
    )
    print(
        f"{len(prompts):,} prompts, {len(flat):,} tokens, {len(vocabulary):,} of them different"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("--evaluate", type=Path, nargs="*", default=[])
    parser.add_argument(
        "--rows", type=int, default=40_000, help="training rows that are chosen"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("prompts.npz"))
    options = parser.parse_args()
    tokenizer = Tokenizer()
    writer = Writer(tokenizer)
    chance = random.Random(options.seed)
    rows = choose(read(options.train), options.rows, chance)
    prompts = [
        p for p in training_prompts(rows, writer, chance) if len(p["ids"]) <= MAX_TOKENS
    ]
    for path in options.evaluate:
        prompts += evaluation_prompts(read(path), writer, path.stem)
    save(prompts, tokenizer, options.out)


if __name__ == "__main__":
    main()
