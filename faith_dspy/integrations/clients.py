"""Models and clients of other libraries as LMs: the user's own object is asked, with its settings, key and address."""

from __future__ import annotations

import atexit
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any
from uuid import uuid4

import dspy
from anyio.from_thread import BlockingPortal, start_blocking_portal
from dspy import lm15

from faith_dspy.errors import ConfigError
from faith_dspy.io.documents import as_text, value_of
from faith_dspy.lm.addresses import Endpoint
from faith_dspy.lm.metered import MeteredLM

Messages = list[dict[str, str]]
"""Each with ``role`` and ``content``; a system message is the first."""


def client_lm(client: Any) -> dspy.BaseLM:
    """Return an LM that asks a model or client of another library; one of DSPy's is returned as it is.

    DSPy's cache of replies is off, and what is found out about one client counts for no other: two of one class may be
    two models.

    Raises:
        ConfigError: It cannot be asked; the message says what can.
    """
    if isinstance(client, dspy.BaseLM):
        return client
    client = getattr(client, "langchain_llm", client)  # inside RAGAS' wrapper
    asks = [ask for mark, ask in _ASKS.items() if hasattr(client, mark)]
    if not asks:
        raise ConfigError(_refusal(client))
    kind = type(client)
    name = f"{kind.__module__.partition('.')[0]}/{kind.__name__}"
    engine, endpoint = ClientEngine(client, asks[0]), Endpoint(salt=uuid4().hex[:12])
    return MeteredLM(name, engine=engine, endpoint=endpoint, cache=False)


def _refusal(client: Any) -> str:
    return (
        f"{type(client).__name__} cannot be asked: it names no model, or is of no kind that is known here. Give "
        "instructor.from_openai(client, model='MODEL'), or dspy.LM('openai/MODEL', api_base='https://…/v1', "
        "api_key='…')"
    )


class ClientEngine:
    """An engine of `dspy.LM` that asks a client by its library's own call. Token probabilities are not asked for."""

    def __init__(self, client: Any, ask: Callable[[Any, Messages], Any]) -> None:
        self.client = client
        self._ask = ask
        self._loop = _event_loop()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the client's reply."""
        messages = [{"role": m.role, "content": m.text or ""} for m in request.messages]
        if request.system:
            messages.insert(0, {"role": "system", "content": str(request.system)})
        try:
            reply = self._ask(self.client, messages)
            if inspect.isawaitable(reply):
                reply = self._loop.call(lambda: reply)
        except Exception as exc:
            if _lacks_model(exc):
                raise lm15.ConfigurationError(_refusal(self.client)) from exc
            if getattr(exc, "status_code", None) in (401, 403):
                raise lm15.AuthError(str(exc)) from exc
            raise
        message = lm15.Message.assistant(_text(reply))
        return lm15.Response(None, request.model, message, "stop", _usage(reply))


def _lacks_model(error: Exception) -> bool:
    """Return whether a call was made without its argument ``model``: instructor does not tell whether it has one."""
    words = str(error)
    return isinstance(error, TypeError) and "required" in words and "'model'" in words


@cache
def _event_loop() -> BlockingPortal:
    """Return the loop of all asynchronous clients: their connections stay open from one call to the next."""
    running = ExitStack()
    atexit.register(running.close)
    return running.enter_context(start_blocking_portal())


def _text(reply: Any) -> str:
    """Return the text of a reply: of a completion, a message, or a text with its price."""
    if isinstance(reply, tuple):
        reply = reply[0]
    if choices := getattr(reply, "choices", None):
        reply = choices[0].message
    for name in ("content", "text"):
        reply = getattr(reply, name, None) or reply
    return as_text(reply)


def _usage(reply: Any) -> lm15.Usage:
    """Return the tokens of a reply, as far as it tells them, in OpenAI's words or others'."""
    counts = getattr(reply, "usage_metadata", None) or getattr(reply, "usage", None)
    read = value_of(counts, "input_tokens") or value_of(counts, "prompt_tokens")
    wrote = value_of(counts, "output_tokens") or value_of(counts, "completion_tokens")
    return lm15.Usage(input_tokens=read, output_tokens=wrote)


def _prompt(messages: Messages) -> str:
    """Return all messages as one text, for what takes no more."""
    return "\n\n".join(message["content"] for message in messages)


def _ask_langchain(model: Any, messages: Messages) -> Any:
    return model.invoke(messages)


def _ask_instructor(client: Any, messages: Messages) -> Any:
    return client.create(messages=messages, response_model=None)


def _ask_ragas(llm: Any, messages: Messages) -> Any:
    generate = llm.agenerate if llm.is_async else llm.generate
    return generate(_prompt(messages), response_model=None)


def _ask_deepeval(model: Any, messages: Messages) -> Any:
    return model.generate(_prompt(messages))


async def _ask_pydantic_ai(model: Any, messages: Messages) -> Any:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest

    request = ModelRequest.user_text_prompt(_prompt(messages))
    return await model_request(model, [request])


async def _ask_strands(model: Any, messages: Messages) -> str:
    system, turns = None, []
    for message in messages:
        if message["role"] == "system":
            system = message["content"]
        else:
            turns.append({**message, "content": [{"text": message["content"]}]})
    text = ""
    async for event in model.stream(turns, system_prompt=system):
        delta = event.get("contentBlockDelta", {}).get("delta", {})
        text += delta.get("text", "")
    return text


_ASKS: dict[str, Callable[[Any, Messages], Any]] = {
    "invoke": _ask_langchain,
    "create_fn": _ask_instructor,
    "is_async": _ask_ragas,
    "get_model_name": _ask_deepeval,
    "request_stream": _ask_pydantic_ai,
    "stream": _ask_strands,
}
"""By a name that its library documents. The first that is there counts: LangChain's models have ``stream``, too."""
