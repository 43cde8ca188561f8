"""The pictures of the page of judged answers that the documentation shows: python -m tests.benchmarks.page_pictures

The judgments go through a judge; what its LM says – label, probability, quote and reason of each sentence – is
``page_pictures.json``. Needs Chromium.
"""

import json
import re
import tempfile
import time
from pathlib import Path

from faith_dspy import Judge
from faith_dspy.report.judgment import write_html
from tests.support.chat_server import ChatServer
from tests.support.chromium import Browser

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"
PICTURES = {
    "page": ((1100, 860), {}),
    "page-dark": ((1100, 860), {"prefers_color_scheme": "dark"}),
    "page-phone": ((390, 1100), {}),
}
DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Records, and for each sentence what the LM says: label, its probability, quote and reason."""


def says(asked):
    """The reply to one statement, with the probabilities of its label."""
    request = asked["messages"][-1]["content"]
    label, p, quote, why = next(
        reply
        for text, reply in DATA["replies"].items()
        if f"Statement: {text}\n" in re.sub(r" \[\d\]", "", request)
    )
    if quote and quote not in request:  # asked about other chunks: those that are cited
        label, quote, why = "nothing", None, "The chunk says nothing about it."
    rest = (f'\nQuote: "{quote}"' if quote else "") + f"\nWhy: {why}"
    other = "partly" if label == "fully" else "fully"
    return {"tokens": [(label, {label: p, other: 1 - p}), (rest, {rest: 1.0})]}


def main():
    """Draw them."""
    server, folder = ChatServer(says=says), Path(tempfile.mkdtemp())
    options = {
        "classifier": None,
        "verdicts": "graded",
        "reasoning": "after",
        "quote": True,
    }
    judge = Judge("openai/tiny", api_base=server.base, api_key="none", **options)
    records = DATA["records"]
    write_html(
        zip(records, judge.batch(records), strict=True),
        folder / "page.html",
        title="Answers of the help desk",
    )
    browser = Browser(folder / "profile")
    for name, (size, media) in PICTURES.items():
        browser.open(folder / "page.html", width=size[0], height=size[1], **media)
        browser.js("document.documentElement.style.scrollbarWidth = 'none'")
        if name == "page":
            browser.point(".s:nth-of-type(3)")  # its evidence is lit
            browser.js("scrollTo(0, 0)")
        time.sleep(0.3)  # transitions
        (IMAGES / f"{name}.png").write_bytes(browser.picture())
    browser("Browser.close")
    server.close()


if __name__ == "__main__":
    main()
