"""The embedded model's speed, our engine and llama.cpp's wheel in turn: ``python -m tests.benchmarks.engine TEXT``

TEXT is any long text in English. Each engine has a process of its own; the figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENGINES = ("ours", "llama.cpp")
WRITTEN = 24
"""Tokens of the written reply."""
QUESTION = "\n\nIs this so? {} Answer Yes or No."


def measure(engine: str, text: str, sizes: list[int]) -> dict[str, Any]:
    """Start, first call, prompt tokens a second by size, a second question about 500 tokens, and written tokens."""
    started = time.monotonic()
    from faith_dspy.lm.make import make_lm
    from faith_dspy.lm.metered import metered

    if engine == "ours":
        lm = make_lm("local", cache=False)
    else:
        from .server import serve

        server = serve("local")  # kept while it is asked
        lm = make_lm(
            f"openai/{server.model}",
            api_base=f"{server.url}/v1",
            cache=False,
            timeout=3600,
        )

    def ask(prompt: str, tokens: int = 1) -> tuple[float, Any]:
        began = time.monotonic()
        with metered() as meter:
            lm(prompt, max_tokens=tokens)
        return time.monotonic() - began, meter.usage

    found: dict[str, Any] = {"engine": engine, "start": time.monotonic() - started}
    found["first_call"], _ = ask("Say yes.")
    at = 0
    for size in sizes:
        piece, at = text[at : at + 4 * size], at + 4 * size
        seconds, usage = ask(piece + QUESTION.format("It is so."))
        found[f"tokens_a_second_{size}"] = usage.computed_tokens / seconds
        found[f"tokens_{size}"] = usage.computed_tokens
        if size == 500:
            found["second_question"], usage = ask(
                piece + QUESTION.format("It is otherwise, and not so at all.")
            )
            found["second_question_tokens"] = usage.computed_tokens
            seconds, usage = ask(
                piece + "\n\nTell it again in other words, at length.", WRITTEN
            )
            once, _ = ask(piece + "\n\nTell it again in other words, at length.")
            found["written_a_second"] = (usage.output_tokens - 1) / max(
                seconds - once, 1e-9
            )
    return found | {
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    }


def main() -> None:
    """Each engine in turn, so many times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sizes", default="200,500,2000,6000")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--engine", choices=ENGINES, help="this one alone, in this process"
    )
    given = parser.parse_args()
    if given.engine:
        sizes = [int(size) for size in given.sizes.split(",")]
        print(
            json.dumps(
                measure(given.engine, given.text.read_text(encoding="utf-8"), sizes)
            ),
            flush=True,
        )
        return
    for _ in range(given.times):
        for engine in ENGINES:
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.engine",
                str(given.text),
                "--sizes",
                given.sizes,
            ]
            subprocess.run([*command, "--engine", engine], check=True)


if __name__ == "__main__":
    main()
