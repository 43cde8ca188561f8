"""Makes the outputs that optimize/HOWTO.md shows: python -m tests.benchmarks.howto [FOLDER]

Runs its commands in a folder, on the shipped `quickstart` labels as a CSV. The LM is scripted: a server that answers
under the name of a hosted model by comparing words. So calls, tokens and the estimate of dollars are what a hosted
model would take, up to the length of its replies, and agreement is not.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from chat_server import ChatServer

from faith_dspy.eval_sets.catalog import load

from .run_notebooks import compare_words

LM = "openai/gpt-4o-mini"
COMMANDS = (
    "faith-dspy labels audit labels.csv",
    f"faith-dspy tune labels.csv --lm {LM} --budget quick",
    "faith-dspy study show judges/labels --details",
    "cat judges/labels/CARD.md",
    f"faith-dspy tune labels.csv --lm {LM} --budget quick --operating-point recall=0.9 --out judges/recall",
    f"faith-dspy tune more.csv --test test.jsonl --lm {LM} --budget quick --out judges/more",
    "faith-dspy study compare judges/more judges/labels",
    "faith-dspy judge --lm none --answer 'The kettle holds 1.7 litres [0]. It has a guarantee [0].' "
    "--context 'The kettle holds 1.7 litres.' --context 'It has a two-year guarantee.'",
)


def write_csv(path, examples):
    """The labels of a user who has a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["question", "context", "answer", "faithful"])
        for e in examples:
            context = json.dumps([c.text for c in e.context], ensure_ascii=False)
            label = "yes" if e.label else "no"
            out.writerow([e.question, context, e.answer, label])


def main():
    """Run them all, and print each with its output."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    write_csv(folder / "labels.csv", load("quickstart"))
    server = ChatServer(says=compare_words, models=[{"id": LM.partition("/")[2]}])
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
        subprocess.run(command, shell=True, cwd=folder, env=env, check=False)
    server.close()


if __name__ == "__main__":
    main()
