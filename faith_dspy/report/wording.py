"""How a verdict is written, in the terminal and on the HTML page."""

from typing import NamedTuple

UNJUDGED = "unjudged"


class Wording(NamedTuple):
    """A verdict for readers: a mark of one cell, words, and a style of rich."""

    mark: str
    words: str
    style: str


WORDING = {
    "contradictory": Wording("!", "contradicted", "bold red"),
    "not_supported": Wording("✗", "not supported", "red"),
    "no_evidence": Wording("✗", "no evidence", "red"),
    "partially_supported": Wording("◐", "partly supported", "yellow"),
    UNJUDGED: Wording("?", "not judged", "yellow"),
    "fully_supported": Wording("✓", "supported", "green"),
}
"""By verdict, the worst first: a sentence is coloured by the first that one of its statements has."""
