"""MLflow's pages after a study, in a browser, as `make ui` serves them without a network.

FAITH_DSPY_IMAGES=notebooks/images pytest tests/optimize/tracking/test_mlflow_pages.py   # draws the pictures

With FAITH_DSPY_STORE=sqlite:////path/mlflow.db they are of the newest finished study in that store.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from PIL import Image
from recorded import free_port, log_study, serving

from faith_dspy.optimize.tracking.store import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chromium import Browser

ROOT = Path(__file__).parents[3]
WRONG = re.compile(
    r"something went wrong|page not found|can't load|failed to (load|fetch)|does not exist|not enabled", re.I
)
QUIET = """
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
"""
"""MLflow opens a chat with an assistant on the first visit."""
SHOWN = ("runs", "study", "compare", "learned", "traces", "trace", "model")
"""Pages whose pictures the documentation shows."""
HIDE_PATHS = (
    "[...document.querySelectorAll('*')].filter((e) => /^Path: *\\//.test(e.innerText) && e.innerText.length < 300)"
    ".forEach((e) => { e.style.visibility = 'hidden' })"
)
"""Where files lie on this machine is nothing for a picture."""
TEXT = "document.body.innerText"


class Site(NamedTuple):
    """MLflow's pages over one study."""

    address: str
    experiment: str
    run: str
    variants: list[str]
    """Runs that asked an LM."""
    champion: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """`make ui` over a finished study."""
    folder = tmp_path_factory.mktemp("pages")
    uri = os.environ.get("FAITH_DSPY_STORE") or f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if "FAITH_DSPY_STORE" not in os.environ:
            log_study(uri, request.getfixturevalue("studied"))
        store = connect(uri)
        query, newest = "tags.`faith_dspy.kind` = 'study'", ["attributes.start_time DESC"]
        runs = store.client.search_runs([store.experiment_id], query, order_by=newest)
        run = next(r for r in runs if "champion" in r.data.tags)
        below = f"tags.`mlflow.parentRunId` = '{run.info.run_id}'"
        children = store.client.search_runs([store.experiment_id], below)
    port = free_port()
    command = ["make", "--no-print-directory", "-o", ".venv/.ready", "-C", str(ROOT), "ui"]
    here = [f"BIN={Path(sys.executable).parent}", f"STORE={uri}", f"PORT={port}"]
    with serving([*command, *here], folder, port):
        yield Site(
            f"http://127.0.0.1:{port}/",
            store.experiment_id,
            run.info.run_id,
            [c.info.run_id for c in children if c.data.tags["faith_dspy.kind"] != "baseline" and c.data.metrics],
            run.data.tags["champion"],
        )


@pytest.fixture(scope="module")
def pages(browser: Browser) -> Browser:
    """The browser, without MLflow's assistant."""
    browser("Page.addScriptToEvaluateOnNewDocument", source=QUIET)
    browser.size(1600, 900)
    return browser


def show(browser: Browser, site: Site, page: str, *wanted: str, gone: str = "", name: str = "") -> str:
    """Open a page, wait until it shows what is wanted, see that nothing on it went wrong; its text."""
    browser.visit("about:blank")  # else a page that differs by its fragment is not loaded anew
    browser.visit(f"{site.address}#/{page}")
    for text in wanted:
        browser.wait(f"{TEXT}.includes({json.dumps(text)})", seconds=180)
    if gone:
        browser.wait(f"!{TEXT}.includes({json.dumps(gone)})", seconds=180)
    check(browser, site)
    if name:
        picture(browser, name)
    return str(browser.js(TEXT))


def check(browser: Browser, site: Site) -> None:
    """No error on the page or in the console, and nothing asked of another server."""
    assert not WRONG.search(browser.js(TEXT)), browser.js(TEXT)
    for event in browser.events:
        kind, told = event["method"], event.get("params", {})
        assert kind != "Runtime.exceptionThrown", told
        if kind == "Network.requestWillBeSent":
            assert told["request"]["url"].startswith((site.address, "data:", "blob:", "about:")), told["request"]["url"]
        if kind == "Log.entryAdded" and told["entry"]["level"] == "error":
            # Asked for by the page itself, of a server that knows no users.
            assert told["entry"].get("url", "").endswith("/users/current"), told


def picture(browser: Browser, name: str) -> None:
    """What the window shows; blank it is not. Kept where FAITH_DSPY_IMAGES says, in 256 colours."""
    browser.js(HIDE_PATHS)
    settled = browser.picture()
    while True:  # drawn step by step
        time.sleep(0.7)
        now, settled = settled, browser.picture()
        if now == settled:
            break
    shown = Image.open(io.BytesIO(settled)).convert("RGB")
    assert len(shown.getcolors(1 << 24) or []) > 50
    folder = os.environ.get("FAITH_DSPY_IMAGES")
    if folder and name in SHOWN:
        path = Path(folder) / f"mlflow-{name}.png"
        shown.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        assert path.stat().st_size < 250_000


@pytest.mark.parametrize(
    ("page", "wanted", "name"),
    [
        ("experiments/{0.experiment}/runs?workflowType=machine_learning", ["faith-dspy tune", "matching runs"], "runs"),
        (
            "experiments/{0.experiment}/runs/{0.run}/artifacts/test/champion/predictions.csv",
            ["people", "probability", "faithful"],
            "predictions",
        ),
        ("experiments/{0.experiment}/runs/{0.run}/traces", ["agrees", "faithful"], "traces"),
        ("models/faithfulness", ["champion", "Faithfulness judges"], "model"),
        ("prompts/faithfulness.verify.predict", ["Viewing version 1", "Use only the context"], "prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_page(pages: Browser, site: Site, page: str, wanted: list[str], name: str) -> None:
    """The study with its variants folded below it; every test answer; its traces, judge and people side by side; the
    registered judge with its alias; its prompt."""
    show(pages, site, page.format(site), *wanted, gone="Loading...", name=name)


def test_study_page(pages: Browser, site: Site) -> None:
    """What won and by how much, in words, with links that lead to what they say, and the labels and prompts it used."""
    linked = ("cities (", "faithfulness.verify.predict (v1)") if "FAITH_DSPY_STORE" not in os.environ else ()
    show(pages, site, f"experiments/{site.experiment}/runs/{site.run}", "of the testset", "Open:", *linked)
    more = "[...document.querySelectorAll('button')].find((b) => b.innerText === 'Show more')"
    pages.wait(f"{more} !== undefined")
    pages.js(f"{more}.id = 'more'")
    pages.point("#more", click=True)
    picture(pages, "study")
    links = pages.js("[...document.querySelectorAll('a')].map((a) => a.href).filter((a) => a.includes('artifacts/'))")
    assert any(link.endswith(f"runs/{site.run}/artifacts/learned.html") for link in links)


def test_compare_page(pages: Browser, site: Site) -> None:
    """Variants side by side, with a plot of parallel coordinates."""
    runs = json.dumps(site.variants, separators=(",", ":"))
    show(pages, site, f"compare-runs?runs={runs}&experiments=[%22{site.experiment}%22]", "Parallel Coordinates Plot")
    pages.wait("document.querySelector('.js-plotly-plot svg, .parcoords, canvas') !== null", seconds=180)
    picture(pages, "compare")
    check(pages, site)


def test_learned_opens_in_place(pages: Browser, site: Site) -> None:
    """The page of what was learned is shown among the artifacts, as a page."""
    show(pages, site, f"experiments/{site.experiment}/runs/{site.run}/artifacts/learned.html", "learned.html")
    pages.wait("document.querySelector('iframe') !== null", seconds=180)
    box = pages.js(
        "(({x, y, right, bottom}) => [x, y, right, bottom])(document.querySelector('iframe').getBoundingClientRect())"
    )
    end = time.monotonic() + 60
    # It is another origin's, so that only its looks tell whether it is there.
    while len(Image.open(io.BytesIO(pages.picture())).crop(box).getcolors(1 << 24)) < 50:
        assert time.monotonic() < end, "learned.html is blank"
        time.sleep(1)
    picture(pages, "learned")
    check(pages, site)


@pytest.mark.parametrize("name", ["roc.png", "test/champion/plots/calibration.png"])
def test_plots_open_in_place(pages: Browser, site: Site, name: str) -> None:
    """Pictures are shown as pictures."""
    show(pages, site, f"experiments/{site.experiment}/runs/{site.run}/artifacts/{name}", Path(name).name)
    pages.wait("[...document.images].some((i) => i.naturalWidth > 300)", seconds=180)
    picture(pages, Path(name).stem)
    check(pages, site)


def test_one_trace(pages: Browser, site: Site) -> None:
    """A click on a trace shows its tokens and assessments."""
    store_page = f"experiments/{site.experiment}/runs/{site.run}/traces"
    show(pages, site, store_page, "agrees", gone="Loading...")
    pages.wait("document.querySelectorAll('[data-testid=\"evaluation-id-cell\"], td a, [role=cell] a').length > 0")
    pages.point("[role=cell] a, td a", click=True)
    pages.wait(f"{TEXT}.includes('judge')", seconds=180)
    pages.js("[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('Assess')).id = 'assess'")
    pages.point("#assess", click=True)
    pages.wait(f"{TEXT}.includes('agrees')")
    picture(pages, "trace")
    check(pages, site)
