"""The pictures of the page that the documentation shows.

FAITH_DSPY_IMAGES=notebooks/images pytest tests/report/test_screenshots.py   # draws them anew

The judgments went through a judge; what its LM said – the probability of support of each sentence – is recorded here.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy.report.html import write_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Browser

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
YES = {
    "You can return a lamp within 30 days.": 0.94,
    "Keep the receipt.": 0.81,
    "Sale items are refunded in full.": 0.07,
    "Orders of 50 euros or more are shipped free.": 0.97,
    "Adults take two tablets every six hours.": 0.96,
    "They should be taken with food.": 0.12,
}


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
    judge, _ = judge_at(yes=YES)
    judged = judge.batch(RECORDS)
    assert [j.score for j in judged] == [pytest.approx(2 / 3), 1.0, 0.5, None]
    write_html(zip(RECORDS, judged, strict=True), tmp_path / "page.html", title="Answers of the help desk")
    browser.open(tmp_path / "page.html", width=size[0], height=size[1], **media)
    browser.wait("document.querySelectorAll('.card').length === 4")
    browser("Emulation.setScrollbarsHidden", hidden=True)
    if name == "page":
        browser.point(".s:nth-of-type(1)")  # its evidence is lit
        browser.js("scrollTo(0, 0)")
    time.sleep(0.3)  # transitions
    png = base64.b64decode(browser("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"])
    browser("Emulation.setScrollbarsHidden", hidden=False)
    assert 20_000 < len(png) < 150_000
    folder = Path(os.environ.get("FAITH_DSPY_IMAGES", tmp_path))
    (folder / f"{name}.png").write_bytes(png)
