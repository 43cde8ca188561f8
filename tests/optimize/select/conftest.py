from __future__ import annotations

import json

import pytest
from test_study import labels


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """162 answers over 54 contexts, half of them unfaithful, 54 a part; words tell them apart, and so does the LM."""
    path = tmp_path_factory.mktemp("labels") / "l.jsonl"
    small = [json.loads(line) for line in labels(path).read_text().splitlines()]
    rows = []
    for i, row in enumerate(small * 5):
        city = i // 3
        if city >= 54:
            break
        text = json.dumps({**row, "id": str(i), "split": ("train", "dev", "test")[city % 3]})
        name = row["question"].removeprefix("What is known of ").rstrip("?")
        rows.append(text.replace(name, f"{name}{'abcde'[i // 36]}"))
    path.write_text("".join(r + "\n" for r in rows), encoding="utf-8")
    return path
