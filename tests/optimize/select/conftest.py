import json

import pytest
from recorded import CITIES, labels


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """162 answers over 54 contexts, half of them unfaithful, 54 a part; words tell them apart, and so does the LM."""
    path = tmp_path_factory.mktemp("labels") / "l.jsonl"
    rows = [json.loads(line) for line in labels(path).read_text().splitlines()]
    with path.open("w") as file:
        for i in range(162):
            source, city = i // 3, CITIES[i // 3 % 12]
            row = rows[i % 36] | {"id": str(i), "split": ("train", "dev", "test")[source % 3]}
            file.write(json.dumps(row).replace(city, f"{city}{'abcde'[source // 12]}") + "\n")
    return path
