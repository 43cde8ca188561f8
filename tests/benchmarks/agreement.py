"""Agreement with people on public labels, set by set: untuned judge, default judge, lexical baseline, champion.

``python -m tests.benchmarks.agreement [LABELS…] [--ask local]``

``--ask`` puts a fixed sample of the answers to an LM, and appends what it said to ``--replies``, as numbers; what is
there already is not asked again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .public_labels import DATA, HERE, ask, read

if TYPE_CHECKING:
    from collections.abc import Sequence

REPLIES = HERE / "results" / "agreement.jsonl"


def main(argv: Sequence[str] | None = None) -> None:
    """Ask what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", nargs="*", type=Path, help="labelled sets (default: those in ../shared/data)")
    parser.add_argument("--replies", type=Path, default=REPLIES)
    parser.add_argument("--ask", metavar="LM")
    given = parser.parse_args(argv)
    examples = read(given.labels or sorted(DATA.glob("*.jsonl")))
    if given.ask:
        ask(examples, given.ask, given.replies)


if __name__ == "__main__":
    main()
