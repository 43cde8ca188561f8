from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pandas
import pytest

from faith_dspy.cli import main
from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.data.imports import import_labels, parse_columns, parse_words

if TYPE_CHECKING:
    from pathlib import Path

BENCH = [
    {"id": 1, "passage": "A kettle.", "question": "What?", "answer": "A kettle.", "label": "PASS"},
    {"id": 2, "passage": "A cup.", "question": "What?", "answer": "A mug.", "label": "FAIL"},
]
WORDS = parse_words(["PASS=true", "FAIL=false"])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_a_table_in_any_file(tmp_path: Path, suffix: str) -> None:
    """The same rows give the same labels from each kind of file, columns with the usual names found by themselves."""
    path, frame = tmp_path / f"bench.{suffix}", pandas.DataFrame(BENCH)
    match suffix:
        case "csv" | "tsv":
            frame.to_csv(path, index=False, sep="," if suffix == "csv" else "\t")
        case "parquet":
            frame.to_parquet(path)
        case _:
            frame.to_json(path, orient="records", lines=suffix == "jsonl")
    assert import_labels(path, words=WORDS).rows == [
        {"id": "1", "question": "What?", "context": ["A kettle."], "answer": "A kettle.", "faithful": True},
        {"id": "2", "question": "What?", "context": ["A cup."], "answer": "A mug.", "faithful": False},
    ]


def _json(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def test_spans(tmp_path: Path) -> None:
    """Spans that are not supported make sentence labels; without one the answer is faithful."""
    rows = [
        {
            "response": "It is blue. It is new.",
            "source_info": "It is blue.",
            "labels": [{"start": 12, "end": 21, "text": ""}],
        },
        {"response": "It is blue.", "source_info": "It is blue!", "labels": []},
    ]
    first, second = import_labels(_json(tmp_path / "r.json", *rows), columns=parse_columns(["answer=response"])).rows
    assert [s["verdict"] for s in first["statements"]] == ["fully_supported", "not_supported"]
    assert (first["faithful"], second["faithful"]) == (False, True)


def test_lists_in_cells(tmp_path: Path) -> None:
    """Chunks and annotators that stand in a cell as a list are lists; the majority of annotators is the label."""
    path = tmp_path / "t.csv"
    frame = {"contexts": ["['A cup.', 'It is red.']"], "answer": ["A cup."], "annotators": ['["yes", "no", "yes"]']}
    pandas.DataFrame(frame).to_csv(path, index=False)
    (row,) = import_labels(path).rows
    assert (row["context"], row["faithful"]) == (["A cup.", "It is red."], True)


def test_rows_that_are_left_out(tmp_path: Path) -> None:
    """A row without an answer, without a label, or with nothing but missing opinions is left out, and counted; of
    ratings the highest alone means faithful, and that is said."""
    rows = [
        {"context": "A cup.", "answer": "A cup.", "label": 5},
        {"context": "A cup.", "answer": "A mug.", "label": 4},
    ]
    left = [{"context": "A cup.", "answer": "", "label": 5}, {"context": "A cup.", "answer": "A.", "label": None}]
    people = [{"context": "A cup.", "answer": "B.", "annotators": {"a": None, "b": 5}}]
    found = import_labels(_json(tmp_path / "t.json", *rows, *left, *people))
    assert [r["faithful"] for r in found.rows] == [True, False, True]
    assert found.sentence == (
        "3 labelled answers, 2 faithful (rated 5, the highest rating; others with --value RATING=true); 1 left out "
        "without a label; 1 without answer or context, the first: row 3: it has no answer: got context, "
        "answer (empty), label, expected answer, response, actual_output, generated_answer, output, reply, completion, "
        "generation, summary, claim, text. --map answer=COLUMN names another column."
    )


def test_label_studio(tmp_path: Path) -> None:
    """Each annotation is one person's; a task on which they are split is left out, one without any is no label."""

    def task(i: int, *choices: str) -> dict[str, Any]:
        annotations = [
            {"completed_by": who, "result": [{"from_name": "ok", "value": {"choices": [choice]}}]}
            for who, choice in enumerate(choices)
        ]
        return {"id": i, "data": {"text": "A mug.", "document": f"Cup {i}."}, "annotations": annotations}

    found = import_labels(
        _json(tmp_path / "ls.json", task(1, "Yes", "No", "No"), task(2, "Yes", "No"), task(3)), "label-studio"
    )
    assert found.rows == [
        {"id": "1", "context": ["Cup 1."], "answer": "A mug.", "annotators": {"0": "Yes", "1": "No", "2": "No"},
         "faithful": False}
    ]  # fmt: skip
    assert found.split == ["2"]


def test_argilla(tmp_path: Path) -> None:
    """Responses to one question are people's labels, fields the texts."""
    record = {
        "id": "r1",
        "fields": {"answer": "A mug.", "passage": "A cup."},
        "responses": {
            "faithful": [{"value": "no", "user_id": "u1"}, {"value": "no", "user_id": "u2"}],
            "style": [{"value": "yes", "user_id": "u1"}],
        },
    }
    (row,) = import_labels(_json(tmp_path / "a.json", record), "argilla", {"faithful": "faithful"}).rows
    assert (row["faithful"], row["annotators"]) == (False, {"u1": "no", "u2": "no"})


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            [{**row, "label": word} for row, word in zip(BENCH, ("neutral", "meh"), strict=True)],
            {},
            r"labels of unknown meaning: 'neutral' \(1\), 'meh' \(1\)\. Say it with --value WORD=true or WORD=false\.$",
        ),
        (
            [{**row, "label": word} for row, word in zip([*BENCH, *BENCH], ("yes", "no", "2", 1), strict=True)],
            {},
            r"unknown meaning: '2' \(1\)\.",
        ),
        (BENCH, {"answer": "reply"}, "got id, .*, but no 'reply' for --map answer=reply"),
        (BENCH, {"faithful": "zzz"}, "got id, .*, but no 'zzz' for --map faithful=zzz"),
        (
            [{"said": "A.", "passage": "B.", "label": True}],
            {},
            "row 1: it has no answer: got said, passage, label, expected answer",
        ),
        ([{"answer": " ", "passage": "B.", "label": True}], {}, "row 1: answer is ' ', expected text"),
        ([], {}, "has no rows"),
    ],
)
def test_what_cannot_be_imported(tmp_path: Path, rows: list[Any], columns: dict[str, str], message: str) -> None:
    """The error names what is wrong and what to say instead."""
    with pytest.raises(InputError, match=message):
        import_labels(_json(tmp_path / "t.json", *rows), columns=columns)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Kinds and endings that are not known are named."""
    (tmp_path / "t.xlsx").write_text("x")
    (tmp_path / "t.parquet").write_text("x")
    for name, message in (
        ("t.xlsx", r"ends in \.xlsx; expected"),
        ("t.parquet", "cannot be read"),
        ("no.csv", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            import_labels(tmp_path / name)
    with pytest.raises(InputError, match="'prodigy' is no format; expected one of table, label-studio, argilla"):
        import_labels(tmp_path / "t.json", "prodigy")
    with pytest.raises(InputError, match="'reply' maps no column; expected FIELD=COLUMN"):
        parse_columns(["reply"])


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`labels import` writes a labels file that the other commands read."""
    source, out = _json(tmp_path / "b.json", *BENCH), tmp_path / "labels.jsonl"
    words = ["--value", "PASS=true", "--value", "FAIL=false"]
    monkeypatch.setattr(sys, "argv", ["faith-dspy", "labels", "import", str(source), "--out", str(out), *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    assert "2 labelled answers" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["faith-dspy", "labels", "import", str(out), "--out", str(out)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code, "is the file that is imported" in capsys.readouterr().err) == (2, True)
    assert [e.label for e in read_labels(out)] == [True, False]


@pytest.mark.parametrize(
    ("name", "told"),
    [("no.csv", "no.csv: cannot be read (no such file"), ("b.json", "Name the label's column with --map faithful=")],
)
def test_import_that_finds_no_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    """A file that is missing, or has no label, is refused with what to do, and the labels already there are kept."""
    _json(tmp_path / "b.json", {"passage": "A cup.", "answer": "A mug.", "stars": 5})
    out = tmp_path / "labels.jsonl"
    out.write_text("kept")
    monkeypatch.setattr(sys, "argv", ["faith-dspy", "labels", "import", str(tmp_path / name), "--out", str(out)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code, out.read_text()) == (2, "kept")
    assert told in capsys.readouterr().err
