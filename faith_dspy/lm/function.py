"""A function that judges claims, in the place of an LM: an encoder on a GPU, a rule, another library's judge.

    def judge(claims):
        pairs = [("\\n".join(claim.context), claim.statement) for claim in claims]
        return encoder.predict(pairs)  # a probability of support for each

It returns as many values as there are claims: the probability that the context supports the statement, True or False,
or None where it cannot judge. A coroutine is awaited.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import reprlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from faith_dspy.errors import ConfigError, LMUnavailableError, counted, short_message
from faith_dspy.lm.addresses import Endpoint
from faith_dspy.schema import Usage

PREFIX = "python:"
"""Of a function's name where a model string is expected: ``python:package.module:function``."""


@dataclass(frozen=True)
class Claim:
    """A statement, and what it is judged by."""

    statement: str
    context: list[str]
    question: str | None = None


@dataclass
class FunctionLM:
    """A function under the name that exports hold, and which version of it."""

    model: str
    """``python:package.module:function``."""
    sha256: str | None = None
    """Of its source."""
    version: str | None = None
    """Its package's ``__version__``."""
    function: Callable[[list[Claim]], Any] | None = None
    """None in a judge that was loaded without it: the name in an export is never imported."""
    cache: bool = False
    """DSPy's cache holds none of its replies."""

    @classmethod
    def of(cls, function: Any) -> Self:
        """Return a function, or the one that a name of the caller's stands for.

        Raises:
            ConfigError: It is none, or cannot be imported.
        """
        if isinstance(function, cls):
            return function
        if isinstance(function, str):
            function = import_function(
                function.removeprefix(PREFIX), "a function of claims"
            )
        if not callable(function):
            raise ConfigError(
                f"got the function {function!r}, expected a function of claims, or its name 'module:function'."
            )
        named = function if inspect.isroutine(function) else type(function)
        package = sys.modules.get(named.__module__.partition(".")[0])
        return cls(
            f"{PREFIX}{named.__module__}:{named.__qualname__}",
            _source_hash(named),
            getattr(package, "__version__", None),
            function,
        )

    @property
    def endpoint(self) -> Endpoint:
        """What tells its replies from another's."""
        return Endpoint(sha256=self.sha256)

    def require(self) -> Self:
        """Return itself; `LMUnavailableError` without a function."""
        if self.function is None:
            raise LMUnavailableError(
                f"the judge was tuned on the function {self.model.removeprefix(PREFIX)}, which loading never imports: "
                "give your own with function=, on the command line --function package.module:function, to a model in "
                "MLflow FAITH_DSPY_FUNCTION=package.module:function."
            )
        return self

    def __call__(self, claims: list[Claim]) -> list[float | None]:
        """Return what the function says about each claim; one call, counted in all open meters.

        Raises:
            Exception: What the function raised, or its values are none that are expected.
        """
        from faith_dspy.lm.metered import Call, in_open_meters

        function = self.require().function
        assert function is not None
        call = Call(self, settings=None, from_cache=False)
        with in_open_meters(call):
            replies = function(claims)
            if inspect.iscoroutine(replies):
                # In a thread of its own, as an event loop may run in this one.
                with ThreadPoolExecutor(1) as pool:
                    replies = pool.submit(asyncio.run, replies).result()
            seconds = time.perf_counter() - call.started
            call.usage = Usage(calls=1, seconds=seconds, dollars=None)
        values = []
        with suppress(TypeError, ValueError):
            for reply in replies:
                is_read = reply is None or isinstance(reply, bool)
                values.append(reply if is_read else float(reply))
            if len(values) == len(claims):
                return values
        shown = " ".join(reprlib.repr(replies).split())
        raise ValueError(
            f"the function returned {shown}, expected a list with a probability, True, False or None "
            f"for each of {counted(len(claims), 'claim')}"
        )


def is_function(lm: Any) -> bool:
    """Return whether something given as an LM is a function, or the name of one."""
    if isinstance(lm, str):
        return lm.startswith(PREFIX)
    return callable(lm) and not hasattr(lm, "kwargs")


def import_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function of the user's own that ``module:function`` names, found from the working folder, too.

    Args:
        name: The name, in the user's own words: importing runs code.
        what: What it is to be, for the error.

    Raises:
        ConfigError: There is none.
    """
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        function = attrgetter(attribute)(import_module(module))
    except (Exception, SystemExit) as exc:
        raise ConfigError(
            f"{name!r} cannot be imported ({short_message(exc)}); expected module:function, {what}."
        ) from exc
    finally:
        sys.path.remove(folder)
    if not callable(function):
        raise ConfigError(f"{name!r} is {function!r}; expected {what}.")
    return function  # type: ignore[no-any-return]


def _source_hash(function: Any) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):  # typed in at a prompt, or written in C
        source = function.__qualname__
    return hashlib.sha256(source.encode()).hexdigest()
