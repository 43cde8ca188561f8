"""The embedded model at work: an engine of `dspy.LM` in this process. It knows no judge."""

import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dspy import lm15

from faith_dspy.errors import ModelFileError, needs

with needs("openvino", "local", "The embedded model"):
    import openvino as ov
    import openvino_genai

import numpy as np

WINDOW = 8192
"""Context window in tokens, for prompt and reply together."""
_PIECE = 512
"""Prompt tokens that are read at once: Ctrl-C is heard in between."""
_HALF = {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "f32"}
_QUANTIZED = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "128",
}
_EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
"""How the model is computed, the fastest first, which is the first that the processor can do: half precision (AMX);
activations that are quantized, too, 128 with a scale (VNNI); single precision. Log-odds are .04 apart in the mean
(`tests/benchmarks/README.md`)."""


def settings_for(core: Any) -> list[dict[str, str]]:
    """The ways to compute that are worth trying on this processor, the fastest first."""
    has_half_precision = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return [*([_HALF] if has_half_precision else []), _QUANTIZED, _EXACT]


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
        ways = settings_for(core)
        for settings in ways:
            try:
                self._request = core.compile_model(
                    model, "CPU", settings
                ).create_infer_request()
                self._known: list[int] = []
                self._read([0])
                break
            except RuntimeError:
                if settings is ways[-1]:
                    raise
        self.precision = settings["INFERENCE_PRECISION_HINT"]
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
                f"the context window is {WINDOW} tokens, with the reply; the prompt is longer"
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
        usage = lm15.Usage(
            input_tokens=len(prompt), output_tokens=len(found), cache_read_tokens=cached
        )
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="length" if len(found) == limit else "stop",
            usage=usage,
            logprobs=None
            if config.logprobs is None
            else tuple(self._likely(*f, config.logprobs) for f in found),
        )

    def _encode(self, request: lm15.Request) -> list[int]:
        messages = (
            [{"role": "system", "content": request.system}] if request.system else []
        )
        messages += [{"role": m.role, "content": m.text} for m in request.messages]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        tokens: list[int] = (
            self._tokenizer.encode(text, add_special_tokens=False)
            .input_ids.data[0]
            .tolist()
        )
        return tokens

    def _read(self, tokens: Sequence[int]) -> Any:
        """Log-probabilities of the token that follows; only what is not known yet is read."""
        kept = _shared(self._known, tokens[:-1])
        try:
            if kept == 0:
                self._request.reset_state()
            elif kept < len(self._known):
                for state in self._request.query_state():
                    state.state = ov.Tensor(
                        np.ascontiguousarray(state.state.data[:, :, :kept])
                    )
            for start in range(kept, len(tokens), _PIECE):
                piece = np.array([tokens[start : start + _PIECE]], np.int64)
                end = start + piece.shape[1]
                inputs = {
                    "input_ids": piece,
                    "attention_mask": np.ones((1, end), np.int64),
                }
                inputs |= {
                    "position_ids": np.arange(start, end)[None],
                    "beam_idx": np.zeros(1, np.int32),
                }
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
        texts = self._tokenizer.decode(
            [[int(i)] for i in (token, *best)], skip_special_tokens=False
        )
        top = [
            lm15.TopLogprob(text, float(scores[i]))
            for text, i in zip(texts[1:], best, strict=True)
        ]
        return lm15.TokenLogprob(texts[0], float(scores[token]), top=tuple(top))


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    return next(
        (i for i, (a, b) in enumerate(zip(some, others, strict=False)) if a != b),
        min(len(some), len(others)),
    )


def _pick(scores: Any, config: lm15.Config, random: np.random.Generator) -> int:
    if not config.temperature:
        return int(scores.argmax())
    weights = np.exp((scores - scores.max()) / config.temperature)
    return int(random.choice(len(scores), p=weights / weights.sum()))
