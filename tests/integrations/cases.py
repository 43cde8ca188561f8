"""Two small subjects, each answered in four ways: what the systems whose users come here show in their own examples.

Each sentence of an answer has the label a careful reader gives it: ``fully``, ``partly``, ``nothing`` or
``contradicts``. All wording was made for these tests.
"""

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


LABELS = {
    "supported": ("fully", "fully"),
    "partly": ("fully", "partly"),
    "unsupported": ("nothing", "nothing"),
    "contradicted": ("contradicts", "contradicts"),
}
"""Labels of the two sentences of each version, in the order in which `SUBJECTS` has the eight sentences."""
SUBJECTS: dict[str, tuple[str, list[str], list[str]]] = {
    "apollo_11": (
        "Who flew on Apollo 11, and when did it land?",
        [
            "Apollo 11 landed on the Moon on July 20, 1969.",
            "The crew of Apollo 11 was Neil Armstrong, Buzz Aldrin and Michael Collins.",
            "Collins stayed in orbit while Armstrong and Aldrin walked on the surface.",
        ],
        [
            "Apollo 11 landed on the Moon on July 20, 1969.",
            "Armstrong and Aldrin walked on the surface.",
            "The crew of Apollo 11 was Neil Armstrong, Buzz Aldrin and Michael Collins.",
            "Apollo 11 landed on July 20, 1969, in front of 600 million viewers.",
            "The astronauts had trained in Iceland.",
            "The mission cost 355 million dollars.",
            "Michael Collins walked on the surface with Armstrong.",
            "Apollo 11 landed on the Moon in 1971.",
        ],
    ),
    "refund_policy": (
        "Can I get my money back?",
        [
            "Unused items are refunded in full within 30 days of purchase.",
            "Opened software is not refunded.",
            "Refunds go to the card that was used to pay.",
        ],
        [
            "Unused items are refunded in full within 30 days of purchase.",
            "The refund goes to the card you paid with.",
            "Refunds go to the card that was used to pay.",
            "Unused items are refunded within 30 days, shipping included.",
            "Our shops are open on Sundays.",
            "Members of the loyalty club get a voucher of 10 euros.",
            "Opened software is refunded in full.",
            "Unused items can be returned for 90 days.",
        ],
    ),
}
CASES = [
    Case(subject, version, question, context, list(zip(sentences[2 * i :], labels, strict=False)))
    for subject, (question, context, sentences) in SUBJECTS.items()
    for i, (version, labels) in enumerate(LABELS.items())
]
