"""What an LM can do, found out by asking it and remembered for the process.

Servers differ in the parameters that they refuse, in whether they tell token probabilities, and in whether a model
thinks before it answers. None of this is asked for beforehand: the first call that shows it is repeated as the LM can
take it, and every later call is made that way from the start.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, PrivateAttr, field_serializer

log = logging.getLogger(__name__)
THINKING_TOKENS = 2_000
"""Room for a model's thoughts beside its reply, in output tokens, unless an LM is made with another."""
OPTIONAL = (
    "top_logprobs",
    "logprobs",
    "temperature",
    "seed",
    "stop",
    "response_format",
)
"""Parameters that a call can do without."""
LABEL_TOKENS = 12
"""Room for a label and the chunk ids after it, where one token is not enough."""
SMALL_LIMIT = 64
"""A limit of output tokens from which on servers have no minimum."""

_TOO_FEW = re.compile(
    r"(?:at least|minimum(?: value)?(?: of)?|>=|≥|greater than or equal to|less than the minimum\D{0,20})\D{0,12}(\d+)"
)
_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens|num_predict")
_AT_MOST = re.compile(
    r"(?:at most|max(?:imum)?|<=|≤|less than or equal to|up to|between 0 and|exceed)"
)
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w-]|\.\d)")
_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)|role[\"'` :]{0,6}system"
)
_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:input|prompt|sequence) length|max_model_len"
    r"|too many (?:input )?tokens|prompt is too long|input is too long"
)
_WINDOW = re.compile(
    r"(?:context[ _](?:length|window|size)|max_model_len|maximum)(?: limit)?(?: is| of|[ =:])* ?\(?(\d[\d,]{2,8})"
)


class Capabilities(BaseModel):
    """What is known of an LM at an address; all its copies in the process share one. Stored in exports as JSON."""

    token_probabilities: bool | None = None
    """Whether it tells token probabilities: by its last reply to a request for them; None if there was none."""
    refused: set[str] = set()
    """Parameters that it refuses and is not sent (`OPTIONAL`), and ``system`` for a system message."""
    limit_name: str = "max_tokens"
    """Its parameter for the limit of output tokens: ``max_tokens`` or ``max_completion_tokens``."""
    min_tokens: int = 1
    """The smallest limit that it takes."""
    max_alternatives: int = 20
    """The most alternatives it tells for each token (``top_logprobs``)."""
    needs_room: bool = False
    """Whether it thinks, or talks, before it answers; it is given `thinking_tokens` more than the reply needs."""
    thinking_tokens: int = THINKING_TOKENS
    context_window: int | None = None
    """Tokens of prompt and reply together, where a refusal of the server named them."""

    @field_serializer("refused")
    def _sorted(self, refused: set[str]) -> list[str]:
        return sorted(refused)

    answered: bool = Field(default=False, exclude=True)
    """Whether it has answered in this process."""
    _lock: Any = PrivateAttr(default_factory=threading.RLock)
    _tried: set[str] = PrivateAttr(default_factory=set)
    _labels: int = PrivateAttr(default=0)
    """Replies whose label was read less those without one."""

    def update(self, other: Capabilities) -> None:
        """Take over what another process found out."""
        for name in other.model_fields_set:
            setattr(self, name, getattr(other, name))

    @contextmanager
    def trying(self, parameters: Mapping[str, Any]) -> Iterator[None]:
        """Let calls with parameters that no call had before go one after the other, so that a refusal costs one."""
        names = {name for name in OPTIONAL if parameters.get(name) is not None}
        names.add("call")
        if (parameters.get("max_tokens") or SMALL_LIMIT) < SMALL_LIMIT:
            names.add("small limit")
        if names <= self._tried:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            if names <= self._tried:  # another thread has tried them meanwhile
                stack.close()
            try:
                yield
            finally:
                self._tried |= names

    def fit(
        self, settings: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters of a call as the LM takes them; None stands for one that is not sent.

        Args:
            settings: The LM's own parameters.
            parameters: Those of the call, which come first.
        """
        fitted = dict(parameters)
        sent = {
            name for name, value in {**settings, **fitted}.items() if value is not None
        }
        for name in self.refused & sent:
            fitted[name] = None
        if "logprobs" in self.refused and "top_logprobs" in sent:
            fitted["top_logprobs"] = None
        elif fitted.get("top_logprobs"):
            fitted["top_logprobs"] = min(fitted["top_logprobs"], self.max_alternatives)
        limit = fitted.pop("max_tokens", None) or fitted.get("max_completion_tokens")
        if limit is not None:
            if self.needs_room:
                limit = max(limit, LABEL_TOKENS) + self.thinking_tokens
            if self.limit_name != "max_tokens" and "max_tokens" in settings:
                fitted["max_tokens"] = None
            fitted[self.limit_name] = max(limit, self.min_tokens)
        if "system" in self.refused and fitted.get("messages"):
            _join_system(fitted["messages"])
        return fitted

    def learn(self, message: str, sent: Mapping[str, Any]) -> bool:
        """Note what a server's refusal says that it does not take.

        Args:
            message: The refusal in the server's words.
            sent: The parameters that it refused.

        Returns:
            Whether the call can be made again without it.
        """
        text = message.lower()
        limit = sent.get(self.limit_name)
        too_few = _TOO_FEW.search(text)
        if limit is not None and too_few and _LIMIT.search(text):
            minimum = int(too_few[1])
            if limit < minimum <= THINKING_TOKENS:
                self.min_tokens = minimum
                return True
        names_both = "max_completion_tokens" in text and "max_tokens" in text
        if names_both and self.limit_name == "max_tokens":
            self.limit_name = "max_completion_tokens"
            return limit is not None
        for name in OPTIONAL:
            pattern = rf"(?<![a-z]){name.replace('_', '[_ ]')}"
            if sent.get(name) is None or not re.search(pattern, text):
                continue
            numbers: list[int] = []
            if "logprobs" in name and _AT_MOST.search(text):
                numbers = [int(number) for number in _NUMBER.findall(text)]
            requested = sent.get("top_logprobs") or 0
            fewer = [number for number in numbers if 0 < number < requested]
            if fewer:
                self.max_alternatives = max(fewer)
            else:
                self.refused.add(name)
            return True
        roles = [one.get("role") for one in sent.get("messages") or ()]
        if _SYSTEM.search(text) and "system" in roles:
            self.refused.add("system")
            return True
        return False

    def learn_window(self, message: str, prompt_bytes: int) -> bool:
        """Note the context window that a refusal names, else half of what it refused; whether it is about one."""
        text = message.lower()
        if not _TOO_LONG.search(text):
            return False
        named = _WINDOW.search(text)
        guess = prompt_bytes // 8  # half of what was sent, at four bytes a token
        window = int(named[1].replace(",", "")) if named else guess
        if self.context_window is not None and window >= self.context_window:
            window = self.context_window // 2
        if window > 0:  # nothing is known of a prompt of no length
            self.context_window = window
        return True

    def learn_reply(self, *, empty: bool) -> bool:
        """Note that a reply ended for length before the answer; whether asking with more room makes sense."""
        self.answered = True
        if not empty or self.needs_room:
            return False
        self.needs_room = True
        return True

    def note_probabilities(self, *, told: bool) -> None:
        """Note whether a reply had the token probabilities that were asked for."""
        if self.token_probabilities is not False and not told:
            log.warning(
                "the LM gives no token probabilities; going on with labels alone"
            )
        self.token_probabilities = told

    def note_label(self, *, read: bool, cut: bool) -> None:
        """Note whether a reply had its label; an LM that mostly talks first needs room, one odd reply says nothing."""
        self._labels += 1 if read else -1
        if cut and not read and self._labels < 0:
            self.needs_room = True


_of_others: WeakKeyDictionary[Any, Capabilities] = WeakKeyDictionary()


def capabilities_of(lm: Any) -> Capabilities:
    """Return what is known of any LM of DSPy's."""
    own: Capabilities | None = getattr(lm, "capabilities", None)
    return own or _of_others.setdefault(lm, Capabilities())


_THOUGHTS = re.compile(
    r"[<\[](/?)(?:think|thinking|thought|thoughts|reasoning)[>\]]", re.IGNORECASE
)


def thoughts_end(completion: str) -> int:
    """Return where the thoughts end that a model wrote before its reply: 0 without any, the end if they are cut."""
    tags = list(_THOUGHTS.finditer(completion))
    closing = [tag.end() for tag in tags if tag[1]]
    if closing:
        return closing[-1]
    return len(completion) if tags and not completion[: tags[0].start()].strip() else 0


def without_thoughts(completion: str) -> str:
    """Return a completion without what the model thought before it."""
    return completion[thoughts_end(completion) :]


def _join_system(messages: list[dict[str, Any]]) -> None:
    """Put the system's words at the beginning of the first other message, in the list that an adapter made."""
    if messages[0]["role"] == "system":
        system, first = messages.pop(0), messages[0]
        content = f"{system['content']}\n\n{first['content']}"
        messages[0] = {**first, "content": content}
