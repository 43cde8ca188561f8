"""An LM that can be taught, and labels of people who judge otherwise than it does.

People accept rounded figures, and reject a statement that drops a condition. The LM decides both the other way round
until its prompt says so, in the words of a `Habit`, or shows it by an example. Asked to write an instruction, it writes
the rules that its request states or shows by an example; as a reflector of nonsense one that nobody follows – and that
the LM, once told so, does.
"""

import random
import re
from itertools import pairwise
from typing import NamedTuple

from faith_dspy.text.sentences import sentence_texts
from tests.support.chat_server import ChatServer, yes_or_no

SURE = 0.9
"""Probability of a verdict."""
NONSENSE = "A statement about a medal is always supported."


class Habit(NamedTuple):
    """What people decide otherwise than the LM does."""

    accepted: bool
    """Whether people call such a statement supported."""
    rule: str
    """As the reflector writes it down."""
    reason: str
    """As people give it."""
    wording: str
    """What is in such a statement: a regular expression."""

    def is_known(self, text, examples):
        """Whether a text states it, or an example shows it: of each the statement, and whether it is supported."""
        return (
            self.rule in text
            or self.reason in text
            or any(
                re.search(self.wording, statement) and supported is self.accepted
                for statement, supported in examples
            )
        )


HABITS = (
    Habit(
        True,
        "A figure that is rounded correctly counts as supported.",
        "It is only rounded, that is fine.",
        r"about \d+ visitors",
    ),
    Habit(
        False,
        "A statement that drops a condition of the context is not supported.",
        "It drops the condition.",
        r"is free\.",
    ),
)
ROUNDED, CONDITION = HABITS


# Labels.

SYLLABLES = re.findall("..", "arbeldofagrihoiskulumanevopelarasiltorundvelwenyza")


def invented(rng):
    """A name that no word list has."""
    return "".join(rng.sample(SYLLABLES, 3)).capitalize()


def annotated(sources=32, *, first=0, reasons=True):
    """Labelled answers as rows of a labels file: three over each source, of two sentences, the second of which decides.

    Each habit decides a quarter; of the others half are what the context says, half made up.

    Args:
        sources: how many.
        first: number of the first source: labels with other numbers have other sources.
        reasons: whether people say why where a habit decides.
    """
    rows = []
    for number in range(first, first + sources):
        rng = random.Random(number)
        town = invented(rng)
        rivers = [f"The river {invented(rng)} runs through {town}." for _ in range(3)]
        decided = []
        for j, place in enumerate(("museum", "theatre", "zoo")):
            decided.append(_kinds(rng, town, place)[(3 * number + j) % 4])
        context = [" ".join(rivers), " ".join(fact for fact, *_ in decided)]
        for j, (river, (_, text, supported, habit)) in enumerate(
            zip(rivers, decided, strict=True)
        ):
            statements = [_statement(river, True), _statement(text, supported)]
            if habit and reasons:
                statements[1]["reason"] = habit.reason
            rows.append(
                {
                    "id": f"{number}-{j}",
                    "question": f"What is known of {town}?",
                    "context": context,
                    "answer": f"{river} {text}",
                    "statements": statements,
                }
            )
    return rows


def _kinds(rng, town, place):
    """Of each kind a fact of the context, a statement, whether people call it supported, and the habit that decides."""
    thing = f"{place} of {town}"
    rounded = 100 * rng.randrange(20, 300)
    visitors = rounded + rng.randrange(1, 50)
    built = f"{invented(rng)} built the {thing}."
    return (
        (
            f"The {thing} counted {visitors} visitors.",
            f"The {thing} counted about {rounded} visitors.",
            True,
            ROUNDED,
        ),
        (
            f"Entry to the {thing} is free for children.",
            f"Entry to the {thing} is free.",
            False,
            CONDITION,
        ),
        (built, built, True, None),
        (built, f"{invented(rng)} won a medal in the {place}.", False, None),
    )


def _statement(text, supported):
    verdict = "fully_supported" if supported else "no_evidence"
    return {"text": text, "verdict": verdict}


# The LM.


class TeachableLM(ChatServer):
    """See the module. It judges one statement at a time, by Yes or No, and takes answers apart.

    Args:
        nonsense: whether it writes nonsense where it is asked to reflect.
    """

    def __init__(self, *, nonsense=False):
        super().__init__(self.answer, models=[])
        self.nonsense = nonsense
        self.reflections = []
        """What it was asked to reflect on."""

    def answer(self, asked):
        """It reflects where DSPy asks for named fields."""
        messages = asked["messages"]
        system, request = (messages[i]["content"] for i in (0, -1))
        fields = re.findall(
            r"^\d+\. `(\w+)`", system.partition("output fields are:")[2], re.MULTILINE
        )
        if fields:
            self.reflections.append(request)
            text = self._reflection(request)
            parts = [f"[[ ## {name} ## ]]\n{text}\n\n" for name in fields]
            return "".join(parts) + "[[ ## completed ## ]]"
        if "\nSentences:\n" in request:
            return _extracted(request)
        return yes_or_no(SURE if self._is_supported(messages) else 1 - SURE)

    def _reflection(self, request):
        """The instruction in the request with the rules that the request lets it know; these alone if it has none."""
        examples = _examples_with_feedback(request)
        rules = [h.rule for h in HABITS if h.is_known(request, examples)]
        listed = NONSENSE if self.nonsense else "\n".join(rules)
        current = re.search(
            r"(?:current|basic)_instruction ## \]\]\n(.*?)\n\n\[\[ ##",
            request,
            re.DOTALL,
        )
        if not current:
            return listed
        top, *_, ask = current[1].split("\n\n")
        return "\n\n".join(part for part in (top, listed, ask) if part)

    def _is_supported(self, messages):
        """Whether all sentences of the statement are."""
        prompt = "\n".join(message["content"] for message in messages)
        context = messages[-1]["content"].partition("\n\nStatement: ")[0]
        examples = _examples_in_turns(messages)

        def is_supported(sentence):
            if NONSENSE in prompt and "medal" in sentence:
                return True
            for habit in HABITS:
                if re.search(habit.wording, sentence):
                    return habit.accepted is habit.is_known(prompt, examples)
            return sentence in context

        statement = self.statement({"messages": messages})
        return all(is_supported(text) for _, text in sentence_texts(statement))


def _extracted(request):
    """The sentences themselves, as the statements of an answer."""
    sentences = request.partition("\nSentences:\n")[2]
    return "\n".join(
        f"{number} {text}"
        for number, text in re.findall(r"^\[(\d+)\] (.*)$", sentences, re.MULTILINE)
    )


def _examples_with_feedback(request):
    """The examples in a request to reflect that say what people say."""
    examples = []
    for part in request.split('"context": ')[1:]:
        statement = re.search(r'"statement": "(.*?)"', part)
        people = re.search(r'people(?: say |": ")(Yes|No)', part)
        if statement and people:
            examples.append((statement[1], people[1] == "Yes"))
    return examples


def _examples_in_turns(messages):
    """The examples in the turns of a prompt."""
    examples = []
    for request, reply in pairwise(messages):
        if reply["role"] == "assistant":
            statement = ChatServer.statement({"messages": [request]})
            examples.append((statement, reply["content"].startswith("Yes")))
    return examples
