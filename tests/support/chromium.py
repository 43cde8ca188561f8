"""Headless Chromium, driven by Playwright: real keys, a real pointer."""

import pytest

from tests.support.needs import CHROMIUM


@pytest.fixture(scope="module")
def browser():
    """The browser of this machine."""
    if CHROMIUM is None:
        pytest.skip(
            "Chromium is not installed: the page was not tried in a browser (apt-get install chromium)"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()
