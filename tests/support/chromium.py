"""Headless Chromium, driven by Playwright: real keys, a real pointer."""

from contextlib import contextmanager

import pytest

from tests.support.needs import CHROMIUM


@contextmanager
def chromium():
    """The browser of this machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip(
            "Chromium is not installed: the page was not tried in a browser (apt-get install chromium)"
        )
    with chromium() as browser:
        yield browser
