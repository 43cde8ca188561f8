"""Whether `Judge("none")` sees a single word that was swapped, in twelve languages.

    python -m tests.benchmarks.languages

`languages.txt` says the same in each language: twelve sentences, each with a number and a name in square brackets and
an adjective in braces, as ``[word|another]``. All twelve are the context. The faithful answer is a sentence of it, the
unfaithful ones are the sentence with one word swapped: for another word, or for the one that the next sentence has,
which is harder to see, as the context has it. AUROC is how often a faithful answer is more probable than an unfaithful
one, half for a tie; .50 is a judge that sees nothing. As the faithful answers are copies, it tells blindness from
sight, and not how well a judge does.
"""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from faith_dspy import Judge

SENTENCES = Path(__file__).with_name("languages.txt")
KINDS = ("number", "name", "adjective")
_SWAP = re.compile(r"[\[{]([^|]+)\|([^\]}]+)[\]}]")


def plain(marked: str, swapped: str = "", donor: str = "") -> str:
    """A sentence without its marks, with the word of one kind swapped, if there is one for that of ``donor``."""
    others = {kind_of(m): m[1] for m in _SWAP.finditer(donor)}
    return _SWAP.sub(
        lambda m: others.get(swapped, m[2]) if kind_of(m) == swapped else m[1], marked
    )


def kind_of(match: re.Match[str]) -> str:
    """What a mark holds."""
    return (
        "number"
        if match[1].isdigit()
        else "adjective"
        if match[0].startswith("{")
        else "name"
    )


def languages() -> dict[str, list[str]]:
    """The marked sentences of each language."""
    blocks = SENTENCES.read_text(encoding="utf-8").strip().split("\n\n")
    return {block.split("\n")[0]: block.split("\n")[1:] for block in blocks}


def auroc(faithful: Sequence[float], unfaithful: Sequence[float]) -> float:
    """Share of the pairs in which the faithful answer is the more probable one."""
    pairs = list(product(faithful, unfaithful))
    return sum(a > b or (a == b) / 2 for a, b in pairs) / len(pairs)


def stopped(
    judge: Judge, context: list[str], answers: list[str]
) -> tuple[str, list[float]]:
    """How many of the answers are not faithful, and the probability of each; `ValueError` for one without."""
    found = judge.batch({"context": context, "answer": answer} for answer in answers)
    if any(j.probability is None for j in found):
        raise ValueError(f"unscored: {found[0].unscored}")
    return f"{sum(j.faithful is False for j in found)}/{len(found)}", [
        j.probability for j in found
    ]


def main() -> None:
    """Print the table: of each kind of swap how many of twelve are stopped, and what they are told apart by."""
    judge = Judge("none")
    print(
        "| language | AUROC | number | name | adjective | AUROC, of the next | number | name | adjective | copies |"
    )
    print("|---|" + "--:|" * 9)
    for language, marked in languages().items():
        context = [plain(sentence) for sentence in marked]
        pairs = list(zip(marked, [*marked[1:], marked[0]], strict=True))
        try:
            copies, faithful = stopped(judge, context, context)
            cells = []
            for donors in (False, True):
                swaps = [
                    [plain(s, kind, d if donors else "") for s, d in pairs]
                    for kind in KINDS
                ]
                told = [stopped(judge, context, answers) for answers in swaps]
                cells.append(
                    f"{auroc(faithful, [p for _, chances in told for p in chances]):.2f}"
                )
                cells += [n for n, _ in told]
            print(f"| {language} | {' | '.join(cells)} | {copies} |")
        except ValueError as exc:
            print(f"| {language} | {exc} | | | | | | | | |")


if __name__ == "__main__":
    main()
