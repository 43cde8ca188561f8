"""WiCE: https://github.com/ryokamoi/wice, data/entailment_retrieval/claim/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_rows

_HOME = (
    "https://raw.githubusercontent.com/ryokamoi/wice/main/data/entailment_retrieval/"
)
FILES = {
    name: _HOME + name
    for name in ("claim/train.jsonl", "claim/dev.jsonl", "claim/test.jsonl")
}
VERDICTS = {
    "supported": "fully_supported",
    "partially_supported": "partially_supported",
    "not_supported": "not_supported",
}


def rows(files: Files) -> Rows:
    """Claims against the sentences of the pages that Wikipedia cites for them."""
    for name, path in files.items():
        for r in read_rows(path):
            # Sets of sentences, each of which is enough; the first stands for them.
            enough = next(iter(r["supporting_sentences"]), None)
            yield {
                "id": f"wice/{r['meta']['id']}",
                "context": r["evidence"],
                "answer": r["claim"],
                "faithful": r["label"] == "supported",
                "statements": [
                    {
                        "text": r["claim"],
                        "verdict": VERDICTS[r["label"]],
                        "supporting_chunk_ids": enough,
                    }
                ],
                "group": f"wice/{r['meta'].get('claim_title', r['meta']['id'])}",
                "split": name.partition("/")[2].removesuffix(".jsonl"),
            }
