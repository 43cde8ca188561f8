"""Six small subjects, each answered in four ways: what the systems whose users come here show in their own examples.

Each sentence of an answer has the label a careful reader gives it: ``fully``, ``partly``, ``nothing`` or
``contradicts``. All wording was made for these tests.
"""

from __future__ import annotations

from typing import NamedTuple

WEIGHT = {"fully": 1.0, "partly": 0.5, "nothing": 0.0, "contradicts": -1.0}
LEVEL = ("Not At All", "Not Generally", "Neutral/Mixed", "Generally Yes", "Completely Yes")


class Case(NamedTuple):
    """One answer with its labels."""

    subject: str
    version: str
    question: str
    context: list[str]
    sentences: list[tuple[str, str]]
    """Text and label."""

    @property
    def answer(self) -> str:
        """The sentences together."""
        return " ".join(text for text, _ in self.sentences)

    @property
    def share(self) -> float:
        """Fully supported sentences over all."""
        return sum(label == "fully" for _, label in self.sentences) / len(self.sentences)

    @property
    def weighted(self) -> float:
        """Mean weight of the labels, clamped to [0, 1]."""
        return max(0.0, sum(WEIGHT[label] for _, label in self.sentences) / len(self.sentences))


SUBJECTS: dict[str, tuple[str, list[str], dict[str, list[tuple[str, str]]]]] = {
    "apollo_11": (
        "Who flew on Apollo 11, and when did it land?",
        [
            "Apollo 11 landed on the Moon on July 20, 1969.",
            "The crew of Apollo 11 was Neil Armstrong, Buzz Aldrin and Michael Collins.",
            "Collins stayed in orbit while Armstrong and Aldrin walked on the surface.",
        ],
        {
            "supported": [
                ("Apollo 11 landed on the Moon on July 20, 1969.", "fully"),
                ("Armstrong and Aldrin walked on the surface.", "fully"),
            ],
            "partly": [
                ("The crew of Apollo 11 was Neil Armstrong, Buzz Aldrin and Michael Collins.", "fully"),
                ("Apollo 11 landed on July 20, 1969, in front of 600 million viewers.", "partly"),
            ],
            "unsupported": [
                ("The astronauts had trained in Iceland.", "nothing"),
                ("The mission cost 355 million dollars.", "nothing"),
            ],
            "contradicted": [
                ("Michael Collins walked on the surface with Armstrong.", "contradicts"),
                ("Apollo 11 landed on the Moon in 1971.", "contradicts"),
            ],
        },
    ),
    "refund_policy": (
        "Can I get my money back?",
        [
            "Unused items are refunded in full within 30 days of purchase.",
            "Opened software is not refunded.",
            "Refunds go to the card that was used to pay.",
        ],
        {
            "supported": [
                ("Unused items are refunded in full within 30 days of purchase.", "fully"),
                ("The refund goes to the card you paid with.", "fully"),
            ],
            "partly": [
                ("Refunds go to the card that was used to pay.", "fully"),
                ("Unused items are refunded within 30 days, shipping included.", "partly"),
            ],
            "unsupported": [
                ("Our shops are open on Sundays.", "nothing"),
                ("Members of the loyalty club get a voucher of 10 euros.", "nothing"),
            ],
            "contradicted": [
                ("Opened software is refunded in full.", "contradicts"),
                ("Unused items can be returned for 90 days.", "contradicts"),
            ],
        },
    ),
    "dosage": (
        "How much of the medicine may an adult take?",
        [
            "Adults take one tablet of 200 mg every six hours with water.",
            "Do not take more than four tablets in 24 hours.",
        ],
        {
            "supported": [
                ("Adults take one tablet of 200 mg every six hours.", "fully"),
                ("Do not take more than four tablets in 24 hours.", "fully"),
            ],
            "partly": [
                ("The tablet is taken with water.", "fully"),
                ("Adults take one tablet every six hours, after a meal.", "partly"),
            ],
            "unsupported": [
                ("Children take half a tablet.", "nothing"),
                ("The medicine may cause headaches.", "nothing"),
            ],
            "contradicted": [
                ("Adults take two tablets of 500 mg every six hours.", "contradicts"),
                ("Up to ten tablets in 24 hours are safe.", "contradicts"),
            ],
        },
    ),
    "shakespeare": (
        "Who wrote Hamlet, and when?",
        [
            "Hamlet is a tragedy by William Shakespeare, written around 1600.",
            "Shakespeare was born in Stratford-upon-Avon in 1564.",
        ],
        {
            "supported": [
                ("Hamlet is a tragedy by William Shakespeare.", "fully"),
                ("Shakespeare was born in 1564.", "fully"),
            ],
            "partly": [
                ("Shakespeare was born in Stratford-upon-Avon.", "fully"),
                ("Hamlet was written around 1600 and first printed in 1603.", "partly"),
            ],
            "unsupported": [
                ("Shakespeare had three children.", "nothing"),
                ("The Globe theatre burned down during a play.", "nothing"),
            ],
            "contradicted": [
                ("Hamlet is a comedy by Christopher Marlowe.", "contradicts"),
                ("Shakespeare was born in London in 1616.", "contradicts"),
            ],
        },
    ),
    "python_search": (
        "What is Python?",
        [
            "Python is a programming language created by Guido van Rossum.",
            "The first version of Python was released in 1991.",
        ],
        {
            "supported": [
                ("Python is a programming language created by Guido van Rossum.", "fully"),
                ("Its first version was released in 1991.", "fully"),
            ],
            "partly": [
                ("Python is a programming language.", "fully"),
                ("Python was released in 1991 and is named after a comedy group.", "partly"),
            ],
            "unsupported": [
                ("Python is the language most often taught in schools.", "nothing"),
                ("Its mascot is a pair of snakes.", "nothing"),
            ],
            "contradicted": [
                ("Python was created by Dennis Ritchie.", "contradicts"),
                ("The first version of Python was released in 2008.", "contradicts"),
            ],
        },
    ),
    "exercise": (
        "What does regular exercise do?",
        [
            "Regular exercise lowers blood pressure and strengthens the heart.",
            "Adults should be active for at least 150 minutes a week.",
        ],
        {
            "supported": [
                ("Regular exercise lowers blood pressure.", "fully"),
                ("Adults should be active for at least 150 minutes a week.", "fully"),
            ],
            "partly": [
                ("Exercise strengthens the heart.", "fully"),
                ("Exercise lowers blood pressure and cures asthma.", "partly"),
            ],
            "unsupported": [
                ("Swimming burns more calories than cycling.", "nothing"),
                ("Most people exercise in the evening.", "nothing"),
            ],
            "contradicted": [
                ("Regular exercise raises blood pressure.", "contradicts"),
                ("Ten minutes of activity a week are all that adults need.", "contradicts"),
            ],
        },
    ),
}
CASES = [
    Case(subject, version, question, context, sentences)
    for subject, (question, context, versions) in SUBJECTS.items()
    for version, sentences in versions.items()
]
