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

from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.text.sentences import sentence_texts
from tests.support.scripted_lm import ScriptedLM

SURE = 2.2
"""Log-odds of a verdict."""
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


class TeachableLM(ScriptedLM):
    """See the module.

    Args:
        nonsense: whether it writes nonsense where it is asked to reflect.
    """

    def __init__(self, *, nonsense=False):
        super().__init__()
        self.nonsense = nonsense
        self.reflections = []
        """What it was asked to reflect on."""

    def answer(self, asked):
        """As a judge's LM does; it reflects where DSPy asks for fields that no verdict has."""
        system, request = (asked["messages"][i]["content"] for i in (0, -1))
        fields = re.findall(
            r"^\d+\. `(\w+)`", system.partition("output fields are:")[2], re.MULTILINE
        )
        if not fields or "verdicts" in fields:
            return super().answer(asked)
        self.reflections.append(request)
        text = self._reflection(request)
        parts = [f"[[ ## {name} ## ]]\n{text}\n\n" for name in fields]
        return "".join(parts) + "[[ ## completed ## ]]"

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

    def log_odds(self, text, messages, asks):
        """Those of the least supported sentence."""
        prompt = "\n".join(message["content"] for message in messages)
        context = re.split(
            r"\n\nStatement: |\[\[ ## statements", messages[-1]["content"]
        )[0]
        examples = _examples_in_turns(messages)

        def is_supported(sentence):
            if NONSENSE in prompt and "medal" in sentence:
                return True
            for habit in HABITS:
                if re.search(habit.wording, sentence):
                    return habit.accepted is habit.is_known(prompt, examples)
            return sentence in context

        supported = all(is_supported(sentence) for _, sentence in sentence_texts(text))
        return SURE if supported else -SURE


LABELS = {
    label: verdict.is_supported
    for instruction in INSTRUCTIONS.values()
    for label, verdict in instruction.verdicts.items()
}


def _examples_with_feedback(request):
    """The examples in a request to reflect that say what people say."""
    examples = []
    for part in request.split('"context": ')[1:]:
        statement = re.search(r'"statement": "(.*?)"', part)
        people = re.search(r'people(?: say |": ")(\w+)', part)
        if statement and people:
            examples.append((statement[1], LABELS.get(people[1])))
    return examples


def _examples_in_turns(messages):
    """The examples in the turns of a prompt."""
    examples = []
    for request, reply in pairwise(messages):
        labels = [w for w in re.findall(r"\w+", reply["content"]) if w in LABELS]
        if reply["role"] == "assistant" and labels:
            statement = ScriptedLM.statement({"messages": [request]})
            examples.append((statement, LABELS[labels[0]]))
    return examples
