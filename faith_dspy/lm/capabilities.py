"""What an LM can do, as its calls have shown.

Servers differ in the parameters that they refuse, in whether they tell token probabilities, and in whether a model
thinks before it answers. None of this is asked for beforehand: a call that shows it is repeated as the LM can take it,
and once two calls have shown the same, all later ones are made that way from the start.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

log = logging.getLogger(__name__)

Lesson: TypeAlias = tuple[str, Any]
"""A field of `Capabilities` with its value; of ``refused``, one parameter."""
CASES = 2
"""Calls that have to show the same before it holds for others."""
THINKING_TOKENS = 2_000
"""Room for a model's thoughts beside its reply, in output tokens, unless an LM is made with another."""
MORE_ROOM = 4
"""Times as much room for thoughts that did not end in it."""
OPTIONAL = (
    "top_logprobs",
    "logprobs",
    "temperature",
    "seed",
    "stop",
    "response_format",
)
"""Parameters that a call can do without."""
MIN_TOKENS = 16
"""The limit of output tokens for a server that refuses a smaller one."""
FEW_ALTERNATIVES = 5
"""Alternatives for each token (``top_logprobs``) where a server refuses more."""
LABEL_TOKENS = 12
"""Room for a label and the chunk ids after it, where one token is not enough."""
MIN_WINDOW = 1_000
"""Tokens of the smallest context window that is believed."""

_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens|num_predict")
_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)|role[\"'` :]{0,6}system"
)
TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:input|prompt|sequence) length|max_model_len"
    r"|too many (?:input )?tokens|prompt is too long|input is too long"
)
"""How refusals say that the prompt is."""
_WINDOW = re.compile(
    r"(?:context[ _](?:length|window|size)|max_model_len|maximum)(?: limit)?(?: is| of|[ =:])* ?\(?"
    r"(\d[\d,]{0,8}) ?(k\b)?"
)
_QUOTED_WORDS = 3
"""Words in a row that a refusal has from the prompt only by quoting it."""


@dataclass(frozen=True)
class Capabilities:
    """How the calls of an LM are made."""

    refused: frozenset[str] = frozenset()
    """Parameters that it is not sent (`OPTIONAL`), and ``system`` for a system message."""
    limit_name: str = "max_tokens"
    """Its parameter for the limit of output tokens: ``max_tokens`` or ``max_completion_tokens``."""
    min_tokens: int = 1
    """The smallest limit that it takes."""
    max_alternatives: int = 20
    """The most alternatives it tells for each token (``top_logprobs``)."""
    thinking_tokens: int = THINKING_TOKENS
    rooms: int = 0
    """How many times `thinking_tokens` it is given beside its reply: 0 unless it thinks, or talks, before it answers;
    1 then; `MORE_ROOM` where that was too little."""
    context_window: int | None = None
    """Tokens of prompt and reply together, as given, or where its refusals named them."""
    token_probabilities: bool = True
    """Whether it tells token probabilities: by its last reply to a request for them."""

    def with_lesson(self, lesson: Lesson) -> Capabilities:
        name, value = lesson
        if name == "refused":
            value = self.refused | {value}
        elif name == "rooms":  # another thread may have learned of more
            value = max(value, self.rooms)
        return replace(self, **{name: value})

    @property
    def room(self) -> int:
        """Output tokens for its thoughts."""
        return self.thinking_tokens * self.rooms

    def with_room(self, tokens: int) -> int:
        """Return the output tokens of a reply that has so many after its thoughts."""
        return max(tokens, LABEL_TOKENS) + (self.room or self.thinking_tokens)

    def fit(
        self, settings: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters of a call as the LM takes them; None stands for one that is not sent.

        Args:
            settings: The LM's own parameters.
            parameters: Those of the call, which come first.
        """
        fitted = dict(parameters)
        values = {**settings, **fitted}
        sent = {name for name, value in values.items() if value is not None}
        for name in self.refused & sent:
            fitted[name] = None
        if "logprobs" in self.refused and "top_logprobs" in sent:
            fitted["top_logprobs"] = None
        elif fitted.get("top_logprobs"):
            fitted["top_logprobs"] = min(fitted["top_logprobs"], self.max_alternatives)
        limit = fitted.pop("max_tokens", None) or fitted.get("max_completion_tokens")
        if limit is not None:
            if self.rooms:
                limit = self.with_room(limit)
            if self.limit_name != "max_tokens" and "max_tokens" in settings:
                fitted["max_tokens"] = None
            fitted[self.limit_name] = max(limit, self.min_tokens)
        if "system" in self.refused and fitted.get("messages"):
            _join_system(fitted["messages"])
        return fitted

    def read_refusal(self, words: str, sent: Mapping[str, Any]) -> Lesson | None:
        """Return what a refusal says that the LM does not take; None where it says nothing of the kind.

        Args:
            words: The refusal, in the server's own words (`own_words`).
            sent: The parameters that it refused.
        """
        limit = sent.get(self.limit_name)
        if limit is not None and _LIMIT.search(words):
            names_both = "max_completion_tokens" in words and "max_tokens" in words
            if names_both and self.limit_name == "max_tokens":
                return "limit_name", "max_completion_tokens"
            if limit < MIN_TOKENS:
                return "min_tokens", MIN_TOKENS
        for name in OPTIONAL:
            pattern = rf"(?<![a-z]){name.replace('_', '[_ ]')}"
            if sent.get(name) is None or not re.search(pattern, words):
                continue
            requested = sent.get("top_logprobs") or 0
            if "logprobs" in name and requested > FEW_ALTERNATIVES:
                return "max_alternatives", FEW_ALTERNATIVES
            return "refused", name
        roles = [one.get("role") for one in sent.get("messages") or ()]
        if _SYSTEM.search(words) and "system" in roles:
            return "refused", "system"
        return None


class Experience:
    """What an LM's calls have shown so far. Copies of an LM share it; another LM of the same name has its own."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        """What holds for all calls."""
        self.has_answered = False
        self.endless = 0
        """Calls whose thoughts did not end in any room."""
        self.cases: Counter[Lesson] = Counter()
        """Calls by what they have shown."""
        self.unread = 0
        """Replies without a label less those with one."""

    def add(self, lessons: Iterable[Lesson]) -> None:
        """Count what one call has shown; from the second case on it holds for all."""
        for lesson in lessons:
            self.cases[lesson] += 1
            if self.cases[lesson] >= CASES:
                self.capabilities = self.capabilities.with_lesson(lesson)

    def add_probabilities(self, *, returned: bool) -> None:
        """Note whether a reply had the token probabilities that were asked for."""
        if self.capabilities.token_probabilities and not returned:
            log.warning(
                "the LM gives no token probabilities; going on with labels alone"
            )
        lesson = ("token_probabilities", returned)
        self.capabilities = self.capabilities.with_lesson(lesson)

    def add_label(self, *, read: bool) -> None:
        """Note whether a reply began with its label: an LM that mostly talks first needs room."""
        self.unread += -1 if read else 1
        if self.unread >= CASES and not self.capabilities.rooms:
            self.capabilities = self.capabilities.with_lesson(("rooms", 1))


def experience_of(lm: Any) -> Experience:
    """Return what is known of an LM; of one that is not ours nothing is kept."""
    own: Experience | None = getattr(lm, "experience", None)
    return own or Experience(Capabilities())


def own_words(message: str, prompt: str) -> str:
    """Return a server's message in lower case, without what it quotes of a prompt."""
    quotable = set(_runs(re.findall(r"\w+", prompt.lower())))
    pieces = re.split(r"(\w+)", message.lower())  # words, and what is between them
    for i, run in enumerate(_runs(pieces[1::2])):
        if run in quotable:
            quoted = slice(2 * i + 1, 2 * (i + _QUOTED_WORDS))
            pieces[quoted] = [" "] * len(pieces[quoted])
    return "".join(pieces)


def _runs(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(_QUOTED_WORDS)), strict=False)


def named_window(words: str) -> int | None:
    """Return the context window that a refusal names in tokens."""
    named = _WINDOW.search(words)
    if named is None:
        return None
    tokens = int(named[1].replace(",", "")) * (1_000 if named[2] else 1)
    return tokens if tokens >= MIN_WINDOW else None


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
    """Put the system's words at the beginning of the next message, in the list by which DSPy knows its adapter."""
    if messages[0]["role"] == "system" and len(messages) > 1:
        system, first = messages.pop(0), messages[0]
        content = f"{system['content']}\n\n{first['content']}"
        messages[0] = {**first, "content": content}
