"""Makes the outputs that optimize/HOWTO.md shows: python -m tests.benchmarks.howto [FOLDER]

Runs its commands in a folder, on the shipped `quickstart` labels as a CSV. The LM is scripted: a server that answers
under the name of a hosted model, knows the labels, and is right about five statements in six; it counts four characters
as a token. Calls are those that a hosted model would get, tokens and dollars roughly; agreement says nothing about it.
"""

import csv
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from faith_dspy.eval_sets.catalog import load
from tests.support.chat_server import ChatServer, yes_or_no

LM = "openai/gpt-4o-mini"
TUNE = f"--lm {LM} --variants answer,sentence"
COMMANDS = (
    "faith-dspy labels audit labels.csv",
    f"faith-dspy tune labels.csv {TUNE}",
    "faith-dspy study show judges/labels --details",
    "cat judges/labels/CARD.md",
    f"faith-dspy tune labels.csv {TUNE} --operating-point recall=0.9 --out judges/recall",
    "faith-dspy study show judges/recall --details",
    f"faith-dspy tune first.csv --test test.csv {TUNE} --out judges/first",
    f"faith-dspy tune more.csv --test test.csv {TUNE} --out judges/more",
    "faith-dspy study compare judges/more judges/first",
    "faith-dspy judge --lm none --answer 'The kettle holds 1.7 litres [0]. It has a guarantee [0].' "
    "--context 'The kettle holds 1.7 litres.' --context 'It has a two-year guarantee.'",
)


def right_about_most(examples):
    """A reply to each statement: the label's probability, on the wrong side of .5 for one in six."""
    supported = {e.answer: e.label for e in examples}
    for e in examples:
        supported |= {s.text: s.verdict == "fully_supported" for s in e.statements}

    def says(asked):
        statement = ChatServer.statement(asked)
        noise = random.Random(statement).gauss(1.5, 1.5)
        log_odds = noise if supported.get(statement, True) else -noise
        return yes_or_no(1 / (1 + math.exp(-log_odds)))

    return says


def write_csv(path, examples):
    """The labels of a user who has a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["question", "context", "answer", "faithful", "labelled_by"])
        for e in examples:
            context = json.dumps([c.text for c in e.context], ensure_ascii=False)
            label = "yes" if e.label else "no"
            out.writerow([e.question, context, e.answer, label, "model"])


def main():
    """Run them all, and print each with its output."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    examples = load("quickstart")
    sources = sorted({e.group_key for e in examples})
    parts = {"first": sources[:12], "more": sources[:26], "test": sources[26:]}
    write_csv(folder / "labels.csv", examples)
    for name, wanted in parts.items():
        part = [e for e in examples if e.group_key in wanted]
        write_csv(folder / f"{name}.csv", part)
    models = [{"id": LM.partition("/")[2]}]
    server = ChatServer(right_about_most(examples), models, characters_per_token=4)
    bin_folder = Path(sys.executable).parent
    env = os.environ | {
        "OPENAI_API_KEY": "none",
        "OPENAI_API_BASE": server.base,
        "DSPY_CACHEDIR": str(folder / "cache"),
        "COLUMNS": "80",
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    for command in COMMANDS:
        print(f"\n$ {command}", flush=True)
        subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=env,
            stderr=subprocess.STDOUT,
            check=False,
        )
    server.close()


if __name__ == "__main__":
    main()
