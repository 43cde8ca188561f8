"""LLM-AggreFact: https://huggingface.co/datasets/lytang/LLM-AggreFact, data/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_rows

_HOME = "hf://datasets/lytang/LLM-AggreFact/data/"
FILES = {
    name: _HOME + name
    for name in ("dev-00000-of-00001.parquet", "test-00000-of-00001.parquet")
}


def rows(files: Files) -> Rows:
    """Claims, most of them sentences of longer answers, against a document; the set each is from is its domain."""
    for name, path in files.items():
        for r in read_rows(path):
            yield {
                "context": [r["doc"]],
                "answer": r["claim"],
                "faithful": bool(r["label"]),
                "split": name.partition("-")[0],
                "domain": r["dataset"],
            }
