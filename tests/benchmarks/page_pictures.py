"""The pictures of the page of judged answers that the documentation shows: python -m tests.benchmarks.page_pictures

The judgments go through a judge; what its LM says – label, probability, quote and reason of each sentence – is recorded
here. Needs Chromium.
"""

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
POLICY = [
    {
        "text": "Lamps can be returned within 30 days, with the receipt.",
        "source": "returns.md",
    },
    {"text": "Sale items are exchanged only.", "source": "returns.md"},
    {
        "text": "Orders of 50 euros or more are shipped free of charge.",
        "source": "shipping.md",
    },
]
LEAFLET = [
    {
        "text": "Adults take two tablets every six hours, eight a day at most.",
        "source": "leaflet",
    }
]
RECORDS = [
    {
        "id": "lamp",
        "question": "How long may I return a lamp?",
        "context": POLICY,
        "answer": "You can return a lamp within 30 days [1]. Keep the receipt [3]. "
        "Sale items are refunded in full [2]. Can I help you with anything else?",
        "faithful": False,
    },
    {
        "id": "shipping",
        "question": "Is shipping free?",
        "context": POLICY,
        "answer": "Orders of 50 euros or more are shipped free.",
        "faithful": True,
    },
    {
        "id": "dose",
        "question": "How many tablets may I take?",
        "context": LEAFLET,
        "answer": "Adults take two tablets every six hours. They should be taken with food.",
        "faithful": True,
    },
    {
        "id": "child",
        "question": "And for children?",
        "context": LEAFLET,
        "answer": "I don't know.",
    },
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


def says(asked):
    """The reply to one statement, with the probabilities of its label."""
    request = asked["messages"][-1]["content"]
    label, p, quote, why = next(
        reply
        for text, reply in REPLIES.items()
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
    judged = Judge(
        "openai/tiny", api_base=server.base, api_key="none", **options
    ).batch(RECORDS)
    write_html(
        zip(RECORDS, judged, strict=True),
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
