import json

import pandas
import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.data.imports import import_labels, parse_columns, parse_words

BENCH = [
    {"id": 1, "passage": "A kettle.", "question": "What?", "answer": "A kettle.", "label": "PASS"},
    {"id": 2, "passage": "A cup.", "question": "What?", "answer": "A mug.", "label": "FAIL"},
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
    """Columns with the usual names are found by themselves."""
    assert imported(*BENCH, words=parse_words(["PASS=true", "FAIL=false"])).rows == [
        {"id": "1", "question": "What?", "context": ["A kettle."], "answer": "A kettle.", "faithful": True},
        {"id": "2", "question": "What?", "context": ["A cup."], "answer": "A mug.", "faithful": False},
    ]


def test_spans(imported):
    """Spans that are not supported make sentence labels; without one the answer is faithful."""
    span = {"start": 12, "end": 21, "text": ""}
    first, second = imported(
        {"response": "It is blue. It is new.", "source_info": "It is blue.", "labels": [span]},
        {"response": "It is blue.", "source_info": "It is blue!", "labels": []},
        columns=parse_columns(["answer=response"]),
    ).rows
    assert [s["verdict"] for s in first["statements"]] == ["fully_supported", "not_supported"]
    assert (first["faithful"], second["faithful"]) == (False, True)


def test_lists_in_cells(tmp_path):
    """Chunks and annotators that stand in a cell as a list are lists; the majority of annotators is the label."""
    cells = {"contexts": "['A cup.', 'It is red.']", "answer": "A cup.", "annotators": '["yes", "no", "yes"]'}
    pandas.DataFrame([cells]).to_csv(tmp_path / "t.csv", index=False)
    (row,) = import_labels(tmp_path / "t.csv").rows
    assert (row["context"], row["faithful"]) == (["A cup.", "It is red."], True)


def test_rows_that_are_left_out(imported):
    """A row without an answer, without a label, or with nothing but missing opinions is left out, and counted; of
    ratings the highest alone means faithful, and that is said."""
    found = imported(
        {**CUP, "label": 5},
        {**CUP, "label": 4},
        {**CUP, "answer": "", "label": 5},
        {**CUP, "label": None},
        {**CUP, "annotators": {"a": None, "b": 5}},
    )
    assert [r["faithful"] for r in found.rows] == [True, False, True]
    assert found.sentence == (
        "3 labelled answers, 2 faithful (rated 5, the highest rating; others with --value RATING=true); 1 left out "
        "without a label; 1 could not be read, the first: row 3: it has no answer: got context, "
        "answer (empty), label, expected answer, response, actual_output, generated_answer, output, reply, completion, "
        "generation, summary, claim, text. --map answer=COLUMN names another column."
    )


def test_broken_rows(tmp_path, cli):
    """Each is named with its line and what is wrong; a dry run shows three of the others, and writes nothing."""
    broken = {
        ",A cup.,yes,,": "it has no context: got ",
        "A cup.,,yes,,": "it has no answer: got ",
        "A cup.,A cup.,perhaps,,": "the label is 'perhaps'. Say what it means: --value 'perhaps=true'",
        "A cup.,A cup.,yes,,,more": "has more cells than the header",
        "[],A cup.,yes,,": "context is empty: ",
    }
    good = '"A cup.\nOf tea.",A cup of tea.,yes,,'  # two lines
    rows = ["context,answer,label,statements,split", *[good] * 4, *[*broken] * 2]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    code, out, err = cli("labels", "import", tmp_path / "t.csv", "--dry-run", "--out", tmp_path / "labels.jsonl")
    assert (code, out.count("A cup of tea."), err.count("t.csv, row")) == (0, 3, 10)
    for row, wrong in enumerate([*broken.values()] * 2, 5):
        assert (
            f"t.csv, row {row} (line {row + 5}): {wrong}" in err or f"t.csv, row {row} (line {row + 5}) {wrong}" in err
        )
    assert "4 labelled answers, 4 faithful; 10 could not be read" in err
    assert not (tmp_path / "labels.jsonl").exists()


def test_a_folder_of_datasets(tmp_path):
    """What `datasets` has saved is a table, each row with its part."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"user_input": "?", "retrieved_contexts": ["A."], "response": "A.", "label": 1}])
    datasets.DatasetDict({"validation": rows}).save_to_disk(str(tmp_path / "set"))
    (row,) = import_labels(tmp_path / "set").rows
    assert row == {"question": "?", "context": ["A."], "answer": "A.", "faithful": True, "split": "dev"}


def test_label_studio(imported):
    """Each annotation is one person's; a task on which they are split is left out, one without any is no label."""

    def task(i, *choices):
        annotations = [
            {"completed_by": who, "result": [{"from_name": "ok", "value": {"choices": [choice]}}]}
            for who, choice in enumerate(choices)
        ]
        return {"id": i, "data": {"text": "A mug.", "document": f"Cup {i}."}, "annotations": annotations}

    found = imported(task(1, "Yes", "No", "No"), task(2, "Yes", "No"), task(3), kind="label-studio")
    people = {"0": "Yes", "1": "No", "2": "No"}
    row = {"id": "1", "context": ["Cup 1."], "answer": "A mug.", "annotators": people, "faithful": False}
    assert (found.rows, found.split) == ([row], ["2"])


def test_argilla(imported):
    """Responses to one question are people's labels, fields the texts."""
    said = [{"value": "no", "user_id": "u1"}, {"value": "no", "user_id": "u2"}]
    responses = {"faithful": said, "style": [{"value": "yes", "user_id": "u1"}]}
    record = {"id": "r1", "fields": {"answer": "A mug.", "passage": "A cup."}, "responses": responses}
    (row,) = imported(record, kind="argilla", columns={"faithful": "faithful"}).rows
    assert (row["faithful"], row["annotators"]) == (False, {"u1": "no", "u2": "no"})


def labelled(*words):
    return [BENCH[0] | {"label": word} for word in words]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            labelled("neutral", "meh"),
            (),
            r"labels of unknown meaning: 'neutral' \(1\), 'meh' \(1\)\. Say it with --value WORD=true or WORD=false\.$",
        ),
        (labelled("yes", "no", "2", 1), (), r"unknown meaning: '2' \(1\)\."),
        (labelled("yes", "no", 0.8, 0), (), r"unknown meaning: '0.8' \(1\)\."),
        (BENCH, ["answer=reply"], "got id, .*, but no 'reply' for --map answer=reply"),
        (BENCH, ["faithful=zzz"], "got id, .*, but no 'zzz' for --map faithful=zzz"),
        (BENCH, ["reply"], "'reply' maps no column; expected FIELD=COLUMN"),
        ([{"said": "A.", "passage": "B.", "label": True}], (), "it has no answer: got said, passage, label, expected"),
        ([{"answer": " ", "passage": "B.", "label": True}], (), "row 1: answer is ' ', expected text"),
        ([], (), "has no rows"),
    ],
)
def test_what_cannot_be_imported(imported, rows, columns, message):
    """The error names what is wrong and what to say instead."""
    with pytest.raises(InputError, match=message):
        imported(*rows, columns=parse_columns(columns))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("t.xlsx", "table", r"ends in \.xlsx; expected"),
        ("t.parquet", "table", "cannot be read"),
        ("no.csv", "table", r"no\.csv: cannot be read \(no such file"),
        ("t.json", "prodigy", "'prodigy' is no format; expected one of table, label-studio, argilla"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, kind, message):
    for made in ("t.xlsx", "t.parquet"):
        (tmp_path / made).write_text("x")
    with pytest.raises(InputError, match=message):
        import_labels(tmp_path / name, kind)


def test_on_the_command_line(tmp_path, cli):
    """`labels import` writes a labels file that the other commands read; what it refuses leaves the file as it was."""
    source, stars, out = (tmp_path / name for name in ("b.json", "stars.json", "labels.jsonl"))
    source.write_text(json.dumps(BENCH))
    stars.write_text(json.dumps([CUP | {"stars": 5}]))
    for given, code, told in (
        (source, 0, "2 labelled answers"),
        (out, 2, "is the file that is imported"),
        (stars, 2, "Name the label's column with --map faithful="),
    ):
        found, _, err = cli("labels", "import", given, "--out", out, "--value", "PASS=true", "--value", "FAIL=false")
        assert (found, told in err) == (code, True)
        assert [e.label for e in read_labels(out)] == [True, False]
