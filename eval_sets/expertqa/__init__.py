"""ExpertQA: https://github.com/chaitanyamalaviya/ExpertQA, data/r2_compiled_anon.jsonl. See CARD.md."""

import re

from faith_dspy.eval_sets.public import Files, Rows, read_rows

_HOME = "https://raw.githubusercontent.com/chaitanyamalaviya/ExpertQA/main/data/"
FILES = {"r2_compiled_anon.jsonl": _HOME + "r2_compiled_anon.jsonl"}
VERDICTS = {
    "Complete": "fully_supported",
    "Partial": "partially_supported",
    "Incomplete": "not_supported",
}
"""Support as experts saw it; *Missing* and *N/A* claims have no evidence to be judged against, and are left out."""
_CITED = re.compile(r"\s*\[\d+\]")
_SOURCE = re.compile(r"^\s*(?:\[\d+\]\s*)?(https?://\S+)?\s*")


def rows(files: Files) -> Rows:
    """Claims of systems' answers against the passages cited for them; evidence that is only an address is none."""
    for i, r in enumerate(read_rows(files["r2_compiled_anon.jsonl"])):
        for system, answer in r["answers"].items():
            for j, claim in enumerate(answer["claims"]):
                verdict = VERDICTS.get(str(claim["support"]))
                chunks = [c for c in map(_chunk, claim["evidence"] or ()) if c["text"]]
                if verdict is None or not chunks:
                    continue
                text = _CITED.sub("", claim["claim_string"]).strip()
                yield {
                    "id": f"expertqa/{i}/{system}/{j}",
                    "question": r["question"],
                    "context": chunks,
                    "answer": text,
                    "faithful": verdict == "fully_supported",
                    "statements": [{"text": text, "verdict": verdict}]
                    if text
                    else None,
                    "group": f"expertqa/{i}",
                    "domain": (r.get("metadata") or {}).get("field"),
                    "model": system,
                }


def _chunk(evidence: str) -> dict[str, str]:
    match = _SOURCE.match(evidence)
    assert match is not None  # every part of the pattern may be missing
    return {"text": evidence[match.end() :].strip()} | (
        {"source": match[1]} if match[1] else {}
    )
