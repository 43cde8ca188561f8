"""The pictures of the page that `faith-dspy demo` writes: python -m tests.benchmarks.page_pictures. Needs Chromium."""

import tempfile
from pathlib import Path

from faith_dspy.cli.judge import demo
from tests.support.chromium import chromium

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"
PAGE = IMAGES / "page.png"


def main():
    """Draw the two answers that are not faithful."""
    folder = Path(tempfile.mkdtemp())
    demo(folder / "demo.html")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 1270})
        page.goto((folder / "demo.html").as_uri())
        page.evaluate("document.querySelectorAll('.card')[1].scrollIntoView()")
        page.evaluate("scrollBy(0, 55)")
        page.wait_for_timeout(500)  # transitions
        page.screenshot(path=PAGE)


if __name__ == "__main__":
    main()
