"""What the documents tell people to type and to open."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from faith_dspy import Judge
from faith_dspy.cli.main import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "faith_dspy", "faith_dspy/integrations", "optimize", "eval_sets", "tests/benchmarks")
    for path in (ROOT / folder).glob("*.md")
    if path.name not in {"CHANGELOG.md", "LOG.md"}  # they speak of names that are gone
)


def commands(document):
    """The ``faith-dspy`` command lines in the code of a document, without comments."""
    text = (ROOT / document).read_text(encoding="utf-8")
    code = re.findall(r"^ {4}\S.*$|(?<=`)[^`\n]+(?=`)", text, re.MULTILINE)
    for block in re.findall(r"```(?:bash)?\n(.*?)```", text, re.DOTALL):
        code += block.replace("\\\n", " ").splitlines()
    found = [re.search(r"(?:^|\s|/)faith-dspy ((?!\d)\w.*)", line) for line in code]
    return [match[1] for match in found if match]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_command_is_understood(document):
    """Every command line in a document names a command that there is, with options that it has."""
    for line in commands(document):
        words = shlex.split(line.split("|")[0], comments=True)
        command = typer.main.get_command(app)
        context = typer.Context(command)
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
            context = typer.Context(command, parent=context)
        assert not hasattr(command, "commands") or not words, f"{document}: no command {words[:1]} in {line!r}"
        command.make_parser(context).parse_args(words)  # raises at an option that there is not


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_link_leads_somewhere(document):
    """Every relative link and picture of a document is there."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        assert target.startswith("http") or (ROOT / document).parent.joinpath(target).exists(), target


def test_the_readme_is_short():
    """The front page has at most 150 lines, and says both commands."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert any(line.startswith("make quickstart") for line in lines)
    assert any(line.startswith("make test") for line in lines)


def test_the_first_lines_of_code_are_those_that_quickstart_runs():
    """`make quickstart` ends with the README's first snippet, so that its output is what a user gets."""
    first = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    run = re.search(r"define FIRST_JUDGMENT\n(.*?)endef", (ROOT / "Makefile").read_text(encoding="utf-8"), re.DOTALL)[1]
    assert re.sub(r"\s+", "", first).replace('"', "'") == re.sub(r"\s+", "", run).replace('"', "'")


def test_each_language_model_of_the_readme_makes_a_judge():
    """The lines for one's own LM make judges; none is asked anything, so no key is needed."""
    snippet = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    lines = [line for line in snippet.splitlines() if line.startswith("Judge(")]
    assert len(lines) >= 5
    for line in lines:
        if '"local"' not in line:  # it would start the embedded model
            assert isinstance(eval(line, {"Judge": Judge}), Judge), line
