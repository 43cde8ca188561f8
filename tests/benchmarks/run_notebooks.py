"""Runs the notebooks from top to bottom in one empty folder, one process, without Jupyter.

    python -m tests.benchmarks.run_notebooks --write             # with the embedded model; outputs are stored
    python -m tests.benchmarks.run_notebooks --words             # on a few labels, with a stand-in that compares words


Cells are run as Jupyter would: the value of the last expression is shown, figures are PNG, ``!`` begins a command,
``%`` a setting of Jupyter. A cell tagged ``parameters`` is followed by the values given here, and says by which model,
when, and from which commit all outputs are. Beside them the hash of the code is stored that they are of.
"""

import ast
import asyncio
import base64
import hashlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import typer

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
ORDER = ("tune_load_trust", "in_production")
"""Each may use what those before it left in the folder."""


class HTML(str):
    """What IPython's class of this name is to a cell."""

    __slots__ = ()

    def _repr_html_(self):
        return str(self)


def source(cell):
    """A cell's text as Python: a command becomes a call that prints what it says."""
    text = re.sub(
        r"^!(.*)$",
        lambda m: f"__command__(f{m[1]!r})",
        "".join(cell["source"]),
        flags=re.MULTILINE,
    )
    return re.sub(r"^%.*$", "", text, flags=re.MULTILINE)


def code_hash(notebook):
    """Of the cells that outputs come from."""
    code = [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def command(line):
    """Run a command; its output is the cell's."""
    done = subprocess.run(line, shell=True, text=True, capture_output=True, check=False)
    sys.stdout.write(done.stdout)
    if done.returncode not in (0, 1):  # 1 is a verdict
        raise RuntimeError(done.stderr)


def shown(value):
    """A value as Jupyter displays it."""
    if hasattr(value, "savefig"):
        png = io.BytesIO()
        value.savefig(png, format="png", dpi=80, bbox_inches="tight")
        return {
            "image/png": base64.b64encode(png.getvalue()).decode(),
            "text/plain": ["<Figure>"],
        }
    html_of = getattr(value, "_repr_html_", None)
    return {"text/plain": lines(repr(value))} | (
        {"text/html": lines(html_of())} if html_of else {}
    )


def run_cell(cell, names):
    """Execute one code cell; its outputs in Jupyter's format."""
    from matplotlib import pyplot

    body, said, outputs = ast.parse(source(cell)).body, io.StringIO(), []
    last = (
        ast.Expression(body.pop().value)
        if body and isinstance(body[-1], ast.Expr)
        else None
    )

    def go(tree, mode):
        found = eval(compile(tree, "cell", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        return asyncio.run(found) if inspect.iscoroutine(found) else found

    def flush():
        if said.getvalue():
            outputs.append(
                {
                    "output_type": "stream",
                    "name": "stdout",
                    "text": lines(said.getvalue()),
                }
            )
        said.seek(0)
        said.truncate()

    def display(value):
        flush()
        outputs.append(
            {"output_type": "display_data", "data": shown(value), "metadata": {}}
        )

    def show():
        for number in pyplot.get_fignums():
            display(pyplot.figure(number))
        pyplot.close("all")

    names["display"], pyplot.show = display, show
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        go(ast.Module(body, []), "exec")
        value = go(last, "eval") if last else None
    show()
    flush()
    if value is not None:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": None,
                "data": shown(value),
                "metadata": {},
            }
        )
    return outputs


def compare_words(asked):
    """A verdict by the share of the statement's words that stand in the context; numbers that do not weigh most."""
    context, _, rest = (
        asked["messages"][-1]["content"].rpartition("Context:\n")[2].partition("\n\n")
    )
    statement = rest.rpartition("Statement: ")[2].partition("\n\n")[0]
    words = set(re.findall(r"\w+", statement.lower()))
    new = words - set(re.findall(r"\w+", context.lower()))
    p = min(
        0.95, max(0.05, 1.1 - len(new) / len(words) - 0.7 * any(map(str.isdigit, new)))
    )
    label = "Yes" if p >= 0.5 else "No"
    why = (
        f"\nWhy: {len(new)} of {len(words)} words are new to the context."
        if "Then say why" in rest
        else ""
    )
    top = {"Yes": p, "No": 1 - p}
    return {"tokens": [(label, top), *([(why, {why: 0.9})] if why else [])]}


def lines(text):
    """As the format keeps text."""
    return text.splitlines(keepends=True)


def run(path, parameters, note):
    """The notebook with its outputs; `RuntimeError` names the cell that failed."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"]["outputs_of_code"] = code_hash(notebook)
    names = {"__name__": "__main__", "__command__": command}
    for number, cell in enumerate(
        (c for c in notebook["cells"] if c["cell_type"] == "code"), 1
    ):
        try:
            cell["outputs"] = run_cell(cell, names)
        except Exception as exc:
            raise RuntimeError(
                f"{path.stem}, code cell {number}:\n{source(cell)}"
            ) from exc
        cell["execution_count"] = number
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = number
        if "parameters" in cell["metadata"].get("tags", ()):
            names |= {
                name: value for name, value in parameters.items() if name in names
            }
            cell["outputs"] = [
                {"output_type": "stream", "name": "stdout", "text": [f"{note}\n"]}
            ]
    return notebook


def small(name, contexts):
    """The first answers of a shipped set, as a labels file in this folder."""
    from faith_dspy.eval_sets.catalog import path_of

    rows = [
        json.loads(line)
        for line in path_of(name).read_text(encoding="utf-8").splitlines()
    ]
    groups = list(dict.fromkeys(row["group"] for row in rows))[:contexts]
    kept = [
        {k: v for k, v in row.items() if k != "split"}
        for row in rows
        if row["group"] in groups
    ]
    from tests.support.files import write_lines

    return str(write_lines(f"{name}.jsonl", kept))


def main(
    lm: str = "local",
    write: bool = False,
    words: bool = False,
) -> None:
    """Run them all; ``--write`` stores the outputs in the files, but those of ``--words`` are never stored."""
    os.environ |= {
        "MPLBACKEND": "agg",
        "COLUMNS": "90",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    os.chdir(tempfile.mkdtemp(prefix="notebooks-"))
    sys.modules["IPython.display"] = SimpleNamespace(HTML=HTML)
    if words:
        from tests.support.chat_server import ChatServer

        os.environ |= {
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": ChatServer(says=compare_words).base,
        }
        os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="notebooks-")
        parameters = {
            "LM": "openai/tiny",
            "LABELS": small("quickstart", 12),
            "TRAFFIC": small("assistants", 6),
        }
        note = "An endpoint that compares words stands in for the language model."
    else:
        from faith_dspy.lm.make import identity, make_lm

        parameters = {"LM": lm}
        git = ["git", "-C", str(FOLDER), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(
            git, text=True, capture_output=True, check=True
        ).stdout.strip()
        note = f"These outputs: {identity(make_lm(lm)).model}, {date.today():%d %B %Y}, commit {commit}."
    for path in (FOLDER / f"{name}.ipynb" for name in ORDER):
        started = time.monotonic()
        notebook = run(path, parameters, note)
        sys.stdout.write(f"{path.stem}: {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()
        if write and not words:
            path.write_text(
                json.dumps(notebook, indent=1, ensure_ascii=False) + "\n",
                encoding="utf-8",
            )


if __name__ == "__main__":
    typer.run(main)
