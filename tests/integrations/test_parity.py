from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import faith_dspy

ROOT = Path(__file__).parents[2]
PARITY = (Path(faith_dspy.__file__).parent / "integrations/PARITY.md").read_text(encoding="utf-8")
LINKED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PARITY)))


def test_every_row_has_its_test():
    """Each row of the parity table names a test; each of the five systems has rows."""
    table = PARITY.partition("|---|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert len(table) > 30
    assert not [row for row in table if not re.search(r"`tests/[\w/]+\.py::\w+` \|$", row)]
    systems = {row.split("|")[1].strip() for row in table}
    assert systems >= {"rag_evals", "Strands evals", "continuous-eval", "axion", "RAGAS"}


@pytest.mark.parametrize(("path", "name"), LINKED, ids=[f"{p}::{n}" for p, n in LINKED])
def test_linked_test_exists(path, name):
    """A test that the page names is a function in that file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
