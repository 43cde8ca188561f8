"""What exported judges of format 1, and the untuned judge, do on a recorded LM: ``python -m tests.golden.record``."""

import hashlib
import json
import re
from contextlib import contextmanager
from pathlib import Path

from tests.support.chat_server import ChatServer

HERE = Path(__file__).parent
EXPORTS = HERE / "exports"
NAMES = ("default", "ragtruth_qa", "wice_oracle")
RECORDS = [
    json.loads(line)
    for line in (HERE / "records.jsonl").read_text(encoding="utf-8").splitlines()
]
KEPT = ("logprobs", "top_logprobs", "temperature", "response_format")
"""What is kept of a request beside its messages and its limit."""


def says(asked):
    """A reply that is a function of the prompt alone: by the words that statement and context share."""
    prompt = asked["messages"][-1]["content"]
    statement = prompt.rpartition("\n\nStatement: ")[2].partition("\n\n")[0]
    context = prompt.rpartition("Context:\n")[2].partition("\n\n")[0]
    chunks = re.findall(r"^\[\d+\] (.*)$", context, re.MULTILINE)
    words = words_of(statement)
    shared = max((len(words & words_of(chunk)) for chunk in chunks), default=0)
    noise = int(hashlib.sha256(statement.encode()).hexdigest()[:8], 16) / 2**32
    lacking = {w for w in words if w.isdigit()} - words_of(" ".join(chunks))
    p = (
        0.9 * shared / max(1, len(words))
        + 0.2 * (noise - 0.5)
        - (0.3 if lacking else 0.0)
    )
    if re.search(r"[.!?] \w", statement):  # of several sentences it can tell little
        p = 0.25 * p + 0.6 * noise
    p = min(0.98, max(0.02, p))
    top = {"No": 0.95 * (1 - p), "Yes": 0.95 * p, "The": 0.05}
    return {"text": "Yes" if p > 0.5 else "No", "top": top}


def words_of(text):
    """Words of two letters and more, digits, and characters of Chinese and Japanese."""
    return set(re.findall(r"[^\W_]{2,}|\d|[\u3040-\u9fff]", text.casefold()))


def recorded(name):
    """The judgment on each record by its id, and the requests that were made for them, sorted."""
    from faith_dspy import Judge, load_judge

    server = ChatServer(says=says, models=[{"id": "golden"}])
    try:
        with no_cache():
            lm = {"lm": "openai/golden", "api_base": server.base}
            judge = (
                Judge(**lm, classifier=None)
                if name == "default"
                else load_judge(EXPORTS / name, **lm)
            )
            found = judge.batch(RECORDS, num_threads=8)
    finally:
        server.close()
    requests = [
        {"messages": r["messages"], "limit": r.get("max_tokens")}
        | {k: r[k] for k in KEPT if r.get(k) is not None}
        for r in [*server.preflights, *server.requests]
    ]
    by_record = {r["id"]: kept(j) for r, j in zip(RECORDS, found, strict=True)}
    return by_record, sorted(requests, key=lambda r: json.dumps(r, sort_keys=True))


@contextmanager
def no_cache():
    """Every request reaches the endpoint."""
    import dspy

    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    try:
        yield
    finally:
        dspy.cache = before


def kept(judgment):
    """What is promised of a judgment, without what is None or empty."""
    found = judgment.model_dump(mode="json")
    of_statement = (
        "text",
        "sentence_index",
        "verdict",
        "supporting_chunk_ids",
        "quotes",
        "reason",
        "confidence",
    )
    out = {
        name: found[name]
        for name in (
            "score",
            "faithful",
            "probability",
            "level",
            "unscored",
            "needs_review",
        )
    }
    statements = [
        short({name: s[name] for name in of_statement}) for s in found["statements"]
    ]
    return short({**out, "calls": found["usage"]["calls"], "statements": statements})


def short(found):
    """Without None and empty lists, numbers to eight places."""
    rounded = {k: round(v, 8) if isinstance(v, float) else v for k, v in found.items()}
    return {k: v for k, v in rounded.items() if v is not None and v != []}


def main():
    """Write both files, a judgment or a request a line."""
    found = {name: recorded(name) for name in NAMES}
    for file, of in (("judgments.json", 0), ("requests.json", 1)):
        parts = []
        for name, both in found.items():
            line = json.JSONEncoder(ensure_ascii=False).encode
            if of == 0:
                rows, ends = (
                    [f"{line(key)}: {line(value)}" for key, value in both[0].items()],
                    "{}",
                )
            else:
                rows, ends = [line(value) for value in both[1]], "[]"
            parts.append(
                f"{line(name)}: {ends[0]}\n" + ",\n".join(rows) + f"\n{ends[1]}"
            )
        (HERE / file).write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
