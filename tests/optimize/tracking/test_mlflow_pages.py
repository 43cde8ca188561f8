"""MLflow's pages after a study, in a browser, as `make ui` serves them without a network.

FAITH_DSPY_IMAGES=notebooks/images pytest tests/optimize/tracking/test_mlflow_pages.py   # draws the pictures

With FAITH_DSPY_STORE=sqlite:////path/mlflow.db they are of the newest finished study in that store.
"""

import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from faith_dspy.optimize.tracking.store import KIND, connect
from tests.support.files import MAIN
from tests.support.studies import free_port, log_study, serving

pytestmark = pytest.mark.all
ROOT = Path(__file__).parents[3]
STORE = os.environ.get("FAITH_DSPY_STORE")
IMAGES = os.environ.get("FAITH_DSPY_IMAGES")
WRONG = re.compile(
    r"something went wrong|page not found|can't load|failed to (load|fetch)|does not exist|not enabled",
    re.I,
)
QUIET = """
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
"""
"""MLflow opens a chat with an assistant on the first visit."""
HIDE_PATHS = (
    "[...document.querySelectorAll('*')].filter((e) => /^Path: *\\//.test(e.innerText) && e.innerText.length < 300)"
    ".forEach((e) => { e.style.visibility = 'hidden' })"
)
"""Where files lie on this machine is nothing for a picture."""
TEXT = "document.body.innerText"
EXPERIMENT = "experiments/{experiment}"
RUN = EXPERIMENT + "/runs/{run}"
ARTIFACT = RUN + "/artifacts/"
EVALUATIONS = EXPERIMENT + "/evaluation-runs"


class Pages:
    """The browser, and MLflow's pages over one study."""

    def __init__(self, browser, address, **names):
        self.browser, self.address, self.names = browser, address, names

    def show(self, page, *wanted):
        """Open a page, and wait until it shows these texts."""
        self.browser.visit(
            "about:blank"
        )  # else a page that differs by its fragment is not loaded anew
        self.browser.visit(f"{self.address}#/{page.format(**self.names)}")
        for text in wanted:
            self.wait(f"{TEXT}.includes({json.dumps(text)})")
        self.wait(f"!{TEXT}.includes('Loading...')")

    def wait(self, code):
        self.browser.wait(code, seconds=180)

    def check(self, name):
        """Nothing went wrong, and nothing was asked of another server; what the window shows is kept where
        FAITH_DSPY_IMAGES says."""
        assert not WRONG.search(self.browser.js(TEXT)), self.browser.js(TEXT)
        own = self.address, "data:", "blob:", "about:"
        for event in self.browser.events:
            kind, told = event["method"], event.get("params", {})
            assert kind != "Runtime.exceptionThrown", told
            if kind == "Network.requestWillBeSent":
                assert told["request"]["url"].startswith(own), told
            if kind == "Log.entryAdded" and told["entry"]["level"] == "error":
                # Asked for by the page itself, of a server that knows no users.
                assert told["entry"].get("url", "").endswith("/users/current"), told
        if IMAGES:
            self.browser.js(HIDE_PATHS)
            time.sleep(3)  # it is drawn step by step
            shown = Image.open(io.BytesIO(self.browser.picture())).convert("RGB")
            shown.quantize(256).save(Path(IMAGES) / f"mlflow-{name}.png", optimize=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, request, browser):
    """`make ui` over a finished study."""
    folder = tmp_path_factory.mktemp("pages")
    uri = STORE or f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if not STORE:
            log_study(uri, request.getfixturevalue("recorded").result)
        store = connect(uri)

    def runs(query):
        newest = ["attributes.start_time DESC"]
        found = store.client.search_runs([store.experiment_id], query, order_by=newest)
        return [run for run in found if run.data.metrics]

    run = runs("tags.`faith_dspy.kind` = 'study'")[0].info.run_id
    children = runs(f"tags.`mlflow.parentRunId` = '{run}'")
    asked = [c.info.run_id for c in children if "granularity" in c.data.params]
    compared = [c.info.run_id for c in children if c.data.tags[KIND] == "baseline"]
    names = {"experiment": store.experiment_id, "run": run}
    names["variants"] = json.dumps(asked, separators=(",", ":"))
    names["first"], names["second"] = compared[:2]
    port = free_port()
    settings = f"BIN={Path(sys.executable).parent}", f"STORE={uri}", f"PORT={port}"
    command = ["make", "-o", ".venv/.ready", "-C", str(ROOT), "ui", *settings]
    with serving(command, folder, port):
        browser("Page.addScriptToEvaluateOnNewDocument", source=QUIET)
        browser.size(1600, 900)
        yield Pages(browser, f"http://127.0.0.1:{port}/", **names)


LINK = "[...document.querySelectorAll('a')].some((a) => a.href.endsWith('runs/{run}/artifacts/judge/report.html'))"
PLOT = "document.querySelector('.js-plotly-plot svg, .parcoords, canvas') !== null"
USED = () if STORE else ("cities", "faithfulness.verify.predict (v1)")
COMPARE = "compare-runs?runs={variants}&experiments=[%22{experiment}%22]"
COMPARED = "?selectedRunUuid={first}&compareToRunUuid={second}"


@pytest.mark.parametrize(
    ("name", "page", "wanted", "condition"),
    [
        # The study with its variants folded below it; what won and by how much, with links, and what it used.
        ("runs", EXPERIMENT + "/runs?workflowType=machine_learning", ["faith-dspy tune", "matching runs"], "true"),
        ("study", RUN, ["on your test", "Open:", *USED], LINK),
        ("predictions", ARTIFACT + "predictions.csv", ["label", "probability", "faithful"], "true"),
        # The registered judge with its alias, its prompt, and variants side by side in a plot.
        ("model", "models/faithfulness", ["champion", "Faithfulness judges"], "true"),
        ("prompt", "prompts/faithfulness.verify.predict", ["Viewing version 1", "Use only the context"], "true"),
        ("compare", COMPARE, ["Parallel Coordinates Plot"], PLOT),
        # Study and variants with their agreement; two of them side by side, answer by answer.
        ("evaluations", EVALUATIONS, ["test/balanced_accuracy", "pool/balanced_accuracy"], "true"),
        ("evaluation", EVALUATIONS + COMPARED, ["Comparing", "agrees", "probability"], "true"),
    ],
)  # fmt: skip
def test_page(pages, name, page, wanted, condition):
    pages.show(page, *wanted)
    pages.wait(condition.replace("{run}", pages.names["run"]))
    pages.check(name)


def test_the_report_opens_in_place(pages):
    """It is shown among the artifacts, as a page of another origin, so that only its looks tell whether it is there."""
    pages.show(ARTIFACT + "judge/report.html", "report.html")
    pages.wait("document.querySelector('iframe') !== null")
    box = "(({x, y, right, bottom}) => [x, y, right, bottom])(document.querySelector('iframe').getBoundingClientRect())"
    box, colours = pages.browser.js(box), []
    end = time.monotonic() + 60
    while len(colours) < 50:
        assert time.monotonic() < end
        shown = Image.open(io.BytesIO(pages.browser.picture())).crop(box)
        colours = shown.getcolors(1 << 24)
    pages.check("report")


def test_traces(pages):
    """Judge and people stand side by side; a click on a trace shows its assessments."""
    pages.show(RUN + "/traces", "agrees", "faithful")
    pages.wait("document.querySelectorAll('td a, [role=cell] a').length > 0")
    pages.check("traces")
    pages.browser.point("[role=cell] a, td a", click=True)
    button = "[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('Assess'))"
    pages.wait(f"{button} !== undefined")
    pages.browser.js(f"{button}.click()")
    shown = "probability" if STORE else "Its mayor"
    pages.wait(f"{TEXT}.includes('{shown}') && {TEXT}.includes('agrees')")
    pages.check("trace")


def test_ctrl_c(tmp_path):
    """Ctrl-C ends the pages without a traceback."""
    uri, port = f"sqlite:///{tmp_path}/mlflow.db", free_port()
    connect(uri)
    command = [*MAIN, "ui", "--tracking-uri", uri, "--port", str(port)]
    with serving(command, tmp_path, port) as server:
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(30) == 0
    assert "Traceback" not in (tmp_path / "server.log").read_text()
