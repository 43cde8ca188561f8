"""An LM that can be taught, and labels of people who judge otherwise than it does.

People have habits: they accept rounded figures, or reject a statement that drops a condition. The LM reads a statement
against its context, and decides a habit's cases the other way round until its prompt says so: in one of the wordings
of the habit (`Habit.rule`, `Habit.reasons`: no others), or by an example that is decided as people do. Nothing tells
it which statements there are, or what people said of them.

Asked to write an instruction, rules or observations, it reads the examples in its prompt. It writes down a habit that
some wording in the prompt states, or that two examples show and none gainsays, and nothing else. As a reflector of
nonsense it writes a rule that nobody follows – and that the LM, once told so, does.

    labels = annotated()  # rows of a labels file: 96 answers over 32 sources, half of them decided by two habits
    test = annotated(sources=40, first=1000)  # 120 answers over other sources
    with closing(TeachableLM()) as lm:
        tune(…, lm="openai/tiny", api_base=lm.base)
"""

import json
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.text.sentences import sentence_texts
from tests.support.scripted_lm import ScriptedLM

SURE = 2.2
"""Log-odds of a verdict, and …"""
SPREAD = 0.6
"""… their standard deviation: none of them has the wrong sign but by a slip."""


class Habit(NamedTuple):
    """What people decide otherwise than the LM does."""

    accepted: bool
    """Whether people call such a statement supported."""
    rule: str
    """As the reflector writes it down."""
    reasons: tuple[str, ...]
    """As people give it."""
    pair: Callable[..., tuple[str, str]]
    """A fact of a context, and a statement about it: ``pair(rng, thing)``."""
    applies: Callable[[str, str], bool]
    """Whether a statement is such a one: ``applies(context, sentence)``."""

    def is_stated(self, text):
        """Whether one of the wordings is in a text."""
        return any(plain(words) in plain(text) for words in (self.rule, *self.reasons))


def plain(text):
    """The words of a text, to be looked up."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _rounded_pair(rng, thing):
    year, visitors = rng.randrange(1900, 2000), rng.randrange(2010, 30_000)
    visitors += 13 * (visitors % 100 == 0)
    fact = f"The {thing} counted {visitors} visitors in {year}."
    return fact, fact.replace(f"{visitors}", f"about {round(visitors, -2)}")


def _is_rounded(context, sentence):
    figure = re.search(r"about (\d+)", sentence)
    if not figure:
        return False
    before, after = map(re.escape, sentence.split(figure[0], 1))
    exact = re.search(rf"{before}(\d+){after}", context)
    return bool(exact) and round(int(exact[1]), -2) == int(figure[1])


def _condition_pair(rng, thing):
    who = rng.choice(("members", "children", "students", "pensioners", "teachers"))
    return (
        f"Entry to the {thing} is free for {who}.",
        f"Entry to the {thing} is free.",
    )


def _drops_condition(context, sentence):
    return f"{sentence.rstrip('.')} for " in context


def _hedge_pair(rng, thing):
    fact = f"The {thing} may move to {invented(rng)}."
    return fact, fact.replace(" may ", " will ")


def _drops_hedge(context, sentence):
    return " will " in sentence and sentence.replace(" will ", " may ") in context


PRAISE = ("wonderful", "remarkable", "splendid", "impressive")


def _praise_pair(rng, thing):
    items = rng.choice(("maps", "coins", "clocks", "letters", "paintings"))
    number = rng.randrange(20, 900)
    fact = f"The {thing} holds {number} {items}."
    return fact, fact.replace(items, f"{rng.choice(PRAISE)} {items}")


def _praises(context, sentence):
    without = re.sub(rf" ({'|'.join(PRAISE)})\b", "", sentence)
    return without != sentence and without in context


def _arithmetic_pair(rng, thing):
    opened = rng.randrange(1800, 1950)
    years = rng.randrange(5, 60)
    return (
        f"The {thing} opened in {opened} and closed in {opened + years}.",
        f"The {thing} was open for {years} years.",
    )


def _is_arithmetic(context, sentence):
    said = re.fullmatch(r"(.+) was open for (\d+) years\.", sentence)
    if not said:
        return False
    dates = rf"{re.escape(said[1])} opened in (\d+) and closed in (\d+)"
    known = re.search(dates, context)
    return bool(known) and int(known[2]) - int(known[1]) == int(said[2])


ROUNDED = Habit(
    True,
    "A figure that is rounded correctly counts as supported.",
    ("Rounded figures are fine.", "It is only rounded, that is fine."),
    _rounded_pair,
    _is_rounded,
)
CONDITION = Habit(
    False,
    "A statement that drops a condition of the context is not supported.",
    ("It drops the condition.", "The condition is left out."),
    _condition_pair,
    _drops_condition,
)
HEDGE = Habit(
    False,
    "A statement that makes a possibility a certainty is not supported.",
    ("It is only possible, not certain.", "The context says may."),
    _hedge_pair,
    _drops_hedge,
)
PRAISED = Habit(
    False,
    "A statement with praise that is not in the context is not supported.",
    ("The praise is not in the context.", "Nobody called it that."),
    _praise_pair,
    _praises,
)
ARITHMETIC = Habit(
    True,
    "What follows from the context by simple arithmetic counts as supported.",
    ("It follows by simple arithmetic.", "One can work it out."),
    _arithmetic_pair,
    _is_arithmetic,
)
HABITS = (ROUNDED, CONDITION, HEDGE, PRAISED, ARITHMETIC)
"""Words tell of a rounded figure and of arithmetic that the context lacks them, of praise, too; of a condition or a
hedge that is dropped they tell nothing."""


class Superstition(NamedTuple):
    """A rule that nobody follows but the LM, once it is told so."""

    rule: str
    accepts: bool
    applies: Callable[[str], bool]


NONSENSE = (
    Superstition(
        "A statement that names a year is never supported.",
        False,
        lambda sentence: bool(re.search(r"\b\d{4}\b", sentence)),
    ),
    Superstition(
        "A statement about a town is always supported.",
        True,
        lambda sentence: " of " in sentence,
    ),
)


# Labels.

THINGS = ("museum", "theatre", "zoo", "library", "castle", "mill", "baths", "tower")
PRIZES = ("medal", "lawsuit", "lottery", "regatta", "duel", "mansion")
SYLLABLES = re.findall("..", "arbeldofagrihoiskulumanevopelarasiltorundvelwenyza")


def invented(rng):
    """A name that no word list has."""
    return "".join(rng.sample(SYLLABLES, 3)).capitalize()


def annotated(
    habits=(ROUNDED, CONDITION),
    sources=32,
    per_source=3,
    share=0.25,
    reasons=1.0,
    first=0,
    seed=0,
):
    """Labelled answers as rows of a labels file, every one of two sentences, the second of which decides.

    Args:
        habits: of the people.
        sources: over each of which there are ``per_source`` answers.
        share: of the answers that each habit decides; half of the others are what the context says, half made up.
        reasons: share of the statements decided by a habit for which people say why.
        first: number of the first source: labels with other numbers have other sources.
        seed: of the order of kinds, and of who gives a reason.
    """
    rng = random.Random(f"{seed} {first}")
    answers = sources * per_source
    kinds = [habit for habit in habits for _ in range(round(share * answers))]
    others = answers - len(kinds)
    kinds += [None] * others
    made_up = [i % 2 == 0 for i in range(others)]
    rng.shuffle(kinds)
    rows = []
    for i in range(sources):
        source = _source(first + i, kinds[i * per_source : (i + 1) * per_source])
        for row, habit in source:
            if habit is None and made_up.pop():
                row["statements"][1] = _made_up(random.Random(row["id"]), row)
            elif habit is not None and rng.random() < reasons:
                row["statements"][1]["reason"] = rng.choice(habit.reasons)
            row["answer"] = " ".join(s["text"] for s in row["statements"])
            rows.append(row)
    return rows


def _source(number, kinds):
    """The answers over one context, with the habit that decides each."""
    rng = random.Random(f"source {number}")
    town = f"{invented(rng)}{SYLLABLES[number % len(SYLLABLES)]}"
    things = [f"{thing} of {town}" for thing in rng.sample(THINGS, len(THINGS))]
    others = ", ".join(invented(rng) for _ in range(12))
    rivers = [invented(rng) for _ in kinds]
    plain_facts = [f"The river {river} runs through {town}." for river in rivers]
    pairs = []
    for habit, thing in zip(kinds, things, strict=False):
        if habit is None:
            fact = f"{invented(rng)} built the {thing}."
            pairs.append((fact, fact))
        else:
            pairs.append(habit.pair(rng, thing))
    context = [
        f"{town} lies near {others}.",
        " ".join(plain_facts),
        " ".join(fact for fact, _ in pairs),
    ]
    answers = []
    for j, (habit, opening, (_, text)) in enumerate(
        zip(kinds, plain_facts, pairs, strict=True)
    ):
        accepted = habit is None or habit.accepted
        row = {
            "id": f"{number}-{j}",
            "question": f"What is known of {town}?",
            "context": context,
            "statements": [_statement(opening, True), _statement(text, accepted)],
        }
        answers.append((row, habit))
    return answers


def _statement(text, supported):
    verdict = "fully_supported" if supported else "no_evidence"
    return {"text": text, "verdict": verdict}


def _made_up(rng, row):
    town = row["question"].rstrip("?").rpartition(" ")[2]
    text = f"Someone of {town} won a {rng.choice(PRIZES)} against {invented(rng)}."
    return _statement(text, False)


# The LM.


class Record(NamedTuple):
    """A statement that a prompt shows decided."""

    context: str
    statement: str
    verdict: bool | None
    """People's."""

    def shows(self, habit):
        """Whether it is decided as the habit has it; None where it tells nothing of it."""
        sentences = [text for _, text in sentence_texts(self.statement)]
        if self.verdict is None or not any(
            habit.applies(self.context, sentence) for sentence in sentences
        ):
            return None
        return self.verdict is habit.accepted


class TeachableLM(ScriptedLM):
    """See the module.

    Args:
        nonsense: whether it writes superstitions where it is asked to reflect.
        slips: share of statements that it misreads, whatever its prompt says.
        probabilities: whether it gives the probabilities of tokens.
    """

    def __init__(self, *, nonsense=False, slips=0.0, probabilities=True):
        super().__init__()
        self.nonsense = nonsense
        self.slips = slips
        self.tells = probabilities
        self.reflections = []
        """What it was asked to reflect on."""

    def answer(self, asked):
        """As a judge's LM does; it reflects where DSPy asks for fields that no verdict has."""
        system = asked["messages"][0]["content"]
        written = system.partition("output fields are:")[2].partition(
            "All interactions"
        )
        fields = re.findall(r"^\d+\. `(\w+)`", written[0], re.MULTILINE)
        if not fields or "verdicts" in fields:
            return super().answer(asked)
        request = asked["messages"][-1]["content"]
        self.reflections.append(request)
        texts = dict.fromkeys(fields, self._reflection(request))
        if "JSON object" in system:
            return json.dumps(texts)
        parts = [f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in texts.items()]
        return "".join(parts) + "[[ ## completed ## ]]"

    def log_odds(self, text, messages, asks):
        """Those of the least supported sentence."""
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        request = messages[-1]["content"]
        instruction = f"{system}\n{request.rpartition(chr(10) * 2)[2]}"
        demos = _demos(messages)
        verdicts = [
            self._is_supported(sentence, request, instruction, demos)
            for _, sentence in sentence_texts(text)
        ]
        noise = random.Random(text)
        supported = all(verdicts) is not (noise.random() < self.slips)
        sure = max(0.2, noise.gauss(SURE, SPREAD))
        return sure if supported else -sure

    def _is_supported(self, sentence, request, instruction, demos):
        for superstition in NONSENSE:
            if superstition.rule in instruction and superstition.applies(sentence):
                return superstition.accepts
        context = re.split(r"\n\nStatement: |\[\[ ## statements", request)[0]
        for habit in HABITS:
            if habit.applies(context, sentence):
                shown = [demo.shows(habit) for demo in demos]
                is_known = habit.is_stated(instruction) or shown.count(
                    True
                ) > shown.count(False)
                return habit.accepted if is_known else not habit.accepted
        return sentence in context

    def _reflection(self, request):
        """The instruction in the request with the rules that the request lets it know; these alone if it has none."""
        rules = derived(request)
        if self.nonsense:
            rules = [random.Random(request).choice(NONSENSE).rule]
        current = re.search(
            r"\[\[ ## (?:current|basic)_instruction ## \]\]\n(.*?)\n\n\[\[ ##",
            request,
            re.DOTALL,
        )
        if not current:
            return "\n".join(rules)
        top, _, ask = current[1].strip().rpartition("\n\n")
        kept = top if self.nonsense else re.sub(r"(?m)^- .*\n?", "", top).strip()
        listed = "\n".join(f"- {rule}" for rule in rules)
        return "\n\n".join(part for part in (kept, listed, ask) if part)


def derived(request):
    """The rules of habits that a text states or that the examples in it show."""
    records = _records(request)
    rules = []
    for habit in HABITS:
        shown = [record.shows(habit) for record in records]
        is_shown = shown.count(True) >= 2 and False not in shown
        if habit.is_stated(request) or is_shown:
            rules.append(habit.rule)
    return rules


_LABELS = {
    label: verdict.is_supported
    for instruction in INSTRUCTIONS.values()
    for label, verdict in instruction.verdicts.items()
}
_TEXT = r"""['"]{}['"]: ['"](.*?)['"][,}}]"""
PEOPLE = re.compile(r"""people say (\w+)|['"]people['"]: ['"](\w+)""")
"""People's verdict in feedback, or in a field of that name; else the verdict of an example is theirs."""


def _records(request):
    """The examples of a request, as JSON or as Python writes them."""
    records = []
    for part in re.split(r"""['"]context['"]: """, request)[1:]:
        statement = re.search(_TEXT.format("statement"), part, re.DOTALL)
        if not statement:
            continue
        people = PEOPLE.search(part)
        label = people and (people[1] or people[2])
        if not people and "Feedback" not in part:
            verdict = re.search(_TEXT.format("verdict"), part)
            label = verdict and verdict[1]
        context = part[: statement.start()]
        records.append(Record(context, statement[1], _LABELS.get(label)))
    return records


def _demos(messages):
    """The examples in the turns of a prompt."""
    turns = [message["content"] for message in messages if message["role"] != "system"]
    demos = []
    for request, reply in zip(turns[:-1:2], turns[1::2], strict=True):
        context, _, rest = request.partition("\n\nStatement: ")
        statement = rest.partition("\n\n")[0]
        words = re.findall(r"\w+", reply)
        labels = [_LABELS[word] for word in words if word in _LABELS]
        if statement and labels:
            demos.append(Record(context, statement, labels[0]))
    return demos
