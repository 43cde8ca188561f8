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
WRONG = re.compile(
    r"something went wrong|page not found|can't load|failed to (load|fetch)|does not exist|not enabled",
    re.I,
)
QUIET = """
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
"""
"""MLflow opens a chat with an assistant on the first visit."""
SHOWN = (
    "runs",
    "study",
    "compare",
    "evaluations",
    "evaluation",
    "report",
    "traces",
    "trace",
    "model",
)
"""Pages whose pictures the documentation shows."""
HIDE_PATHS = (
    "[...document.querySelectorAll('*')].filter((e) => /^Path: *\\//.test(e.innerText) && e.innerText.length < 300)"
    ".forEach((e) => { e.style.visibility = 'hidden' })"
)
"""Where files lie on this machine is nothing for a picture."""
TEXT = "document.body.innerText"
BUTTON = (
    "[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('{}'))"
)
EXPERIMENT = "experiments/{experiment}"
RUN = EXPERIMENT + "/runs/{run}"
ARTIFACT = RUN + "/artifacts/"


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

    def click(self, button):
        """Click the button whose text begins so."""
        self.wait(f"{BUTTON.format(button)} !== undefined")
        self.browser.js(f"{BUTTON.format(button)}.id = 'clicked'")
        self.browser.point("#clicked", click=True)

    def picture(self, name):
        """Nothing went wrong, nothing was asked of another server, and what the window shows is not blank.

        It is kept where FAITH_DSPY_IMAGES says, in 256 colours.
        """
        assert not WRONG.search(self.browser.js(TEXT)), self.browser.js(TEXT)
        for event in self.browser.events:
            kind, told = event["method"], event.get("params", {})
            assert kind != "Runtime.exceptionThrown", told
            if kind == "Network.requestWillBeSent":
                assert told["request"]["url"].startswith(
                    (self.address, "data:", "blob:", "about:")
                ), told
            if kind == "Log.entryAdded" and told["entry"]["level"] == "error":
                # Asked for by the page itself, of a server that knows no users.
                assert told["entry"].get("url", "").endswith("/users/current"), told
        self.browser.js(HIDE_PATHS)
        before, now = None, self.browser.picture()
        while now != before:  # drawn step by step
            time.sleep(0.7)
            before, now = now, self.browser.picture()
        shown = Image.open(io.BytesIO(now)).convert("RGB")
        assert len(shown.getcolors(1 << 24) or []) > 50
        if "FAITH_DSPY_IMAGES" in os.environ and name in SHOWN:
            path = Path(os.environ["FAITH_DSPY_IMAGES"]) / f"mlflow-{name}.png"
            shown.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
            assert path.stat().st_size < 250_000


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
    query, newest = "tags.`faith_dspy.kind` = 'study'", ["attributes.start_time DESC"]
    runs = store.client.search_runs([store.experiment_id], query, order_by=newest)
    run = next(r for r in runs if "champion" in r.data.tags).info.run_id
    children = store.client.search_runs(
        [store.experiment_id], f"tags.`mlflow.parentRunId` = '{run}'"
    )
    asked = [
        c.info.run_id
        for c in children
        if c.data.metrics and "granularity" in c.data.params
    ]
    variants = json.dumps(asked, separators=(",", ":"))
    port = free_port()
    command = [
        "make",
        "--no-print-directory",
        "-o",
        ".venv/.ready",
        "-C",
        str(ROOT),
        "ui",
    ]
    with serving(
        [
            *command,
            f"BIN={Path(sys.executable).parent}",
            f"STORE={uri}",
            f"PORT={port}",
        ],
        folder,
        port,
    ):
        browser("Page.addScriptToEvaluateOnNewDocument", source=QUIET)
        browser.size(1600, 900)
        names = {"experiment": store.experiment_id, "run": run, "variants": variants}
        compared = [c.info.run_id for c in children if c.data.tags[KIND] == "baseline"]
        names["first"], names["second"] = compared[:2]
        yield Pages(browser, f"http://127.0.0.1:{port}/", **names)


@pytest.mark.parametrize(
    ("name", "page", "wanted", "condition"),
    [
        (
            "runs",
            EXPERIMENT + "/runs?workflowType=machine_learning",
            ["faith-dspy tune", "matching runs"],
            "true",
        ),
        (
            "predictions",
            ARTIFACT + "predictions.csv",
            ["label", "probability", "faithful"],
            "true",
        ),
        ("model", "models/faithfulness", ["champion", "Faithfulness judges"], "true"),
        (
            "prompt",
            "prompts/faithfulness.verify.predict",
            ["Viewing version 1", "Use only the context"],
            "true",
        ),
        (
            "compare",
            "compare-runs?runs={variants}&experiments=[%22{experiment}%22]",
            ["Parallel Coordinates Plot"],
            "document.querySelector('.js-plotly-plot svg, .parcoords, canvas') !== null",
        ),
    ],
)
def test_page(pages, name, page, wanted, condition):
    """The study with its variants folded below it; every test answer; the registered judge with its alias; its prompt;
    variants side by side in a plot."""
    pages.show(page, *wanted)
    pages.wait(condition)
    pages.picture(name)


def test_study_page(pages):
    """What won and by how much, in words, with links that lead to what they say, and the labels and prompts it used."""
    linked = () if STORE else ("cities", "faithfulness.verify.predict (v1)")
    pages.show(RUN, "on your test", "Open:", *linked)
    pages.click("Show more")
    pages.picture("study")
    links = "[...document.querySelectorAll('a')].some((a) => a.href.endsWith('runs/{run}/artifacts/judge/report.html'))"
    assert pages.browser.js(links.format(**pages.names))


def test_the_report_opens_in_place(pages):
    """It is shown among the artifacts, as a page."""
    pages.show(ARTIFACT + "judge/report.html", "report.html")
    pages.wait("document.querySelector('iframe') !== null")
    box = "(({x, y, right, bottom}) => [x, y, right, bottom])(document.querySelector('iframe').getBoundingClientRect())"
    box, end = pages.browser.js(box), time.monotonic() + 60
    # It is another origin's, so that only its looks tell whether it is there.
    while (
        len(
            Image.open(io.BytesIO(pages.browser.picture())).crop(box).getcolors(1 << 24)
        )
        < 50
    ):
        assert time.monotonic() < end, "report.html is blank"
        time.sleep(1)
    pages.picture("report")


def test_evaluation_runs(pages):
    """The study and its variants are listed with their agreement; two of them stand side by side, answer by answer."""
    page = EXPERIMENT + "/evaluation-runs"
    pages.show(
        page, "Evaluation runs", "test/balanced_accuracy", "pool/balanced_accuracy"
    )
    pages.picture("evaluations")
    compared = "?selectedRunUuid={first}&compareToRunUuid={second}"
    pages.show(page + compared, "Comparing", "agrees", "probability")
    pages.picture("evaluation")


def test_traces(pages):
    """Judge and people stand side by side; a click on a trace shows its assessments."""
    pages.show(RUN + "/traces", "agrees", "faithful")
    pages.wait("document.querySelectorAll('td a, [role=cell] a').length > 0")
    pages.picture("traces")
    pages.browser.point("[role=cell] a, td a", click=True)
    pages.click("Assess")
    shown = "probability" if STORE else "Its mayor"
    pages.wait(f"{TEXT}.includes('{shown}') && {TEXT}.includes('agrees')")
    pages.picture("trace")


def test_ctrl_c(tmp_path):
    """Ctrl-C ends the pages without a traceback."""
    uri, port = f"sqlite:///{tmp_path}/mlflow.db", free_port()
    connect(uri)
    command = [*MAIN, "ui", "--tracking-uri", uri, "--port", str(port)]
    with serving(command, tmp_path, port) as server:
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(30) == 0
    assert "Traceback" not in (tmp_path / "server.log").read_text()
