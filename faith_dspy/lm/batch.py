"""An LM asked through its provider's batch interface: half the price, no limit of the rate, an answer within a day.

`BatchEngine` takes the place of an LM's own engine. It records what is asked and raises `PendingReplyError`; once the
provider has answered, it gives the replies. The calls are LiteLLM's (files and batches, in OpenAI's form).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
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
from faith_dspy.lm.addresses import provider_of
from faith_dspy.lm.function import FunctionLM
from faith_dspy.lm.metered import Limits, Meter, MeteredLM
from faith_dspy.schema import Usage, digest

PROVIDERS = ("openai", "azure", "vertex_ai", "hosted_vllm", "litellm_proxy", "xai")
"""Whose batches LiteLLM makes, reads and lists: one that was made just before a kill is found by its label."""
ENDPOINT = "/v1/chat/completions"
DISCOUNT = 0.5
"""Of the list price, at each provider that has batches (November 2026)."""
MOST_REQUESTS = 5_000
"""In one batch; providers take 50,000 and more, but all of it is in memory at once."""
MOST_TIMES = 2
"""That a request is put into a batch, where the first one expired or the provider was at fault."""
litellm.suppress_debug_info = True  # it prints advice on standard output
_ENDED = ("completed", "expired", "cancelled", "failed")
_LABEL = "faith_dspy"
_WIRE = lm15.OpenAIChatLM(api_key="none")
"""OpenAI's form of requests and errors; nothing is sent by it."""


class Part(BaseModel):
    """One batch at the provider. Holds hashes of what was asked, no text."""

    model: str
    keys: set[str]
    most: Usage
    """What it uses, at most; no dollars for a model without a price."""
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

    @property
    def most(self) -> Usage:
        """What all of it uses, at most."""
        return sum((part.most for part in self.parts), Usage())


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
        provider = provider_of(lm.model)
        if (
            not isinstance(lm, MeteredLM)
            or not isinstance(lm.engine, str)
            or lm.model_type != "chat"
            or provider not in PROVIDERS
        ):
            raise no_batches(lm.model)
        self.is_live = False
        """Whether what no batch has is asked at once, instead of recorded."""
        self.recorded: dict[str, dict[str, Any]] = {}
        """Requests by key, to be submitted."""
        self._lm = lm
        self._submitted = submitted
        self._save = save
        self._limits = limits
        self._connection = {
            "custom_llm_provider": provider,
            "api_key": lm.kwargs.get("api_key"),
            "api_base": lm.kwargs.get("api_base"),
        }
        self._model = lm.model.partition("/")[2] or lm.model
        self._asked_at_once: set[str] = set()
        self._read: tuple[str, dict[str, Any]] = ("", {})
        self._lock = threading.Lock()
        client = dict.fromkeys(("api_key", "api_base", "timeout"))
        self.lm: MeteredLM = lm.copy(engine=self, cache=False, num_retries=0, **client)
        """Has this engine, and knows what the first one can do."""

    @property
    def parts(self) -> list[Part]:
        """The batches of this LM."""
        return [part for part in self._submitted.parts if part.model == self._lm.model]

    def finish(self) -> None:
        """Ask at once, from now on, what no batch has; all replies go to DSPy's cache, if the LM's do."""
        self.is_live = True
        self.lm.cache = self._lm.cache

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply.

        Raises:
            PendingReplyError: A batch has yet to bring it.
            LM15Error: The provider's, of this request.
        """
        sent = _WIRE.build_request(replace(request, model=self._model), stream=False)
        body = json.loads(sent.body)
        key = digest(body)
        with self._lock:
            parts = [part for part in self.parts if key in part.keys]
            if reply := self._reply(key, parts):
                return _response(reply, request.model)
            if self.is_live:
                self._asked_at_once.add(key)
            elif key not in self._asked_at_once:
                if all(part.has_ended for part in parts):
                    self.recorded[key] = body
                if len(self.recorded) == MOST_REQUESTS:
                    self.submit()
                raise PendingReplyError
        salt = self._lm.endpoint.salt
        rollout = {"rollout_id": int(salt, 16)} if salt else {}
        # The LM that has this engine counts the call.
        response: lm15.Response = LM.__call__(self._lm, request, **rollout)
        return response

    def price(self, prompt: int, cached: int, output: int) -> float | None:
        """Return the dollars of so many tokens in a batch; None for a model without a price."""
        if not {self._lm.model, self._model} & litellm.model_cost.keys():
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
        most = Usage(
            calls=len(lines),
            prompt_tokens=prompt,
            output_tokens=output,
            dollars=self.price(prompt, 0, output),
        )
        meter = Meter(self._limits)
        meter.paid = self._submitted.most + most
        if name := meter.reached:
            limit = f"{meter.limits[name]:,} {name}"
            raise LimitReachedError(
                f"the requests may take {meter.spent[name]:,.6g}, more than the limit of {limit}: the last "
                f"{len(lines):,} were not submitted."
            )
        file = self._call(
            litellm.create_file,
            file=("requests.jsonl", "\n".join(lines).encode()),
            purpose="batch",
        )
        part = Part(model=self._lm.model, keys=set(self.recorded), most=most)
        self._submitted.parts.append(part)
        self._save()  # before the provider can bill
        batch = self._call(
            litellm.create_batch,
            completion_window="24h",
            endpoint=ENDPOINT,
            input_file_id=file.id,
            metadata={_LABEL: part.label},
            max_retries=0,  # one that was made, and not answered, is found again
        )
        part.update(batch)
        self._save()
        self.recorded = {}

    def refresh(self) -> None:
        """Ask the provider how far its batches are."""
        if any(part.id is None for part in self.parts):
            by_label = self._call(self._by_label)
            for part in self.parts:
                if part.label in by_label:
                    part.update(by_label[part.label])
                elif part.id is None:  # it was never made
                    self._submitted.parts.remove(part)
        for part in self.parts:
            if not part.has_ended:
                part.update(self._call(litellm.retrieve_batch, batch_id=part.id))
        self._save()

    def cancel(self) -> None:
        """Ask the provider to begin no further request."""
        for part in self.parts:
            if part.id and not part.has_ended:
                self._call(litellm.cancel_batch, batch_id=part.id)

    def _by_label(self, **connection: Any) -> dict[str | None, Any]:
        """Return the provider's batches by the label in their metadata, of all pages where it gives pages."""
        listed = litellm.list_batches(limit=100, **connection)
        pages = getattr(listed, "iter_pages", lambda: [listed])()
        batches = chain.from_iterable(page.data for page in pages)
        return {(batch.metadata or {}).get(_LABEL): batch for batch in batches}

    def _reply(self, key: str, parts: list[Part]) -> dict[str, Any] | None:
        """Return the status and body that a request has got; None: none yet, or it is to be asked once more."""
        ended = [part for part in parts if part.has_ended]
        if not ended:
            return None
        reply: dict[str, Any] = self._replies(ended[-1]).get(key) or _failed(
            {"message": f"the batch ended as {ended[-1].status}"}
        )
        status = reply["status_code"]
        is_fault = status == 429 or status >= 500
        return None if is_fault and len(ended) < MOST_TIMES else reply

    def _replies(self, part: Part) -> dict[str, Any]:
        """Return the reply to each request of a part; the part that was read last is kept."""
        if self._read[0] != part.label:
            replies = {}
            for file in part.files:
                content = self._call(litellm.file_content, file_id=file)
                for row in map(json.loads, content.text.splitlines()):
                    reply = row.get("response") or _failed(row.get("error"))
                    replies[row["custom_id"]] = reply
            self._read = (part.label, replies)
        return self._read[1]

    def _call(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Return what one of LiteLLM's functions does, or raise its error as ours."""
        try:
            return function(**arguments, **self._connection)
        except Exception as exc:  # noqa: BLE001 - each provider has its own
            raise LMUnavailableError(
                f"the batch interface of {self._lm.model} failed: {short_message(exc)} What was submitted is kept: run "
                "the same again."
            ) from None


def no_batches(model: str) -> ConfigError:
    """Return the error of an LM without a batch interface."""
    return ConfigError(
        f"{model} has no batch interface; those of {', '.join(PROVIDERS)} are known. Leave --batch out."
    )


def _failed(error: Any) -> dict[str, Any]:
    """Return the reply to a request that was not answered."""
    return {"status_code": 503, "body": {"error": error}}


def _response(reply: dict[str, Any], model: str) -> lm15.Response:
    """Return a reply as DSPy takes it, or raise the provider's error."""
    status, body = reply["status_code"], reply["body"]
    if status != 200:
        raise _WIRE.normalize_error(status, json.dumps(body))
    return lm15.response_from_openai_chat(body, model=model)
