"""The pictures of the page that the documentation shows.

FAITH_DSPY_IMAGES=notebooks/images pytest tests/report/test_screenshots.py   # draws them anew

The judgments went through a judge; what its LM said – label, probability, quote and reason of each sentence – is
recorded here.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy.report.judgment import write_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from chromium import Browser

POLICY = [
    {"text": "Lamps can be returned within 30 days, with the receipt.", "source": "returns.md"},
    {"text": "Sale items are exchanged only.", "source": "returns.md"},
    {"text": "Orders of 50 euros or more are shipped free of charge.", "source": "shipping.md"},
]
LEAFLET = [{"text": "Adults take two tablets every six hours, eight a day at most.", "source": "leaflet"}]
RECORDS = [
    {
        "id": "lamp",
        "question": "How long may I return a lamp?",
        "context": POLICY,
        "answer": "You can return a lamp within 30 days. Keep the receipt. Sale items are refunded in full. "
        "Can I help you with anything else?",
    },
    {
        "id": "shipping",
        "question": "Is shipping free?",
        "context": POLICY,
        "answer": "Orders of 50 euros or more are shipped free.",
    },
    {
        "id": "dose",
        "question": "How many tablets may I take?",
        "context": LEAFLET,
        "answer": "Adults take two tablets every six hours. They should be taken with food.",
    },
    {"id": "child", "question": "And for children?", "context": LEAFLET, "answer": "I don't know."},
]
REPLIES = {
    "You can return a lamp within 30 days.": (
        "fully", 0.94, "Lamps can be returned within 30 days", "The policy gives lamps 30 days."),
    "Keep the receipt.": ("fully", 0.81, "with the receipt", "A return needs the receipt."),
    "Sale items are refunded in full.": (
        "contradicts", 0.93, "Sale items are exchanged only.", "Sale items are exchanged, not refunded."),
    "Orders of 50 euros or more are shipped free.": (
        "fully", 0.97, "Orders of 50 euros or more are shipped free of charge.", "It says so in these words."),
    "Adults take two tablets every six hours.": (
        "fully", 0.96, "Adults take two tablets every six hours", "It says so in these words."),
    "They should be taken with food.": ("nothing", 0.88, None, "The leaflet says nothing about food."),
}  # fmt: skip
"""Label, its probability, quote and reason."""


def says(asked: dict[str, Any]) -> dict[str, Any]:
    """The reply to one statement, with the probabilities of its label."""
    request = asked["messages"][-1]["content"]
    label, p, quote, why = next(reply for text, reply in REPLIES.items() if f"Statement: {text}\n" in request)
    rest = (f'\nQuote: "{quote}"' if quote else "") + f"\nWhy: {why}"
    other = "partly" if label == "fully" else "fully"
    return {"tokens": [(label, {label: p, other: 1 - p}), (rest, {rest: 1.0})]}


@pytest.mark.parametrize(
    ("name", "size", "media"),
    [
        ("page", (1100, 1000), {}),
        ("page-dark", (1100, 1000), {"prefers_color_scheme": "dark"}),
        ("page-phone", (390, 1100), {}),
    ],
)
def test_pictures_of_the_page(
    browser: Browser,
    judge_at: Callable[..., Any],
    tmp_path: Path,
    name: str,
    size: tuple[int, int],
    media: dict[str, str],
) -> None:
    """A page of four answers fills a picture of 150 kB at most."""
    judge, _ = judge_at(says=says, verdicts="graded", reasoning="after", quote=True)
    judged = judge.batch(RECORDS)
    # (1 + 1 − 1) / 3, 1, (1 + 0) / 2, and an answer that declines
    assert [j.score for j in judged] == [pytest.approx(1 / 3), 1.0, 0.5, None]
    assert sum(j.dropped_quotes for j in judged) == 0
    write_html(zip(RECORDS, judged, strict=True), tmp_path / "page.html", title="Answers of the help desk")
    browser.open(tmp_path / "page.html", width=size[0], height=size[1], **media)
    browser.wait("document.querySelectorAll('.card').length === 4")
    browser("Emulation.setScrollbarsHidden", hidden=True)
    if name == "page":
        browser.point(".s:nth-of-type(3)")  # its evidence is lit
        browser.js("scrollTo(0, 0)")
    time.sleep(0.3)  # transitions
    png = base64.b64decode(browser("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"])
    browser("Emulation.setScrollbarsHidden", hidden=False)
    assert 20_000 < len(png) < 150_000
    folder = Path(os.environ.get("FAITH_DSPY_IMAGES", tmp_path))
    (folder / f"{name}.png").write_bytes(png)
