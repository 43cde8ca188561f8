"""What users install: the wheel, and what it does with the base dependencies alone."""

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from faith_dspy import __version__
from tests.support.files import MAIN

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "faith_dspy": "faith_dspy",
    "optimize": "faith_dspy/optimize",
    "eval_sets": "faith_dspy/eval_sets",
}
BESIDE = ("LICENSE", "MANIFEST.in", "pyproject.toml")
NOT_INSTALLED = {"optimize/LOG.md"}
RUN = MAIN[1:]
JUDGE_ONE = [
    "judge",
    "--answer",
    "It is blue. It is new.",
    "--context",
    "The kettle is blue.",
]


def files(folder):
    """What is in a folder of the package, as paths from the root."""
    paths = (
        p
        for p in (ROOT / folder).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    )
    return {str(p.relative_to(ROOT)) for p in paths} - NOT_INSTALLED


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel, made of a copy of the sources."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in (*FOLDERS, "tests"):
        shutil.copytree(
            ROOT / name,
            source / name,
            ignore=shutil.ignore_patterns("__pycache__", "results", "golden"),
        )
    for path in (*ROOT.glob("*.md"), *map(ROOT.joinpath, BESIDE)):
        shutil.copy(path, source)
    build = "from setuptools.build_meta import *; build_wheel('..')"
    done = subprocess.run(
        [sys.executable, "-c", build],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "absent from the `packages`" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def base(built):
    """Runs Python where the wheel is installed with what it requires and nothing else: (exit code, what it printed)."""
    site = built / "site"
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (distribution,) = metadata.distributions(name="faith_dspy", path=[str(site)])
    for name in required(distribution.requires):
        for path in metadata.files(name):
            top = path.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(metadata.distribution(name).locate_file(top))
    work = built / "work"
    work.mkdir()

    def run(*args, **environment):
        env = {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "HOME": str(work)}
        env["COLUMNS"] = "100"
        how = {"cwd": work, "env": env | environment, "text": True, "check": False}
        command = [sys.executable, "-S", *args]
        done = subprocess.run(command, capture_output=True, **how)
        return done.returncode, done.stdout + done.stderr

    return run


def required(requirements, extras=(), names=frozenset()):
    """Names of the distributions that requirements bring along, with these extras of whoever requires them."""
    for r in map(Requirement, requirements or ()):
        if r.name not in names and (
            not r.marker or any(r.marker.evaluate({"extra": e}) for e in ("", *extras))
        ):
            names = required(metadata.requires(r.name), r.extras, names | {r.name})
    return names


def test_wheel(built):
    """It holds the licence and every file of the package but the log of experiments, and nothing else."""
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == {
        into + name.removeprefix(f) for f, into in FOLDERS.items() for name in files(f)
    }
    assert f"faith_dspy-{__version__}.dist-info/licenses/LICENSE" in about


def test_the_base_install(base, chat_server):
    """Without the libraries of the extras it shows the demo and the shipped sets, and judges with a hosted LM."""
    code = "from importlib.util import find_spec as f; print([m for m in ('mlflow', 'numpy', 'pandas') if f(m)])"
    assert base("-c", code) == (0, "[]\n")
    server = chat_server(yes={"It is blue.": 0.9, "It is new.": 0.1})
    for command, expected in (
        (["demo"], "The same as a page: demo.html"),
        (["labels", "list"], "200 answers over 40 contexts"),
        (
            [*JUDGE_ONE, "--lm", "openai/tiny", "--api-base", server.base],
            "1 of 2 statements supported",
        ),
    ):
        code, said = base(*RUN, *command, OPENAI_API_KEY="x")
        assert (code, expected in said) == (0, True), said


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["tune", "quickstart"], "tune"),
        (["ui", "--tracking-uri", "sqlite:///there.db"], "tune"),
        ([*JUDGE_ONE, "--judge", "models:/faithfulness@champion"], "tune"),
        ([*JUDGE_ONE, "--lm", "local"], "local"),
        (["judge", "there.parquet", "--lm", "none"], "tune"),
    ],
)
def test_what_an_extra_brings(base, command, extra):
    """What needs an extra names it in one sentence, before it does anything."""
    base("-c", "for kind in ('db', 'parquet'): open(f'there.{kind}', 'w').write('x')")
    code, said = base(*RUN, *command)
    assert code == 2, said
    assert re.fullmatch(
        rf"error: .+ needs the package '[\w-]+', which is not installed\. Install it with: "
        rf"pip install '\.\[{extra}\]', in a clone of faith_dspy\n",
        said,
    ), said
