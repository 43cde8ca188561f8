"""RTE-3 in French: https://github.com/mskandalis/rte3-french. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_tabs

_HOME = "https://raw.githubusercontent.com/mskandalis/rte3-french/main/"
FILES = {
    name: _HOME + name
    for name in ("RTE3-FR-dev-set-3class.tsv", "RTE3-FR-test-gold-3class.tsv")
}
VERDICTS = {"0": "fully_supported", "1": "no_evidence", "2": "contradictory"}


def rows(files: Files) -> Rows:
    """Hypotheses against a text."""
    for name, path in files.items():
        part = "dev" if "dev" in name else "test"
        for r in read_tabs(path):
            yield {
                "id": f"rte3/{part}/{r['id']}",
                "context": [r["premise"]],
                "answer": r["hypothesis"],
                "faithful": r["label"] == "0",
                "statements": [
                    {"text": r["hypothesis"], "verdict": VERDICTS[r["label"]]}
                ],
                "split": part,
                "domain": r["task"],
                "language": r["language"],
            }
