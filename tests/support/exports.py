"""Exported judges, as they are stored and as somebody changes them who knows about their hashes."""

import json
from contextlib import suppress

from faith_dspy.export import content_hash
from faith_dspy.io.inputs import AnswerInput, as_chunks


def reference_of(judge, context, *answers):
    """What is stored of answers: all but the judgments on them."""
    chunks = as_chunks(context)
    return [
        (None, chunks, a, judge.judge_input(AnswerInput.make(None, chunks, a))[0])
        for a in answers
    ]


def read(folder, name="judge"):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def seal(folder, **documents):
    """Write what was changed, `judge` or `program`, with the hash that fits as far as there is any."""
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    judge, program = read(folder), read(folder, "program")
    following = folder / "escalate_to"
    with suppress(UnicodeEncodeError):
        judge["sha256"] = content_hash(
            judge, program, seal(following) if following.is_dir() else None
        )
        (folder / "judge.json").write_text(json.dumps(judge), encoding="utf-8")
        return judge["sha256"]


def edit(folder, change):
    """Change judge.json as somebody would who knows about its SHA-256."""
    document = read(folder)
    change(document)
    seal(folder, judge=document)
