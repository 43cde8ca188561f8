"""RAGTruth: https://github.com/ParticleMedia/RAGTruth, dataset/. See CARD.md."""

from typing import Any

from faith_dspy.eval_sets.public import Files, Rows, of_spans, read_rows
from faith_dspy.text.sentences import sentences

_HOME = "https://raw.githubusercontent.com/ParticleMedia/RAGTruth/main/dataset/"
FILES = {name: _HOME + name for name in ("response.jsonl", "source_info.jsonl")}
FLAGS = ("implicit_true", "due_to_null")
"""Of a span: true in the world, though the context does not say so; about a field without a value. Both are unfaithful
here, and such answers have the flag as their kind."""


def rows(files: Files) -> Rows:
    """Responses with their spans; truncated ones and wrong refusals are left out."""
    sources = {s["source_id"]: s for s in read_rows(files["source_info.jsonl"])}
    for r in read_rows(files["response.jsonl"]):
        if r.get("quality", "good") != "good":
            continue
        source, spans = sources[r["source_id"]], r["labels"]
        given = source["source_info"]
        qa = source["task_type"] == "QA"
        chunks = (
            [p.strip() for p in given["passages"].split("\n\n") if p.strip()]
            if qa
            else [_text(given)]
        )
        flags = [flag for flag in FLAGS if any(s.get(flag) for s in spans)]
        marked = [
            (
                s["start"],
                s["end"],
                "contradictory" if "Conflict" in s["label_type"] else "no_evidence",
                s.get("meta"),
            )
            for s in spans
        ]
        yield {
            "id": f"ragtruth/{r['id']}",
            "question": given["question"] if qa else None,
            "context": chunks,
            "answer": r["response"],
            "faithful": not spans,
            "statements": of_spans(r["response"], marked)
            if sentences(r["response"])
            else None,
            "group": f"ragtruth/{r['source_id']}",
            "split": r["split"],
            "domain": source["task_type"],
            "model": r["model"],
            "kind": ", ".join(flags) or None,
        }


def _text(given: Any) -> str:
    """Return a text, or the fields of a business with their values, one a line."""
    if not isinstance(given, dict):
        return str(given)
    return "\n".join(f"{name}: {value}" for name, value in given.items())
