"""MLflow's `judge.align`, on labels of the set's train part and with the same small model, in a process of its own.

Its default, MemAlign, needs an embedding model, which the benchmark's one model is not; so it is given its other
optimizer, SIMBA, with as many steps as the time allows.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.schema import digest

from .answers import choose, record_of
from .systems import INSTRUCTIONS, Endpoint, Record, inputs_of, mlflow_judge
from .worker import QUIET, NotReadyError, in_a_line

if TYPE_CHECKING:
    import argparse
    from multiprocessing.connection import Connection

    from .answers import AnswerSet
    from .proxy import MeteringProxy


def aligned_prompt(one: AnswerSet, at: Endpoint, proxy: MeteringProxy, asked: argparse.Namespace) -> str:
    """File of the aligned prompt, made where it is missing. `NotReadyError` says why there is none."""
    examples = choose(one.splits.train, asked.align_labels)
    told = digest([at.model, INSTRUCTIONS, asked.align_steps, [e.id for e in examples]])
    file: Path = (asked.out / f"aligned-{one.name}-{told}.json").absolute()
    if not file.is_file():
        labelled = [(record_of(e), bool(e.label)) for e in examples]
        made = _in_its_own_process(labelled, at, asked)
        proxy.stop("aligned")
        usage = proxy.take("aligned")
        made["usage"] = usage.model_dump(mode="json")
        file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    made = json.loads(file.read_text(encoding="utf-8"))
    if "failed" in made:
        raise NotReadyError(made["failed"])
    return str(file)


def _in_its_own_process(labelled: list[tuple[Record, bool]], at: Endpoint, asked: argparse.Namespace) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    log = str((asked.out / "systems.log").absolute())
    process = context.Process(target=_align, args=(theirs, labelled, at, asked.align_steps, log), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(asked.align_minutes * 60):
            return {"failed": f"judge.align was not done after {asked.align_minutes:.0f} minutes"}
        return dict(ours.recv())
    except EOFError:
        return {"failed": "judge.align ended without a word"}
    finally:
        process.kill()
        process.join(10)


def _align(pipe: Connection, labelled: list[tuple[Record, bool]], at: Endpoint, steps: int, log: str) -> None:
    os.environ.update(QUIET)
    with open(log, "a", encoding="utf-8") as sink:  # noqa: PTH123 - a plain path from another process
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.chdir(tempfile.mkdtemp(prefix="benchmark-align-"))
    try:
        pipe.send({"instructions": _aligned(labelled, at, steps)})
    except BaseException as exc:  # noqa: BLE001 - whatever it is, the row says so
        pipe.send({"failed": f"judge.align failed: {in_a_line(exc)}"})


def _aligned(labelled: list[tuple[Record, bool]], at: Endpoint, steps: int) -> str:
    judge = mlflow_judge(at, None)
    import mlflow
    from mlflow.entities import AssessmentSource
    from mlflow.genai.judges.optimizers import SIMBAAlignmentOptimizer

    mlflow.set_tracking_uri(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    traces = []
    for record, label in labelled:
        with mlflow.start_span("answer") as span:
            span.set_inputs(inputs_of(record))
            span.set_outputs(record.answer)
        mlflow.flush_trace_async_logging()
        mlflow.log_feedback(
            trace_id=span.trace_id, name=judge.name, value=label, source=AssessmentSource("HUMAN", "labels")
        )
        traces.append(mlflow.get_trace(span.trace_id))
    settings = {"max_steps": steps, "num_candidates": 2, "max_demos": 2, "num_threads": 1}
    optimizer = SIMBAAlignmentOptimizer(model=f"openai:/{at.model}", simba_kwargs=settings)
    return str(judge.align(traces, optimizer).instructions)
