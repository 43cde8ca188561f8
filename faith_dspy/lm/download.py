"""Putting the embedded model together from what a source delivers, and proving that it is the right file.

Finished pieces stay in ``parts/`` until the whole is assembled and its SHA-256 is right.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from typing import TYPE_CHECKING

from faith_dspy.errors import ModelFileError
from faith_dspy.lm.files import ModelSpec, sidecar_of, verify, write_sidecar
from faith_dspy.lm.progress import Progress, no_progress
from faith_dspy.lm.sources import Source, SourceFailedError, from_hub, from_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BLOCK = 1 << 20


def download(
    spec: ModelSpec, folder: Path, *, progress: Progress | None = None, sources: Sequence[Source] | None = None
) -> Path:
    """Have the file that `spec` describes in `folder`, verified; return its path.

    One process at a time downloads, the others wait and find the file there. Raises ModelFileError when no source has
    it, when what arrived is not the file, or when a wrong file is there already.
    """
    from filelock import FileLock, Timeout

    target = folder / spec.filename
    show = progress or no_progress
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{spec.filename}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            show(0, spec.size, "Waiting for another download")
            lock.acquire()
        try:
            if not target.exists():
                _download(spec, target, show, sources or (from_hub, from_index))
            return verify(target, spec).path
        finally:
            lock.release()
    except OSError as exc:
        raise ModelFileError(
            f"Cannot write the model to {folder}: {exc.strerror or exc}. Make room there (twice {spec.size / 1e9:.1f} "
            "GB while assembling), or choose another folder with FAITH_DSPY_CACHE; then fetch again, which goes on "
            "where it stopped."
        ) from exc


def _download(spec: ModelSpec, target: Path, progress: Progress, sources: Sequence[Source]) -> None:
    parts = target.parent / "parts"
    parts.mkdir(exist_ok=True)
    reasons = []
    for source in sources:
        try:
            pieces = source(spec, parts, progress)
        except SourceFailedError as exc:
            reasons.append(str(exc))
            continue
        _assemble(spec, pieces, target, progress)
        shutil.rmtree(parts, ignore_errors=True)
        return
    raise ModelFileError(
        f"The model {spec.filename} could not be fetched: {'; '.join(reasons)}. What arrived is kept, so running "
        f"'faith-dspy model fetch' again goes on from there. Or put the file (sha256 {spec.sha256}) at {target} "
        "yourself."
    )


def _assemble(spec: ModelSpec, pieces: Sequence[Path], target: Path, progress: Progress) -> None:
    """Write the whole beside `target` while taking its sum; only the right file gets the name."""
    temporary = target.with_name(target.name + ".tmp")
    total = hashlib.sha256()
    done = 0
    broken = None
    with temporary.open("wb") as out:
        for piece in pieces:
            try:
                for block in _blocks(piece):
                    total.update(block)
                    out.write(block)
                    done += len(block)
                    progress(done, spec.size, "Verifying")
            except zipfile.BadZipFile:
                broken = piece
                break
    if broken is not None:
        broken.unlink()
        temporary.unlink()
        raise ModelFileError(f"A downloaded part ({broken.name}) was damaged and has been deleted. Fetch again.")
    if (done, total.hexdigest()) != (spec.size, spec.sha256):
        temporary.unlink()
        for piece in pieces:
            piece.unlink()
        raise ModelFileError(
            f"What was downloaded is not {spec.filename}: got {done:,} bytes with sha256 {total.hexdigest()}, "
            f"expected {spec.size:,} with {spec.sha256}. It has been deleted. Fetch again, from another network or "
            "mirror if this happens twice."
        )
    temporary.replace(target)
    write_sidecar(target, sidecar_of(target), spec.sha256)


def _blocks(piece: Path) -> Iterator[bytes]:
    if piece.suffix != ".whl":
        with piece.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
        return
    with zipfile.ZipFile(piece) as wheel:
        members = [name for name in wheel.namelist() if name.endswith(".bin")]
        if len(members) != 1:
            raise zipfile.BadZipFile(f"{len(members)} data members")
        with wheel.open(members[0]) as file:
            while block := file.read(_BLOCK):
                yield block
