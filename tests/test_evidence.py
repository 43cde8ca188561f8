from __future__ import annotations

import pytest

from faith_dspy import Chunk
from faith_dspy.evidence import valid_chunk_ids

CONTEXT = (Chunk(id=0, text="a"), Chunk(id=1, text="b"), Chunk(id=2, text="c"))


@pytest.mark.parametrize(
    ("named", "kept", "dropped"),
    [
        ([], (), 0),
        ([2, 0], (0, 2), 0),
        ([1, 1, 1], (1,), 0),
        ([3], (), 1),
        ([-1, 1, 99, 99], (1,), 2),
    ],
)
def test_only_ids_of_chunks_that_exist(named, kept, dropped):
    """Ids come back ascending and once each; those of no chunk are left out and counted, each once."""
    assert valid_chunk_ids(named, CONTEXT) == (kept, dropped)
