from collections import Counter

import pytest

from faith_dspy.eval_sets.catalog import SETS, load, path_of
from faith_dspy.optimize.data.pool import read_partition
from faith_dspy.schema import Verdict

PROMISED = {
    "quickstart": (
        {None: 200},
        {True: 79, False: 121},
        40,
        40,
    ),
    "hard_cases": ({"train": 44, "dev": 44, "test": 44}, {True: 66, False: 66}, 33, 16),
    "assistants": (
        {"train": 118, "dev": 78, "test": 136},
        {True: 220, False: 112},
        84,
        20,
    ),
}
"""By set what its card says: answers by part and by label, contexts, domains."""


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_what_its_card_promises(name):
    """Its parts share no context, by the same check as anybody's labels; an answer is faithful exactly when all of its
    statements are fully supported, and each of these has a reason."""
    examples = load(name)
    count = (Counter(e.split for e in examples), Counter(e.faithful for e in examples))
    assert (
        *count,
        len({e.group for e in examples}),
        len({e.tags.get("domain") for e in examples}),
    ) == PROMISED[name]
    parts = read_partition(path_of(name), None, 999, 10**9, 0)
    assert len(parts.test) == PROMISED[name][0].get("test", 0)
    for e in examples:
        assert e.faithful == all(
            s.verdict is Verdict.FULLY_SUPPORTED for s in e.statements
        ), e.id
        assert all(s.reason for s in e.statements), e.id


def test_a_file_of_that_name_wins(tmp_path, monkeypatch):
    """A path is a path, even when a shipped set has its name."""
    monkeypatch.chdir(tmp_path)
    assert path_of("quickstart").name == "quickstart.jsonl"
    (tmp_path / "quickstart").write_text("{}")
    assert path_of("quickstart").samefile(tmp_path / "quickstart")
