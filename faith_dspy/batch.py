"""Judge records through a provider's batch interface: submit now, collect the judgments later, for half the price."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import (
    ConfigError,
    InputError,
    LimitReachedError,
    PendingReplyError,
    counted,
    priced,
)
from faith_dspy.io.files import owned, write_file
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.readers import open_records
from faith_dspy.lm.batch import BatchEngine, Submitted, no_batches
from faith_dspy.lm.make import is_local
from faith_dspy.schema import Judgment, digest

if TYPE_CHECKING:
    from faith_dspy.lm.metered import Limits

AT_ONCE = 50
"""So few requests that depend on replies are asked at once, instead of in another batch."""
POLL_SECONDS = 30.0


class Batch:
    """Records on their way through a provider's batch interface.

    What waits is in a small file: ids and hashes, no text and no key. The same records with the same judge and file go
    on where they were, in another process too; nothing is submitted twice.

    Args:
        judge: The judge.
        records: What `Judge.batch` takes, but no iterator.
        path: The file, which is removed by `close`.
        limits: Dollars and tokens that the requests may take.
        judged: How many records at the beginning need no judgment any more.

    Raises:
        ConfigError: No LM of the judge has a batch interface, or it repeats its requests.
        InputError: The file waits for another judge, or for other records.
        LMUnavailableError: The provider cannot be reached.
    """

    def __init__(
        self,
        judge: Any,
        records: Any,
        path: str | Path,
        *,
        limits: Limits | None = None,
        judged: int = 0,
    ) -> None:
        if not any(one.asks_lm for one in judge.cascade):
            raise ConfigError(
                "got a judge that asks no LM, expected one whose LM has a batch interface. Leave --batch out."
            )
        if judge.config.confidence == "samples":
            raise ConfigError(
                "confidence='samples' asks in the same words several times, which a batch does not tell apart. Set "
                "confidence='auto'."
            )
        self.path = Path(path)
        self._records = records
        self._judged = judged
        self._submitted = self._read(judge)
        self._engines: list[BatchEngine] = []
        self._is_cancelled = False
        self.judge: Any = None
        """The judge on the replies; `ready` says when they are there."""
        why: ConfigError | None = None
        for one in reversed(judge.cascade):
            self.judge = one.copy(escalate_to=self.judge)
            try:
                if is_local(one.lm_name):  # its file need not be fetched to say so
                    raise no_batches(one.lm_name)
                engine = BatchEngine(one.lm, self._submitted, self._save, limits)
            except ConfigError as exc:  # asked as ever, if the other one has one
                why = exc
            else:
                self.judge.lm = engine.lm
                self._engines.append(engine)
        if why and not self._engines:
            raise why

    @property
    def id(self) -> str:
        """The provider's ids, with commas between them; empty before anything is submitted."""
        return ", ".join(part.id for part in self._submitted.parts if part.id)

    @property
    def status(self) -> str:
        """How far it was at the last look: what is asked, what that costs at most, and the provider's ids."""
        most = self._submitted.most
        answered = sum(part.answered for part in self._submitted.parts)
        tokens = most.prompt_tokens + most.output_tokens
        price = ""
        if self.cost is not None:
            price = f", {priced(self.cost)} instead of {priced(2 * self.cost)}"
        requests = counted(most.calls, "request")
        cancelled = "cancelled; " if self._is_cancelled else ""
        return f"{cancelled}{answered:,} of {requests} answered; at most {tokens:,} tokens{price} · {self.id}"

    @property
    def cost(self) -> float | None:
        """Dollars of what was submitted, at most; None without a price."""
        return self._submitted.most.dollars

    def ready(
        self, *, wait: bool = False, progress: Callable[[str], None] = print
    ) -> None:
        """Submit what the records need, and return when `judge` has all replies.

        Args:
            wait: Whether to wait for the provider, instead of raising.
            progress: Receives a line at each look while it waits.

        Raises:
            PendingReplyError: The provider is at work; its message says with what.
            LimitReachedError: The requests take more than they may: none of them is submitted. Or it was cancelled.
        """
        if self._is_cancelled:
            raise LimitReachedError(
                "the batch was cancelled, and nothing is asked: submit the records again."
            )
        with owned(self.path):
            while True:
                for engine in self._engines:
                    engine.refresh()
                if all(part.has_ended for part in self._submitted.parts):
                    if not self._ask():
                        for engine in self._engines:
                            engine.finish()
                        return
                    continue
                if not wait:
                    raise PendingReplyError(f"{self.status}. Run the same again later.")
                progress(self.status)
                time.sleep(POLL_SECONDS)

    def collect(self) -> list[Judgment]:
        """Return the judgments, in the order of the records, as `Judge.batch` would.

        Raises:
            PendingReplyError: The provider is at work.
        """
        self.ready()
        judgments = list(self.judge.stream(self._inputs()))
        self.close()
        return judgments

    def cancel(self) -> None:
        """Ask the provider to begin no further request, and forget what was submitted. What it answered is billed."""
        for engine in self._engines:
            engine.cancel()
        self._is_cancelled = True
        self.close()

    def close(self) -> None:
        """Remove the file: everything was collected."""
        self.path.unlink(missing_ok=True)

    def _ask(self) -> int:
        """Put what the records need and no batch has to the provider; return how many requests that was."""
        before = len(self._submitted.parts)
        first = list(islice(self._inputs(), 1))
        if not first:
            if not self._judged:
                raise InputError("got no records, expected answers with their context.")
            return 0
        self._probe(first)
        for _ in self.judge.stream(self._inputs()):
            pass
        asked = sum(len(engine.recorded) for engine in self._engines)
        if before == len(self._submitted.parts) and before and asked <= AT_ONCE:
            return 0
        for engine in self._engines:
            engine.submit()
        return asked

    def _inputs(self) -> Iterator[AnswerInput]:
        """Yield what is to be judged."""
        with open_records(self._records) as records:
            yield from map(AnswerInput.of, islice(records, self._judged, None))

    def _probe(self, first: list[AnswerInput]) -> None:
        """Judge the first record at once: a key that is refused shows before anything is submitted, and what the LM
        takes is known. Later on its replies come from DSPy's cache."""
        for engine in self._engines:
            engine.is_live = True
        if not self._submitted.parts:
            self.judge.preflight()
        for _ in self.judge.stream(first):
            pass
        for engine in self._engines:
            engine.is_live = False

    def _read(self, judge: Any) -> Submitted:
        content: Any = self._records
        if isinstance(content, (str, Path)):
            content = sha256(Path(content).read_bytes()).hexdigest()
        new = Submitted(judge=judge.fingerprint, records=digest(content))
        if not self.path.exists():
            return new
        try:
            old = Submitted.model_validate_json(self.path.read_bytes())
        except ValueError:
            raise InputError(
                f"{self.path}: is no file of a batch. Give another."
            ) from None
        if not old.parts:
            return new
        if (old.judge, old.records) != (new.judge, new.records):
            raise InputError(
                f"{self.path}: waits for another judge, other prompts or other records. Collect those first, or give "
                "another --out."
            )
        return old

    def _save(self) -> None:
        if self._submitted.parts:
            write_file(self.path, self._submitted.model_dump_json())
        else:
            self.close()
