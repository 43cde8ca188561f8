"""MLflow's `make_judge`, before and after `align` (MemAlign), beside a study of ours.

    python -m tests.benchmarks.align FILE.json [--train 40] [--test 40] [--report]

Answers of the shipped `quickstart` labels, the ones to test on from its own test part, and the same model: the embedded
one as published, behind llama.cpp's server, whose grammar holds MLflow's judge to its format. A proxy counts what each
costs. MemAlign finds similar answers by an embedding model, which the server does not have: the proxy replies with
vectors of hashed words. ``--report`` prints the table of what is in FILE.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import typer
from mlflow.entities import AssessmentSource
from mlflow.genai.judges import make_judge
from mlflow.genai.judges.optimizers import MemAlignOptimizer
from sklearn.feature_extraction.text import HashingVectorizer

from faith_dspy.eval_sets.catalog import load
from faith_dspy.optimize import tune
from faith_dspy.report.tables import points, with_interval
from faith_dspy.scoring.statistics import by_source

from .proxy import MeteringProxy
from .systems import INSTRUCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlflow.genai.judges import Judge as MlflowJudge

    from faith_dspy.schema import LabelledExample, Usage
    from faith_dspy.scoring.statistics import Floats

DIMENSIONS = 512
NUM_CTX = 16_384
"""MemAlign makes its guidelines of all answers in one prompt: of 36, more than 13,000 tokens."""
WORDS = HashingVectorizer(n_features=DIMENSIONS, alternate_sign=False)
NAME = "faithfulness"
BEFORE = "make_judge"
ALIGNED = "make_judge, aligned"
Row = dict[str, Any]


class Proxy(MeteringProxy):
    """Also replies to requests for embeddings."""

    def forward(
        self, system: str, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        """Return the server's reply, or vectors of hashed words."""
        if not path.endswith("/embeddings"):
            return super().forward(system, method, path, body)
        texts = json.loads(body or b"{}")["input"]
        vectors = WORDS.transform(texts).toarray().tolist()
        rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        reply = {"object": "list", "data": rows, "usage": {}}
        return 200, json.dumps(reply).encode()


def inputs_of(example: LabelledExample) -> dict[str, Any]:
    """Return what the answer was given to."""
    context = [chunk.text for chunk in example.context]
    return {"question": example.question, "context": context}


def trace_of(example: LabelledExample) -> Any:
    """Return the answer as a trace with people's label, and their reasons where there are any."""
    with mlflow.start_span("answer") as span:
        span.set_inputs(inputs_of(example))
        span.set_outputs(example.answer)
    mlflow.flush_trace_async_logging()
    reasons = [
        f"{s.verdict}: {s.text} {s.reason}" for s in example.statements if s.reason
    ]
    mlflow.log_feedback(
        trace_id=span.trace_id,
        name=NAME,
        value=bool(example.label),
        source=AssessmentSource("HUMAN", "labels"),
        rationale="\n".join(reasons) or None,
    )
    return mlflow.get_trace(span.trace_id)


def verdict_of(judge: MlflowJudge, example: LabelledExample) -> bool | None:
    """Return what MLflow's judge says of an answer; None where it fails."""
    try:
        value = judge(inputs=inputs_of(example), outputs=example.answer).value
    except mlflow.exceptions.MlflowException:
        return None
    return value if isinstance(value, bool) else None


def spent(usage: Usage) -> dict[str, int]:
    """Return the tokens that were read and written."""
    return {"read": usage.prompt_tokens, "written": usage.output_tokens}


def measure_mlflow(
    proxy: Proxy,
    model: str,
    learn: Sequence[LabelledExample],
    unseen: Sequence[LabelledExample],
) -> list[Row]:
    """Return what `make_judge` says before and after it is aligned, with its price."""
    address = proxy.base("mlflow")
    os.environ |= {"OPENAI_API_BASE": address, "OPENAI_BASE_URL": address}
    judge = make_judge(
        name=NAME,
        instructions=INSTRUCTIONS,
        model=f"openai:/{model}",
        feedback_value_type=bool,
    )
    before = [verdict_of(judge, e) for e in unseen]
    rows = [{"judge": BEFORE, "verdicts": before, "asked": spent(proxy.take("mlflow"))}]
    optimizer = MemAlignOptimizer(
        f"openai:/{model}",
        embedding_model="openai:/words",
        embedding_dim=DIMENSIONS,
    )
    aligned = judge.align([trace_of(e) for e in learn], optimizer)
    tuned = spent(proxy.take("mlflow"))
    after = [verdict_of(aligned, e) for e in unseen]
    asked = spent(proxy.take("mlflow"))
    rows.append(
        {
            "judge": ALIGNED,
            "verdicts": after,
            "asked": asked,
            "tuned": tuned,
            "instructions": aligned.instructions,
        }
    )
    return rows


def measure_ours(
    proxy: Proxy,
    model: str,
    learn: Sequence[LabelledExample],
    unseen: Sequence[LabelledExample],
    folder: Path,
) -> list[Row]:
    """Return what the judges of a study say: the champion, and what it is compared with."""
    result = tune(
        learn,
        test=unseen,
        lm=f"openai/{model}",
        api_base=proxy.base("ours"),
        api_key="none",
        out=folder / "judge",
        variants=("sentence", "sentence-guidelines"),
        tracking_uri=mlflow.get_tracking_uri(),
        register=False,
    )
    tuned = spent(proxy.take("ours"))
    positions = {e.id: i for i, e in enumerate(unseen)}
    rows = []
    for tested in result.test:
        verdicts: list[bool | None] = [None] * len(unseen)
        for row in tested.rows:
            verdicts[positions[row.id]] = row.predicted
        asked = spent(tested.usage)
        rows.append({"judge": tested.name, "verdicts": verdicts, "asked": asked})
    rows[0] |= {"tuned": tuned, "instructions": result.champion}
    return rows


def accuracy(
    verdicts: Sequence[bool | None], labels: Sequence[bool], w: Floats
) -> Floats:
    """Return balanced accuracy, weighted; an answer without a verdict counts as wrong."""
    y = np.array(labels)
    right = np.array([v is label for v, label in zip(verdicts, labels, strict=True)])
    passed = (w @ (right & y)) / (w @ y)
    caught = (w @ (right & ~y)) / (w @ ~y)
    return (passed + caught) / 2


def table(found: Row) -> str:
    """Return the table in Markdown: each judge, its gain over `make_judge` as it is, and its price."""
    labels, sources = found["labels"], found["sources"]
    before = found["judges"][0]["verdicts"]
    titles = ["judge", "balanced accuracy", f"gain over {BEFORE}", "no verdict"]
    titles += ["tokens read and written to tune", "an answer"]
    lines = [titles, ["---"] * len(titles)]
    for row in found["judges"]:
        verdicts = row["verdicts"]

        def metrics(
            w: Floats, verdicts: Sequence[bool | None] = verdicts
        ) -> dict[str, Floats]:
            own = accuracy(verdicts, labels, w)
            return {"own": own, "gain": own - accuracy(before, labels, w)}

        measured = by_source(metrics, len(labels), sources, labels)
        own = with_interval(measured["own"].estimate("undefined"))
        gain = (
            "–"
            if row["judge"] == BEFORE
            else points(measured["gain"].estimate("undefined", -1.0))
        )
        tuned = row.get("tuned")
        price = f"{tuned['read']:,} + {tuned['written']:,}" if tuned else "–"
        asked = [round(row["asked"][k] / len(labels)) for k in ("read", "written")]
        missing = sum(v is None for v in verdicts)
        lines.append(
            [row["judge"], own, gain, str(missing), price, f"{asked[0]:,} + {asked[1]}"]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parts(train: int, test: int) -> tuple[list[LabelledExample], list[LabelledExample]]:
    """Return answers to learn from, and of other sources answers to test on."""
    examples = load("quickstart")
    learn = [e for e in examples if e.split != "test"]
    unseen = [e for e in examples if e.split == "test"]
    drawn = random.Random(0)
    return drawn.sample(learn, train), drawn.sample(unseen, test)


def main(out: Path, train: int = 40, test: int = 40, report: bool = False) -> None:
    """Measure both and keep it in OUT, then print the table.

    ``train``, ``test``: answers.
    """
    if not report:
        from .server import serve

        learn, unseen = parts(train, test)
        server = serve("local", NUM_CTX)
        proxy = Proxy(server.url, {"mlflow": "", "ours": "\n"}, timeout=600)
        os.environ["OPENAI_API_KEY"] = "none"
        with TemporaryDirectory() as folder:
            mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
            judges = measure_mlflow(proxy, server.model, learn, unseen)
            judges += measure_ours(proxy, server.model, learn, unseen, Path(folder))
        proxy.close()
        measured = {
            "model": server.model,
            "learned": len(learn),
            "labels": [bool(e.label) for e in unseen],
            "sources": [e.group_key for e in unseen],
            "judges": judges,
        }
        out.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(table(json.loads(out.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    typer.run(main)
