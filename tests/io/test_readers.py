import json

import pandas
import pytest

from faith_dspy import Judge
from faith_dspy.errors import InputError, LabelsError
from faith_dspy.io.inputs import columns, fields_of, log_columns, log_once, missing
from faith_dspy.io.labels import read_labels
from faith_dspy.io.readers import check_records, open_records, read_inputs

ROWS = [
    {"Query": query, "Contexts": ["A cup.", context], "Response": response, "label": label, "cost": cost}
    for query, context, response, label, cost in (
        ("Which?", "It is red.", "A red cup.", "PASS", 0.1), (None, "It is new.", "A mug.", "FAIL", None),
    )
]  # fmt: skip


def put(path, rows=ROWS):
    """The rows as a file of the kind that its ending says."""
    frame = pandas.DataFrame(rows)
    cells = frame.map(lambda v: json.dumps(v) if isinstance(v, list) else v)
    match path.suffix:
        case ".csv":
            cells.to_csv(path, index=False)
        case ".parquet":
            frame.to_parquet(path)
        case ".xlsx":
            with pandas.ExcelWriter(path) as book:  # its first sheet has no answers
                pandas.DataFrame({"Notes": ["In May."]}).to_excel(book, sheet_name="a")
                cells.to_excel(book, index=False, sheet_name="b")
    return path


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet"])
def test_a_table_of_each_kind_is_the_same_labels(tmp_path, kind):
    examples = read_labels(put(tmp_path / f"l.{kind}"))
    red, mug = examples
    assert (red.question, red.answer, red.faithful) == ("Which?", "A red cup.", True)
    assert (mug.question, mug.answer, mug.faithful) == (None, "A mug.", False)
    assert [chunk.text for chunk in red.context] == ["A cup.", "It is red."]
    by_hand = [e.model_dump() for e in read_labels(ROWS)]
    assert [e.model_dump() for e in examples] == by_hand


def test_data_in_memory():
    """Frames, Hugging Face's data sets and examples are what their rows are; parts keep their names."""
    import datasets

    data = datasets.Dataset.from_list(ROWS)
    examples = read_labels(ROWS)
    for source in (data, pandas.DataFrame(ROWS), examples):
        assert read_labels(source) == examples
    parts = {"train": data.select([0]), "validation": data.select([1])}
    found = read_labels(datasets.DatasetDict(parts))
    assert [e.split for e in found] == ["train", "dev"]


def test_names_are_spelt_in_many_ways():
    """Case, spaces and underscores do not matter; answer and context together mean themselves, and DeepEval's context,
    beside a retrieval context, is not the one that the answer is judged by."""
    row = {"Actual Output": "a", "retrievalContext": [], "context": ["ideal"]}
    assert columns(row) == {"answer": "Actual Output", "context": "retrievalContext"}
    own = {"answer": "a", "context": ["b"], "retrieved_contexts": ["c"], "query": "q"}
    assert fields_of(own) == {"question": "q", "context": ["b"], "answer": "a"}
    assert fields_of({"answer": None, "response": "x"}) == {"answer": "x"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"question": "q", "context": [], "answer": "a", "id": 1, "cost": None}], []),
        (
            [{"": 0, "passage": "p", "generated_text": "a", "model": "m"}],
            [
                "here: context is taken from 'passage', answer is taken from 'generated_text', not used: 'model'"
            ],
        ),
    ],
)
def test_which_columns_are_read_is_said(caplog, rows, said):
    """Once: which column each field is taken from, and which ones nothing is; nothing where the names are ours."""
    log_once.cache_clear()
    for _ in range(2):
        log_columns(rows, "here")
    assert caplog.messages == said


def test_a_column_that_is_missing(tmp_path):
    row = {"context": "A cup.", "answer": "A cup.", "faithful": True}
    for name, wrong in (("faithful", "faithfull"), ("context", "contxt"), ("answer", "anwser")):  # fmt: skip
        noun = "label" if name == "faithful" else name
        path = put(tmp_path / "l.csv", [{wrong if n == name else n: v for n, v in row.items()}])  # fmt: skip
        words = rf"it has no {noun}: got .*{wrong}.*\. If it is {wrong!r}, rename that"
        with pytest.raises(LabelsError, match=words):
            read_labels(path)
    cells = {"inputs": '{"context": "A cup."}', "outputs": '{"answer": "A cup."}'}
    for field, column in (("answer", "outputs.answer"), ("context", "inputs.context")):
        words = f"it has no {field}: got inputs, outputs. If it is '{column}', rename"
        assert missing(cells, field).startswith(words)
    frame = pandas.DataFrame([{"contxt": "A cup.", "answer": "A cup.", "id": None}])
    words = "it has no context: got contxt, answer, id. If it is 'contxt', rename"
    for answers in (put(tmp_path / "a.csv", frame), frame):
        with pytest.raises(InputError, match=words):
            Judge("openai/none").batch(answers)
    for name, fault in (("none.jsonl", "no such file"), ("", "is a directory")):
        with pytest.raises(InputError, match=rf"cannot be read \({fault}"):
            read_labels(tmp_path / name)


def test_cells_that_hold_nothing(tmp_path):
    """What pandas and spreadsheets write for nothing is nothing; in a list of chunks an empty one keeps its place."""
    path = tmp_path / "t.csv"
    path.write_text(
        "answer,context,question,faithful\nA.,c,nan,  \nB.,c,#N/A,NaN\nNone,c,q,yes\n"
    )
    with open_records(path) as records:
        rows = [r.row for r in records]
    assert [(r["answer"], r["question"], r["faithful"]) for r in rows] == [
        ("A.", None, None), ("B.", None, None), ("None", "q", "yes"),
    ]  # fmt: skip
    assert [e.answer for e in read_labels(path)] == ["None"]
    table = {"answer": ["A."], "context": [["", None, "c"]], "faithful": [1]}
    pandas.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    (example,) = read_labels(tmp_path / "t.parquet")
    assert [c.text for c in example.context] == ["", "", "c"]


def test_csv_as_people_write_it(tmp_path):
    """Excel's ``sep=``, semicolons, a byte order mark, quoted line breaks and a context of any length are read; a row
    with a cell too many is said to be one."""
    path = tmp_path / "t.csv"
    long = "x" * 200_000
    chunk = '{""text"": ""x"", ""source"": ""y""}'
    rows = (
        "sep=;",
        "answer;context",
        f'"a\r\nb";"{long}"',
        "",
        "c;d;e",
        f'["a"];"{chunk}"',
        "a;\"['x', 'y']\"",
        "",
    )
    path.write_bytes(("\ufeff" + "\r\n".join(rows)).encode())
    with open_records(path) as records:
        first, second, third, fourth = records
    assert first.row == {"answer": "a\r\nb", "context": long}
    assert second.problem == "row 2: has more cells than the header"
    assert third.row == {
        "answer": '["a"]',
        "context": [{"text": "x", "source": "y"}],
    }  # an answer stays text
    assert fourth.row["context"] == ["x", "y"]  # as pandas writes a list


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.parquet", b"no", "cannot be read"),
        ("a.csv", b"\xff\xff\x00a", "can't decode byte 0xff .*; expected CSV, .* in UTF-8"),
        ("a.csv", b"\xff\xfe\x00a\x00", "cannot be read .*utf-16"),
        ("a.csv", b'answer,context\n"open,b\n', "row that begins in line 2: is a quotation mark not closed"),
        ("a.docx", b"It is blue.\n", "expected CSV, TSV, Excel, Parquet, JSON or JSON lines"),
        ("a.csv", b"context,answer,answer\nx,y,z\n", "two of its columns have the same name"),
        ("a.json", b'[{"reply_text": "x"}]', "it has no answer: got reply_text"),
        ("a.json", b'[{"role": "user", "content": "x"}]', r"it is one message: .*\{\"messages\""),
        ("a.jsonl", b"PK\x03\x04 no lines\n", "it is a zip archive, or a spreadsheet"),
        ("t.html", b"<html><table>", "web page: save its table as CSV"),
        ("t.jsonl.gz", b"\x1f\x8b\x08", "unpack it first"),
        ("t.xlsx", b"PK\x03\x04", "Excel file"),
    ],
)  # fmt: skip
def test_what_is_no_table(tmp_path, name, content, told):
    """A file that holds no records, or none with an answer, is refused, and says what to do in one line."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told) as caught:
        check_records(tmp_path / name)
    assert len(str(caught.value).splitlines()) == 1


LINES = "\n".join(map(json.dumps, ROWS))
TABLE = (
    "Query\tContexts\tResponse\tlabel\nWhich?\t['A cup.' 'It is red.']\tA red cup.\tPASS\n"
    "\t['A cup.', 'It is new.']\tA mug.\tFAIL\n"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("array.jsonl", json.dumps(ROWS)),
        ("data.json", json.dumps({"anything": ROWS}, indent=2)), ("lines.json", LINES), ("none", LINES),
        ("t.csv", TABLE), ("t.csv", TABLE.replace("\t", ";")), ("t.tsv", TABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_whatever_file_they_stand_in_they_are_the_same_labels(
    tmp_path, name, text, encoding
):
    """JSON, whatever the file is called, and tables as spreadsheets and numpy write them."""
    (tmp_path / name).write_bytes(text.encode(encoding))
    examples = read_labels(tmp_path / name)
    assert [e.model_copy(update={"columns": {}}) for e in examples] == [
        e.model_copy(update={"columns": {}}) for e in read_labels(ROWS)
    ]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_of_one_record(tmp_path, indent):
    (tmp_path / "one.json").write_text(json.dumps(ROWS[0], indent=indent))
    assert read_labels(tmp_path / "one.json") == read_labels(ROWS[:1])


def test_messages_as_json_in_a_text_are_a_conversation():
    said = ("user", "Is it blue? It is blue, says Ann."), ("assistant", "It is blue.")
    (one,) = read_inputs([{"messages": json.dumps(said)}])
    assert (one.answer, len(one.chunks)) == ("It is blue.", 1)


@pytest.mark.parametrize("orient", ["columns", "index", "list"])
def test_a_frame_saved_by_columns_says_how_to_save_it(tmp_path, orient):
    path = tmp_path / "t.json"
    row = {"context": "A cup.", "faithful": 1}
    frame = pandas.DataFrame([row | {"answer": f"A {i}."} for i in range(3)])
    by_list = json.dumps(frame.to_dict(orient="list"))
    text = by_list if orient == "list" else frame.to_json(orient=orient)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match='orient="records", lines=True'):
        read_labels(path)
    frame.to_json(path, orient="records", lines=True)
    assert len(read_labels(path)) == 3
