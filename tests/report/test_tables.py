import io

from rich.console import Console

from faith_dspy.report.tables import (
    Table,
    csv_text,
    each,
    markdown,
    number,
    terminal,
    with_interval,
)
from faith_dspy.scoring.statistics import Estimate


def shown(*tables, width=80):
    """What a terminal of so many columns shows."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(terminal(tables))
    return out.getvalue()


def test_numbers_are_written_one_way():
    """No leading zero, intervals in brackets, a dash for what is not defined."""
    assert [number(v) for v in (1.0, -0.05, 0.0, None)] == ["1.00", "-.05", ".00", "–"]
    assert with_interval(Estimate(value=0.5, why="one group")) == ".50"
    assert with_interval(Estimate(why="one label only")) == with_interval(None) == "–"
    assert [each(30, 20), each(3000, 20), each(1, 0)] == ["1.5", "150", "–"]


def test_a_table_gives_a_terminal_no_commands():
    """Control characters and what turns the direction of text are left out of every part; lines stay lines."""
    bad = "a\x1b[2J\x9b\x07\u202e"
    table = Table(bad, (bad, bad), ((bad, f"{bad}\nb"),), caption=bad, notes=(bad,))
    said = [line.rstrip() for line in shown(table, table).splitlines()]
    once = ["a[2J", "a[2J  a[2J", "a[2J  a[2J", "      b", "a[2J", "• a[2J"]
    assert said == [*once, "", *once]


def test_a_bar_in_a_cell_does_not_end_it():
    assert "| x\\|y | 1 |" in markdown([Table("T", ("a", "b"), (("x|y", "1"),))])


def test_no_cell_of_a_csv_is_a_formula():
    """What a label's text begins with, a spreadsheet would run: an apostrophe before it stops that."""
    cells = ('=HYPERLINK("x")', "+x", "-x", "@x", "a=b")
    table = Table("", ("answer",), tuple((cell,) for cell in cells))
    said = ['"\'=HYPERLINK(""x"")"', "'+x", "'-x", "'@x", "a=b"]
    assert csv_text(table).splitlines() == ["answer", *said]
