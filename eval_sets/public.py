"""Public sets by name: their published files, from a folder or downloaded with `datasets`, read into labels.

Each set is a folder here with a card and a loader: ``FILES`` (published name: address) and ``rows(files)``, lines of a
labels file. None of their texts are shipped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from faith_dspy.errors import InputError, LabelsError, import_optional, short_message
from faith_dspy.io.labels import parse_example
from faith_dspy.io.readers import open_records
from faith_dspy.text.sentences import split_answer

PUBLIC = (
    "begin",
    "expertqa",
    "faithbench",
    "faithdial",
    "hagrid",
    "halubench",
    "llm_aggrefact",
    "mtrag",
    "ragtruth",
    "rte3",
    "summedits",
    "wice",
)

TAUGHT_DEFAULTS = (
    "begin",
    "expertqa",
    "mtrag",
    "ragtruth",
    "rte3",
    "summedits",
    "wice",
)
"""Those that the shipped default classifiers were fitted to (`faith_dspy/scoring/DEFAULT.md`)."""

Rows = Iterator[dict[str, Any]]
"""Lines of a labels file."""

log = logging.getLogger(__name__)


class Files(dict[str, Path]):
    """Published name: file. One that a loader asks for and is not there is an `InputError`."""

    def __missing__(self, name: str) -> Path:
        raise InputError(
            f"{name} is missing; it belongs to the set's published files, beside {', '.join(self)}."
        )


def card_of(name: str) -> str:
    """Return the card of a shipped or a public set, in Markdown."""
    card = files(f"faith_dspy.eval_sets.{name}") / "CARD.md"
    return card.read_text(encoding="utf-8")


def load_public(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """Return a public set as lines of a labels file, each checked; rows that are none are left out, and the first is
    named.

    ``folder``: a copy of the published files, by their published names; else they are downloaded.
    """
    loader = import_module(f"faith_dspy.eval_sets.{name}")
    copies = _download(loader.FILES) if folder is None else _find(loader.FILES, folder)
    out: dict[str, dict[str, Any]] = {}
    bad: list[str] = []
    for i, row in enumerate(loader.rows(copies), 1):
        row = {k: v for k, v in {**row, "source": name}.items() if v is not None}
        try:
            example = parse_example(row, where=f"{name}, row {i}")
        except LabelsError as exc:
            bad.append(str(exc))
        else:
            out.setdefault(example.id, {**row, "id": example.id})
    if bad:
        log.warning("%s: %d rows left out, the first: %s", name, len(bad), bad[0])
    if not out:
        raise InputError(
            f"{name}: no labelled answer in {', '.join(map(str, copies.values()))}."
        )
    return list(out.values())


def _find(wanted: dict[str, str], folder: Path) -> Files:
    copies = Files()
    for name in wanted:
        for path in sorted(folder.rglob(name))[:1]:
            copies[name] = path
    if not copies:
        raise InputError(
            f"{folder}: none of the set's published files is there; expected {', '.join(wanted)}."
        )
    if missing := [name for name in wanted if name not in copies]:
        log.warning("%s: not there, and left out: %s", folder, ", ".join(missing))
    return copies


def _download(wanted: dict[str, str]) -> Files:
    datasets = import_optional("datasets", "Downloading a public set")
    try:
        paths = datasets.DownloadManager().download(wanted)
        return Files({name: Path(path) for name, path in paths.items()})
    except Exception as exc:  # whatever the network, the hub or a gated set raises
        where = "\n".join(wanted.values())
        raise InputError(
            f"the set cannot be downloaded ({short_message(exc)}). Get these files where you may, and name their "
            f"folder with --from:\n{where}"
        ) from exc


def read_rows(path: Path) -> Rows:
    """Return the rows of a published table or of JSON lines."""
    with open_records(path) as records:
        for record in records:
            if record.problem is not None:
                raise LabelsError(f"{path}, {record.problem}.")
            yield record.row


def read_tabs(path: Path) -> Iterator[dict[str, str]]:
    """Return the rows of a TSV file in which quotes mean nothing."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    for line in lines:
        if len(cells := line.split("\t")) == len(names):
            yield dict(zip(names, cells, strict=True))


def read_object(path: Path) -> Any:
    """Return a published JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def of_spans(
    answer: str, spans: Iterable[tuple[int, int, str, str]]
) -> list[dict[str, Any]]:
    """Return the answer's sentences as statements; one that overlaps a span (start, end, verdict, reason) has its
    verdict."""
    marked = list(spans)
    statements = []
    for s in split_answer(answer).stating:
        verdicts, reasons = ["fully_supported"], []
        for start, end, verdict, why in marked:
            if start < s.end and s.start < end:
                verdicts.append(verdict)
                reasons.append(why)
        verdict = "contradictory" if "contradictory" in verdicts else verdicts[-1]
        statement = {"text": s.text, "verdict": verdict}
        if any(reasons):
            statement["reason"] = "; ".join(dict.fromkeys(filter(None, reasons)))
        statements.append(statement)
    return statements


def taught_defaults(ids: Iterable[str]) -> str | None:
    """Return the set that these examples' ids are of, if the shipped default classifiers were fitted to it."""
    names = (example_id.partition("/")[0] for example_id in ids if "/" in example_id)
    return next((name for name in names if name in TAUGHT_DEFAULTS), None)
