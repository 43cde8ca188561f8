"""What an LM's reply says about a statement: label, probabilities and evidence, as a `RawVerdict`.

A label is read where a label may stand: at the start of the reply, after “Verdict:” or “Answer:”, in a JSON field of
such a name, or as the last line after reasons. It is read as a whole phrase, in the words of `_PHRASES`; a phrase that
goes on in other words, and a reply with two different labels, have none. A label that is not there is never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args

from faith_dspy.lm.capabilities import thoughts_end, without_thoughts
from faith_dspy.program.signatures import INSTRUCTIONS, Instruction
from faith_dspy.schema import RawVerdict, Statement
from faith_dspy.scoring.classifier import to_logit, to_probability

MAX_REPLY = 1_000_000
"""Characters of a reply; a longer one is not what was asked for, and not read."""
MAX_WORDS = 8
"""Words of the longest phrase for a label."""
LOOK_AHEAD = 200
"""Characters after a label in which another one may contradict it."""
MIN_GUESS = 0.5
"""Probability that labels need together to count where the reply itself has none."""
MAX_TOKEN = 64
"""Characters of a token that are looked at."""
MAX_LOGPROB, MAX_MASS = 1e-3, 1.01
"""Log-probabilities above the one, or that add up to more than the other, are none; servers round theirs."""
LABEL_LOGIT = 2.0
"""Log-odds that stand for a label without a probability (p = .88)."""

# --- phrases ------------------------------------------------------------------------------------------------------

_FULLY = [
    "fully",
    "completely",
    "entirely",
    "totally",
    "wholly",
    "clearly",
    "directly",
    "explicitly",
    "strictly",
]
_DEGREES = {
    "mostly": ["mostly", "largely", "generally", "mainly"],
    "part": ["partially", "partly", "somewhat"],
    "hardly": ["hardly", "barely", "scarcely"],
}
_WORDS = {
    "full": "full supported|full support|in full|true to the context|faithful|grounded|entailed|completely yes",
    "mostly": "generally yes",
    "part": "partial|partial support|supported in part|in part|some support|mixed|neutral mixed|neutral|mixed support",
    "hardly": "not generally",
    "short": "not entirely|not quite|incomplete|incompletely supported",
    "unsupported": (
        "no support|not at all|not supported at all|unfaithful|ungrounded|invented|made up|fabricated|hallucinated|"
        "not verifiable|unverifiable|cannot be verified|isn't supported|cannot be supported"
    ),
    "no_evidence": (
        "no evidence|no mention|no information|not mentioned|not stated|not addressed|not found|not in the context|"
        "not discussed|not present|nothing"
    ),
    "contradicts": "contradictory|contradicts|contradiction|refutes|contradicts it|it contradicts|conflicts",
    "cannot_tell": (
        "n a|na|none|unknown|unclear|uncertain|undetermined|undecided|cannot tell|can't tell|i cannot tell|"
        "i can't tell|cannot say|i cannot say|cannot determine|cannot be determined|not enough information|"
        "insufficient information|insufficient evidence|not sure|unsure|i don't know|i do not know"
    ),
}


def _phrases() -> dict[str, str]:
    """Phrase → what it means. ``short``: not all of it is supported, and nothing more is known."""
    meanings = {
        phrase: meaning
        for meaning, phrases in _WORDS.items()
        for phrase in phrases.split("|")
    }
    for word in ("supported", "entailed", "grounded", "faithful"):
        meanings |= {
            word: "full",
            f"not {word}": "unsupported",
            f"un{word}": "unsupported",
        }
        for adverb in _FULLY:
            meanings |= {f"{adverb} {word}": "full", f"not {adverb} {word}": "short"}
            meanings |= {
                f"{adverb} not {word}": "unsupported",
                f"{adverb} un{word}": "unsupported",
            }
        for meaning, adverbs in _DEGREES.items():
            opposite = {"mostly": "hardly", "part": "short", "hardly": "mostly"}[
                meaning
            ]
            for adverb in adverbs:
                meanings |= {
                    f"{adverb} {word}": meaning,
                    f"only {adverb} {word}": meaning,
                }
                meanings |= {
                    f"{adverb} un{word}": opposite,
                    f"{adverb} not {word}": opposite,
                }
    for word in ("contradicted", "contradictory", "refuted"):
        meanings[word] = "contradicts"
        meanings |= {f"{adverb} {word}": "contradicts" for adverb in _FULLY}
        meanings |= {
            f"{adverb} {word}": "short"
            for adverbs in _DEGREES.values()
            for adverb in adverbs
        }
    for adverb in _FULLY:
        meanings |= {f"not {adverb}": "short"}
    for meaning, adverbs in _DEGREES.items():
        meanings |= dict.fromkeys(adverbs, meaning)
        meanings |= {f"only {adverb}": meaning for adverb in adverbs}
    return meanings


_PHRASES = _phrases()
_NEGATIVE = (
    "mostly",
    "part",
    "hardly",
    "short",
    "unsupported",
    "no_evidence",
    "contradicts",
)
_MEANINGS: dict[str, dict[str, str]] = {
    "supported": {"full": "Yes"} | dict.fromkeys(_NEGATIVE, "No"),
    "grounded": {"full": "Grounded"} | dict.fromkeys(_NEGATIVE, "Invented"),
    "true_false_unknown": {
        "full": "True", "contradicts": "False", "no_evidence": "Unknown", "cannot_tell": "Unknown",
    },
    "graded": {
        "full": "fully", "mostly": "partly", "part": "partly", "unsupported": "nothing", "no_evidence": "nothing",
        "contradicts": "contradicts",
    },
    "five_level": {
        "full": "completely", "mostly": "generally", "part": "mixed", "hardly": "hardly", "unsupported": "not",
        "no_evidence": "not", "contradicts": "not",
    },
}  # fmt: skip
"""What each instruction's labels mean; a meaning that it has no label for stays unread."""
_YES_NO = {"true": "Yes", "correct": "Yes", "false": "No", "incorrect": "No"}


@cache
def _vocabulary(labels: tuple[str, ...]) -> dict[str, str]:
    """Phrase → label, for the labels of a signature: those themselves, and the phrases of their instruction."""
    own = {" ".join(_words(label)): label for label in labels}
    name = next(
        (name for name in _MEANINGS if tuple(INSTRUCTIONS[name].labels) == labels), None
    )
    if name is None:
        return own
    of_meaning = _MEANINGS[name]
    phrases = {
        phrase: of_meaning[m] for phrase, m in _PHRASES.items() if m in of_meaning
    }
    unread = {phrase: "" for phrase, m in _PHRASES.items() if m not in of_meaning}
    return phrases | unread | (_YES_NO if name == "supported" else {}) | own


# --- a label ------------------------------------------------------------------------------------------------------


class Label(NamedTuple):
    """A label and where it stands: ``reply[start:end]``."""

    name: str
    start: int
    end: int


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_BETWEEN_WORDS = re.compile(r"[ \t_/-]+")
_GOES_ON = re.compile(
    r"(?:[\s*_`\"'”’)\]}]*(?:$|\n|[.,;:!?–—([{<\"“]))"  # the end, or a mark
    r"|\s+-"
    r"|[\s*_`]+(?:because|since|as|by)\b"
    r"|\s+(?:it|this|that) (?:is|does)\W*(?:$|\n)"
    r"|\s*\d"  # ids of chunks
)
_BY_THE_CONTEXT = re.compile(
    r"\s+(?:by|in|from) (?:the|this|any|our) (?:\w+ )?(?:context|text|documents?|passages?|chunks?|sources?)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"[\s,;–—(*_.…-]*(?:but|except|however|although|though|or|and|if|unless)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.,;:!?–—(\n]\s*| - |\b(?:is|are|was|were|be)\s+", re.IGNORECASE)
_CLOSED = re.compile(r"[\"']\s*[,}\]\n]")
"""The end of a text in JSON."""
_HEADING = re.compile(
    r"(?:^|[{,])[^\w\n]*(?:final |overall )?(?:verdict|answer|label|judge?ment|conclusion|decision|result)"
    r"(?:\W*[:=>–—-]|\W* is\b|[^\w\n]*$)\W*",
    re.IGNORECASE | re.MULTILINE,
)
_SUBJECT = re.compile(
    r"[^\w\n]*(?:(?:so|thus|therefore|hence|overall),? )?"
    r"(?:(?:the|this) (?:\w+ )?(?:statement|claim|answer|verdict|sentence)|it) is\W+",
    re.IGNORECASE,
)
_FLAG = re.compile(
    r"[\"'](?:is_)?(?:supported|faithful|entailed|grounded)[\"']\s*:\s*[\"']?(true|false|yes|no)\b",
    re.IGNORECASE,
)


def _words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def read_label(reply: str, labels: Sequence[str], at: int = 0) -> Label | None:
    """The label that a text begins with, whatever its case and marks; also a text that was cut inside the label.

    None if there is none, if more than one fits, or if the phrase goes on in words that may change it.
    """
    vocabulary = _vocabulary(tuple(labels))
    words = list(_phrase_at(reply, at))
    for n in range(len(words), 0, -1):
        start, end = words[0].start(), words[n - 1].end()
        name = vocabulary.get(" ".join(_words(reply[start:end])))
        if name is not None:
            after = _BY_THE_CONTEXT.match(reply, end)
            goes_on = _GOES_ON.match(reply, after.end() if after else end)
            return Label(name, start, end) if name and goes_on else None
    if len(words) == 1 and not _WORD.search(reply, words[0].end()):
        return _cut_label(words[0], labels, vocabulary)
    return None


def _phrase_at(reply: str, at: int) -> Iterator[re.Match[str]]:
    """The first words at a place, as long as nothing but spaces, hyphens and slashes stand between them."""
    word = _WORD.search(reply, at)
    if word is None or "\n" in reply[at : word.start()].strip():
        return
    for _ in range(MAX_WORDS):
        yield word
        between = _BETWEEN_WORDS.match(reply, word.end())
        word = between and _WORD.match(reply, between.end())
        if word is None:
            return


def _cut_label(
    word: re.Match[str], labels: Sequence[str], vocabulary: Mapping[str, str]
) -> Label | None:
    """The one label that begins with a word, unless that is the first word of another phrase."""
    text = word.group().lower()
    fits = [label for label in labels if label.lower().startswith(text)]
    if len(fits) != 1 or any(phrase.startswith(f"{text} ") for phrase in vocabulary):
        return None
    return Label(fits[0], word.start(), word.end())


def find_label(
    reply: str, labels: Sequence[str], *, reasons_first: bool = False
) -> Label | None:
    """The label of a reply; None if it has none, or two different ones.

    ``reasons_first``: the reply begins with reasons, so that its start is no place for a label.
    """
    labels = tuple(labels)
    headings = [
        _read_place(reply, labels, heading.end())
        for heading in _HEADING.finditer(reply)
    ]
    if headings and headings[-1] is None:
        return None
    places = [*headings, _flag_label(reply, labels)]
    is_json = reply.lstrip("`json \n").startswith("{")
    if not is_json and (not reasons_first or "\n" not in reply.strip()):
        places.append(_read_place(reply, labels, 0))
    if not any(places):
        places.append(_last_line(reply, labels))
    candidates = [label for label in places if label]
    if len({label.name for label in candidates}) != 1 or _is_contradicted(
        reply, candidates[0], labels
    ):
        return None
    return candidates[0]


def _read_place(reply: str, labels: Sequence[str], at: int) -> Label | None:
    """The label at a place, as such or in a sentence like “The statement is …”."""
    subject = _SUBJECT.match(reply, at)
    return read_label(reply, labels, subject.end() if subject else at)


def _flag_label(reply: str, labels: Sequence[str]) -> Label | None:
    """The label of a JSON field like ``"supported": false``."""
    flag = _FLAG.search(reply)
    if flag is None:
        return None
    phrase = "supported" if flag[1].lower() in ("true", "yes") else "not supported"
    name = _vocabulary(tuple(labels)).get(phrase)
    return Label(name, flag.start(1), flag.end(1)) if name else None


def _last_line(reply: str, labels: Sequence[str]) -> Label | None:
    """The label of a last line after others."""
    text = reply.rstrip().rstrip("`").rstrip()
    start = text.rfind("\n") + 1
    return read_label(text, labels, start) if start else None


def _is_contradicted(reply: str, label: Label, labels: Sequence[str]) -> bool:
    """Whether the words after a label take it back: “Yes, but …”, “No. It is fully supported.”"""
    if _CLOSED.match(reply, label.end):
        return False
    if _HEDGE.match(reply, label.end):
        return True
    end = min(len(reply), label.end + LOOK_AHEAD)
    others = (
        read_label(reply, labels, clause.end())
        for clause in _CLAUSE.finditer(reply, label.end, end)
    )
    return any(other.name != label.name for other in others if other)


# --- the fields of a reply ----------------------------------------------------------------------------------------

# What leads a line, `[^\w\n]*`, ends with it: else many blank lines would take time quadratic in their number.
_WHY = re.compile(
    r"^[^\w\n]*(?:why|reason|reasoning|explanation)\W*:[\s*_]*",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(
    r"^[^\w\n]*quotes?\W*?:[^\S\n]*(.*)$", re.IGNORECASE | re.MULTILINE
)
_EVIDENCE = re.compile(f"{_QUOTED.pattern}|{_WHY.pattern}", _WHY.flags)
_IDS = re.compile(r"\[([\d,\s]*)\]")
_MARKS = re.compile(r"^[^\w\[]*")
_MARKS_AND_IDS = re.compile(r"^[^\w\[]*(?:\[[\d,\s]*\]\W*)?")
_HEADING_TAIL = re.compile(_HEADING.pattern + r"$", re.IGNORECASE | re.MULTILINE)
_MAX_IDS = 16
"""Characters after a label that may be ids without brackets; longer is an explanation."""


def read_fields(fields: Mapping[str, Any], completion: str) -> dict[str, Any]:
    """One verdict, or whatever else the fields name, from a completion in the form that prompts ask for.

    Args:
        fields: Name → type of each output field, in the order of the reply.
        completion: The LM's reply, with its thoughts.

    Returns:
        The value of each field. A verdict that is not there is None, for the program to count as unjudged.
    """
    reply = without_thoughts(completion) if len(completion) <= MAX_REPLY else ""
    if "verdict" not in fields:
        lines = [line.strip() for line in reply.splitlines() if line.strip()]
        return dict.fromkeys(fields, lines)
    labels = get_args(fields["verdict"])
    reasons_first = next(iter(fields)) == "reason"
    head = reply
    if not reasons_first and fields.keys() & {"quotes", "reason"}:
        evidence = _EVIDENCE.search(reply)
        head = reply[: evidence.start()] if evidence else reply
    label = find_label(head, labels, reasons_first=reasons_first)
    cites = "supporting_chunk_ids" in fields
    values: dict[str, Any] = {"verdict": label.name if label else None}
    if cites:
        values["supporting_chunk_ids"] = _read_ids(head, label)
    if "quotes" in fields:
        values["quotes"] = [quote.strip() for quote in _QUOTED.findall(reply)]
    if "reason" in fields:
        before_label, after_label = (
            (reply[: label.start], reply[label.end :]) if label else ("", "")
        )
        if reasons_first:
            reason = _HEADING_TAIL.sub("", before_label)
        else:
            lead = _MARKS_AND_IDS if cites else _MARKS
            reason = lead.sub("", _QUOTED.sub("", after_label), count=1)
        values["reason"] = _WHY.sub("", reason, count=1).strip() or None
    return values


def _read_ids(head: str, label: Label | None) -> list[int]:
    """The chunk ids in brackets, or right after the label."""
    bracket = _IDS.search(head)
    text = (
        bracket[1] if bracket else head[label.end if label else 0 :].partition("\n")[0]
    )
    if bracket is None and len(text) > _MAX_IDS:
        return []  # numbers in some explanation
    return [int(number) for number in re.findall(r"\d{1,4}", text)]


# --- probabilities ------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A token of a reply, with the likeliest ones that might stand in its place and their log-probabilities."""

    text: str
    alternatives: list[tuple[str, Any]]


def tokens_of(prediction: Mapping[str, Any]) -> list[Token]:
    """The tokens of a prediction's reply; empty if the LM tells none. OpenAI's shape, as objects or dictionaries."""
    content = _attribute(prediction.get("logprobs"), "content")
    tokens = []
    for token in content if isinstance(content, list | tuple) else ():
        top = _attribute(token, "top_logprobs") or ()
        alternatives = [
            (str(_attribute(other, "token")), _attribute(other, "logprob"))
            for other in top
        ]
        tokens.append(Token(str(_attribute(token, "token")), alternatives))
    return tokens


def _attribute(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def text_of(tokens: Sequence[Token]) -> str:
    """The reply that tokens make up."""
    return "".join(token.text for token in tokens)


def token_at(tokens: Sequence[Token], offset: int) -> Token | None:
    """The token that has the first letter from an offset of the reply on; None if there is none."""
    end = 0
    for token in tokens:
        start, end = end, end + len(token.text)
        if re.search(r"[^\W_]", token.text[max(0, offset - start) :]) and end > offset:
            return token
    return None


def label_token(
    tokens: Sequence[Token], labels: Sequence[str], *, reasons_first: bool
) -> Token | None:
    """The token with which the label of a reply begins; the first one, if the reply has no label and no thoughts."""
    text = text_of(tokens)
    begin = thoughts_end(text)
    label = find_label(text[begin:], labels, reasons_first=reasons_first)
    if label is None:
        return None if begin or reasons_first or not tokens else tokens[0]
    return token_at(tokens, begin + label.start)


def label_probabilities(
    label: str | None,
    token: Token | None,
    labels: Sequence[str],
    *,
    sampled: bool = False,
) -> tuple[str | None, dict[str, float] | None]:
    """Return the label that counts, and each label's probability by the alternatives of its token; None without any.

    Alternatives are pooled by the label they begin (“ yes”, “Yes”, “YES”). They are no distribution if one of them is
    no log-probability or if they sum to more than 1. Unless it was ``sampled``, a reply writes the likeliest token: if
    that begins another label than the one written, the reply contradicts itself and has none. Where no label could be
    read, the likeliest one counts if labels have most of the probability.
    """
    if token is None or not _is_distribution(
        [logprob for _, logprob in token.alternatives]
    ):
        return label, None
    if label is not None and not sampled:
        highest = max(logprob for _, logprob in token.alternatives)
        likeliest = {
            _begun_label(text, labels)
            for text, logprob in token.alternatives
            if logprob == highest
        }
        if not likeliest & {None, label}:  # of equals either may be written
            return None, None
    mass = dict.fromkeys(labels, 0.0)
    for text, logprob in token.alternatives:
        begun = _begun_label(text, labels)
        if begun is not None:
            mass[begun] += math.exp(logprob)
    total = sum(mass.values())
    if label is None:
        is_about_labels = total >= MIN_GUESS
    else:
        is_about_labels = mass[label] > 0 and _begun_label(token.text, labels) == label
    if not is_about_labels:
        return label, None  # these are the alternatives to something else
    counts = max(mass, key=lambda name: (mass[name], name == label))
    return counts, {name: m / total for name, m in mass.items()}


def _begun_label(token: str, labels: Sequence[str]) -> str | None:
    label = read_label(token[:MAX_TOKEN], labels)
    return label.name if label else None


def is_logprob(value: Any) -> bool:
    """Whether a value can be the natural logarithm of a probability."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value <= MAX_LOGPROB
    )  # NaN is not


def _is_distribution(logprobs: Sequence[Any]) -> bool:
    if not logprobs or not all(map(is_logprob, logprobs)):
        return False
    return sum(map(math.exp, logprobs)) <= MAX_MASS


# --- a verdict ----------------------------------------------------------------------------------------------------


def read_verdict(
    fields: Mapping[str, Any],
    statement: Statement,
    instruction: Instruction,
    chunk_ids: Sequence[int],
    token: Token | None = None,
    *,
    sampled: bool = False,
) -> RawVerdict:
    """Return the verdict of one reply.

    Args:
        fields: The reply's fields, as `read_fields` gives them.
        statement: What it is about.
        instruction: What its labels mean.
        chunk_ids: The ids of the chunks in the prompt, by their numbers there.
        token: The token with which the label begins; with its probabilities the likeliest label counts.
        sampled: Whether tokens were drawn by chance, so that another one than the likeliest may be written.
    """
    about: dict[str, Any] = {
        "text": statement.text,
        "sentence_index": statement.sentence_index,
    }
    label, shares = label_probabilities(
        fields.get("verdict"), token, tuple(instruction.labels), sampled=sampled
    )
    if label is None:
        return RawVerdict(
            **about, error="the LM's reply has no label that was asked for"
        )
    level = instruction.labels[label]
    logit = LABEL_LOGIT if level == 1.0 else -LABEL_LOGIT
    ids_by_number = dict(enumerate(chunk_ids))
    return RawVerdict(
        **about,
        label=label,
        verdict=instruction.verdicts[label],
        level=level,
        # An id that the prompt does not have stays unknown: -1 is no chunk's id.
        chunk_ids=tuple(
            ids_by_number.get(number, -1)
            for number in fields.get("supporting_chunk_ids") or ()
        ),
        quotes=tuple(fields.get("quotes") or ()),
        reason=fields.get("reason"),
        **(expected_support(shares, instruction) if shares else {"logit": logit}),
    )


def expected_support(
    shares: Mapping[str, float], instruction: Instruction
) -> dict[str, Any]:
    """Return expected support as ``logit``, clipped, and ``probability``, from each label's probability."""
    logit = to_logit(
        sum(share * instruction.labels[label] for label, share in shares.items())
    )
    return {"logit": logit, "probability": to_probability(logit)}
