"""The pictures in the documents: python -m tests.benchmarks.pictures [sqlite:///…/mlflow.db]. Needs Chromium."""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from faith_dspy.cli.judge import demo
from faith_dspy.optimize.tracking.store import connect
from tests.support.files import MAIN
from tests.support.needs import CHROMIUM
from tests.support.studies import free_port, serving

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"
QUIET = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
"""MLflow opens a chat with an assistant on the first visit."""


def keep(page, name):
    """Keep what the window shows, in 256 colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256).save(IMAGES / name, optimize=True)


def draw_demo(browser, folder):
    """Draw the two answers of the demo that are not faithful."""
    demo(folder / "demo.html")
    page = browser.new_page(viewport={"width": 1100, "height": 1270})
    page.goto((folder / "demo.html").as_uri())
    page.evaluate("document.querySelectorAll('.card')[1].scrollIntoView()")
    page.evaluate("scrollBy(0, 55)")
    page.wait_for_timeout(500)  # transitions
    keep(page, "page.png")


def draw_study(browser, folder, uri):
    """Draw MLflow's page of the newest study in a store."""
    store, port = connect(uri), free_port()
    newest, *_ = store.client.search_runs(
        [store.experiment_id],
        "tags.`faith_dspy.kind` = 'study'",
        order_by=["attributes.start_time DESC"],
    )
    command = [*MAIN, "ui", "--tracking-uri", uri, "--port", str(port)]
    with serving(command, folder, port):
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.add_init_script(QUIET)
        run = f"experiments/{store.experiment_id}/runs/{newest.info.run_id}"
        page.goto(f"http://127.0.0.1:{port}/#/{run}")
        page.get_by_text("Show more").first.click(timeout=180_000)
        page.wait_for_timeout(3000)  # it is drawn step by step
        keep(page, "mlflow-study.png")


def main(*stores):
    folder = Path(tempfile.mkdtemp())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        draw_demo(browser, folder)
        for uri in stores:
            draw_study(browser, folder, uri)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
