"""What long contexts and many statements cost. ``python -m tests.benchmarks.long_contexts [--lm local]``

Without ``--lm`` against a recorded endpoint with a prefix cache: calls, tokens, and the judge's own seconds. With it,
seconds of the embedded model, at a few points.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import track

from .prefix_server import PrefixServer, tokens
from .rows import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faith_dspy.schema import Usage

RESULTS = Path(__file__).with_name("results")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- long contexts: generated -->", "<!-- /long contexts -->"
WINDOWS = (4096, 8192, 32768)
CONTEXTS = (1000, 2000, 4000, 8000, 16000, 32000, 64000)
STATEMENTS = (1, 4, 16, 64)
MODEL_CONTEXTS = (1000, 2000, 4000, 8000)
MODEL_STATEMENTS = (1, 4)
FOCUS = 5
"""Sentences that a judge with the option `focus` is shown, beside one that reads all."""
CHUNK_SENTENCES = 8


class Point(BaseModel):
    """One judgment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int
    """Tokens the LM takes at once."""
    context: int
    """Tokens."""
    statements: int
    focus: int | None = None
    windows: int
    """The context was read in so many parts."""
    calls: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    seconds: float
    """By the clock."""
    own_seconds: float
    """Of the processor, spent by the judge itself: the thread it ran in, without the endpoint's."""


class Law(BaseModel):
    """Computed tokens = ``context`` · tokens of context + ``call`` · calls, by least squares."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int
    context: float
    """How often each token of the context is computed."""
    call: float
    """Tokens a call adds: the statement, and what is asked about it."""
    worst: float
    """Largest relative error of the fit."""


def document(n: int, count: Callable[[str], int]) -> list[str]:
    """Chunks of about ``n`` tokens together, every sentence another."""
    chunks: list[str] = []
    size = i = 0
    while size < n:
        lines = [sentence(i + k) for k in range(CHUNK_SENTENCES)]
        chunks.append(" ".join(lines))
        size += count(chunks[-1])
        i += CHUNK_SENTENCES
    return chunks


def sentence(i: int) -> str:
    """The ``i``-th line of a ledger."""
    goods = ("copper wire", "linen", "green tea", "walnut boards", "lamp oil", "writing paper", "rope")[i % 7]
    return f"Entry {i} lists {3 + i % 11} crates of {goods}, received by clerk {i % 13} and stored in hall {i % 17}."


def answer(n: int) -> str:
    """``n`` statements about the first lines of the document."""
    return " ".join(sentence(i) for i in range(n))


def measure(lm: Any, window: int, context: list[str], size: int, statements: int, focus: int | None = None) -> Point:
    """Judge one answer, by sentence."""
    from faith_dspy import Judge

    judge = Judge(lm, granularity="sentence", focus=focus)
    began, own = time.perf_counter(), time.thread_time()
    found = judge(context=context, answer=answer(statements))
    seconds, own = time.perf_counter() - began, time.thread_time() - own
    if found.unscored or len(found.statements) != statements:
        raise RuntimeError(f"{size} tokens, {statements} statements: {found.unscored} {found.detail}")
    usage: Usage = found.usage
    return Point(
        window=window,
        context=size,
        statements=statements,
        focus=focus,
        windows=usage.calls // statements,
        calls=usage.calls,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        computed_tokens=usage.computed_tokens,
        seconds=seconds,
        own_seconds=own,
    )


def recorded(windows: Sequence[int], contexts: Sequence[int], statements: Sequence[int]) -> Iterator[Point]:
    """All points against the recorded endpoint, each with an empty cache."""
    from faith_dspy.lm import make_lm

    for window in windows:
        for n in contexts:
            chunks = document(n, lambda text: len(tokens(text)))
            size = len(tokens("\n".join(chunks)))
            for s, focus in product(statements, (None, FOCUS)):
                server = PrefixServer(window)
                lm = make_lm("openai/tiny", api_base=server.base, num_ctx=window, cache=False, num_retries=0)
                yield measure(lm, window, chunks, size, s, focus)
                server.close()


def with_model(model: str) -> Iterator[Point]:
    """A few points with the embedded model and its own tokens; every document another, so that none is cached."""
    from faith_dspy.lm import make_lm

    from .served import serve

    server = serve(model)
    lm = make_lm(f"openai/{server.model}", api_base=f"{server.url}/v1", num_ctx=server.num_ctx, cache=False)
    try:
        for n in MODEL_CONTEXTS:
            for s in MODEL_STATEMENTS:
                chunks = [f"Ledger {n}, copy {s}: {c}" for c in document(n, server.tokens)]
                yield measure(lm, server.num_ctx, chunks, server.tokens("\n".join(chunks)), s)
    finally:
        server.stop()


def laws(points: Sequence[Point]) -> list[Law]:
    """The linear law of every window size."""
    import numpy as np

    found = []
    for window in dict.fromkeys(p.window for p in points):
        here = [p for p in points if p.window == window and p.focus is None]
        x = np.array([[p.context, p.calls] for p in here], dtype=float)
        y = np.array([p.computed_tokens for p in here], dtype=float)
        weights = 1 / y  # relative errors: 64,000 tokens are not to drown 1,000
        a, b = np.linalg.lstsq(x * weights[:, None], y * weights, rcond=None)[0]
        worst = float(np.abs(x @ [a, b] / y - 1).max())
        found.append(Law(window=window, context=float(a), call=float(b), worst=worst))
    return found


def markdown(points: Sequence[Point], real: Sequence[Point]) -> str:
    """The generated part of README.md."""
    most = max(p.statements for p in points)
    lines = [
        "",
        f"{datetime.date.today().isoformat()} · {machine()}",
        "",
        "![calls, tokens and seconds](results/long_contexts.png)",
        "",
    ]
    for law in laws(points):
        lines.append(
            f"* Window {law.window:,}: computed tokens = {law.context:.2f} · context + {law.call:.0f} · calls, "
            f"off by {law.worst:.0%} at most."
        )
    few = [p.computed_tokens / p.statements for p in points if p.focus]
    if few:
        lines.append(
            f"* With `focus={FOCUS}`, whatever the window and the context: {min(few):.0f} to {max(few):.0f} tokens a "
            "statement, one call each."
        )
    header = (
        "window",
        "context",
        "windows read",
        "1 statement: calls / computed",
        f"{most}: calls / computed",
        f"own s ({most})",
    )
    lines += ["", "| " + " | ".join(header) + " |", "|" + "--:|" * len(header)]
    at = {(p.window, p.context, p.statements): p for p in points if p.focus is None}
    for window, context in dict.fromkeys((p.window, p.context) for p in points):
        one, many = at[window, context, 1], at[window, context, most]
        cells = [f"{window:,}", f"{context:,}", str(one.windows)]
        cells += [f"{p.calls:,} / {p.computed_tokens:,}" for p in (one, many)]
        lines.append("| " + " | ".join([*cells, f"{many.own_seconds:.1f}"]) + " |")
    if real:
        lines += ["", "With the embedded model:", "", "| context | statements | calls | computed | cached | seconds |"]
        lines.append("|" + "--:|" * 6)
        for p in real:
            cells = [f"{p.context:,}", str(p.statements), str(p.calls)]
            cells += [f"{p.computed_tokens:,}", f"{p.cached_tokens:,}", f"{p.seconds:.1f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(points: Sequence[Point]) -> Any:
    """Calls, computed tokens and the judge's own time over the context, for the middle window."""
    from matplotlib.figure import Figure

    sizes = sorted({p.window for p in points})
    window = sizes[len(sizes) // 2]
    figure = Figure(figsize=(11, 3.8), dpi=120, layout="constrained")
    panels = (("calls", "LM calls"), ("computed_tokens", "computed tokens"), ("own_seconds", "own seconds (processor)"))
    for ax, (name, label) in zip(figure.subplots(1, 3), panels, strict=True):
        for s in sorted({p.statements for p in points}):
            line = [p for p in points if p.window == window and p.statements == s and p.focus is None]
            ax.loglog([p.context for p in line], [getattr(p, name) for p in line], "o-", markersize=4, label=f"{s}")
        ax.set_xlabel(f"tokens of context (window {window:,})")
        ax.set_title(label, loc="left", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(title="statements", frameon=False, fontsize=8)
    return figure


def main() -> int:
    """Measure, and write ``results/long_contexts.json``, a plot, and the page's part."""
    p = argparse.ArgumentParser(prog="python -m tests.benchmarks.long_contexts", description=__doc__)
    p.add_argument("--lm", help="local: seconds of the embedded model, at few points; the recorded ones stay")
    asked = p.parse_args()
    file = RESULTS / "long_contexts.json"
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    points = [Point.model_validate(x) for x in kept.get("recorded", []) if asked.lm]
    real = [Point.model_validate(x) for x in kept.get("model", []) if not asked.lm]
    bar = {"console": Console(stderr=True)}
    if asked.lm:
        total = len(MODEL_CONTEXTS) * len(MODEL_STATEMENTS)
        real = list(track(with_model(asked.lm), "The embedded model", total, **bar))
    else:
        total = 2 * len(WINDOWS) * len(CONTEXTS) * len(STATEMENTS)
        points = list(track(recorded(WINDOWS, CONTEXTS, STATEMENTS), "Recorded", total, **bar))
    told: dict[str, Any] = {"recorded": [x.model_dump() for x in points], "model": [x.model_dump() for x in real]}
    told |= {"laws": [law.model_dump() for law in laws(points)]}
    told |= {"date": datetime.date.today().isoformat(), "machine": machine()}
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if points:
        plot(points).savefig(RESULTS / "long_contexts.png", metadata={"Software": None})
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{markdown(points, real)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
        sys.stdout.write(markdown(points, real) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
