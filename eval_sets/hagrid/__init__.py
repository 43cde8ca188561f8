"""HAGRID: https://huggingface.co/datasets/miracl/hagrid, hagrid-v1.0-en/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_rows

_HOME = "hf://datasets/miracl/hagrid/hagrid-v1.0-en/"
FILES = {name: _HOME + name for name in ("train.jsonl", "dev.jsonl")}


def rows(files: Files) -> Rows:
    """Answers, and their sentences, against quotes that people had found relevant; those nobody judged are left out."""
    for name, path in files.items():
        for r in read_rows(path):
            for i, a in enumerate(r["answers"]):
                if a["attributable"] is None:
                    continue
                told = [(s["text"], s["attributable"]) for s in a["sentences"]]
                yield {
                    "id": f"hagrid/{r['query_id']}/{i}",
                    "question": r["query"],
                    "context": [
                        {"text": q["text"], "source": q["docid"]} for q in r["quotes"]
                    ],
                    "answer": a["answer"],
                    "faithful": bool(a["attributable"]),
                    "statements": [
                        {
                            "text": text,
                            "verdict": "fully_supported"
                            if attributable
                            else "not_supported",
                        }
                        for text, attributable in told
                        if attributable is not None
                    ],
                    "group": f"hagrid/{r['query_id']}",
                    "split": name.removesuffix(".jsonl"),
                }
