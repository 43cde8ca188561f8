"""BEGIN: https://github.com/google/BEGIN-dataset. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_tabs

_HOME = "https://raw.githubusercontent.com/google/BEGIN-dataset/main/"
FILES = {
    name: _HOME + name
    for part in ("dev", "test")
    for name in (
        f"cmu-dog/begin_{part}_cmu.tsv",
        f"topicalchat/begin_{part}_tc.tsv",
        f"wow/begin_{part}_wow.tsv",
    )
}
LABELS = {"Fully attributable": True, "Not fully attributable": False}
"""*Generic* replies say nothing that could be supported, and are left out."""


def rows(files: Files) -> Rows:
    """Replies of dialogue systems against the knowledge they were given."""
    for name, path in files.items():
        for i, r in enumerate(read_tabs(path)):
            if (faithful := LABELS.get(r["begin_label"])) is not None:
                yield {
                    "id": f"begin/{name.rpartition('/')[2].removesuffix('.tsv')}/{i}",
                    "question": r["message"],
                    "context": [r["knowledge"]],
                    "answer": r["response"],
                    "faithful": faithful,
                    "split": "dev" if "_dev_" in name else "test",
                    "domain": r["data_source"],
                    "model": r["model_name"],
                }
