"""MLflow's pages after a study, in a browser, as `make ui` serves them without a network."""

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
WRONG = re.compile(
    r"something went wrong|page not found|can't load|failed to (load|fetch)|does not exist|not enabled",
    re.I,
)
HARMLESS = re.compile("^(null )?ResizeObserver loop")
QUIET = """
if (location.protocol === 'http:' && origin !== 'null') {
  localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
  localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
}
"""
"""MLflow opens a chat with an assistant on the first visit. A report of ours has no storage."""
TEXT = "document.body.innerText"
EXPERIMENT = "experiments/{experiment}"
RUN = EXPERIMENT + "/runs/{run}"
ARTIFACT = RUN + "/artifacts/"
EVALUATIONS = EXPERIMENT + "/evaluation-runs"


class Pages:
    """A tab of the browser with MLflow's pages over one study."""

    def __init__(self, tab, address, **names):
        self.tab, self.address, self.names = tab, address, names
        self.faults, self.urls = [], []
        tab.set_default_timeout(180_000)
        tab.on("request", lambda request: self.urls.append(request.url))
        tab.on("pageerror", lambda error: self._note(error.message))
        tab.on("console", self._note_error)

    def _note(self, fault):
        if not HARMLESS.search(fault):
            self.faults.append(fault)

    def _note_error(self, message):
        # Asked for by the page itself, of a server that knows no users.
        is_users = message.location["url"].endswith("/users/current")
        if message.type == "error" and not is_users:
            self._note(message.text)

    def show(self, page, *wanted):
        """Open a page, and wait until it shows these texts."""
        # Else a page that differs by its fragment is not loaded anew.
        self.tab.goto("about:blank")
        self.faults.clear()
        self.urls.clear()
        self.tab.goto(f"{self.address}#/{page.format(**self.names)}")
        for text in wanted:
            self.wait(f"{TEXT}.includes({json.dumps(text)})")
        self.wait(f"!{TEXT}.includes('Loading...')")

    def wait(self, code):
        self.tab.wait_for_function(code)

    def check(self):
        """Nothing went wrong, and nothing was asked of another server."""
        shown = self.tab.inner_text("body")
        assert not WRONG.search(shown), shown
        own = self.address, "data:", "blob:", "about:"
        assert [url for url in self.urls if not url.startswith(own)] == []
        assert self.faults == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory, recorded, browser):
    """`make ui` over a finished study."""
    folder = tmp_path_factory.mktemp("pages")
    uri = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = log_study(uri, recorded.result).run_id
        store = connect(uri)
    below = f"tags.`mlflow.parentRunId` = '{run}'"
    children = store.client.search_runs([store.experiment_id], below)
    asked = [
        c.info.run_id
        for c in children
        if c.data.metrics and "granularity" in c.data.params
    ]
    compared = [c.info.run_id for c in children if c.data.tags[KIND] == "baseline"]
    names = {"experiment": store.experiment_id, "run": run}
    names["variants"] = json.dumps(asked, separators=(",", ":"))
    names["first"], names["second"] = compared[:2]
    port = free_port()
    settings = f"BIN={Path(sys.executable).parent}", f"STORE={uri}", f"PORT={port}"
    command = ["make", "-o", ".venv/.ready", "-C", str(ROOT), "ui", *settings]
    with serving(command, folder, port):
        tab = browser.new_page(viewport={"width": 1600, "height": 900})
        tab.add_init_script(QUIET)
        yield Pages(tab, f"http://127.0.0.1:{port}/", **names)


LINK = "[...document.querySelectorAll('a')].some((a) => a.href.endsWith('runs/{run}/artifacts/judge/report.html'))"
PLOT = "document.querySelector('.js-plotly-plot svg, .parcoords, canvas') !== null"
USED = "cities", "faithfulness.verify.predict (v1)"
COMPARE = "compare-runs?runs={variants}&experiments=[%22{experiment}%22]"
COMPARED = "?selectedRunUuid={first}&compareToRunUuid={second}"


@pytest.mark.parametrize(
    ("page", "wanted", "condition"),
    [
        # The study with its variants folded below it; what won and by how much, with links, and what it used.
        (EXPERIMENT + "/runs?workflowType=machine_learning", ["faith-dspy tune", "matching runs"], "true"),
        (RUN, ["on your test", "Open:", *USED], LINK),
        (ARTIFACT + "predictions.csv", ["label", "probability", "faithful"], "true"),
        # The registered judge with its alias, its prompt, and variants side by side in a plot.
        ("models/faithfulness", ["champion", "Faithfulness judges"], "true"),
        ("prompts/faithfulness.verify.predict", ["Viewing version 1", "Use only the context"], "true"),
        (COMPARE, ["Parallel Coordinates Plot"], PLOT),
        # Study and variants with their agreement; two of them side by side, answer by answer.
        (EVALUATIONS, ["test/balanced_accuracy", "pool/balanced_accuracy"], "true"),
        (EVALUATIONS + COMPARED, ["Comparing", "agrees", "probability"], "true"),
    ],
)  # fmt: skip
def test_page(pages, page, wanted, condition):
    pages.show(page, *wanted)
    pages.wait(condition.replace("{run}", pages.names["run"]))
    pages.check()


def test_the_report_opens_in_place(pages):
    """It is shown among the artifacts, as a page of another origin, so that only its looks tell whether it is there."""
    pages.show(ARTIFACT + "judge/report.html", "report.html")
    frame, colours = pages.tab.locator("iframe"), []
    end = time.monotonic() + 60
    while len(colours) < 50:
        assert time.monotonic() < end
        shown = Image.open(io.BytesIO(frame.screenshot()))
        colours = shown.getcolors(1 << 24)
    pages.check()


def test_traces(pages):
    """Judge and people stand side by side; a click on a trace shows its assessments."""
    pages.show(RUN + "/traces", "agrees", "faithful")
    link = pages.tab.locator("[role=cell] a, td a").first
    link.wait_for()
    pages.check()
    link.click()
    pages.tab.locator("button").filter(has_text=re.compile("^Assess")).first.click()
    pages.wait(f"{TEXT}.includes('Its mayor') && {TEXT}.includes('agrees')")
    pages.check()


def test_ctrl_c(tmp_path):
    """Ctrl-C ends the pages without a traceback."""
    uri, port = f"sqlite:///{tmp_path}/mlflow.db", free_port()
    connect(uri)
    command = [*MAIN, "ui", "--tracking-uri", uri, "--port", str(port)]
    with serving(command, tmp_path, port) as server:
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(30) == 0
    assert "Traceback" not in (tmp_path / "server.log").read_text()
