import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.files import (
    check_folder,
    check_page,
    check_writable,
    owned,
    replacing,
    write_file,
    write_files,
)
from faith_dspy.report.judgment import write_html

NOWHERE = Path("/proc/faith_dspy")
"""Where nobody can write, not even root."""


def test_what_fails_leaves_what_was_there(tmp_path):
    """A file whose writing fails, and every file that belongs to it, stays as it was; nothing else is left behind."""
    one, two = tmp_path / "one", tmp_path / "two"
    write_files({one: "1", two: "2"})
    with pytest.raises(InputError, match=r"cannot be written \(file exists\)"):
        write_files({one: "new", two: "new", one / "three": "new"})
    with suppress(KeyError), replacing(one) as handle:
        handle.write(b"half")
        raise KeyError
    assert (one.read_text(), two.read_text()) == ("1", "2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


def test_links_and_modes_stay(tmp_path):
    write_file(tmp_path / "out", "1")
    (tmp_path / "out").chmod(0o640)
    (tmp_path / "link").symlink_to("out")
    write_file(tmp_path / "link", "2\ud800")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out").read_text() == "2?"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_one_owner(tmp_path):
    """A file that is being written has one writer, of all threads and processes, until it is let go; then nothing lies
    beside it."""
    code = "import sys; from faith_dspy.io.files import *\nwith owned(Path(sys.argv[1])): pass"

    def other():
        with owned(tmp_path / "out"):
            pass

    with owned(tmp_path / "out"):
        write_file(tmp_path / "out", "mine")
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(InputError, match="another process is writing it"),
        ):
            pool.submit(other).result()
        command = [sys.executable, "-c", code, tmp_path / "out"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert b"another process is writing it" in done.stderr
        with owned(tmp_path / "out"):
            pass
        assert (tmp_path / ".out.lock").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    other()


def test_places_that_cannot_be_written(tmp_path):
    """Places that take no file are found before there is anything to write."""
    for check, path in (
        (check_writable, NOWHERE), (check_writable, Path("/dev/null")), (check_folder, NOWHERE),
    ):  # fmt: skip
        with pytest.raises(InputError, match="cannot be written"):
            check(path)
    check_writable(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_only_a_page_of_ours_is_replaced(tmp_path):
    """Nothing there, an empty file and a page that we wrote may be written to; any other file may not."""
    path = tmp_path / "page.html"
    check_page(path)
    path.touch()
    check_page(path)
    write_html([], path)
    check_page(path)
    path.write_text("<html>mine</html>", encoding="utf-8")
    with pytest.raises(InputError, match="is no page that faith-dspy wrote"):
        check_page(path)
