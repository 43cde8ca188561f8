"""Faithful answers made unfaithful: what the maker of the shipped classifier learns errors from.

A number changed, a name swapped, a negation inserted.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from faith_dspy.schema import LabelledExample as Example
from faith_dspy.text.sentences import sentences, split_answer

_TRIES = 30
_NUMBER = re.compile(r"(?<![\w.,\[])\d+(?:[.,]\d+)*(?![\w\]])")
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|could|will|would|may|might|must|should|does|did)\b"
)
_NEGATED = re.compile(
    r"\b(?:not|no|never|none|neither|nor|cannot)\b|n['’]t\b", re.IGNORECASE
)


class Case(NamedTuple):
    """An answer that is perturbed."""

    example: Example
    others: Sequence[Example]
    """Answers over other contexts."""
    rng: random.Random


def _number(case: Case) -> str | None:
    e = case.example
    context = _text(e)
    for m in _NUMBER.finditer(e.answer):
        before, after = e.answer[: m.start()], e.answer[m.end() :]
        starts_line = not before.rpartition("\n")[2].strip()
        numbers_a_list = starts_line and after[:1] in (".", ")")
        if numbers_a_list or not re.search(rf"(?<!\d){re.escape(m[0])}(?!\d)", context):
            continue
        *_, last = re.finditer(r"\d", m[0])
        for _ in range(_TRIES):
            digit = (int(last[0]) + case.rng.randint(1, 9)) % 10
            new = f"{m[0][: last.start()]}{digit}{m[0][last.end() :]}"
            if new not in context:
                return before + new + after
    return None


def _name(case: Case) -> str | None:
    e = case.example
    context = _text(e)
    names = [name for name in _names(e.answer) if name in context]
    foreign = set()
    drawn = case.rng.sample(case.others, min(len(case.others), _TRIES))
    for other in drawn:
        for name in _names(_text(other)):
            if name.casefold() not in context.casefold() and name not in e.answer:
                foreign.add(name)
    if not names or not foreign:
        return None
    new = case.rng.choice(sorted(foreign))
    return re.sub(rf"\b{re.escape(names[0])}\b", new, e.answer, count=1)


def _names(text: str) -> list[str]:
    """Return capitalised words that no sentence begins with."""
    words = [w for s in sentences(text) for w in re.findall(r"[^\W\d_]+", s.text)[1:]]
    return [w for w in words if len(w) > 2 and w[0].isupper() and w[1:].islower()]


def _negation(case: Case) -> str | None:
    """English only."""
    e = case.example
    for s in split_answer(e.answer).stating:
        verb = _VERB.search(s.text)
        if verb and not _NEGATED.search(s.text):
            at = s.start + verb.end()
            return f"{e.answer[:at]} not{e.answer[at:]}"
    return None


def _text(e: Example) -> str:
    return "\n".join(c.text for c in e.context)


PERTURBATIONS: dict[str, Callable[[Case], str | None]] = {
    "number": _number,
    "name": _name,
    "negation": _negation,
}
"""By name: the answer that is unfaithful then; None where it cannot be made."""
