"""What the documents tell people to type, to open and to believe."""

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer

from faith_dspy.cli.main import app
from faith_dspy.io.labels import read_labels
from tests.support.documents import README, ROOT, blocks, text_of

FOLDERS = (
    "",
    "faith_dspy",
    "faith_dspy/integrations",
    "optimize",
    "eval_sets",
    "tests/benchmarks",
    "notebooks",
)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).glob("*.md")
    # They speak of names that are gone.
    if not path.name.startswith(("CHANGELOG", "LOG"))
)
every_document = pytest.mark.parametrize("document", DOCUMENTS)


def commands(document):
    """The ``faith-dspy`` command lines in the code of a document, without comments."""
    text = text_of(document)
    code = re.findall(r"^ {4}\S.*$|(?<=`)[^`\n]+(?=`)", text, re.MULTILINE)
    for block in blocks(text) + blocks(text, "bash"):
        lines = block.replace("\\\n", " ").splitlines()
        code += [line for line in lines if not line.startswith("•")]  # printed
    matches = [re.search(r"(?:^|\s|/)faith-dspy ((?!\d)\w.*)", line) for line in code]
    return [match[1] for match in matches if match]


@every_document
def test_each_command_is_understood(document):
    for line in commands(document):
        words = shlex.split(line.split("|")[0], comments=True)
        command = typer.main.get_command(app)
        context = typer.Context(command)
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
            context = typer.Context(command, parent=context)
        assert not hasattr(command, "commands") or not words, (
            f"{document}: no command {words[:1]} in {line!r}"
        )
        parser = command.make_parser(context)
        parser.parse_args(words)  # raises at an option that there is not


def test_each_make_target_exists():
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"quickstart", "test", "test-all"} <= named <= targets


@every_document
def test_each_link_leads_somewhere(document):
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text_of(document)):
        assert target.startswith("http") or (folder / target).exists(), target


def test_each_test_that_shows_a_documented_behaviour_exists():
    folder = ROOT / "tests/integrations"
    names = re.findall(
        r"`(\w+\.py)::(\w+)", text_of("tests/integrations/DOCUMENTED.md")
    )
    assert len(names) > 30
    for file, test in names:
        source = (folder / file).read_text(encoding="utf-8")
        assert re.search(rf"def {test}\(", source), f"{file}::{test}"


@every_document
def test_each_import_of_ours_exists(document):
    for block in blocks(text_of(document), "python"):
        imports = r"^from faith_dspy\S* import (?:\([^)]*\)|[^\n(]+)"
        for line in re.findall(imports, block, re.MULTILINE):
            (node,) = ast.parse(line).body
            origin = Path(importlib.util.find_spec(node.module).origin)
            defined = origin.read_text(encoding="utf-8")
            for name in (alias.name for alias in node.names):
                wanted = rf'^(class|def) {name}\b|^{name}\b.*=|^    "{name}"'
                assert re.search(wanted, defined, re.MULTILINE), line


def test_the_first_code_prints_what_is_shown(capsys):
    """The README's first snippet needs no model, and its output is the block below it."""
    exec(blocks(README, "python")[0], {})
    assert (
        capsys.readouterr().out.strip()
        == next(b for b in blocks(README) if b.startswith("╭")).strip()
    )


def test_the_rows_of_csv_are_labels(tmp_path):
    (tmp_path / "labels.csv").write_text(*blocks(README, "csv"), encoding="utf-8")
    examples = read_labels(tmp_path / "labels.csv")
    assert [(e.label, len(e.context)) for e in examples] == [
        (False, 1),
        (True, 2),
    ]


def cells_of(table):
    """The cells of a Markdown table, line by line, without the rule below its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def test_the_figures_of_agreement_are_those_kept():
    """Each row of the README's table is a judge of the agreement page: its mean and prompt tokens."""
    page = text_of("tests/benchmarks/AGREEMENT.md")
    table = page.partition("## Balanced accuracy")[2].partition("##")[0]
    names, *rows = cells_of(table)
    (means,) = (row for row in rows if row[0].startswith("mean of 8"))
    accuracy = dict(zip(names, means, strict=True))
    costs = {row[0]: row[2] for row in cells_of(page.partition("costs\n")[2])}
    shown = cells_of(README.partition("| judge | labels |")[2].partition("\n\n")[0])
    assert len(shown) == 5
    for judge, _, agreement, cost in shown:
        name = judge.partition(":")[0]
        assert agreement == accuracy[name].partition(" ·")[0]
        assert cost == costs[name]
