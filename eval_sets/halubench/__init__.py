"""HaluBench: https://huggingface.co/datasets/PatronusAI/HaluBench, data/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_rows

FILES = {
    "test-00000-of-00001.parquet": "hf://datasets/PatronusAI/HaluBench/data/test-00000-of-00001.parquet",
}


def rows(files: Files) -> Rows:
    """Answers against a passage; the set each is from is its domain."""
    for r in read_rows(files["test-00000-of-00001.parquet"]):
        yield {
            "id": f"halubench/{r['id']}",
            "question": r["question"],
            "context": [r["passage"]],
            "answer": str(r["answer"]),
            "faithful": {"PASS": True, "FAIL": False}[r["label"]],
            "domain": r["source_ds"],
        }
