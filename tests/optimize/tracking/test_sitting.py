"""A sitting: answers labelled by two reviewers in a browser, from push to click to pull to a tuned judge's judgment.

FAITH_DSPY_ANSWERS=60 pytest -m all -s tests/optimize/tracking/test_sitting.py   # the whole afternoon, with its clock

With FAITH_DSPY_IMAGES=folder it draws what a reviewer sees. The server is killed in the middle.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Browser
from recorded import Quiet, free_port, knowing

from faith_dspy import load_judge, tune
from faith_dspy.eval_sets.catalog import load
from faith_dspy.optimize.data.audit import annotator_agreement, power
from faith_dspy.optimize.tracking.review import FAITHFUL, UNSUPPORTED, WHY, labels_of, pull, push
from faith_dspy.optimize.tracking.store import ENVIRONMENT, connect
from faith_dspy.text.sentences import carries_statement, sentences

N = int(os.environ.get("FAITH_DSPY_ANSWERS", "20"))
QUIET = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
PART = "mlflow.experiment-review-queue.focused-review"
SUBMIT = f'[data-component-id="{PART}.complete"]'
SECONDS = 240


class Server:
    """MLflow's pages over a store, which can be killed."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1"]
        self._log = (folder / "server.log").open("w")
        self.start()

    def start(self) -> None:
        """Until its page answers."""
        self._process = subprocess.Popen(
            [*self._command, "--port", str(self.port)],
            env=os.environ | ENVIRONMENT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        end = time.monotonic() + 2 * SECONDS
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=30):
                    return
            except OSError:
                assert self._process.poll() is None
                time.sleep(0.5)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        """As a machine that loses its power would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def _unsupported(e: Any) -> list[int]:
    """Numbers, as the page shows them, of the sentences in which a statement is not supported."""
    shown = [s.text for s in sentences(e.answer) if carries_statement(s.text)]
    wrong = [s.text for s in e.statements if s.verdict is not None and not s.verdict.is_supported]
    return [i for i, text in enumerate(shown, 1) if any(w in text for w in wrong)]


class Reviewer:
    """Clicks and types what a person would."""

    def __init__(self, name: str, server: Server, profile: Path, examples: dict[str, Any]) -> None:
        self.name, self.server, self.examples = name, server, examples
        self.browser = Browser(profile)
        self.browser("Page.addScriptToEvaluateOnNewDocument", source=QUIET)
        self.browser.size(1500, 950)
        self.seconds: list[float] = []

    def review(self, page: str, n: int) -> None:
        """Open the queue and label so many of its answers."""
        b = self.browser
        b.visit("about:blank")
        b.visit(f"{self.server.address}/{page}")
        start = "[...document.querySelectorAll('button')].find((e) => e.innerText.includes('Start review'))"
        b.wait(f"Boolean({start})", SECONDS)
        b.js(f"{start}.click()")
        for i in range(n):
            b.wait(f"document.querySelector('{SUBMIT}') && document.body.innerText.includes('Chunk 0')", SECONDS)
            started = time.monotonic()
            trace_id = b.js("new URLSearchParams(location.hash.split('?')[1]).get('selectedItemId')")
            e = self.examples[trace_id]
            faithful = bool(e.label) != (self.name == "bea" and e.id.endswith("1"))  # who reads more kindly, or less
            self._pick("Faithful" if faithful else "Not faithful")
            if not faithful and (numbers := _unsupported(e)):
                self._type(0, ", ".join(map(str, numbers)))
                self._type(2, "The chunks do not say so.")
            self._draw(i)
            b.wait(f"!document.querySelector('{SUBMIT}').disabled", SECONDS)
            b.point(SUBMIT, click=True)
            b.wait(
                f"!location.hash.includes('{trace_id}') || document.body.innerText.includes('Start review')", SECONDS
            )
            self.seconds.append(time.monotonic() - started)

    def _pick(self, label: str) -> None:
        find = f"[...document.querySelectorAll('label')].find((e) => e.innerText.trim() === {json.dumps(label)})"
        self.browser.js("document.getElementById('picked')?.removeAttribute('id')")
        self.browser.js(f"({find}).id = 'picked'")
        self.browser.point("#picked", click=True)

    def _type(self, field: int, text: str) -> None:
        self.browser.js(f"document.querySelectorAll('textarea')[{field}].focus()")
        self.browser("Input.insertText", text=text)

    def _draw(self, i: int) -> None:
        if (folder := os.environ.get("FAITH_DSPY_IMAGES")) and self.name == "ann" and i == 1:
            Path(folder, "review.png").write_bytes(self.browser.picture())

    def close(self) -> None:
        """End the browser."""
        self.browser("Browser.close")
        self.browser.process.wait(30)


@pytest.mark.all
@pytest.mark.timeout(3000)
def test_an_afternoon(own_store: Path, tmp_path: Path, chat_server: Any) -> None:
    """Two reviewers at once, each in a browser, while the server is killed: every review is there, once; and what they
    said tunes a judge that judges."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: the page was not tried in a browser (apt-get install chromium)")
    clock = [("", time.monotonic())]

    def tick(what: str) -> None:
        clock.append((what, time.monotonic()))
        sys.stderr.write(f"{what}: {clock[-1][1] - clock[-2][1]:.0f} s\n")

    chosen = load("assistants")[:N]
    answers = [
        {"id": e.id, "question": e.question, "context": [c.text for c in e.context], "answer": e.answer} for e in chosen
    ]
    pushed = push(answers, "november", ["ann", "bea"])
    assert (pushed.traces, pushed.items) == (N, 2 * N)
    tick(f"push of {N} answers to two queues")
    store = connect()
    by_id = {e.id: e for e in chosen}
    found = store.client.search_traces(locations=[store.experiment_id], max_results=500, include_spans=False)
    examples = {t.info.trace_id: by_id[json.loads(t.info.tags["faith_dspy.label"])["id"]] for t in found}
    server = Server(store.uri, tmp_path)
    tick("start of MLflow's server")
    people = [Reviewer(name, server, tmp_path / name, examples) for name in ("ann", "bea")]
    try:
        pages = _pages(pushed.page)
        _both(people, pages, N // 2)
        tick(f"{N} reviews by two people at once")
        server.kill()
        server.start()
        tick("server killed and started again")
        _both(people, pages, N - N // 2)
        tick(f"{N} more reviews")
    finally:
        for person in people:
            person.close()
        server.kill()
    labels = labels_of(store, "november")
    assert (len(labels.rows), labels.unfinished, labels.unreadable, labels.unlabelled) == (N, 0, {}, 0)
    assert all(row["annotators"].keys() == {"ann", "bea"} for row in labels.rows)
    for trace_id in examples:
        said = store.client.get_trace(trace_id, display=False).search_assessments(type="feedback")
        names = [a.name for a in said]
        assert len(names) == len(set(names)), names
        assert {f"{FAITHFUL} (ann)", f"{FAITHFUL} (bea)"} <= set(names) <= _questions()
    assert set(pull("november")["id"]) == by_id.keys()
    tick("pull")
    agreed = annotator_agreement(_examples(labels.rows))
    assert agreed is not None
    tick(f"{labels.sentence} Reviewers: {agreed.balanced_accuracy.value}. {power(labels.examples)}")
    stand_in = {"lm": "openai/tiny", "api_base": chat_server(says=knowing).base}
    study = tune(pull("november"), out=tmp_path / "judge", view=Quiet(), **stand_in)
    judgment = load_judge(study.judge_dir, api_base=stand_in["api_base"])(
        context=[c.text for c in chosen[0].context], answer=chosen[0].answer
    )
    assert (judgment.unscored, judgment.faithful) == (None, judgment.probability >= judgment.threshold)
    tick(f"tune to a judgment: {study.champion}, {judgment}")
    tick(f"a review took {sorted(people[0].seconds)[N // 2]:.1f} s, all {time.monotonic() - clock[0][1]:.0f} s")


def _examples(rows: list[dict[str, Any]]):
    from faith_dspy.io.labels import parse_example

    return [parse_example(row) for row in rows]


def _questions() -> set[str]:
    return {f"{question} ({who})" for question in (FAITHFUL, UNSUPPORTED, WHY) for who in ("ann", "bea")}


def _pages(first: str) -> list[str]:
    """The pages of both queues."""
    from mlflow.genai.review_queues import list_review_queues

    at = first.partition("=")[0]
    queues = {q.name: q.queue_id for q in list_review_queues(experiment_id=connect().experiment_id)}
    return [f"{at}={queues[f'november ({who})']}" for who in ("ann", "bea")]


def _both(people: list[Reviewer], pages: list[str], n: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[0].review(pair[1], n), zip(people, pages, strict=True)))
