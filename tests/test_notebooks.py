import ast
import importlib
import json
import subprocess
import sys

import pytest

from tests.benchmarks.run_notebooks import FOLDER, ORDER, code_hash, source

PUBLIC = {
    "faith_dspy",
    "faith_dspy.eval_sets.catalog",
    "faith_dspy.optimize.report.plots",
}
PUBLIC |= {"faith_dspy.report.judgment", "faith_dspy.report.tables"}


def code(name):
    """The code cells of a notebook."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_all_are_run():
    """No notebook is left out."""
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_are_public(name):
    for cell in code(name):
        for node in ast.walk(ast.parse(source(cell))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("faith_dspy")
            ):
                assert node.module in PUBLIC
                assert all(
                    hasattr(importlib.import_module(node.module), alias.name)
                    for alias in node.names
                )


@pytest.mark.parametrize("name", ORDER)
def test_outputs_are_of_this_code(name):
    """No output is older than the code above it: either none is stored, or all of a run of this very code."""
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    stored = notebook["metadata"].get("outputs_of_code")
    assert stored in {None, code_hash(notebook)}, (
        "run python -m tests.benchmarks.run_notebooks --write"
    )
    assert all(stored or not cell["outputs"] for cell in code(name))
    counts = [cell["execution_count"] for cell in code(name)]
    assert counts == [n if stored else None for n in range(1, len(counts) + 1)]


@pytest.mark.all
def test_run():
    """All of them run from top to bottom, one after the other in an empty folder, without a language model."""
    command = [sys.executable, "-m", "tests.benchmarks.run_notebooks", "--words"]
    done = subprocess.run(
        command, cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(ORDER)
