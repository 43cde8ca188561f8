import json
import re

import pandas
import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.data.imports import import_labels, parse_columns, parse_values

BENCH = [
    {
        "id": 1,
        "passage": "A kettle.",
        "question": "What?",
        "answer": "A kettle.",
        "label": "PASS",
    },
    {
        "id": 2,
        "passage": "A cup.",
        "question": "What?",
        "answer": "A mug.",
        "label": "FAIL",
    },
]
CUP = {"context": "A cup.", "answer": "A cup."}


@pytest.fixture
def imported(tmp_path):
    """Imports rows from a JSON file."""

    def run(*rows, **options):
        path = tmp_path / "t.json"
        path.write_text(json.dumps(rows))
        return import_labels(path, **options)

    return run


def test_a_table(imported):
    """Columns with the usual names are found by themselves, and so are words that tell; others are said."""
    assert imported(*BENCH).rows == [
        {
            "id": "1",
            "question": "What?",
            "context": ["A kettle."],
            "answer": "A kettle.",
            "faithful": True,
        },
        {
            "id": "2",
            "question": "What?",
            "context": ["A cup."],
            "answer": "A mug.",
            "faithful": False,
        },
    ]
    stars = [{**row, "label": i, "text": "A mug."} for i, row in enumerate(BENCH, 4)]
    found = imported(
        *stars,
        columns={"answer": "text"},
        values=parse_values(["5=faithful", "4=unfaithful"]),
    )
    assert [(row["answer"], row["faithful"]) for row in found.rows] == [
        ("A mug.", False),
        ("A mug.", True),
    ]


def test_spans(imported):
    """Spans that are not supported make an answer unfaithful; without one it is faithful."""
    span = {"start": 12, "end": 21, "text": ""}
    first, second = imported(
        {
            "response": "It is blue. It is new.",
            "source_info": "It is blue.",
            "hallucinations": [span],
        },
        {"response": "It is blue.", "source_info": "It is blue!", "hallucinations": []},
        columns=parse_columns(["answer=response"]),
    ).rows
    assert (first["faithful"], second["faithful"]) == (False, True)


def test_annotators(tmp_path):
    """Lists in a cell are lists; the majority of annotators is the label, and a tie is none."""
    cells = {
        "contexts": "['A cup.', 'It is red.']",
        "answer": "A cup.",
        "annotators": '["yes", "no", "yes"]',
    }
    split = cells | {"answer": "A mug.", "annotators": '["yes", "no"]'}
    pandas.DataFrame([cells, split]).to_csv(tmp_path / "t.csv", index=False)
    labels = import_labels(tmp_path / "t.csv")
    row, tied = labels.rows
    assert (row["context"], row["faithful"]) == (["A cup.", "It is red."], True)
    assert (tied["faithful"], labels.split) == (None, [tied["id"]])


def test_rows_that_are_left_out(imported):
    """A row without an answer is named, one without a label counted."""
    labels = imported(
        {**CUP, "label": "PASS"},
        {**CUP, "answer": "", "label": "PASS"},
        {**CUP, "answer": "A pot.", "label": None},
    )
    assert [row["answer"] for row in labels.rows] == ["A cup."]
    (fault,) = labels.unreadable
    assert "row 2: answer is '', expected text" in fault
    assert labels.sentence.startswith(
        "1 labelled answer, 1 faithful; 1 left out without a label; 1 could not be read"
    )


def test_broken_rows(tmp_path, cli):
    """Each is named with its line and what is wrong; a dry run shows three of the others, and writes nothing."""
    broken = {
        ",A cup.,PASS,,": "it has no context: got ",
        "A cup.,,PASS,,": "it has no answer: got ",
        "A cup.,A cup.,PASS,,,more": "has more cells than the header",
        "[],A cup.,PASS,,": "context is empty",
    }
    good = [
        f'"A cup.\nOf tea {i}.",A cup of tea.,PASS,,' for i in range(4)
    ]  # two lines each
    rows = ["context,answer,label,statements,split", *good, *[*broken] * 2]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    code, out, err = cli(
        "labels",
        "import",
        tmp_path / "t.csv",
        "--dry-run",
        "--out",
        tmp_path / "labels.jsonl",
    )
    assert (code, out.count("A cup of tea."), err.count("t.csv, row")) == (
        0,
        3,
        9,
    )  # the first once more, in the sum
    for row, wrong in enumerate([*broken.values()] * 2, 5):
        assert re.search(rf"t\.csv, row {row}\b.*{re.escape(wrong)}", err), (row, wrong)
    assert "4 labelled answers, 4 faithful; 8 could not be read" in err
    assert not (tmp_path / "labels.jsonl").exists()


def test_a_folder_of_datasets(tmp_path):
    """What `datasets` has saved is a table, each row with its part."""
    datasets = pytest.importorskip("datasets")
    row = {
        "user_input": "?",
        "retrieved_contexts": ["A."],
        "response": "A.",
        "faithful": 1,
    }
    datasets.DatasetDict(
        {"validation": datasets.Dataset.from_list([row])}
    ).save_to_disk(str(tmp_path / "set"))
    (found,) = import_labels(tmp_path / "set").rows
    assert (found["question"], found["context"], found["faithful"], found["split"]) == (
        "?",
        ["A."],
        True,
        "dev",
    )


def labelled(*words):
    return [
        BENCH[0] | {"id": i, "answer": f"A kettle {i}.", "label": word}
        for i, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            labelled("neutral", "meh"),
            (),
            r"'neutral' \(1\), 'meh' \(1\).*--value neutral=unfaithful",
        ),
        (labelled("yes", "no", "2", 1), (), r"does not tell|has other words"),
        (labelled("5", "4", "1"), (), r"--value 1=unfaithful"),
        (BENCH, ["answer=reply"], "got id, .*, but no 'reply' for --map answer=reply"),
        (BENCH, ["faithful=zzz"], "got id, .*, but no 'zzz' for --map faithful=zzz"),
        (BENCH, ["reply"], "'reply' maps no column; expected FIELD=COLUMN"),
        (
            [{"said": "A.", "passage": "B.", "label": True}],
            (),
            "it has no answer: got said, passage, label, expected",
        ),
    ],
)
def test_what_cannot_be_imported(imported, rows, columns, message):
    """The error names what is wrong and what to say instead."""
    with pytest.raises(InputError, match=message):
        imported(*rows, columns=parse_columns(columns))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.parquet", "cannot be read"),
        ("no.csv", r"no\.csv: cannot be read \(no such file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, message):
    (tmp_path / "t.parquet").write_text("x")
    with pytest.raises(InputError, match=message):
        import_labels(tmp_path / name)


def test_values():
    """A value's meaning is said by a word that tells; another is refused."""
    assert parse_values(["fail=false", "made up=unfaithful", "1=no"]) == {
        "fail": False,
        "made up": False,
        "1": False,
    }
    with pytest.raises(
        InputError, match="'FAIL' says no label's meaning; expected WORD=true"
    ):
        parse_values(["FAIL"])


def test_on_the_command_line(tmp_path, cli):
    """`labels import` writes a labels file that the other commands read; what it refuses leaves the file as it was."""
    source, bare, out = (
        tmp_path / name for name in ("b.json", "bare.json", "labels.jsonl")
    )
    source.write_text(json.dumps(BENCH))
    bare.write_text(json.dumps([CUP | {"stars": 5}]))
    for path, code, message in (
        (source, 0, "2 labelled answers"),
        (out, 2, "is the file that is imported"),
        (bare, 2, "Name the label's column with --map faithful="),
    ):
        ended, _, err = cli("labels", "import", path, "--out", out)
        assert (ended, message in err) == (code, True)
        assert [e.label for e in read_labels(out)] == [True, False]
