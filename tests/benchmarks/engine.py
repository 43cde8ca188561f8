"""The embedded model's speed, our engine and llama.cpp's wheel in turn: ``python -m tests.benchmarks.engine TEXT``

TEXT is any long text in English. Each engine has a process of its own; the figures are printed as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import typer

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


def main(
    text: Path, sizes: str = "200,500,2000,6000", times: int = 1, engine: str = ""
) -> None:
    """Each engine in turn, so many times; ``--engine`` alone in this process."""
    if engine:
        numbers = [int(size) for size in sizes.split(",")]
        figures = measure(engine, text.read_text(encoding="utf-8"), numbers)
        print(json.dumps(figures), flush=True)
        return
    command = [sys.executable, "-m", "tests.benchmarks.engine", text, "--sizes", sizes]
    for name in ENGINES * times:
        subprocess.run([*command, "--engine", name], check=True)


if __name__ == "__main__":
    typer.run(main)
