"""A sitting: somebody labels answers on MLflow's page, in a browser, and what was clicked is pulled."""

import pytest

from faith_dspy.optimize.tracking.review import queue_answers, read_reviews
from faith_dspy.optimize.tracking.store import UI, connect
from tests.support.studies import mlflow_server

pytestmark = pytest.mark.all
QUIET = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
SUBMIT = '[data-component-id="mlflow.experiment-review-queue.focused-review.complete"]'
TEXT = "document.body.innerText"
SECONDS = 240

KETTLE = {
    "id": "kettle",
    "context": ["A kettle.", "It is blue."],
    "answer": "It is blue. It is new.",
}
CUP = {"id": "cup", "context": ["A cup."], "answer": "It is a cup."}
SAYS = {"kettle": "Not faithful", "cup": "Faithful"}


def review(page, address):
    """Open the queue and label both of its answers, as a person would: by clicks and keys."""
    page.set_default_timeout(SECONDS * 1000)
    page.goto(address)
    page.get_by_role("button", name="Start review").click()
    for _ in SAYS:
        page.wait_for_function(
            f"document.querySelector('{SUBMIT}') && {TEXT}.includes('Chunk 0')"
        )
        item = page.evaluate(
            "new URLSearchParams(location.hash.split('?')[1]).get('selectedItemId')"
        )
        name = "kettle" if page.evaluate(f"{TEXT}.includes('It is new.')") else "cup"
        page.locator("label").get_by_text(SAYS[name], exact=True).click()
        page.click(SUBMIT)
        page.wait_for_function(
            f"!location.hash.includes('{item}') || {TEXT}.includes('Start review')"
        )


def test_from_push_to_pull(own_store, browser):
    """What was clicked is the label, under the reviewer's name."""
    page = queue_answers([KETTLE, CUP], "november").page
    store = connect()
    tab = browser.new_page(viewport={"width": 1500, "height": 950})
    tab.add_init_script(QUIET)
    with mlflow_server(own_store, store.uri) as address:
        review(tab, page.replace(UI, address))
    labels = read_reviews(store, "november", "ann")
    cup, kettle = sorted(labels.rows, key=lambda row: row["id"])
    assert (labels.split, labels.unfinished, labels.unreadable) == ([], 0, [])
    for row, faithful in ((cup, True), (kettle, False)):
        assert (row["faithful"], row["annotators"]) == (faithful, {"ann": faithful})
