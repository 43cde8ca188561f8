import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.chat_server import ChatServer
from tests.support.chromium import browser as browser

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it
# Replies of other runs are not ours: a port comes back, and with it what another endpoint said there.
if "DSPY_CACHEDIR" not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="faith_dspy-")
    atexit.register(shutil.rmtree, os.environ["DSPY_CACHEDIR"], ignore_errors=True)

import dspy

import faith_dspy.optimize

# In the environment of another checkout, half of what is tested would be that one's.
_optimize = Path(faith_dspy.optimize.__file__).parent.resolve()
assert _optimize == Path(__file__).parents[1] / "optimize", (
    f"{_optimize} is another checkout's: give this one an environment of its own"
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """A skipped test fails where nothing may be missing: .ci/run says so."""
    report = yield
    if report.skipped and "SKIPPED_TESTS_FAIL" in os.environ:
        report.outcome, report.longrepr = (
            "failed",
            f"{report.longrepr[2]}; here no test may be skipped",
        )
    return report


pytest_make_collect_report = pytest_runtest_makereport  # of whole files


def pytest_ignore_collect(collection_path, config):
    """A run without `all` does not open files that are marked so: they import libraries that it does not have."""
    if "not all" in config.option.markexpr and collection_path.suffix == ".py":
        return (
            "\npytestmark = pytest.mark.all\n"
            in collection_path.read_text(encoding="utf-8")
            or None
        )
    return None


def pytest_collection_modifyitems(items):
    """Whatever uses the browser is marked `all`."""
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("all")


@pytest.fixture
def chat_server():
    servers = []

    def make(**kwargs):
        servers.append(ChatServer(**kwargs))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def lasting_server():
    """One endpoint for all tests of a module."""
    server = ChatServer()
    yield server
    server.close()


@pytest.fixture
def judge_at(chat_server):
    """Makes a judge that asks an endpoint: (judge, endpoint)."""
    from faith_dspy import Judge
    from faith_dspy.lm.make import make_lm

    def make(server=None, *, says="Yes", yes=None, **options):
        server = server or chat_server(says=says, yes=yes)
        return Judge(
            make_lm("openai/tiny", api_base=server.base, num_retries=0), **options
        ), server

    return make


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs the command line as its entry point does: (exit code, stdout, stderr)."""
    from faith_dspy.cli import main

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["faith-dspy", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as exc:
            code = exc.code or 0
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return code, out.out, out.err

    return call


@pytest.fixture
def with_default_classifier(monkeypatch):
    """Judges with an LM have the default classifier, as they do outside of tests."""
    from faith_dspy.scoring.classifier import default_classifier

    monkeypatch.setattr("faith_dspy.judge.default_classifier", default_classifier)


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch):
    """Each test has an empty cache of replies, nothing from the user's environment, and judges that report what the LM
    says, unless they are given a classifier or the test asks for the default one."""
    from faith_dspy.scoring.classifier import default_classifier

    def without_lm(lm, config):
        return default_classifier(lm, config) if lm == "none" else None

    monkeypatch.setattr("faith_dspy.judge.default_classifier", without_lm)
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_API_BASE",
        "OPENAI_BASE_URL",
        "FAITH_DSPY_OFFLINE",
        "HF_ENDPOINT",
    ):
        monkeypatch.delenv(name, raising=False)
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False)
    yield
    dspy.cache = before
