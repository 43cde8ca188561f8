"""The pictures of the page that `faith-dspy demo` writes: python -m tests.benchmarks.page_pictures. Needs Chromium."""

import tempfile
import time
from pathlib import Path

from faith_dspy.cli.judge import demo
from tests.support.chromium import Browser

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"
PAGE = IMAGES / "page.png"


def main():
    """Draw the two answers that are not faithful."""
    folder = Path(tempfile.mkdtemp())
    demo(folder / "demo.html")
    browser = Browser(folder / "profile")
    browser.open(folder / "demo.html", width=1100, height=1270)
    browser.js("document.documentElement.style.scrollbarWidth = 'none'")
    browser.js(
        "document.querySelectorAll('.card')[1].scrollIntoView(); scrollBy(0, 55)"
    )
    time.sleep(0.5)  # transitions
    PAGE.write_bytes(browser.picture())
    browser("Browser.close")


if __name__ == "__main__":
    main()
