"""All errors that faith_dspy raises on purpose.

    FaithDspyError
    ├── InputError            what the user gave cannot be used (exit code 2)
    │   ├── LabelsError       a labels file, with file and line
    │   └── ConfigError       an option or a combination of options
    ├── LMUnavailableError    the endpoint is down, or does not have the model
    ├── LimitReachedError     a run's budget is spent, or the run was cancelled
    ├── PendingReplyError     a provider's batch has yet to bring a reply (exit code 3)
    ├── ModelFileError        a model file is missing, truncated or altered
    ├── ArtifactError         an exported judge cannot be loaded
    └── MissingExtraError     an optional dependency is not installed

Each message says what was got, what was expected, and what to do next.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from typing import Any


class FaithDspyError(Exception):
    """Base of all errors this package raises on purpose."""


class InputError(FaithDspyError):
    """The input cannot be used as given."""


class LabelsError(InputError):
    """A labels file cannot be used; the message names the file and the line."""


class ConfigError(InputError):
    """An option has a value, or a combination of values, that does not exist."""


class LMUnavailableError(FaithDspyError):
    """The LM's endpoint cannot be reached, or does not have the model."""


class LimitReachedError(FaithDspyError):
    """A run has spent its budget, or was cancelled; no further call is made."""


class PendingReplyError(FaithDspyError):
    """A reply that a provider's batch has yet to bring is needed."""


class ModelFileError(FaithDspyError):
    """A model file is missing, truncated, or not the file it should be."""


class ArtifactError(FaithDspyError):
    """An exported judge is incomplete, altered, or of an unknown format version."""


class MissingExtraError(FaithDspyError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: {install_command(extra)}"
        )


def install_command(extra: str) -> str:
    """Return how an extra is installed; there is no release on an index."""
    return f"pip install '.[{extra}]', in a clone of faith_dspy"


@contextmanager
def optional_dependency(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Around imports of an optional dependency: `MissingExtraError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(
            {"sklearn": "scikit-learn"}.get(package, package), extra, purpose
        ) from exc


def import_optional(module: str, purpose: str, extra: str = "tune") -> Any:
    """Import a module of an optional dependency: `MissingExtraError` where it is not installed."""
    with optional_dependency(module.partition(".")[0], extra, purpose):
        return import_module(module)


def counted(n: int, thing: str) -> str:
    """Return ``1 reply``, ``1,200 replies``."""
    plural = f"{thing[:-1]}ies" if thing.endswith("ly") else f"{thing}s"
    return f"{n:,} {thing if n == 1 else plural}"


def priced(dollars: float) -> str:
    """Return ``$1,200.00``, ``$0.15``, ``$0.00042``: two digits that count."""
    if 0 < dollars < 0.1:
        return f"${Decimal(f'{dollars:.2g}'):f}"
    return f"${dollars:,.2f}"


def short_message(error: BaseException) -> str:
    """Return an error's message without secrets: ours in full, others as type and first line, since more may hold whole
    prompts."""
    if isinstance(error, FaithDspyError):
        return redact_secrets(str(error))
    line = str(error).strip().partition("\n")[0]
    text = redact_secrets(f"{type(error).__name__}: {line}"[:_READ])
    return " ".join(text.split())[:300].rstrip(". ")


_INVALID = {"missing": "is missing", "extra_forbidden": "there is no such field"}


def describe_invalid(invalid: Any) -> str:
    """Return what a pydantic `ValidationError` says, in our words: ``seed.0: expected a valid integer (got 'x')``; of
    another error its message."""
    if not hasattr(invalid, "errors"):
        return str(invalid).rstrip(".")
    messages = []
    for error in invalid.errors():
        if error["type"] == "default_factory_not_called":  # follows from another error
            continue
        message = _INVALID.get(error["type"], error["msg"])
        message = message.removeprefix("Value error, ").rstrip(".")
        message = message.replace("Input should be ", "expected ")
        if error["type"] != "missing" and "(got " not in message:
            got = repr(error.get("input"))[:200]
            message += f" (got {got})"
        place = ".".join(str(part) for part in error["loc"] if part != "[key]")
        messages.append(f"{place}: {message}" if place else message)
    return "; ".join(messages)


_READ = 2_000
"""Characters of a message that are looked at; a server may echo a whole prompt."""
_SECRET_NAME = re.compile(
    r"(?i)key$|token|secret|password|passwd|passphrase|pgpass|credential|webhook|auth(?:orization)?$"
    r"|(?:^|_)(?:pass|pat|pw)$|_pwd$"
)
_SECRET_VALUE = re.compile(r".{6,}|(?=.*\d).{4,}", re.DOTALL)
"""Shorter ones are words that a message may have for another reason."""
_USER = re.compile(
    r"(://)[^/\s]{0,300}@|(?<![^\s/:@'\"])[^\s/:@'\"]{1,200}:[^\s/:@]{1,200}@"
)
_ASSIGNED = re.compile(
    r"(?i)((?:(?:api[_-]?key|token|password|passphrase|secret)\\?[\"']?\s?[=:]|key=)\s?\\?[\"']?)[^\s&\"',;}]{4,}"
)
_TOKEN = re.compile(
    r"(?i)(bearer\s+|basic\s+(?=\S{8})|\b(?:sk|pk|gsk|hf|xai|ghp|github_pat)[-_])[\w*.+/=-]{4,}"
)
_secrets: set[str] = set()
"""Those that LMs were made with in this process."""


def remember_secrets(settings: Mapping[str, Any]) -> None:
    """Let `redact_secrets` know the keys among an LM's settings, those in its headers included."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            remember_secrets(value)
        elif isinstance(value, str) and _is_secret(name, value):
            _secrets.update((value, value.removeprefix("Bearer ")))


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) and _SECRET_VALUE.fullmatch(value))


def redact_keys(text: str) -> str:
    """Return a text without keys of the environment and of LMs; all its other words stay."""
    of_environment = {v for k, v in os.environ.items() if _is_secret(k, v)}
    for secret in sorted(_secrets | of_environment, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def redact_secrets(text: str) -> str:
    """Return a text that may leave: without keys of the environment and of LMs, without passwords and keys in
    addresses, and without whatever looks like a key.

    Its time grows with the length of the text.
    """
    text = redact_keys(text)
    for pattern in (_USER, _ASSIGNED, _TOKEN):
        text = pattern.sub(
            lambda match: f"{match[1] or ''}***{'@' if match[0].endswith('@') else ''}",
            text,
        )
    return text
