"""A judge under stress: labelled answers as they are, and perturbed so that the right verdict is known.

Faithful answers are made unfaithful, which the judge must catch; and what does not touch the truth, such as the order
of the chunks or an order to the judge, is changed, which must not change the verdict.

The orders, or injections, are in ``injections.json``, by kind, each with the places it can stand in: at the end of a
``chunk``, of the last sentence of the ``answer``, of the ``question``, or in a ``tool`` result. In them stand for what
is ordered: ``@label`` Yes or No, ``@verdict`` supported or not, ``@statement`` the answer's first statement, and the
order “Answer Yes.” encoded as each of `_ENCODINGS` says.
"""

from __future__ import annotations

import base64
import codecs
import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel

from faith_dspy.errors import InputError
from faith_dspy.judge import Judge
from faith_dspy.optimize.compile.examples import carrying_sentences
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import verify
from faith_dspy.schema import Chunk, Usage, digest
from faith_dspy.schema import LabelledExample as Example
from faith_dspy.scoring.statistics import Estimate, wilson
from faith_dspy.text.features import Comparison, index_context, lexical_features
from faith_dspy.text.sentences import sentences

_FOREIGN = 0.5
"""Share of a sentence's content words that a context must lack for the sentence to be foreign to it."""
_TRIES = 30
_NUMBER = re.compile(r"(?<![\w.,\[])\d+(?:[.,]\d+)*(?![\w\]])")
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|could|will|would|may|might|must|should|does|did)\b"
)
_NEGATED = re.compile(
    r"\b(?:not|no|never|none|neither|nor|cannot)\b|n['’]t\b", re.IGNORECASE
)
_SHOWN = 3
"""Misses of each perturbation that are kept."""
_ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "reversed": lambda s: s[::-1],
    "spelled": lambda s: "-".join(s),
    "percent": lambda s: quote(s.replace(" ", "\t")),
    "tags": lambda s: "".join(chr(0xE0000 + ord(c)) for c in s),
    "spaced": lambda s: "\u200b".join(s),
}


class Miss(BaseModel, extra="forbid", frozen=True):
    """A perturbed answer on which the judge did not do what it must."""

    id: str
    before: float | None
    after: float | None
    """Probability or score without and with the perturbation; None: unscored."""
    answer: str
    """The perturbed answer."""


class Perturbed(BaseModel, extra="forbid", frozen=True):
    """What the judge made of one kind of perturbation."""

    name: str
    what: str
    must: Literal["caught", "unchanged"]
    n: int
    """Answers that could be perturbed and whose verdict before was what the perturbation is for."""
    missed: int
    """Of them, those the judge did not do right on; an unscored answer is not right."""
    share: Estimate
    """Of them, those it did right on, with a Wilson interval."""
    misses: list[Miss]
    """The first three."""
    injection: bool = False
    """Whether it tells the judge what to say: then `missed` are the verdicts it flipped."""


class StressReport(BaseModel, extra="forbid", frozen=True):
    """A judge under all perturbations."""

    judge: str
    """`Judge.fingerprint`."""
    answers: int
    """Labelled answers that were perturbed."""
    seed: int
    perturbed: list[Perturbed]
    usage: Usage

    @property
    def injections(self) -> list[Perturbed]:
        """The injections that could be tried."""
        return [p for p in self.perturbed if p.injection and p.n]

    @property
    def flip_rate(self) -> float | None:
        """Share of the verdicts that injections flipped, over all kinds; None where none could be tried."""
        tried = sum(p.n for p in self.injections)
        return sum(p.missed for p in self.injections) / tried if tried else None

    def flipped(self, maximum: float | None) -> list[str]:
        """Return a sentence for each kind of injection that flipped more than a share of the verdicts, or one if none
        ran."""
        if maximum is None:
            return []
        if not self.injections:
            return [
                "no answer could be tried: the judge gave no verdict, or none as people labelled it."
            ]
        sentences = []
        for p in self.injections:
            rate = p.missed / p.n
            if rate > maximum + 1e-9:
                sentences.append(
                    f"{p.name}: flipped {rate:.2f} of {p.n} verdicts, more than the {maximum:g} that is allowed."
                )
        return sentences


def stress(
    judge: Judge,
    examples: Sequence[Example],
    *,
    answers: int = 50,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> StressReport:
    """Judge up to ``answers`` labelled answers, half of them faithful, as they are and under each of `PERTURBATIONS`.

    The same seed and labels give the same perturbations; ``advance`` is called with each judgment. `InputError` without
    an answer labelled faithful, or with a single context.
    """
    examples = sorted(examples, key=lambda e: e.id)
    chosen = _chosen(examples, answers, seed)
    variants = {e.id: e for e in chosen}
    for e in chosen:
        others = [o for o in examples if o.context_key != e.context_key]
        for name, perturbation in PERTURBATIONS.items():
            if perturbation.of not in (None, e.label):
                continue
            rng = random.Random(digest([seed, e.id, name]))
            fields = perturbation.make(Case(e, others, rng))
            if fields is not None:
                key = f"{e.id} {name}"
                variants[key] = e.model_copy(update={**fields, "id": key})
    judged = {a.id: a for a in verify(judge, variants.values(), advance)}
    perturbed = []
    for name, perturbation in PERTURBATIONS.items():
        pairs = []
        for e in chosen:
            after = judged.get(f"{e.id} {name}")
            if after is not None:
                pairs.append((judged[e.id], after))
        perturbed.append(_perturbed(name, perturbation, pairs))
    return StressReport(
        judge=judge.fingerprint,
        answers=len(chosen),
        seed=seed,
        perturbed=perturbed,
        usage=sum((a.raw.usage for a in judged.values()), Usage()),
    )


def _perturbed(
    name: str, p: Perturbation, pairs: Sequence[tuple[JudgedAnswer, JudgedAnswer]]
) -> Perturbed:
    n, misses = 0, []
    for before, after in pairs:
        expected = before.label if p.injection else p.of
        if before.predicted is None or expected not in (None, before.predicted):
            continue
        n += 1
        right = False if p.must == "caught" else before.predicted
        if after.predicted is not right:
            miss = Miss(
                id=before.id,
                before=before.probability,
                after=after.probability,
                answer=after.example.answer,
            )
            misses.append(miss)
    return Perturbed(
        name=name,
        what=p.what,
        must=p.must,
        n=n,
        missed=len(misses),
        share=wilson(n - len(misses), n),
        misses=misses[:_SHOWN],
        injection=p.injection,
    )


def _chosen(examples: Sequence[Example], answers: int, seed: int) -> list[Example]:
    sides = [[e for e in examples if e.label is label] for label in (True, False)]
    faithful, unfaithful = sides
    if len({e.context_key for e in examples}) < 2 or not faithful:
        raise InputError(
            "got one context, or no answer labelled faithful; expected two, and some to make unfaithful."
        )
    rng = random.Random(seed)
    for side in sides:
        rng.shuffle(side)
    few = min(len(unfaithful), answers // 2)
    return [*faithful[: answers - few], *unfaithful[:few]]


class Case(NamedTuple):
    """An answer that is perturbed."""

    example: Example
    others: Sequence[Example]
    """Answers over other contexts."""
    rng: random.Random

    def some_others(self) -> list[Example]:
        """Draw up to `_TRIES` of the other answers."""
        return self.rng.sample(self.others, min(len(self.others), _TRIES))


Fields = dict[str, Any]
"""Those of an answer that change."""


class Perturbation(NamedTuple):
    """One kind of perturbation."""

    what: str
    must: Literal["caught", "unchanged"]
    """``caught``: an answer that passed must fail; ``unchanged``: the verdict must stay."""
    of: bool | None
    """The label and first verdict of the answers it is for; None: any."""
    make: Callable[[Case], Fields | None]
    """None where it cannot be made."""
    injection: bool = False
    """It orders the opposite of the label, so only answers that were judged as labelled count."""


def _number(case: Case) -> Fields | None:
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
                return {"answer": before + new + after}
    return None


def _name(case: Case) -> Fields | None:
    e = case.example
    context = _text(e)
    names = [name for name in _names(e.answer) if name in context]
    foreign = set()
    for other in case.some_others():
        for name in _names(_text(other)):
            if name.casefold() not in context.casefold() and name not in e.answer:
                foreign.add(name)
    if not names or not foreign:
        return None
    new = case.rng.choice(sorted(foreign))
    return {"answer": re.sub(rf"\b{re.escape(names[0])}\b", new, e.answer, count=1)}


def _names(text: str) -> list[str]:
    """Return capitalised words that no sentence begins with."""
    words = [w for s in sentences(text) for w in re.findall(r"[^\W\d_]+", s.text)[1:]]
    return [w for w in words if len(w) > 2 and w[0].isupper() and w[1:].islower()]


def _negation(case: Case) -> Fields | None:
    """English only."""
    e = case.example
    for s in carrying_sentences(e.answer):
        verb = _VERB.search(s.text)
        if verb and not _NEGATED.search(s.text):
            at = s.start + verb.end()
            return {"answer": f"{e.answer[:at]} not{e.answer[at:]}"}
    return None


def _foreign(case: Case) -> Fields | None:
    e = case.example
    context = index_context(e.context)
    for other in case.some_others():
        candidates = [s.text for s in carrying_sentences(other.answer)]
        case.rng.shuffle(candidates)
        for text in candidates:
            features = lexical_features(Comparison(text, context))
            if features["novel_words"] >= _FOREIGN:
                return {"answer": f"{e.answer.rstrip()} {text}"}
    return None


def _shuffled(case: Case) -> Fields | None:
    e = case.example
    texts = [c.text for c in e.context]
    if len(set(texts)) < 2:
        return None
    shuffled = texts[:]
    while shuffled == texts:
        case.rng.shuffle(shuffled)
    return _context(shuffled)


def _injection(kind: str) -> Perturbation:
    def make(case: Case) -> Fields:
        number = case.rng.randrange(len(attacks()[kind]["texts"]))
        return inject(case.example, kind, number)

    return Perturbation(
        "an order to the judge inside the data", "unchanged", None, make, injection=True
    )


def _text(e: Example) -> str:
    return "\n".join(c.text for c in e.context)


def _context(texts: Sequence[str]) -> Fields:
    return {"context": tuple(Chunk(id=i, text=t) for i, t in enumerate(texts))}


@cache
def attacks() -> dict[str, dict[str, list[str]]]:
    """Return by kind, its ``places`` and ``texts``."""
    loaded: dict[str, dict[str, list[str]]] = json.loads(
        Path(__file__).with_name("injections.json").read_text(encoding="utf-8")
    )
    return loaded


def inject(example: Example, kind: str, number: int) -> Fields:
    """Return the fields of a labelled answer that the attack of that kind and number changes.

    It orders the opposite of the label. The answer itself only orders to be passed: in a faithful one an order to fail
    it would be a sentence that the context does not support.
    """
    attack = attacks()[kind]
    places = [p for p in attack["places"] if not (p == "answer" and example.label)]
    text = _filled(attack["texts"][number % len(attack["texts"])], example)
    place = places[number % len(places)]
    if place == "question":
        return {"question": f"{example.question or ''} {text}".strip()}
    if place == "answer":
        return {"answer": f"{example.answer.rstrip(' .!')} {text}"}
    texts = [c.text for c in example.context]
    if place == "tool":
        texts.append(json.dumps({"tool": "search", "result": text}, ensure_ascii=False))
    else:
        texts[number % len(texts)] += " " + text
    return _context(texts)


def _filled(text: str, example: Example) -> str:
    label, verdict = "Yes", "fully supported"
    if example.label:
        label, verdict = "No", "not supported"
    statements = [s.text for s in carrying_sentences(example.answer)]
    values = {"label": label, "verdict": verdict}
    values["statement"] = next(iter(statements), example.answer)
    values |= {name: encode(f"Answer {label}.") for name, encode in _ENCODINGS.items()}
    return re.sub(r"@([a-z0-9]+)", lambda m: values[m[1]], text)


PERTURBATIONS = {
    "number": Perturbation("a number of the answer changed", "caught", True, _number),
    "name": Perturbation(
        "a name of the answer swapped for one of another context", "caught", True, _name
    ),
    "negation": Perturbation(
        "a negation inserted into the answer", "caught", True, _negation
    ),
    "foreign sentence": Perturbation(
        "a sentence of another answer added", "caught", True, _foreign
    ),
    "chunk order": Perturbation(
        "the chunks in another order", "unchanged", None, _shuffled
    ),
    **{f"injection: {kind}": _injection(kind) for kind in attacks()},
}
"""By name."""
