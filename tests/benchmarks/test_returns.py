from __future__ import annotations

import pytest

from benchmarks.returns import CASES, COLUMNS, OUT, Scripted, column


@pytest.fixture(scope="module")
def ours():
    """What our judge returns, by the beginning of the case."""
    server = Scripted()
    yield column("ours", server)
    server.close()


@pytest.mark.parametrize(
    ("case", "returns"),
    [
        ("empty context", "unscored: `no_context`"),
        ("empty answer", "unscored: `no_statements`"),
        ("refusal", "unscored: `abstained`"),
        ("verdict on the false statement missing", "unscored: `parse_failed`"),
        ("reply is no valid JSON", "unscored: `parse_failed`"),
        ("LM cites chunk 7 of 2", "1 chunk id dropped and counted"),
        ("Japanese", "0.50, not faithful"),
    ],
)
def test_ours(ours, case, returns):
    """What is missing or broken has a reason instead of a score, and nothing invented is shown as evidence."""
    (cell,) = [text for title, text in ours.items() if title.startswith(case)]
    assert returns in cell


def test_every_case_is_in_the_table():
    """The page has a row for each case, and a column for each library."""
    rows = [line.split(" | ") for line in OUT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row[0].removeprefix("| ") for row in rows] == ["case", *(case.title for case in CASES)]
    assert all(len(row) == 1 + len(COLUMNS) for row in rows)
