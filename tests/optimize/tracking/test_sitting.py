"""A sitting: somebody labels answers on MLflow's page, in a browser, and what was clicked is pulled."""

import json
import sys

import pytest

from faith_dspy.optimize.tracking.review import queue_answers, read_reviews
from faith_dspy.optimize.tracking.store import UI, connect
from tests.support.studies import free_port, serving

pytestmark = pytest.mark.all
QUIET = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
SUBMIT = '[data-component-id="mlflow.experiment-review-queue.focused-review.complete"]'
START = "[...document.querySelectorAll('button')].find((e) => e.innerText.includes('Start review'))"
CHOICE = (
    "[...document.querySelectorAll('label')].find((e) => e.innerText.trim() === {})"
)
TEXT = "document.body.innerText"
SECONDS = 240

KETTLE = {
    "id": "kettle",
    "context": ["A kettle.", "It is blue."],
    "answer": "It is blue. It is new.",
}
CUP = {"id": "cup", "context": ["A cup."], "answer": "It is a cup."}
SAYS = {"kettle": "Not faithful", "cup": "Faithful"}


def review(b, address):
    """Open the queue and label both of its answers, as a person would: by clicks and keys."""
    b.visit("about:blank")
    b.visit(address)
    b.wait(f"Boolean({START})", SECONDS)
    b.js(f"{START}.click()")
    for _ in SAYS:
        b.wait(
            f"document.querySelector('{SUBMIT}') && {TEXT}.includes('Chunk 0')", SECONDS
        )
        item = b.js(
            "new URLSearchParams(location.hash.split('?')[1]).get('selectedItemId')"
        )
        name = "kettle" if b.js(f"{TEXT}.includes('It is new.')") else "cup"
        choice = SAYS[name]
        b.js("document.getElementById('picked')?.removeAttribute('id')")
        b.js(f"({CHOICE.format(json.dumps(choice))}).id = 'picked'")
        b.point("#picked", click=True)

        b.wait(f"!document.querySelector('{SUBMIT}').disabled", SECONDS)
        b.point(SUBMIT, click=True)
        b.wait(
            f"!location.hash.includes('{item}') || {TEXT}.includes('Start review')",
            SECONDS,
        )


def test_from_push_to_pull(own_store, browser):
    """What was clicked is the label, under the reviewer's name."""
    page = queue_answers([KETTLE, CUP], "november").page
    store, port = connect(), free_port()
    browser("Page.addScriptToEvaluateOnNewDocument", source=QUIET)
    browser.size(1500, 950)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", store.uri, "--port", str(port)]
    with serving(command, own_store, port):
        review(browser, page.replace(UI, f"http://127.0.0.1:{port}"))
    labels = read_reviews(store, "november", "ann")
    cup, kettle = sorted(labels.rows, key=lambda row: row["id"])
    assert (labels.split, labels.unfinished, labels.unreadable) == ([], 0, [])
    for row, faithful in ((cup, True), (kettle, False)):
        assert (row["faithful"], row["annotators"]) == (faithful, {"ann": faithful})
