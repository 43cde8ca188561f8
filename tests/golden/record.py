"""What today's judge does on a recorded endpoint, by the promised surface alone: ``python -m tests.golden.record``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SHIPPED = HERE.parent / "benchmarks" / "champions"
HARD_CASES = HERE.parents[1] / "eval_sets" / "hard_cases" / "hard_cases.jsonl"
CHAMPIONS = ("ragtruth_qa", "wice_oracle")
KEPT = ("logprobs", "top_logprobs", "temperature", "response_format")
"""What is kept of a request beside its messages and its limit."""
RECORDS = [json.loads(line) for line in (HERE / "records.jsonl").read_text(encoding="utf-8").splitlines()]
CORE = [r for r in RECORDS if "core" in r]
FIVE = [r for r in CORE if r["id"] in ("kettle", "bridge", "refund", "negation", "short")]
SHOWN = {"cite": True, "quote": True}
SCORES = {
    "fully_supported": 1, "partially_supported": 0.25, "not_supported": 0, "no_evidence": 0.1, "contradictory": -0.5
}  # fmt: skip
SETS: dict[str, dict[str, Any]] = {
    "default": {"records": RECORDS},
    "statement": {
        "options": {
            **SHOWN,
            "granularity": "statement",
            "verdicts": "graded",
            "verdict_scores": SCORES,
            "reasoning": "after",
        },
        "records": RECORDS,
    },
    "answer": {"options": {**SHOWN, "granularity": "answer", "verdicts": "five_level", "reasoning": "before"}},
    "joint": {"options": {"verification": "joint"}, "records": RECORDS},
    "windows": {"options": {"cite": True}, "records": [r for r in RECORDS if "long" in r] + FIVE, "window": 160},
    "weakest": {"options": {"ask_about": "weakest", "max_statements": 4, "threshold": 0.6}, "records": RECORDS},
    "samples": {
        "options": {"confidence": "samples", "samples": 3, "no_statements": 1.0, "abstention": 0.25},
        "mode": "unsure",
    },
    "faulty": {"mode": "faulty", "records": RECORDS},
}


def kept(judgment: Any) -> dict[str, Any]:
    """What is promised of a judgment, without what is None or empty."""
    found = judgment.model_dump(mode="json")
    names = ("text", "sentence_index", "verdict", "supporting_chunk_ids", "quotes", "reason", "confidence")
    out = {name: found[name] for name in ("score", "faithful", "probability", "level", "unscored", "needs_review")}
    out["calls"] = found["usage"]["calls"]
    out["statements"] = [_short({name: s[name] for name in names}) for s in found["statements"]]
    return _short(out)


def figures(exported: dict[str, Any]) -> dict[str, Any]:
    """Of a judge.json: the classifier's numbers, and the agreement that was measured."""
    fitted = exported["classifier"]
    stages = {stage: fitted[stage] for stage in ("statement", "answer") if fitted[stage]}
    for stage in stages.values():
        stage["names"] = [name.partition(":")[0] for name in stage["names"]]
    return {
        "classifier": stages | {name: fitted[name] for name in ("threshold", "statement_threshold", "review_range")},
        "agreement": agreed(exported["agreement"]),
        "variant": exported["variant"],
        "shape": {name: exported["config"][name] for name in ("granularity", "verification", "verdicts", "ask_about")},
    }


def agreed(found: dict[str, Any]) -> dict[str, Any]:
    """The figures of an agreement that are promised by name, with their intervals."""
    intervals = {name: found[name] for name in ("balanced_accuracy", "cohen_kappa", "auroc")}
    short = {name: {k: v[k] for k in ("value", "low", "high")} for name, v in intervals.items()}
    return {"n": found["n"], "coverage": found["coverage"], **short}


def judged(name: str) -> dict[str, Any]:
    """Judgments of an option set by record, and the requests that were made for them, eight at a time.

    One at a time where a repeated request gets another reply.
    """
    from faith_dspy import Judge

    one = SETS[name]
    with Endpoint(one.get("mode", "tells")) as endpoint, no_cache():
        judge = Judge(one.get("lm", "openai/golden"), api_base=endpoint.base, classifier=None, **one.get("options", {}))
        if "window" in one:
            judge.program.window = one["window"]  # bytes of context; elsewhere made from the LM's num_ctx
        return _of(judge, one.get("records", CORE), endpoint, 1 if one.get("mode") == "unsure" else 8)


def loaded(folder: Path, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The same of an exported judge."""
    from faith_dspy import load_judge

    with Endpoint() as endpoint, no_cache():
        exports = [json.loads(file.read_text(encoding="utf-8")) for file in folder.rglob("judge.json")]
        asks = any(export["lm"]["model"] != "none" for export in exports)  # those it escalates to, too
        at = {"lm": "openai/golden", "api_base": endpoint.base} if asks else {}
        return _of(load_judge(folder, **at), records, endpoint, 1)


def study(folder: Path) -> dict[str, Any]:
    """A study of the hard cases from the command line, and what it asked; the judge it exports is folder/judge."""
    judge, labels, others = folder / "judge", folder / "labels.jsonl", folder / "others.jsonl"
    every = [json.loads(line) for line in HARD_CASES.read_text(encoding="utf-8").splitlines()]
    plain = [row for row in every if row["level"] == "plain"]
    for file, of_dev in ((labels, False), (others, True)):
        part = [json.dumps(row) + "\n" for row in plain if (row["split"] == "dev") is of_dev]
        file.write_text("".join(part), encoding="utf-8")
    tried = ("--budget", "quick", "--variants", "answer,sentence-few-shot", "--seed", 1)
    with Endpoint() as endpoint:
        at = ("--lm", "openai/golden", "--api-base", endpoint.base, "--json")
        tuned = command(folder, "tune", labels, *tried, "--out", judge, *at)
        made = requests_of(endpoint)
        agree = command(folder, "agree", others, "--judge", judge, "--min", 0.999, "--json")
    found = {
        "exit_codes": [tuned.returncode, agree.returncode],
        "files": sorted(p.name for p in judge.iterdir()),
        "calls": len(made),
        **figures(json.loads((judge / "judge.json").read_text(encoding="utf-8"))),
        "agree": agreed(json.loads(agree.stdout)),
    }
    return {"found": found, "requests": made}


def command(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """``faith-dspy …`` in a folder of its own, with nothing of the user's."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_API_BASE", "_BASE_URL"))}
    env = {**clean, "DSPY_CACHEDIR": str(folder / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    python = [sys.executable, "-c", "from faith_dspy.cli import main; main()", *map(str, words)]
    return subprocess.run(python, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


@contextmanager
def no_cache() -> Iterator[None]:
    """Every request reaches the endpoint."""
    import dspy

    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    try:
        yield
    finally:
        dspy.cache = before


def requests_of(endpoint: Endpoint) -> list[dict[str, Any]]:
    """What an endpoint was asked, sorted: threads ask in any order."""
    made = [
        {"messages": r["messages"], "limit": r.get("max_tokens")} | {k: r[k] for k in KEPT if r.get(k) is not None}
        for r in [*endpoint.preflights, *endpoint.requests]
    ]
    return sorted(made, key=lambda r: json.dumps(r, sort_keys=True))


def packed(requests: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Requests with every setting and every paragraph once. A request: number of its settings, role and paragraphs."""
    texts: dict[str, int] = {}
    settings: dict[str, int] = {}
    sets = {}
    for name, made in requests.items():
        sets[name] = rows = []
        for one in made:
            key = json.dumps({k: v for k, v in one.items() if k != "messages"}, sort_keys=True)
            row: list[Any] = [settings.setdefault(key, len(settings))]
            for m in one["messages"]:
                row.append([m["role"], *(texts.setdefault(t, len(texts)) for t in m["content"].split("\n\n"))])
            rows.append(row)
    return {"texts": list(texts), "settings": [json.loads(key) for key in settings], "sets": sets}


def unpacked(golden: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The requests of a set, byte for byte."""
    return [
        {
            "messages": [{"role": m[0], "content": "\n\n".join(golden["texts"][i] for i in m[1:])} for m in messages],
            **golden["settings"][number],
        }
        for number, *messages in golden["sets"][name]
    ]


def _of(judge: Any, records: list[dict[str, Any]], endpoint: Endpoint, threads: int) -> dict[str, Any]:
    found = judge.batch(records, num_threads=threads)
    by_record = {r["id"]: kept(j) for r, j in zip(records, found, strict=True)}
    return {"judgments": by_record, "requests": requests_of(endpoint)}


def _short(found: dict[str, Any]) -> dict[str, Any]:
    short = {k: round(v, 8) if isinstance(v, float) else v for k, v in found.items()}
    return {k: v for k, v in short.items() if v is not None and v != []}


def _write(name: str, value: Any) -> None:
    def text(value: Any, depth: int) -> str:
        if depth == 0 or not value or not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            return "[\n" + ",\n".join(text(v, depth - 1) for v in value) + "\n]"
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {text(v, depth - 1)}" for k, v in value.items()) + "\n}"

    (HERE / name).write_text(text(value, 3 if name == "prompts.json" else 2) + "\n", encoding="utf-8")


def main() -> None:
    """Write all golden files."""
    found = {name: judged(name) for name in SETS} | {n: loaded(SHIPPED / n, RECORDS) for n in CHAMPIONS}
    with tempfile.TemporaryDirectory() as folder:
        tuned = study(Path(folder))
        found["exported"] = loaded(Path(folder) / "judge", FIVE)
    _write("study.json", tuned["found"])
    _write("judgments.json", {name: one["judgments"] for name, one in found.items()})
    _write("prompts.json", packed({name: one["requests"] for name, one in {**found, "tune": tuned}.items()}))


if __name__ == "__main__":
    main()
