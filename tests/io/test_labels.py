import json

import pytest

from faith_dspy import Chunk
from faith_dspy.errors import InputError, LabelsError
from faith_dspy.io.labels import label_set_hash, parse_example, read_labels
from faith_dspy.io.records import as_chunks

GOOD = {"context": ["The kettle is blue."], "answer": "It is blue.", "faithful": True}


@pytest.fixture
def labels(tmp_path):
    """Writes a labels file of the given lines (objects or text)."""

    def write(*lines):
        path = tmp_path / "labels.jsonl"
        path.write_text(
            "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8"
        )
        return path

    return write


def statement(**fields):
    """A labelled example with one statement."""
    return {"context": ["a", "b"], "answer": "x", "statements": [{"text": "t", **fields}]}


FAULTS = [
    ('{"context": [', r"is no JSON in UTF-8 \(Expecting value: line 1 column 14"),
    ("[1, 2]", "got list, expected an object"),
    ('"text"', "got str, expected an object"),
    ("null", "got NoneType, expected an object"),
    (statement(verdict="supported"), r"statements\.0\.verdict: expected .*'partially_supp.* \(got 'supported'\)"),
    (
        statement(supporting_chunk_ids=[2]),
        r"statements\[0\] names chunk 2, but the context has 2 chunks, counted from 0",
    ),
    (statement(supporting_chunk_ids=[-1]), r"statements\[0\] names chunk -1, but the context has 2 chunks"),
    (statement(supporting_chunk_ids="0"), r"statements\.0\.supporting_chunk_ids: expected .* \(got '0'\)"),
    ({**GOOD, "statements": [{"verdict": "no_evidence"}]}, r"statements\.0\.text: is missing"),
    ({**GOOD, "statements": [None]}, r"statements\.0: expected .* \(got None\)"),
    ({**GOOD, "statements": {"text": "t"}}, r"statements: expected .* \(got {'text': 't'}\)"),
    ({**GOOD, "context": []}, "context is empty: a labelled example needs the text the answer was judged against"),
    ({**GOOD, "context": ["", " "]}, "context is empty"),
    ({"answer": "x", "faithful": True}, "it has no context: got answer, faithful, expected retrieved_contexts"),
    ({**GOOD, "context": [3]}, r"context\[0\] is '3', expected text or an object with 'text'"),
    ({**GOOD, "context": {"text": "x"}}, "context is dict, expected a list of texts or chunks"),
    ({**GOOD, "faithful": "maybe"}, "faithful is 'maybe', expected true or false"),
    ({**GOOD, "faithful": 3}, "faithful is 3, expected true or false"),
    ({**GOOD, "score": 1.5}, r"score: .*less than or equal to 1.* \(got 1.5\)"),
    ('{"context": ["a"], "answer": "x", "score": NaN}', r"is no JSON in UTF-8 \(Out of range float"),
    ({**GOOD, "answer": "x" * 10_000_000}, "characters of question, context and answer, expected at most 10,000,000"),
    ({**GOOD, "answer": "  "}, "answer is '  ', expected text"),
    ({**GOOD, "answer": None}, r"it has no answer: got context, answer \(empty\), faithful, expected answer, "),
    ({**GOOD, "question": 5}, r"question: .*string.* \(got 5\)"),
    ('{"context": ["a \\ud83d"], "answer": "x", "faithful": true}', "is no JSON in UTF-8 .*surrogates not allowed"),
]


@pytest.mark.parametrize(("line", "told"), FAULTS, ids=[str(f[0])[:50] for f in FAULTS])
def test_every_fault_names_file_line_and_what_was_expected(labels, line, told):
    path = labels(GOOD, "", line)
    with pytest.raises(LabelsError, match=told) as caught:
        read_labels(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert "One JSON object a line" in str(caught.value)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("deep", ["[" * 900 + "]" * 900, '{"a": ' * 900 + "1" + "}" * 900, "9" * 5000, "9" * 4000])
@pytest.mark.parametrize("key", ["id", "annotators", "score", "context", "meta", "unknown"])
def test_numbers_and_nesting_that_python_reads_and_cannot_use(labels, key, deep):
    """Integers of thousands of digits and 900 levels of nesting are refused with their line, wherever they stand; 900
    lists beside each other are not."""
    row = json.dumps({**GOOD, key: "PLACE"}).replace('"PLACE"', deep)
    with pytest.raises(LabelsError, match=r", line 1: is no JSON in UTF-8 \((more than 100 brackets|Out of range)"):
        read_labels(labels(row))
    assert len(read_labels(labels({**GOOD, "meta": {"beside": [[]] * 900}}))) == 1


def test_the_same_example_twice(labels):
    again = r", line 3: is the answer at .*labels\.jsonl, line 1 again, or has its id .*annotators"
    with pytest.raises(LabelsError, match=again):
        read_labels(labels({**GOOD, "id": "a"}, {**GOOD, "id": "b"}, {**GOOD, "id": "a"}))
    with pytest.raises(LabelsError, match=again):
        read_labels(labels(GOOD, {**GOOD, "id": "b"}, {**GOOD, "faithful": False}))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "0 rows, none with a usable label"),
        (["", "  "], "0 rows, none with a usable label"),
        ([{"context": ["a"], "answer": "x"}], "1 row, none with a usable label: it has no faithful: got context, ans"),
        ([statement(), statement(verdict=None) | {"answer": "y"}], "2 rows, none with a usable label"),
    ],
)
def test_files_without_a_usable_label(labels, lines, message):
    with pytest.raises(LabelsError, match=message) as caught:
        read_labels(labels(*lines))
    assert '"faithful": true|false' in str(caught.value)


def test_missing_file_folder_and_other_encodings(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.jsonl: cannot be read \(no such file"):
        read_labels(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match=r"cannot be read \(is a directory\); expected CSV, "):
        read_labels(tmp_path)
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(json.dumps(GOOD).encode() + b"\n" + '{"answer": "é"}'.encode("latin-1"))
    with pytest.raises(LabelsError, match=r"latin\.jsonl, line 2: is no JSON in UTF-8 .*can't decode byte 0xe9"):
        read_labels(latin)


def test_null_counts_as_absent_and_unknown_keys_are_ignored():
    plain = parse_example(GOOD)
    full = dict.fromkeys(("question", "id", "statements", "score", "group", "split", "annotators", "meta")) | GOOD
    assert parse_example({**full, "something": [1]}) == plain
    assert plain.question is None
    assert plain.statements == ()


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"faithful": False}, False),
        ({"faithful": True, "score": 0.0}, True),
        ({"score": 1}, True),
        ({"score": 0.99}, False),
        ({"verdicts": ["fully_supported", "fully_supported"]}, True),
        ({"verdicts": ["fully_supported", "partially_supported"]}, False),
        ({"verdicts": ["not_supported"]}, False),
        ({"verdicts": ["contradictory", None]}, False),
        ({"verdicts": ["fully_supported", None]}, True),
        ({"verdicts": ["no_evidence"], "score": 1}, False),
        ({"verdicts": ["no_evidence"], "faithful": True}, True),
        ({"verdicts": [None], "score": 1}, True),
        ({}, None),
    ],
)
def test_label_of_an_answer(given, label):
    """`faithful` counts first, then the statements (all fully supported), then a score of 1; none of them: no label."""
    statements = [{"text": "t", "verdict": v} for v in given.get("verdicts", [])]
    row = {"context": ["a"], "answer": "x", **given, "statements": statements}
    assert parse_example(row).label is label


def test_own_id_is_kept_and_a_missing_one_is_stable():
    """A given id is kept as text; without one it is a hash of question, context and answer alone."""
    assert parse_example({**GOOD, "id": 7}).id == "7"
    assert parse_example(GOOD).id == parse_example({**GOOD, "faithful": False}).id
    assert parse_example(GOOD).id != parse_example({**GOOD, "answer": "It is red."}).id


def test_context_in_all_its_forms():
    """Text, texts, chunks and mappings are chunks with 0-based positions as ids, whatever ids they came with."""
    assert as_chunks("one") == (Chunk(id=0, text="one"),)
    assert as_chunks(None) == ()
    given = ["one", Chunk(id=9, text="two", source="web"), {"text": "three", "source": 3, "id": 44}]
    assert as_chunks(given) == (
        Chunk(id=0, text="one"),
        Chunk(id=1, text="two", source="web"),
        Chunk(id=2, text="three", source="3"),
    )


def test_label_set_hash():
    one, two = parse_example(GOOD), parse_example({**GOOD, "answer": "It is red.", "faithful": False})
    assert label_set_hash([one, two]) == label_set_hash([two, one])
    assert label_set_hash([one, two]) != label_set_hash([one, two.model_copy(update={"faithful": True})])


def test_the_first_ten_faults_are_named_together(labels):
    """A line each, whatever is wrong with it, and then the format once; good lines between them do not matter."""
    path = labels(GOOD, "no", {**GOOD, "answer": 3}, {**GOOD, "id": "b", "answer": "B."}, GOOD)
    with pytest.raises(LabelsError) as caught:
        read_labels(path)
    told = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}, line ")[:14] for line in told[:-1]] == [
        "2: is no JSON ",
        "3: answer is 3",
        "5: is the answ",
    ]
    assert told[-1].startswith("One JSON object a line")
    with pytest.raises(LabelsError) as caught:
        read_labels(labels(*["no"] * 11))
    assert len(str(caught.value).splitlines()) == 11
