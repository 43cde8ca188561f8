"""Labels before a study: from tables and feedback to lines of a labels file, and whether they are enough."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from faith_dspy.errors import InputError, LabelsError, counted
from faith_dspy.io.files import write_file
from faith_dspy.io.labels import (
    answer_key,
    label_set_hash,
    labellers,
    parse_example,
    read_labels,
)
from faith_dspy.io.meanings import (
    LABELS,
    Meanings,
    by_annotator,
    label_meaning,
    label_word,
    majority,
    rating,
    with_majority,
)
from faith_dspy.io.names import COLUMNS
from faith_dspy.optimize.data.pool import (
    check_pool,
    count_sources,
    with_sources,
    words_of_context,
)
from faith_dspy.report.tables import FEW
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM

FIELDS = tuple({**COLUMNS, **LABELS})
"""Fields of a labels file that a column can be read into."""
_DIFFER = 1 / 3
"""Share of the answers that a tuned and an untuned judge call differently, as `detectable_gain` expects it."""


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
        """Return the rows that have a label."""
        examples = [parse_example(row) for row in self.rows]
        return [example for example in examples if example.label is not None]

    @property
    def sentence(self) -> str:
        """Say what was imported and what was left out."""
        labels = [example.label for example in self.examples]
        text = f"{counted(len(labels), 'labelled answer')}, {sum(map(bool, labels))} faithful"
        if self.unlabelled:
            text += f"; {self.unlabelled} left out without a label"
        if self.split:
            text += f"; {len(self.split)} without one because people are split"
        if self.unreadable:
            first = self.unreadable[0].rstrip(".")
            text += f"; {len(self.unreadable)} could not be read, the first: {first}"
        if self.unfinished:
            text += f"; {counted(self.unfinished, 'review')} unfinished"
        return f"{text}."


def write_labels(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a labels file."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_file(path, "".join(lines))


def row_of(example: LabelledExample) -> dict[str, Any]:
    """Return an example as a line of a labels file."""
    row = example.model_dump(
        mode="json",
        exclude={"tags"},
        exclude_defaults=True,
    )
    row["context"] = [
        c.text if c.source is None else {"text": c.text, "source": c.source}
        for c in example.context
    ]
    return example.columns | example.tags | row


def parse_values(settings: Iterable[str]) -> dict[str, bool | None]:
    """Parse what labels mean, written as ``grounded=true``, ``1=unfaithful``; ``ignore=none`` leaves out."""
    values: dict[str, bool | None] = {}
    meanings: dict[str, bool | None] = {}
    for setting in settings:
        value, _, meaning = setting.rpartition("=")
        faithful = label_meaning(meaning)
        is_told = faithful is not None or label_word(meaning) == "none"
        if not value.strip() or not is_told:
            raise InputError(
                f"{setting!r} says no label's meaning; expected WORD=true, WORD=false or WORD=none, e.g. FAIL=false."
            )
        word = label_word(value)
        values[value.strip()] = faithful
        if meanings.setdefault(word, faithful) is not faithful:
            raise InputError(
                f"got --value {word} as true and as false; expected one meaning a word."
            )
    return values


def parse_columns(settings: Iterable[str]) -> dict[str, str]:
    """Parse which column a field is read from, written as ``answer=response``; ``faithful=!column`` negates it."""
    columns: dict[str, str] = {}
    for setting in settings:
        field, _, column = (part.strip() for part in setting.partition("="))
        is_field = field in FIELDS or field.startswith("annotators.")
        if not is_field or not column:
            raise InputError(
                f"{setting!r} maps no column; expected FIELD=COLUMN, e.g. answer=response. Fields are: "
                f"{', '.join(FIELDS)}, annotators.NAME."
            )
        if column.startswith("!") and field != "faithful":
            raise InputError(
                f"got --map {setting}, but only the label can be negated; expected {field}=COLUMN."
            )
        if columns.setdefault(field, column) != column:
            raise InputError(
                f"got --map {field}={columns[field]} and --map {setting}; expected one column a field."
            )
    return columns


def import_labels(
    path: Path,
    columns: Mapping[str, str] | None = None,
    values: Meanings | None = None,
) -> ImportedLabels:
    """Read a table as rows of a labels file.

    Args:
        path: CSV, TSV, Excel, JSON, JSON lines, or Parquet.
        columns: field → column.
        values: what a value of the label means.

    Returns:
        Each row with its label, else with the majority of its annotators'. Rows without a label are counted, and of
        those that cannot be read it is said what is wrong.

    Raises:
        LabelsError: No row can be read, or it is not clear what the label's values mean.
    """
    unreadable: list[str] = []
    try:
        examples = read_labels(
            path,
            require_label=False,
            columns=columns,
            values=values,
            unreadable=unreadable,
        )
    except LabelsError as exc:  # which is said to whoever has run it
        message = str(exc).replace("faith-dspy labels import FILE ", "")
        raise LabelsError(message) from exc
    rows = {example.id: row_of(example) for example in examples}
    return label_by_majority(rows, unreadable, values)


def label_by_majority(
    rows: Mapping[str, dict[str, Any]],
    unreadable: Sequence[str] = (),
    values: Meanings | None = None,
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
    labelled: list[dict[str, Any]] = []
    split_ids: list[str] = []
    faults = list(unreadable)
    unlabelled = 0
    for place, row in rows.items():
        try:
            example = parse_example(row, where=place)
            example = with_majority(example, values)
        except LabelsError as exc:
            faults.append(str(exc))
            continue
        people = by_annotator(example.annotators)
        if example.faithful is not None:
            row = {**row, "faithful": example.faithful}
        if example.label is not None:
            labelled.append(row)
        elif not people:
            unlabelled += 1
        elif {label_meaning(label, values) for label in people.values()} == {None}:
            word = next(iter(people.values()))
            faults.append(
                f"{place}: the label is {word!r}. Say what it means: --value '{word}=true'"
            )
        else:
            labelled.append({**row, "faithful": None})
            split_ids.append(example.id)
    return ImportedLabels(
        rows=labelled,
        split=split_ids,
        unreadable=faults,
        unlabelled=unlabelled,
        unfinished=unfinished,
    )


def audit_labels(path: Any) -> dict[str, Any]:
    """Return whether there are enough labels, counts, labels at odds – with those of their statements, or with another
    row's about the same answer –, and how far their annotators agree. `InputError` when the file cannot be read or
    holds no label."""
    answers = read_labels(path, require_label=False)
    examples = [e for e in answers if e.label is not None]
    if not examples:
        read_labels(path)  # raises, and says what a usable label is
    faithful = sum(bool(e.label) for e in examples)
    verdicts = Counter(
        s.verdict.value for e in examples for s in e.statements if s.verdict
    )
    words = sorted(map(words_of_context, examples))
    labels_of: defaultdict[str, set[bool | None]] = defaultdict(set)
    for e in examples:
        labels_of[_key(e)].add(e.label)
    at_odds = [
        e.id
        for e in examples
        if _contradicts_statements(e) or len(labels_of[_key(e)]) > 1
    ]
    report: dict[str, Any] = {
        "answers": len(answers),
        "without_label": len(answers) - len(examples),
        "faithful": faithful,
        "unfaithful": len(examples) - faithful,
        "statement_verdicts": dict(verdicts),
        "contexts": len({e.context_key for e in examples}),
        "words_of_context_median": words[len(words) // 2],
        "words_of_context_most": words[-1],
        "labels_at_odds": len(at_odds),
        "first_at_odds": ", ".join(at_odds[:5]),
        "labelled_by": labellers(examples),
        "label_set_hash": label_set_hash(examples),
    }
    report["enough"] = _enough(examples)
    ceiling = annotator_agreement(
        answers
    )  # without a label are those they are split on
    if ceiling is not None and ceiling.balanced_accuracy.value is not None:
        accuracy = round(ceiling.balanced_accuracy.value, 3)
        report["annotators_balanced_accuracy"] = accuracy
    return report


def _key(e: LabelledExample) -> str:
    """Return what rows about one answer share, whatever their ids."""
    return answer_key(e.question, e.context, e.answer)


def _contradicts_statements(e: LabelledExample) -> bool:
    """Tell whether ``faithful`` contradicts the verdicts on all of its statements: one of the two is wrong."""
    verdicts = [s.verdict for s in e.statements]
    if e.faithful is None or not verdicts or None in verdicts:
        return False
    return e.faithful != all(v.is_supported for v in verdicts if v)


def _enough(examples: Sequence[LabelledExample]) -> dict[str, str]:
    """Return what the labels are enough for, in words."""
    try:
        labelled = check_pool(with_sources(examples))
    except InputError as exc:
        return {"to tune": f"no: {exc}."}
    n, sources = len(labelled), len({e.group_key for e in labelled})
    subject = f"{counted(n, 'answer')} from {counted(sources, 'source')}"
    rarer = min(count_sources(labelled).values())
    if rarer < SIGNIFICANT_FROM:
        gain = f"no: it takes {SIGNIFICANT_FROM} sources of each label, the rarer one is in {rarer}"
    else:
        points = 100 * detectable_gain(labelled)
        gain = f"{subject}: 50 % power to detect {points:.0f} points"
    few = f"; below {FEW} answers read the interval" if n < FEW else ""
    return {
        "to tune": "yes",
        "to measure": f"yes, {subject}, cross-validated{few}.",
        "to show a gain": f"{gain}.",
    }


def detectable_gain(labelled: Sequence[LabelledExample]) -> float:
    """Return the difference in balanced accuracy that these answers detect with 50 % power (paired, 95 %).

    Half the interval of a paired difference, 1.96 · √(d/4 · (1/n₊ + 1/n₋)), where the judges differ on a share d of the
    answers (`_DIFFER`) and answers over one context tell as much as others: an estimate on the bold side.
    """
    faithful = sum(bool(e.label) for e in labelled)
    unfaithful = len(labelled) - faithful
    variance = _DIFFER / 4 * (1 / faithful + 1 / unfaithful)
    return 1.96 * math.sqrt(variance)


def annotator_agreement(examples: Sequence[LabelledExample]) -> Agreement | None:
    """Measure one annotator against the majority of the others, as a ceiling for a judge; None without a usable label.

    `label_meaning` reads each label; the highest rating in the set (at least 1) means faithful. Labels it cannot read,
    and opinions where the others tie, are left out; `n` counts opinions. Intervals are over sources.
    """
    labels_of = [list(by_annotator(e.annotators).values()) for e in examples]
    ratings = [rating(label) for labels in labels_of for label in labels]
    top = max([1.0, *(r for r in ratings if r is not None)])
    opinions = []
    for example, labels in zip(examples, labels_of, strict=True):
        read = [label_meaning(label, top=top) for label in labels]
        for i, own in enumerate(read):
            others = majority(read[:i] + read[i + 1 :])
            if own is not None and others is not None:
                opinions.append((others, own, example.group_key))
    if not opinions:
        return None
    by_others, by_one, sources = zip(*opinions, strict=True)
    return measure(by_others, by_one, [None] * len(opinions), groups=sources)
