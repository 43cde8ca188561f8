"""The embedded model at work: an engine of `dspy.LM` in this process. It knows no judge."""

import threading
import timeit
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from dspy import lm15

from faith_dspy.errors import ModelFileError, optional_dependency

with optional_dependency("openvino", "local", "The embedded model"):
    import openvino as ov
    import openvino_genai

import numpy as np

WINDOW = 8192
"""Context window in tokens, for prompt and reply together."""
_PIECE = 512
"""Prompt tokens that are read at once: Ctrl-C is heard in between."""
_F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
_WAYS = {
    "half": {**_F32, "INFERENCE_PRECISION_HINT": "bf16"},
    "quantized": {**_F32, "DYNAMIC_QUANTIZATION_GROUP_SIZE": "128"},
    "exact": {**_F32, "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}
"""How the model is computed: in half precision (AMX, AVX-512 BF16); with activations that are quantized, too, 128 with
a scale (VNNI); in single precision, where the processor can do neither. Log-odds are .04 apart in the mean
(`tests/benchmarks/README.md`, `optimize/LOG.md`)."""
_MEASURED, _TIMES = 64, 4
"""Prompt tokens that each way reads, and how often, to be compared with the other."""
_loading = threading.Lock()


def engine_of(folder: Path) -> "Engine":
    """Return the engine of a converted model, one in a process. Raises ModelFileError."""
    try:
        with _loading:  # threads that begin together wait for the first
            return _load(folder)
    except RuntimeError as exc:
        raise ModelFileError(
            f"OpenVINO cannot load {folder}: it is damaged, or there is too little memory (4 GB). Delete the folder, "
            "then run: faith-dspy model fetch"
        ) from exc


@cache
def _load(folder: Path) -> "Engine":
    return Engine(folder)


class Engine:
    """An engine as DSPy documents it: a request in, a response with exact log-probabilities out.

    The state of the last prompt is kept up to the tokens that the next one shares with it, so a document is read once
    for all questions about it. One request is answered at a time; threads wait their turn.
    """

    def __init__(self, folder: Path) -> None:
        self._request = _fastest_request(folder)
        self._prompt: list[int] = []
        self._tokenizer = openvino_genai.Tokenizer(folder)
        self._end = self._tokenizer.get_eos_token_id()
        self._lock = threading.Lock()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request, greedily unless it has a temperature, up to ``max_tokens`` or the end of the turn."""
        config = request.config
        prompt = self._encode(request)
        limit = config.max_tokens or WINDOW
        room = limit if limit < WINDOW else 1
        if len(prompt) + room > WINDOW:
            raise lm15.ContextLengthError(
                f"the context window is {WINDOW} tokens, with the reply; the prompt is longer"
            )
        random = np.random.default_rng(config.seed)
        reply: list[int] = []
        logprobs: list[lm15.TokenLogprob] = []
        with self._lock:
            cached = _count_shared(self._prompt, prompt[:-1])
            while len(reply) < limit:
                scores = self._read([*prompt, *reply])
                token = _sample(scores, config, random)
                if token == self._end:
                    break
                reply.append(token)
                if config.logprobs is not None:
                    logprobs.append(self._logprob(token, scores, config.logprobs))
        text = self._tokenizer.decode(reply) if reply else ""
        usage = lm15.Usage(
            input_tokens=len(prompt),
            output_tokens=len(reply),
            cache_read_tokens=cached,
        )
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="length" if len(reply) == limit else "stop",
            usage=usage,
            logprobs=None if config.logprobs is None else tuple(logprobs),
        )

    def _encode(self, request: lm15.Request) -> list[int]:
        messages = [{"role": m.role, "content": m.text} for m in request.messages]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        tokens: list[int] = encoded.input_ids.data[0].tolist()
        return tokens

    def _read(self, tokens: Sequence[int]) -> Any:
        """Return the log-probabilities of the token that follows; only what the state does not hold yet is read."""
        shared = _count_shared(self._prompt, tokens[:-1])
        try:
            if shared == 0:
                self._request.reset_state()
            elif shared < len(self._prompt):
                for state in self._request.query_state():
                    prefix = np.ascontiguousarray(state.state.data[:, :, :shared])
                    state.state = ov.Tensor(prefix)
            for start in range(shared, len(tokens), _PIECE):
                logits = _infer(self._request, tokens[start : start + _PIECE], start)
                scores = logits[0, -1].astype(np.float64)
        except BaseException:  # Ctrl-C, too: what the state holds is not known
            self._prompt = []
            raise
        self._prompt = list(tokens)
        scores -= scores.max()
        total = np.exp(scores).sum()
        return scores - np.log(total)

    def _logprob(self, token: int, scores: Any, n: int) -> lm15.TokenLogprob:
        """Return a token with its log-probability and the ``n`` likeliest in its place."""
        best = np.argpartition(-scores, n)[:n]
        best = best[np.argsort(-scores[best])]
        ids = [[token]]
        ids += [[int(i)] for i in best]
        text, *others = self._tokenizer.decode(ids, skip_special_tokens=False)
        top = []
        for other, score in zip(others, scores[best], strict=True):
            top.append(lm15.TopLogprob(other, float(score)))
        return lm15.TokenLogprob(text, float(scores[token]), top=tuple(top))


def _fastest_request(folder: Path) -> Any:
    """Return the model, loaded the way that is the fastest on this processor: measured once, and kept in the folder."""
    core = ov.Core()
    model = core.read_model(folder / "openvino_model.xml")
    abilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    processor = f"{core.get_property('CPU', 'FULL_DEVICE_NAME')} {sorted(abilities)}"
    kept = folder / f"{sha256(processor.encode()).hexdigest()[:12]}.fastest"
    names = ["half", "quantized"] if "BF16" in abilities else ["quantized"]
    if kept.is_file():
        names = [kept.read_text()]
    requests = {}
    for name in names:
        with suppress(RuntimeError):  # the processor cannot do it
            requests[name] = _load_way(core, model, name)
    if not requests:
        return _load_way(core, model, "exact")
    fastest = names[-1]
    if len(requests) > 1:
        fastest = min(requests, key=lambda name: _seconds(requests[name]))
        with suppress(OSError):  # else the next process measures again
            kept.write_text(fastest)
    return requests[fastest]


def _load_way(core: Any, model: Any, name: str) -> Any:
    request = core.compile_model(model, "CPU", _WAYS[name]).create_infer_request()
    _infer(request, range(_MEASURED))  # the first time takes longer
    return request


def _seconds(request: Any) -> float:
    """Return the fewest seconds that a way has needed to read a prompt."""

    def read() -> None:
        request.reset_state()
        _infer(request, range(_MEASURED))

    return min(timeit.repeat(read, number=1, repeat=_TIMES))


def _infer(request: Any, tokens: Sequence[int], start: int = 0) -> Any:
    """Return the logits after tokens that stand behind ``start`` others."""
    piece = np.array([tokens], np.int64)
    end = start + piece.shape[1]
    inputs = {
        "input_ids": piece,
        "attention_mask": np.ones((1, end), np.int64),
        "position_ids": np.arange(start, end)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    return request.infer(inputs)[0]


def _count_shared(some: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two texts begin with in common."""
    shared = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        shared += 1
    return shared


def _sample(
    scores: Any,
    config: lm15.Config,
    random: np.random.Generator,
) -> int:
    """Return the likeliest token; with a temperature a random one, by Gumbel's noise."""
    if config.temperature:
        noise = random.gumbel(size=len(scores))
        scores = scores / config.temperature + noise
    return int(scores.argmax())
