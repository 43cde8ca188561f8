"""Writing files: whole or not at all; what takes long, by one process at a time.

A file is written beside its place under a hidden name of its own, synced and renamed, so that a kill, a full disk or a
second writer leaves one that is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from uuid import uuid4

from filelock import FileLock, Timeout

from faith_dspy.errors import InputError


def write_files(contents: Mapping[Path, str]) -> None:
    """Write files that belong together: none is put in its place before all are on the disk, and the first one last.

    Folders that are missing are made. Raises `InputError` when a file cannot be written.
    """
    with ExitStack() as stack:
        for path, content in contents.items():
            handle = stack.enter_context(replacing(path))
            handle.write(content.encode(errors="replace"))
            sync(handle)


def write_file(path: Path, content: str) -> None:
    """`write_files` for a single one."""
    write_files({path: content})


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write, which takes the place of ``path`` when the block ends, and never does if it raises."""
    place = path.resolve()  # a link stays one
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
        try:
            with new.open("xb") as handle:
                yield handle
            if place.exists():
                shutil.copymode(place, new)
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)
    except OSError as exc:
        raise cannot_write(path, exc) from exc


@contextmanager
def owned(path: Path, seconds: float = 0) -> Iterator[None]:
    """Let no other process write a file or folder meanwhile; the same thread may own it twice.

    Raises `InputError` when another one still owns it after so many seconds.
    """
    place = path.resolve()
    lock = FileLock(
        place / ".lock" if place.is_dir() else place.with_name(f".{place.name}.lock"),
        is_singleton=True,
    )
    try:
        lock.acquire(timeout=seconds)
    except Timeout as exc:
        raise InputError(
            f"{path}: another process is writing it. Wait until it is done, or name another."
        ) from exc
    except OSError as exc:
        raise cannot_write(path, exc) from exc
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                Path(lock.lock_file).unlink()  # held still: who waits takes a new one
        lock.release()


def check_writable(path: Path, source: Path | None = None) -> None:
    """`InputError` when no file could be written there, or it is the input: better before the LM is paid than after."""
    if source and source.exists() and path.exists() and path.samefile(source):
        raise InputError(f"{path}: is the input itself. Give another name.")
    is_other = path.exists() and not path.is_file()
    if is_other or not path.parent.is_dir():
        raise InputError(
            f"{path}: cannot be written; expected a file in an existing folder."
        )
    check_folder(path.resolve().parent)


_PAGE = b'<meta name="generator" content="faith_dspy">'


def check_page(path: Path) -> None:
    """`InputError` when another file than a page of ours stands there, which alone may be replaced."""
    if path.is_file() and path.stat().st_size and _PAGE not in path.read_bytes()[:2000]:
        raise InputError(
            f"{path}: is there already, and is no page that faith-dspy wrote. Give another name, or remove the file."
        )


def check_folder(folder: Path) -> None:
    """Make a folder if it is missing; `InputError` when no file could be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"\n")
    except OSError as exc:
        raise cannot_write(folder, exc) from exc


def sync(handle: IO[bytes]) -> None:
    """Have all that was written on the disk."""
    handle.flush()
    os.fsync(handle.fileno())


def cannot_write(path: Path | str, exc: OSError) -> InputError:
    """Return what to raise for a file that could not be written."""
    return InputError(
        f"{path}: cannot be written ({(exc.strerror or str(exc)).lower()})."
    )
