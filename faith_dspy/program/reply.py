"""What an LM's reply says about a statement: label, probabilities and evidence, as a `RawVerdict`.

A label is read once, and where a label may stand: at the start of the reply, after “Verdict:” or “Answer:”, in a JSON
field of such a name, or as the last line after reasons. It is read as a whole phrase of `_PHRASES`; a phrase that goes
on in other words, a label that the words behind it take back, and a reply with two different labels, are none. A label
that is not there is never guessed. Reading takes time linear in the length of the reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self, get_args

from faith_dspy.lm.capabilities import thoughts_end, without_thoughts
from faith_dspy.program.signatures import Instruction
from faith_dspy.schema import RawVerdict, Statement
from faith_dspy.scoring.classifier import to_logit, to_probability

VERDICT_FIELDS = ("verdict", "judgement", "judgment")
"""Names of a verdict's field in JSON. Prompts ask for the first."""
MAX_REPLY = 100_000
"""Characters of a reply behind its thoughts; a longer one is not what was asked for, and not read."""
MAX_TOKEN = 64
"""Characters of a token that are looked at."""
MAX_LOGPROB, MAX_MASS = 1e-3, 1.01
"""Log-probabilities above the one, or that add up to more than the other, are none; servers round theirs."""
LABEL_LOGIT = 2.0
"""Log-odds that stand for a label without a probability (p = .88)."""

# --- phrases ------------------------------------------------------------------------------------------------------

_CLASSES = {
    "FULLY": "fully|completely|entirely|totally|wholly|clearly|directly|explicitly|strictly",
    "MOSTLY": "mostly|largely|generally|mainly",
    "PARTLY": "partially|partly|somewhat",
    "HARDLY": "hardly|barely|scarcely",
    "SUPPORTED": "supported|entailed|grounded|faithful",
    "REFUTED": "contradicted|contradictory|refuted",
}
"""Words that stand for each other in a phrase."""
_PHRASES = {
    "full": (
        "SUPPORTED|FULLY SUPPORTED|full supported|full support|in full|true to the context|completely yes|true|correct"
    ),
    "mostly": (
        "MOSTLY|only MOSTLY|MOSTLY SUPPORTED|only MOSTLY SUPPORTED|HARDLY unSUPPORTED|HARDLY not SUPPORTED|"
        "generally yes"
    ),
    "part": (
        "PARTLY|only PARTLY|PARTLY SUPPORTED|only PARTLY SUPPORTED|partial|partial support|supported in part|in part|"
        "some support|mixed|neutral mixed|neutral|mixed support"
    ),
    "hardly": (
        "HARDLY|only HARDLY|HARDLY SUPPORTED|only HARDLY SUPPORTED|MOSTLY unSUPPORTED|MOSTLY not SUPPORTED|"
        "not generally"
    ),
    "short": (
        "not FULLY|not FULLY SUPPORTED|PARTLY unSUPPORTED|PARTLY not SUPPORTED|MOSTLY REFUTED|PARTLY REFUTED|"
        "HARDLY REFUTED|not entirely|not quite|incomplete|incompletely supported"
    ),
    "unsupported": (
        "not SUPPORTED|unSUPPORTED|FULLY not SUPPORTED|FULLY unSUPPORTED|no support|not at all|not supported at all|"
        "invented|made up|fabricated|hallucinated|not verifiable|unverifiable|cannot be verified|isn't supported|"
        "cannot be supported"
    ),
    "no_evidence": (
        "no evidence|no mention|no information|not mentioned|not stated|not addressed|not found|not in the context|"
        "not discussed|not present|nothing"
    ),
    "contradicts": (
        "REFUTED|FULLY REFUTED|contradicts|contradiction|refutes|contradicts it|it contradicts|conflicts"
    ),
    "cannot_tell": (
        "n a|na|none|unknown|unclear|uncertain|undetermined|undecided|cannot tell|can't tell|i cannot tell|"
        "i can't tell|cannot say|i cannot say|cannot determine|cannot be determined|not enough information|"
        "insufficient information|insufficient evidence|not sure|unsure|i don't know|i do not know"
    ),
    "false": "false|incorrect",
}
"""What a phrase means → phrases. ``short``: not all of it is supported, and nothing more is known."""
_MEANINGS = {
    ("Yes", "No"): {
        "Yes": "full", "No": "mostly part hardly short unsupported no_evidence contradicts false",
    },
    ("fully", "partly", "nothing", "contradicts"): {
        "fully": "full", "partly": "mostly part", "nothing": "unsupported no_evidence", "contradicts": "contradicts",
    },
    ("not", "hardly", "mixed", "generally", "completely"): {
        "completely": "full", "generally": "mostly", "mixed": "part", "hardly": "hardly",
        "not": "unsupported no_evidence contradicts",
    },
}  # fmt: skip
"""What the labels of a signature mean; a phrase of any other meaning is none of them."""


@cache
def _vocabulary(labels: tuple[str, ...]) -> dict[str, str]:
    """Return phrase → label, for the labels of a signature; "" for a phrase that is none of them."""
    vocabulary: dict[str, str] = {}
    if labels in _MEANINGS:
        label_of: dict[str, str] = {}
        for label, meanings in _MEANINGS[labels].items():
            label_of |= dict.fromkeys(meanings.split(), label)
        for meaning, phrases in _PHRASES.items():
            label = label_of.get(meaning, "")
            vocabulary |= dict.fromkeys(_expand(phrases), label)
    for label in labels:
        vocabulary[" ".join(_words(label))] = label
    return vocabulary


def _expand(phrases: str) -> Iterator[str]:
    """Yield the phrases of a row of `_PHRASES`, each word of a class in turn."""
    for phrase in phrases.split("|"):
        for name, words in _CLASSES.items():
            if name in phrase:
                for word in words.split("|"):
                    yield from _expand(phrase.replace(name, word))
                break
        else:
            yield phrase


def _words(text: str) -> list[str]:
    text = text.lower().replace("’", "'")
    return _WORD.findall(text)


# --- a label ------------------------------------------------------------------------------------------------------


class Label(str):
    """A label that a reply has, and where it stands behind the reply's thoughts: ``reply[start:end]``.

    A prediction of DSPy's holds it; its place is that of its probability.
    """

    start: int
    end: int

    def __new__(cls, name: str, start: int = 0, end: int = 0) -> Self:
        label = super().__new__(cls, name)
        label.start, label.end = start, end
        return label


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_PHRASE = re.compile(rf"{_WORD.pattern}(?:[ \t_/-]+{_WORD.pattern}){{0,7}}")
"""Words with nothing but spaces, hyphens and slashes between them."""
_MARKS_BEFORE = re.compile(r"(?:[^\w\n]|_){0,16}")
_GOES_ON = re.compile(
    r"(?i:\s+(?:by|in|from) (?:the|this|any|our) (?:\w+ )?(?:context|text|documents?|passages?|chunks?|sources?)\b)?+"
    r"(?:[\s*_`\"'”’)\]}]{0,16}(?:$|\n|[.,;:!–—([{<\"“])"  # the end, or a mark
    r"|\s+-"
    r"|[\s*_`]+(?:because|since|as|by)\b"
    r"|\s+(?:it|this|that) (?:is|does)\W*(?:$|\n)"
    r"|\s*\d)"  # ids of chunks
)
"""What may follow a label."""
_HEDGE = re.compile(
    r"[\s,;–—(*_.…-]{0,16}(?:but|except|however|although|though|or|if|unless)\b",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:but|except|however|although|though|whereas|no|not|nor|never|wrong|incorrect|inaccurate|false|untrue"
    r"|otherwise|differs?|contradicts?|contradicted|unsupported|partial(?:ly)?|partly|mostly|somewhat|almost"
    r"|nearly|kind of|sort of|in part|most part|extent|apart|aside|other than|exception|caveat|save for|probably"
    r"|perhaps|maybe|possibly|likely|guess|unsure|assuming)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
"""What takes a “Yes” back, or leaves it in doubt, where it stands in the same sentence."""
_REVERSAL = re.compile(
    r"\bcontext (?:contradicts|(?:does not|doesn['’]t) (?:say|state|mention|support)) (?:so|it|this|that)(?:[.!\n]|$)"
    r"|\b(?:so|therefore|thus|hence),? no(?:[.!\n]|$)"
    r"|\b(?:on reflection|i meant|i made a mistake|i am not sure|i['’]m not sure)\b",
    re.IGNORECASE,
)
"""What takes it back in a sentence behind: the verdict itself, never what the context says about the world."""
_SENTENCE = re.compile(r"[^.!?\n]*\??")
"""The rest of a sentence."""
_CLAUSE = re.compile(
    r"[,;:–—(>|&]\s*| - |\b(?:is|are|was|were|be|and)\s+", re.IGNORECASE
)
_NEXT_SENTENCE = re.compile(r"[.!?:\n]\s{0,16}")
_CLOSED = re.compile(r"[\"']\s*[,}\]\n]")
"""The end of a text in JSON."""
# "**Verdict:** Yes", or a field of JSON: {"judgement": "Yes"}, {"supported": true}.
_HEADING = re.compile(
    r"(?:(?:^|[{,])[^\w\n]{0,16}(?:final[ _]|overall[ _])?"
    r"(?:verdict|answer|label|judge?ment|conclusion|decision|result)"
    r"(?:\W{0,16}[:=>–—-]|\W{0,16} is\b|[^\w\n]{0,16}$)"
    r"|[\"'](?:is_)?(?:supported|faithful|entailed|grounded)[\"']\s*:)\W{0,16}",
    re.IGNORECASE | re.MULTILINE,
)
_SUBJECT = re.compile(
    r"[^\w\n]{0,16}(?:(?:so|thus|therefore|hence|overall|actually|wait|sorry|hmm|on second thought)\W{1,4})?"
    r"(?:(?:(?:the|this) (?:\w+ )?(?:statement|claim|answer|verdict|sentence)|it|this|that|there) is\W{1,4})?",
    re.IGNORECASE,
)
"""What may lead a label: “So the answer is”."""


def read_label(reply: str, labels: Sequence[str], at: int = 0) -> Label | None:
    """Return the label that a text begins with, whatever its case and marks; also one in which the text was cut.

    None if there is none, if more than one fits, or if the phrase goes on in words that may change it.
    """
    before = _MARKS_BEFORE.match(reply, at)
    phrase = before and _PHRASE.match(reply, before.end())
    if phrase is None:
        return None
    vocabulary = _vocabulary(tuple(labels))
    start = phrase.start()
    words = _words(phrase.group())
    ends = [word.end() for word in _WORD.finditer(reply, start, phrase.end())]
    for n in range(len(words), 0, -1):
        name = vocabulary.get(" ".join(words[:n]))
        if name is not None:
            end = ends[n - 1]
            if name and _GOES_ON.match(reply, end):
                return Label(name, start, end)
            return None
    if len(words) > 1 or _WORD.search(reply, phrase.end()):
        return None
    (word,) = words
    cut_labels = [label for label in labels if label.lower().startswith(word)]
    begins_a_phrase = any(known.startswith(f"{word} ") for known in vocabulary)
    is_letter = len(word) == 1  # “N” is “No”, though “N/A” begins with it
    if (begins_a_phrase and not is_letter) or len(cut_labels) != 1:
        return None
    return Label(cut_labels[0], start, phrase.end())


def find_label(
    reply: str,
    labels: Sequence[str],
    evidence: str = "",
    *,
    reasons_first: bool = False,
) -> Label | None:
    """Return the label of a reply; None if it has none, or two different ones.

    Args:
        reply: The reply, without thoughts.
        labels: The labels that were asked for.
        evidence: What follows it, reasons and quotes, which may take a label back and has none of its own.
        reasons_first: Whether it begins with reasons, so that its start is no place for a label.
    """
    headings = _HEADING.finditer(reply)
    candidates = [_read_place(reply, labels, one.end()) for one in headings]
    if candidates and candidates[-1] is None:
        return None
    text = reply.rstrip("` \n\t")
    start = len(reply) - len(reply.lstrip())
    is_json = reply.lstrip("`json \n").startswith("{")
    if not is_json and (not reasons_first or "\n" not in text[start:]):
        candidates.append(_read_place(reply, labels, start))
    last_line = text.rfind("\n") + 1
    if last_line and not any(candidates):
        candidates.append(read_label(text, labels, last_line))
    places = list(filter(None, candidates))
    if len(set(places)) != 1 or _is_taken_back(reply + evidence, places[0], labels):
        return None
    return places[0]


def _read_place(reply: str, labels: Sequence[str], at: int) -> Label | None:
    """Return the label at a place, as such or in a sentence like “The statement is …”."""
    lead = _SUBJECT.match(reply, at)
    return read_label(reply, labels, lead.end() if lead else at)


def _is_taken_back(reply: str, label: Label, labels: Sequence[str]) -> bool:
    """Return whether the words after a label take it back: “Yes, but …”, “No. It is fully supported.”"""
    others = []
    if not _CLOSED.match(reply, label.end):
        sentence = _SENTENCE.match(reply, label.end)
        end = sentence.end() if sentence else label.end
        is_full = label == _vocabulary(tuple(labels)).get("fully supported")
        if _HEDGE.match(reply, label.end):
            return True
        if is_full and _DOUBT.search(reply, label.end, end):
            return True
        if is_full and _REVERSAL.search(reply, end):
            return True
        for clause in _CLAUSE.finditer(reply, label.end, end):
            others.append(read_label(reply, labels, clause.end()))
    for sentence in _NEXT_SENTENCE.finditer(reply, label.end):
        others.append(_read_place(reply, labels, sentence.end()))
    return any(other is not None and other != label for other in others)


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
_HEADING_TAIL = re.compile(_HEADING.pattern + r"$", _HEADING.flags)
_MAX_IDS = 16
"""Characters after a label that may be ids without brackets; longer is an explanation."""


def read_fields(fields: Mapping[str, Any], completion: str) -> dict[str, Any]:
    """Return one verdict, or whatever else the fields name, from a completion in the form that prompts ask for.

    Args:
        fields: Name → type of each output field, in the order of the reply.
        completion: The LM's reply, with its thoughts.

    Returns:
        The value of each field; the verdict is a `Label`. One that is not there is None, for the program to count as
        unjudged.
    """
    reply = without_thoughts(completion)
    if len(reply) > MAX_REPLY:
        reply = ""
    if "verdict" not in fields:
        lines = [line.strip() for line in reply.splitlines() if line.strip()]
        return dict.fromkeys(fields, lines)
    reasons_first = next(iter(fields)) == "reason"
    head = reply
    if not reasons_first and fields.keys() & {"quotes", "reason"}:
        head = _EVIDENCE.split(reply, maxsplit=1)[0]
    labels = get_args(fields["verdict"])
    evidence = _QUOTED.sub("", reply[len(head) :])
    label = find_label(head, labels, evidence, reasons_first=reasons_first)
    values: dict[str, Any] = {"verdict": label}
    start, end = (label.start, label.end) if label else (0, 0)
    if "supporting_chunk_ids" in fields:
        bracket = _IDS.search(head)
        ids, _, _ = head[end:].partition("\n")
        if bracket:
            ids = bracket[1]
        elif len(ids) > _MAX_IDS:
            ids = ""  # numbers in some explanation
        values["supporting_chunk_ids"] = list(map(int, re.findall(r"\d{1,4}", ids)))
    if "quotes" in fields:
        values["quotes"] = [quote.strip() for quote in _QUOTED.findall(reply)]
    if "reason" in fields:
        if reasons_first:
            reason = _HEADING_TAIL.sub("", reply[:start])
        else:
            lead = _MARKS_AND_IDS if "supporting_chunk_ids" in fields else _MARKS
            reason = lead.sub("", _QUOTED.sub("", reply[end:]), count=1)
        values["reason"] = _WHY.sub("", reason, count=1).strip() or None
    return values


# --- probabilities ------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A token of a reply, with the likeliest ones that might stand in its place: their ``token`` and ``logprob``."""

    text: str
    alternatives: Sequence[Mapping[str, Any]]


def tokens_of(prediction: Mapping[str, Any]) -> list[Token]:
    """Return the tokens of a prediction's reply; empty if the LM tells none."""
    logprobs = prediction.get("logprobs") or {}
    if not isinstance(logprobs, Mapping):  # LiteLLM's own object
        logprobs = logprobs.model_dump()
    return [
        Token(str(token["token"]), token.get("top_logprobs") or ())
        for token in logprobs.get("content") or ()
    ]


def text_of(tokens: Sequence[Token]) -> str:
    """Return the reply that tokens make up."""
    return "".join(token.text for token in tokens)


def token_at(tokens: Sequence[Token], offset: int) -> Token | None:
    """Return the token that has the first letter from an offset of the reply on; None if there is none."""
    for token in tokens:
        rest = token.text[max(0, offset) :]
        if re.search(r"[^\W_]", rest):
            return token
        offset -= len(token.text)
    return None


def label_token(tokens: Sequence[Token], label: str | None) -> Token | None:
    """Return the token with which the label of a reply begins; None without a label or tokens."""
    if not tokens or not isinstance(label, Label):
        return None
    return token_at(tokens, thoughts_end(text_of(tokens)) + label.start)


def label_shares(
    label: str | None, token: Token | None, labels: tuple[str, ...]
) -> tuple[set[str | None], dict[str, float]]:
    """Return the likeliest labels of a reply, and each label's probability, by the alternatives of the label's token.

    Alternatives are pooled by the label they begin (“ yes”, “Yes”, “YES”); one that begins none is None among the
    likeliest. They are no distribution if one of them is no log-probability, or if they sum to more than 1; nor do
    alternatives to something else than the label tell its probability.
    """
    alternatives = token.alternatives if token else ()
    logprobs: list[Any] = [one.get("logprob") for one in alternatives]
    if token is None or not _is_distribution(logprobs):
        return {label}, {}
    mass = dict.fromkeys(labels, 0.0)
    likeliest = set()
    highest = max(logprobs)
    for one in alternatives:
        name = _begun_label(str(one.get("token")), labels)
        if name is not None:
            mass[name] += math.exp(one["logprob"])
        if one["logprob"] == highest:
            likeliest.add(name)
    if label is None or _begun_label(token.text, labels) != label or not mass[label]:
        return likeliest, {}
    total = sum(mass.values())
    return likeliest, {name: share / total for name, share in mass.items()}


@lru_cache(maxsize=4096)
def _begun_label(token: str, labels: tuple[str, ...]) -> str | None:
    return read_label(token[:MAX_TOKEN], labels)


def _is_distribution(logprobs: Sequence[Any]) -> bool:
    for logprob in logprobs:
        if not (isinstance(logprob, int | float) and logprob <= MAX_LOGPROB):
            return False  # NaN, too
    return bool(logprobs) and sum(map(math.exp, logprobs)) <= MAX_MASS


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
    """Return the verdict of one reply; without a label it is none, whatever the probabilities.

    A reply writes its likeliest label: one that wrote another contradicts itself, and has none. Where tokens are drawn
    by chance, the likeliest counts instead.

    Args:
        fields: The reply's fields, as `read_fields` gives them.
        statement: What it is about.
        instruction: What its labels mean.
        chunk_ids: The ids of the chunks in the prompt, by their numbers there.
        token: The token with which the label begins.
        sampled: Whether tokens were drawn by chance, so that another one than the likeliest may be written.
    """
    about = statement.model_dump()
    written = fields.get("verdict")
    likeliest, shares = label_shares(written, token, tuple(instruction.labels))
    is_likeliest = not likeliest.isdisjoint({None, written})  # of equals either
    if written is None or not (sampled or is_likeliest):
        error = "the LM's reply has no label that was asked for"
        return RawVerdict(**about, error=error)
    label = str(written)
    if shares:
        label = max(shares, key=lambda name: (shares[name], name == written))
    level = instruction.labels[label]
    support = {"logit": LABEL_LOGIT if level == 1 else -LABEL_LOGIT}
    # An id that the prompt does not have stays unknown: -1 is no chunk's id.
    ids_by_number = dict(enumerate(chunk_ids))
    numbers = fields.get("supporting_chunk_ids") or ()
    return RawVerdict(
        **about,
        **(expected_support(shares, instruction) if shares else support),
        label=label,
        verdict=instruction.verdicts[label],
        level=level,
        chunk_ids=tuple(ids_by_number.get(number, -1) for number in numbers),
        quotes=tuple(fields.get("quotes") or ()),
        reason=fields.get("reason"),
    )


def expected_support(
    shares: Mapping[str, float], instruction: Instruction
) -> dict[str, Any]:
    """Return expected support as ``logit``, clipped, and ``probability``, from each label's probability."""
    support = sum(share * instruction.labels[label] for label, share in shares.items())
    logit = to_logit(support)
    return {"logit": logit, "probability": to_probability(logit)}
