"""SummEdits: https://github.com/salesforce/factualNLG, data/summedits/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_object

_HOME = "https://raw.githubusercontent.com/salesforce/factualNLG/master/data/summedits/"
DOMAINS = (
    "billsum",
    "ectsum",
    "news",
    "podcast",
    "qmsumm",
    "sales_call",
    "sales_email",
    "samsum",
    "scitldr",
    "shakespeare",
)
FILES = {
    name: _HOME + name for name in (f"summedits_{domain}.json" for domain in DOMAINS)
}


def rows(files: Files) -> Rows:
    """Summaries and edited copies of them; the document is their source, so that no edit is split from its original."""
    for name, path in files.items():
        domain = name.removeprefix("summedits_").removesuffix(".json")
        for r in read_object(path):
            yield {
                "id": f"summedits/{domain}/{r['id']}",
                "context": [r["doc"]],
                "answer": r["summary"],
                "faithful": r["label"] == 1,
                "domain": domain,
                "kind": ", ".join(r["edit_types"]) or None,
            }
