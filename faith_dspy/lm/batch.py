"""An LM asked through its provider's batch interface: half the price, no limit of the rate, an answer within a day.

`BatchEngine` takes the place of an LM's own engine. It records what is asked and raises `PendingReplyError`; once the
provider has answered, it gives the replies. The calls are LiteLLM's (files and batches, in OpenAI's form).
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import litellm
from dspy import LM, lm15
from pydantic import BaseModel, Field

from faith_dspy.errors import (
    ConfigError,
    LimitReachedError,
    LMUnavailableError,
    PendingReplyError,
    short_message,
)
from faith_dspy.lm.function import FunctionLM
from faith_dspy.lm.metered import NO_PRICE, Limits, MeteredLM
from faith_dspy.schema import digest

PROVIDERS = ("openai", "azure", "vertex_ai", "hosted_vllm", "litellm_proxy", "xai")
"""Whose batches LiteLLM makes, reads and lists: one that was made just before a kill is found by its label."""
ENDPOINT = "/v1/chat/completions"
DISCOUNT = 0.5
"""Of the list price, at each provider that has batches (November 2026)."""
MOST_REQUESTS = 5_000
"""In one batch; providers take 50,000 and more, but all of it is in memory at once."""
MOST_TIMES = 2
"""That a request is put into a batch, where the first one expired or the provider was at fault."""
_ENDED = ("completed", "expired", "cancelled", "failed")
_CONNECTION = ("api_key", "api_base")
_LABEL = "faith_dspy"


class Part(BaseModel):
    """One batch at the provider. Holds hashes of what was asked, no text."""

    model: str
    keys: list[str]
    tokens: int
    """Of prompts and replies, at most."""
    dollars: float | None
    """What they cost in a batch, at most; None for a model without a price."""
    label: str = Field(default_factory=lambda: uuid4().hex)
    """In the batch's metadata, by which it is found where its id was not written down."""
    id: str | None = None
    status: str = "submitting"
    files: list[str] = []
    """Where the provider keeps the replies, and the requests that it failed on."""
    answered: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the provider is done with it."""
        return self.status in _ENDED

    def update(self, batch: Any) -> None:
        """Take over what the provider says of it."""
        self.id, self.status = batch.id, batch.status
        self.files = [f for f in (batch.output_file_id, batch.error_file_id) if f]
        counts = batch.request_counts
        self.answered = counts.completed + counts.failed if counts else 0


class Submitted(BaseModel):
    """What waits for its replies, as it is kept in a file."""

    judge: str
    """The judge's fingerprint."""
    records: str
    """Hash of what is judged."""
    parts: list[Part] = []
    asked_at_once: list[str] = []
    """Keys of requests outside batches; their replies are in DSPy's cache."""


class BatchEngine:
    """An engine as DSPy documents it, for requests whose replies come later.

    Args:
        lm: The LM as it is asked without batches.
        submitted: What was asked before; changed here.
        save: Writes that down.
        limits: Dollars and tokens that all requests may take.

    Raises:
        ConfigError: The LM has no batch interface.
    """

    def __init__(
        self,
        lm: MeteredLM | FunctionLM,
        submitted: Submitted,
        save: Callable[[], None],
        limits: Limits | None = None,
    ) -> None:
        provider = ""
        if (
            not isinstance(lm, FunctionLM)
            and isinstance(lm.engine, str)
            and lm.model_type == "chat"
        ):
            self.model, provider, *_ = litellm.get_llm_provider(lm.model)
        if isinstance(lm, FunctionLM) or provider not in PROVIDERS:
            raise ConfigError(
                f"{lm.model} has no batch interface; those of {', '.join(PROVIDERS)} are known. Leave --batch out."
            )
        self.is_live = False
        """Whether what no batch has is asked at once, instead of recorded."""
        self.recorded: dict[str, dict[str, Any]] = {}
        """Requests by key, to be submitted."""
        self._submitted = submitted
        self._save = save
        self._limits = limits or Limits()
        self._lm = lm
        self._connection = {n: lm.kwargs[n] for n in _CONNECTION if lm.kwargs.get(n)}
        self._connection["custom_llm_provider"] = provider
        self._plain = LM(lm.model, num_retries=lm.num_retries, **lm.kwargs)
        self._parts_of: dict[str, list[Part]] = defaultdict(list)
        for part in self.parts:
            self._index(part)
        self._read: tuple[str, dict[str, Any]] = ("", {})
        self._lock = threading.Lock()

    @property
    def parts(self) -> list[Part]:
        """The batches of this LM."""
        return [part for part in self._submitted.parts if part.model == self._lm.model]

    def metered(self) -> MeteredLM:
        """Return an LM that has this engine, and knows what the first one can do."""
        not_theirs = (*_CONNECTION, "timeout")
        settings = {n: v for n, v in self._lm.kwargs.items() if n not in not_theirs}
        if "max_completion_tokens" in settings:  # DSPy renames it for reasoning models
            settings["max_tokens"] = settings.pop("max_completion_tokens")
        settings |= {"engine": self, "endpoint": self._lm.endpoint}
        lm = MeteredLM(self._lm.model, cache=False, num_retries=0, **settings)
        lm.experience = self._lm.experience
        return lm

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply.

        Raises:
            PendingReplyError: A batch has yet to bring it.
            LM15Error: The provider's, of this request.
        """
        body = self._body(request)
        key = digest(body)
        at_once = self._submitted.asked_at_once
        if key not in at_once:
            with self._lock:
                if line := self._line(key):
                    return _response(line, request.model)
                if not self.is_live:
                    parts = self._parts_of.get(key, ())
                    if all(part.has_ended for part in parts):
                        self.recorded[key] = body
                    if len(self.recorded) == MOST_REQUESTS:
                        self.submit()
                    raise PendingReplyError
                at_once.append(key)
                self._save()
        salt = self._lm.endpoint.salt
        rollout = {"rollout_id": int(salt, 16)} if salt else {}
        response: lm15.Response = self._plain(request, **rollout)
        return response

    def price(self, prompt: int, cached: int, output: int) -> float | None:
        """Return the dollars of so many tokens in a batch; None for a model without a price."""
        if not {self._lm.model, self.model} & litellm.model_cost.keys():
            return None
        dollars = litellm.cost_per_token(
            model=self._lm.model,
            prompt_tokens=prompt,
            completion_tokens=output,
            cache_read_input_tokens=cached,
        )
        return DISCOUNT * sum(dollars)

    def submit(self) -> None:
        """Put what was recorded into a batch.

        Raises:
            LimitReachedError: It takes more than is left; nothing is submitted.
        """
        if not self.recorded:
            return
        prompt = output = 0
        lines = []
        for key, body in self.recorded.items():
            line = {"custom_id": key, "method": "POST", "url": ENDPOINT, "body": body}
            text = json.dumps(line, ensure_ascii=False)
            lines.append(text)
            prompt += len(text) // 4
            output += body.get("max_completion_tokens", 0)
        dollars = self.price(prompt, 0, output)
        part = Part(
            model=self._lm.model,
            keys=[*self.recorded],
            tokens=prompt + output,
            dollars=dollars,
        )
        self._check_limits([*self._submitted.parts, part])
        self._submitted.parts.append(part)
        self._save()  # before the provider can bill
        with self._calling():
            file: Any = litellm.create_file(
                file=("requests.jsonl", "\n".join(lines).encode()),
                purpose="batch",
                **self._connection,
            )
            batch = litellm.create_batch(
                completion_window="24h",
                endpoint=ENDPOINT,
                input_file_id=file.id,
                metadata={_LABEL: part.label},
                **self._connection,
            )
        part.update(batch)
        self._save()
        self._index(part)
        self.recorded = {}

    def refresh(self) -> None:
        """Ask the provider how far its batches are."""
        with self._calling():
            if any(part.id is None for part in self.parts):
                listed: Any = litellm.list_batches(limit=100, **self._connection)
                by_label = {(b.metadata or {}).get(_LABEL): b for b in listed.data}
                for part in self.parts:
                    if part.label in by_label:
                        part.update(by_label[part.label])
                    elif part.id is None:  # it was never made
                        self._submitted.parts.remove(part)
                        for key in part.keys:
                            self._parts_of[key].remove(part)
            for part in self.parts:
                if not part.has_ended:
                    part.update(litellm.retrieve_batch(part.id, **self._connection))
        self._save()

    def cancel(self) -> None:
        """Ask the provider to begin no further request."""
        with self._calling():
            for part in self.parts:
                if part.id and not part.has_ended:
                    litellm.cancel_batch(part.id, **self._connection)

    def _check_limits(self, parts: Sequence[Part]) -> None:
        for name in ("tokens", "dollars"):
            most = getattr(self._limits, name)
            if most is None:
                continue
            spent = [getattr(part, name) for part in parts]
            if None in spent:
                raise ConfigError(NO_PRICE)
            if sum(spent) > most:
                raise LimitReachedError(
                    f"the requests may take {sum(spent):,.6g} {name}, more than the limit of {most:,}: the last "
                    f"{len(parts[-1].keys):,} were not submitted."
                )

    def _index(self, part: Part) -> None:
        for key in part.keys:
            self._parts_of[key].append(part)

    def _body(self, request: lm15.Request) -> dict[str, Any]:
        """Return the request in OpenAI's form, as LiteLLM's batches take it."""
        config = request.config
        system = (
            [{"role": "system", "content": request.system}] if request.system else []
        )
        messages = [{"role": m.role, "content": m.text} for m in request.messages]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": system + messages,
            "max_completion_tokens": config.max_tokens,
            "temperature": config.temperature,
            "response_format": config.response_format,
            "seed": config.seed,
        }
        if config.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": config.logprobs}
        body |= config.extensions or {}
        return {name: value for name, value in body.items() if value is not None}

    def _line(self, key: str) -> dict[str, Any] | None:
        """Return what the provider says of a request; None where it says nothing yet, or is to be asked once more."""
        ended = [part for part in self._parts_of.get(key, ()) if part.has_ended]
        if not ended:
            return None
        line: dict[str, Any] = self._lines_of(ended[-1]).get(key) or {
            "error": {"message": f"the batch ended as {ended[-1].status}"}
        }
        is_fault = _status(line) == 429 or _status(line) >= 500
        return None if is_fault and len(ended) < MOST_TIMES else line

    def _lines_of(self, part: Part) -> dict[str, Any]:
        """Return what the provider says of each request of a part; the part that was read last is kept."""
        if self._read[0] != part.label:
            lines: dict[str, Any] = {}
            for file in part.files:
                with self._calling():
                    content: Any = litellm.file_content(file, **self._connection)
                rows = map(json.loads, content.text.splitlines())
                lines |= {row["custom_id"]: row for row in rows}
            self._read = (part.label, lines)
        return self._read[1]

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Raise LiteLLM's errors as ours."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - each provider has its own
            raise LMUnavailableError(
                f"the batch interface of {self._lm.model} failed: {short_message(exc)} What was submitted is kept: run "
                "the same again."
            ) from None


def _status(line: dict[str, Any]) -> int:
    """Return the HTTP status of a reply; of a request that was not answered, 503."""
    status: int = (line.get("response") or {}).get("status_code", 503)
    return status


def _response(line: dict[str, Any], model: str) -> lm15.Response:
    """Return a reply as DSPy takes it, or raise the provider's error."""
    body = (line.get("response") or {}).get("body") or {}
    status = _status(line)
    if status == 200:
        return lm15.response_from_openai_chat(body, model=model)
    error = body.get("error") or line.get("error") or {}
    kind = (
        lm15.InvalidRequestError if status < 500 and status != 429 else lm15.ServerError
    )
    raise kind(str(error.get("message") or error))
