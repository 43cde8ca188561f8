"""Labels from elsewhere – tables, feedback in MLflow – as lines of a labels file: what `read_labels` reads, written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from faith_dspy.errors import InputError, LabelsError, counted, in_short, need
from faith_dspy.io.files import write_file
from faith_dspy.io.inputs import COLUMNS
from faith_dspy.io.labels import (
    LABELS,
    LabelColumn,
    label_word,
    parse_example,
    read_labels,
)
from faith_dspy.io.readers import clean, parsed
from faith_dspy.schema import LabelledExample

FIELDS = tuple(name for name in {**COLUMNS, **LABELS} if name != "conversation")
"""Fields of a labels file that a column can be read into."""


class ImportedLabels(BaseModel, extra="forbid", frozen=True):
    """Labelled answers, and what did not become one."""

    rows: list[dict[str, Any]]
    """Lines of a labels file."""
    split: list[str] = []
    """Ids of the rows without a label because their annotators are split."""
    unreadable: list[str] = []
    """What is wrong with each row that was left out."""
    unlabelled: int = 0
    """Rows left out because nobody labelled them."""
    unfinished: int = 0
    """Reviews that are still to be done."""

    @property
    def examples(self) -> list[LabelledExample]:
        """The rows that have a label."""
        examples = [parse_example(row) for row in self.rows]
        return [example for example in examples if example.label is not None]

    @property
    def sentence(self) -> str:
        """What was imported and what was left out."""
        labels = [example.label for example in self.examples]
        parts = [
            f"{counted(len(labels), 'labelled answer')}, {sum(map(bool, labels))} faithful"
        ]
        if self.unlabelled:
            parts.append(f"{self.unlabelled} left out without a label")
        if self.split:
            parts.append(f"{len(self.split)} without one because people are split")
        if self.unreadable:
            parts.append(
                f"{len(self.unreadable)} could not be read, the first: {self.unreadable[0].rstrip('.')}"
            )
        if self.unfinished:
            parts.append(f"{counted(self.unfinished, 'review')} unfinished")
        return "; ".join(parts) + "."


def write_labels(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a labels file."""
    write_file(
        path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )


def row_of(example: LabelledExample) -> dict[str, Any]:
    """Return an example as a line of a labels file."""
    row = example.tags | example.model_dump(
        mode="json", exclude={"tags"}, exclude_defaults=True
    )
    row["context"] = [
        c.text if c.source is None else {"text": c.text, "source": c.source}
        for c in example.context
    ]
    return row


def parse_values(settings: Iterable[str]) -> dict[str, bool]:
    """Parse what labels mean, written as ``grounded=true``, ``1=unfaithful``."""
    values = {}
    for setting in settings:
        value, _, meaning = (part.strip() for part in setting.rpartition("="))
        faithful = label_meaning(meaning)
        if not value or faithful is None:
            raise InputError(
                f"{setting!r} says no label's meaning; expected WORD=true or WORD=false, e.g. FAIL=false."
            )
        values[value] = faithful
    return values


def parse_columns(settings: Iterable[str]) -> dict[str, str]:
    """Parse which column a field is read from, written as ``answer=response``; ``faithful=!column`` negates it."""
    columns = {}
    for setting in settings:
        field, _, column = (part.strip() for part in setting.partition("="))
        if field not in FIELDS or not column:
            raise InputError(
                f"{setting!r} maps no column; expected FIELD=COLUMN, e.g. answer=response. Fields are: "
                f"{', '.join(FIELDS)}."
            )
        columns[field] = column
    return columns


def label_meaning(label: Any, values: Mapping[str, bool] | None = None) -> bool | None:
    """Return whether a person's label means faithful; None where neither it nor ``values`` tell."""
    words = {label_word(value): faithful for value, faithful in (values or {}).items()}
    return LabelColumn("faithful", words=words).meaning(label)


def by_annotator(annotators: Any) -> dict[str, Any]:
    """Return the labels of an answer's annotators; those of a list, or of one inside a list of one, are numbered."""
    labels = parsed(annotators)
    if isinstance(labels, list | tuple):
        nested = len(labels) == 1 and isinstance(labels[0], list | tuple)
        labels = {
            f"person {i}": label
            for i, label in enumerate(labels[0] if nested else labels, 1)
        }
    if not isinstance(labels, Mapping):
        return {}
    return {who: label for who, label in clean(labels).items() if label is not None}


def majority(votes: Iterable[bool | None]) -> bool | None:
    """Return the label of more than half of the votes that are not None; None at a tie, or without votes."""
    cast = [vote for vote in votes if vote is not None]
    margin = 2 * sum(cast) - len(cast)
    return None if margin == 0 else margin > 0


def import_labels(
    path: Path,
    columns: Mapping[str, str] | None = None,
    values: Mapping[str, bool] | None = None,
) -> ImportedLabels:
    """Read a table, or a folder that `datasets` saved, as rows of a labels file.

    Args:
        path: CSV, TSV, Excel, JSON, JSON lines, Parquet, or a folder.
        columns: field → column.
        values: what a value of the label means.

    Returns:
        Each row with its label, else with the majority of its annotators'. Rows without a label are counted, and of
        those that cannot be read it is said what is wrong.

    Raises:
        LabelsError: No row can be read, or it is not clear what the label's values mean.
    """
    source: Any = path
    if path.is_dir():
        datasets = need("datasets", "Reading a folder of datasets")
        try:
            source = datasets.load_from_disk(str(path))
        except Exception as exc:  # whatever a folder holds
            raise LabelsError(
                f"{path}: is no folder that `datasets` saved ({in_short(exc)})."
            ) from exc
    unreadable: list[str] = []
    examples = read_labels(
        source,
        require_label=False,
        columns=columns,
        values=values,
        unreadable=unreadable,
    )
    return label_by_majority(
        {example.id: row_of(example) for example in examples}, unreadable, values
    )


def label_by_majority(
    rows: Mapping[str, dict[str, Any]],
    unreadable: Sequence[str] = (),
    values: Mapping[str, bool] | None = None,
    unfinished: int = 0,
) -> ImportedLabels:
    """Give each row that has no label the majority of its annotators'.

    Args:
        rows: lines of a labels file by where they stand.
        unreadable: what is wrong with rows that were left out before.
        values: what annotators' labels mean.
        unfinished: reviews that are still to be done.

    Returns:
        Rows with a label, and those without one because people are split; what is left out is counted or named.
    """
    kept: list[dict[str, Any]] = []
    split: list[str] = []
    faults = list(unreadable)
    unlabelled = 0
    for place, row in rows.items():
        try:
            example = parse_example(row, where=place)
        except LabelsError as exc:
            faults.append(str(exc))
            continue
        people = by_annotator(row.get("annotators"))
        votes = [label_meaning(label, values) for label in people.values()]
        if example.label is not None:
            kept.append(row)
        elif not people:
            unlabelled += 1
        elif not any(vote is not None for vote in votes):
            word = next(iter(people.values()))
            faults.append(
                f"{place}: the label is {word!r}. Say what it means: --value '{word}=true'"
            )
        else:
            faithful = majority(votes)
            kept.append({**row, "faithful": faithful})
            if faithful is None:
                split.append(example.id)
    return ImportedLabels(
        rows=kept,
        split=split,
        unreadable=faults,
        unlabelled=unlabelled,
        unfinished=unfinished,
    )
