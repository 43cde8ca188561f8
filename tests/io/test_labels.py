import json

import pytest

from faith_dspy.errors import LabelsError
from faith_dspy.io.inputs import log_once
from faith_dspy.io.labels import (
    is_model,
    label_set_hash,
    labellers,
    parse_example,
    read_labels,
)

GOOD = {"context": ["The kettle is blue."], "answer": "It is blue.", "faithful": True}
DEEP = ["[" * 900 + "]" * 900, '{"a": ' * 900 + "1" + "}" * 900, "9" * 5000, "9" * 4000]
"""What Python reads and cannot use, wherever it stands."""


@pytest.fixture
def labels(tmp_path):
    """Writes a labels file of the given lines (objects or text)."""

    def write(*lines):
        path = tmp_path / "labels.jsonl"
        texts = [x if isinstance(x, str) else json.dumps(x) for x in lines]
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return path

    return write


def statement(**fields):
    """A labelled example with one statement."""
    return GOOD | {"context": ["a", "b"], "statements": [{"text": "t", **fields}]}


FAULTS = [
    ('{"context": [', r"is not JSON in UTF-8 \(EOF while parsing a list at line 1 column 13"),
    ("[1, 2]", "got list, expected an object"),
    (statement(verdict="supported"), r"statements\.0\.verdict: expected .*'partially_supp.* \(got 'supported'\)"),
    (statement(supporting_chunk_ids=[2]), r"statements\[0\] names chunk 2, but the context has 2 chunks, counted from"),
    ({**GOOD, "statements": [{"verdict": "no_evidence"}]}, r"statements\.0\.text: is missing"),
    ({**GOOD, "statements": {"text": "t"}}, r"statements: expected .* \(got {'text': 't'}\)"),
    ({**GOOD, "context": []}, "context is empty: a labelled example needs the text the answer was judged against"),
    ({"answer": "x", "faithful": True}, "it has no context: got answer, faithful, expected retrieved_contexts"),
    ({**GOOD, "context": [3]}, r"context\[0\] is '3', expected text or an object with 'text'"),
    ({**GOOD, "faithful": "maybe"}, "faithful is 'maybe', expected true or false"),
    ({**GOOD, "score": 1.5}, r"score: .*less than or equal to 1.* \(got 1.5\)"),
    ({**GOOD, "answer": "x" * 10_000_000}, "characters of question, context and answer, expected at most 10,000,000"),
    ({**GOOD, "answer": "  "}, "answer is '  ', expected text"),
    ('{"context": ["a \\ud83d"], "answer": "x", "faithful": true}', "is not JSON in UTF-8 .*hex escape"),
    ('{"context": ["a"], "answer": "x", "score": 1, "score": 0}', "is not JSON in UTF-8 .*'score' is there twice"),
    *(
        (json.dumps({**GOOD, key: 7}).replace("7", deep),
         r"is not JSON .* \((recursion limit|number out of|a number is)")
        for key in ("score", "unknown")
        for deep in DEEP
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "told"), FAULTS, ids=[str(f[0])[:50] for f in FAULTS])
def test_every_fault_names_file_line_and_what_was_expected(labels, line, told):
    path = labels({**GOOD, "meta": {"lists beside each other": [[]] * 900}}, "", line)
    with pytest.raises(LabelsError, match=told) as caught:
        read_labels(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    is_shape = "is not JSON" in told or "expected an object" in told
    assert ("One JSON object a line" in str(caught.value)) is is_shape


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["", "  "], "0 rows, none with a usable label"),
        ([{"context": ["a"], "answer": "x", "annotator": "y"}],
         "1 row, none with a usable label: it has no label: got context, answer, annotator, expected"),
    ],
)  # fmt: skip
def test_files_without_a_usable_label(labels, lines, message):
    with pytest.raises(LabelsError, match=rf'{message}(.|\n)*"faithful": true\|false'):
        read_labels(labels(*lines))


@pytest.mark.parametrize(
    ("given", "verdicts", "label"),
    [
        ({"faithful": True, "score": 0.0}, [], True),
        ({"faithful": True}, ["no_evidence"], True), ({"score": 1}, [], True), ({"score": 0.99}, [], False),
        ({"score": 1}, ["no_evidence"], False), ({"score": 1}, [None], True), ({}, [], None),
        ({}, ["fully_supported", "partially_supported"], False), ({}, ["contradictory", None], False),
        ({}, ["fully_supported", None], True),
    ],
)  # fmt: skip
def test_label_of_an_answer(given, verdicts, label):
    """`faithful` counts first, then the statements (all fully supported), then a score of 1; none of them: no label."""
    statements = [{"text": "t", "verdict": v} for v in verdicts]
    row = {"context": ["a"], "answer": "x", "statements": statements}
    assert parse_example(row | given).label is label


def test_what_makes_an_example():
    """A given id is kept as text; without one it is a hash of question, context and answer alone. A null counts as
    absent, keys we do not know are left out; of a set of labels, order does not matter and a label does."""
    more = ({}, {"faithful": False}, {"answer": "It is red."})
    plain, other, red = (parse_example(GOOD | fields) for fields in more)
    (number,) = read_labels([{**GOOD, "id": 7, "answer": 3.0}])
    assert (number.id, number.answer) == ("7", "3")
    assert plain.id == other.id != red.id
    nulls = dict.fromkeys(("question", "id", "statements", "score", "group", "split", "meta"))  # fmt: skip
    assert parse_example({**nulls, **GOOD, "something": [1]}) == plain
    assert (plain.question, plain.statements) == (None, ())
    both, turned, others = map(label_set_hash, ([plain, red], [red, plain], [other, red]))  # fmt: skip
    assert both == turned != others


def test_each_kind_of_fault_is_named_once(labels):
    """A line each, whatever is wrong with it – an example or an id that was there before, too –, and then the format
    once; good lines between them do not matter."""
    rows = [GOOD | {"id": "b", "answer": answer} for answer in ("B.", "C.")]
    path = labels(GOOD, "no", *rows, GOOD)
    with pytest.raises(LabelsError) as caught:
        read_labels(path)
    shape, again, form = str(caught.value).splitlines()
    assert shape.startswith(f"{path}, line 2: is not JSON")
    same = f"{path}, line 5: is the answer at {path}, line 1 again, or has its id"
    assert again.startswith(same)
    assert again.endswith("(1 row more like it.)")
    assert form.startswith("One JSON object a line")


def rows_of(column, *values):
    """An answer for each value of a column."""
    return [
        {"context": ["a"], "answer": f"x {i}", column: value}
        for i, value in enumerate(values)
    ]


def faithful(rows, **options):
    """The labels of rows."""
    return [example.label for example in read_labels(rows, **options)]


NEGATED = (
    "is_hallucination", "hallucinated", "hallucination_labels", "unfaithful", "contains_error", "Is Hallucinated",
    "containsHallucination", "hallucination_flag", "not_faithful", "unsupported", "is_ungrounded", "has_factual_errors",
    "human_label_hallucination", "fabricated", "non_factual", "contains_hallucinations", "factually_inconsistent",
    "Hallucinated?",
)  # fmt: skip
PLAIN = (
    "faithfulness", "supported", "groundedness", "isGrounded", "factually_consistent", "attributable",
    "no_hallucination", "hallucination_free", "not_unfaithful", "entailed", "without_hallucination", "grounded_label",
)  # fmt: skip
PAIRS = [("yes", "no"), (1.0, 0.0), (True, False), ("Y", "N")]


@pytest.mark.parametrize(("names", "yes"), [(NEGATED, False), (PLAIN, True)])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_name_tells_what_a_yes_means(names, yes, pair):
    for name in names:
        assert faithful(rows_of(name, *pair)) == [yes, not yes], name


def said(line):
    """What the user says, as after --map and --value: ``faithful=COLUMN WORD=yes WORD=no``."""
    pairs = dict(word.split("=") for word in line.split())
    columns = {"faithful": pairs.pop("faithful")} if "faithful" in pairs else {}
    values = {word: means == "yes" for word, means in pairs.items()}
    return {"columns": columns, "values": values}


SPAN = {"start": 0, "end": 1, "label_type": "Evident Conflict"}
CASES = [
    # Words that tell mean the same under every name; “None” is no hallucination, and no label of faithfulness.
    *((name, ("PASS", "Fail", "grounded", "not grounded"), "", [True, False, True, False])
      for name in ("hallucination", "consistency")),
    ("hallucination", ("None", "yes"), "", [True, False]),
    ("is_faithful", ("None", "yes"), "", r"does not tell .*: 'none' \(1\)"),
    # A column that does not tell is not guessed; one value that is said tells the other.
    ("Human Label", (1, 0, 1), "",
     r"labels: 'Human Label' does not tell which of its values means faithful: '1' \(2\), '0' \(1\). Say what each "
     "means: `faith-dspy .*--value 1=unfaithful"),
    ("label", (1, 0, 1), "0=no", [True, False, True]),
    ("result", ("yes", "no"), "", "'result' does not tell which"),
    ("score", (0, 1, 0.5), "", [False, True, False]),
    # By another name, negated by its own name or by hand; a value of any kind by its word.
    ("made_up", ("yes", "no", "partly"), "faithful=!made_up Partly=no", [False, True, False]),
    ("hallucination", (1, 0), "faithful=!hallucination", [False, True]),
    ("hallucination", (1, 0), "faithful=halucination",
     r"no .halucination. for --map faithful=halucination; did you mean .hallu"),
    # Spans of unsupported text: an empty list is faithful, as are counts of nothing.
    *((name, ([SPAN], []), "", [False, True]) for name in ("labels", "hallucination_spans")),
    ("hallucination_labels", (json.dumps([SPAN]), "[]"), "", [False, True]),
    ("hallucination_labels", ({"evident_conflict": 0, "baseless_info": 1}, {"evident_conflict": 0}), "", [False, True]),
    # Objects without offsets or a text are votes.
    ("labels", ([{"vote": "up"}], [{"vote": "up"}, {"vote": "down"}]), "", r"other words: 'up' \(2\), 'down' \(1\)"),
    ("labels", ([{"user": "ann", "mark": "PASS"}],), "", r"--map faithful=labels\.mark`"),
    ("labels", ([{"user": "ann", "mark": "PASS"}],), "faithful=labels.mark", [True]),
    ("annotators", ({"ann": "yes", "bea": "PASS", "cem": 0}, ["no", 0]), "", [True, False]),
    # Exports of Langfuse, LangSmith (a list as text, too), Label Studio.
    ("scores", ([{"name": "tone", "value": 1}, {"name": "faithful", "value": 0}], [{"name": "faithful", "value": 1}]),
     "faithful=scores", [False, True]),
    ("scores", ([{"name": "tone", "value": 1}, {"name": "ok", "value": 0}],), "faithful=scores",
     r"about tone, ok; .* faithful=scores\.tone`"),
    ("feedback", ('[{"key": "hallucination", "score": 1}]', '[{"key": "hallucination", "score": 0}]'),
     "faithful=feedback.hallucination", [False, True]),
    ("annotations", ([{"completed_by": 1, "result": [{"value": {"choices": ["bad"]}}]},
                      {"completed_by": 2, "was_cancelled": True, "result": [{"value": {"choices": ["good"]}}]}],
                     [{"result": [{"value": {"choices": ["good"]}}]}]),
     "faithful=annotations good=yes bad=no", [False, True]),
    # Beside other numbers a 1 is a rating, whatever the name and the ratings that the user explains.
    *(("hallucination", ratings, line, "'hallucination' has other words|does not tell")
      for ratings in ((1, 2, 3), ("1", "5", "3"), (0, 0.5, 1))
      for line in ("", f"{ratings[2]}=yes")),
    ("label", ("1", "5", "3"), "1=no 5=no 3=yes", [False, False, True]),
    ("faithful", (1, 2, 5), "", "row 1: 'faithful' does not tell"),
    # What the user says without effect is refused.
    ("label", (1, 0), "faithful=!label 1=yes", "leave out the “!”"),
    ("stars", (5, 1), "faithful=stars 5=yes 7=no", r"--value 7, but 'stars' has '5' \(1\), '1' \(1\)"),
    ("label", ("PASS", "FAIL"), "PASSED=yes", "got --value PASSED, but 'label' has 'pass'"),
    ("score", (1, 0.5), "5=yes", "but no column with labels"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "cells", "line", "expected"), CASES)
def test_what_the_cells_of_a_column_mean(column, cells, line, expected):
    rows = rows_of(column, *cells)
    if isinstance(expected, list):
        assert faithful(rows, **said(line)) == expected
        return
    with pytest.raises(LabelsError, match=expected) as caught:
        read_labels(rows, **said(line))
    assert "One JSON object" not in str(caught.value)


def test_labels_that_are_none():
    """Where none is needed: of a column that does not tell, a tie, an empty list of votes; where rows may be left out,
    a column of ratings is still asked about."""
    tie = [{"vote": "PASS"}, {"vote": "FAIL"}]
    for rows, labels in (
        (rows_of("label", 1, 0), [None, None]),
        (rows_of("labels", tie, tie[1:], []), [None, False, None]),
    ):
        assert faithful(rows, require_label=False) == labels
    with pytest.raises(LabelsError, match=r"'faithful' has other words: .*--value"):
        read_labels(rows_of("faithful", 1, 2, 5), unreadable=[])


def test_a_label_beside_a_score():
    """Words that tell count before a metric's score; under foreign names a score is not guessed."""
    rows = rows_of("label", "PASS", "FAIL", "FAIL")
    for row, score in zip(rows, (0.4, 1.0, 0.2), strict=True):
        row["score"] = score
    assert faithful(rows) == [True, False, False]
    foreign = [{"passage": "a", "response": f"x {i}", "score": i} for i in (0, 1)]
    with pytest.raises(LabelsError, match="'score' does not tell"):
        read_labels(foreign)


def test_columns_that_the_user_names():
    """Inside an object; each person's; and Prodigy's, whose ``answer`` is the label."""
    inside = [{"a": {"ctx": "a", "text": f"x {i}", "hallucinated": i}} for i in (1, 0)]
    columns = {"context": "a.ctx", "answer": "a.text", "faithful": "a.hallucinated"}
    assert faithful(inside, columns=columns) == [False, True]
    row = GOOD | {"faithful": None, "faithful_ann": "yes", "faithful_bea": 1}
    columns = {"annotators.ann": "faithful_ann", "annotators.bea": "faithful_bea"}
    (example,) = read_labels([row], columns=columns)
    assert (example.faithful, example.annotators) == (True, {"ann": "yes", "bea": 1})
    rows = rows_of("text", "x", "y", "z")
    for row, decision in zip(rows, ("reject", "accept", "ignore"), strict=True):
        row["answer"] = decision
    with pytest.raises(LabelsError, match="--map answer=text --map faithful=answer"):
        read_labels(rows)
    decisions = {"accept": True, "reject": False, "ignore": None}
    columns = {"faithful": "answer", "answer": "text"}
    assert faithful(rows, columns=columns, values=decisions) == [False, True]


@pytest.mark.parametrize(
    ("row", "line", "label", "annotators"),
    [
        ({"labels": [{"user": f"p{i}", "vote": word} for i, word in enumerate(("up", "up", "down"))]},
         "up=yes down=no", True, {"p0": True, "p1": True, "p2": False}),
        ({"responses": {"faithful": [{"value": "no", "user_id": "u1", "status": "submitted"},
                                     {"value": "yes", "user_id": "u2", "status": "discarded"}]}},
         "faithful=responses.faithful", False, {"u1": False}),
        ({"faithful.responses": ["no", "yes", "yes"], "faithful.responses.status": ["submitted", "discarded", "draft"],
          "faithful.responses.users": ["u1", "u2", "u3"]}, "", False, {"u1": False}),
    ],
)  # fmt: skip
def test_who_voted_is_kept(row, line, label, annotators):
    """Of Argilla's rows, nested and flat, only submitted votes count."""
    (example,) = read_labels([{"context": ["a"], "answer": "x"} | row], **said(line))
    assert (example.faithful, example.annotators) == (label, annotators)


def test_a_row_for_each_annotator_is_one_answer(caplog):
    """The majority counts, a tie is no label, and it is said; without a column for people, labels that differ tell.
    Another answer under the same id is still refused."""
    labels = {"ann": (1, 0, 1), "bea": (1, 0, 0), "cem": (0, 0, None)}
    rows = [
        {"id": i, "context": ["a"], "answer": f"x {i}", "rater": who, "faithful": label}
        for who, values in labels.items()
        for i, label in enumerate(values)
    ]
    log_once.cache_clear()
    examples = read_labels(rows, require_label=False)
    assert [example.faithful for example in examples] == [True, False, None]
    assert examples[0].annotators == {"ann": True, "bea": True, "cem": False}
    assert "labels: 9 rows of several people about 3 answers" in caplog.text
    for row in rows:
        del row["rater"], row["id"]
    assert faithful(rows, require_label=False) == [True, False, None]
    assert "9 rows about 3 answers, 2 with labels at odds" in caplog.text
    with pytest.raises(LabelsError, match="has its id '1'"):
        read_labels([{**row, "id": 1, "rater": "ann"} for row in rows])


@pytest.mark.parametrize(
    ("column", "values", "is_negated"),
    [
        ("hallucination", ("faithful", "unfaithful"), False),
        ("hallucination", (0, 1), True), ("unfaithful", ("no", "yes"), True), ("!label", ("FAIL", "PASS"), True),
        ("label", ("PASS", "FAIL"), False),
    ],
)  # fmt: skip
def test_negated_is_said_only_where_it_was_done(column, values, is_negated, caplog):
    log_once.cache_clear()
    rows = rows_of(column.lstrip("!"), *values)
    assert faithful(rows, columns={"faithful": column}) == [True, False]
    read = next(line for line in caplog.messages if "faithful: 1 yes, 1 no" in line)
    assert read.endswith(", negated") is is_negated


def test_a_gap_in_a_frame_is_no_group():
    """pandas writes NaN where a cell is empty: each answer without a group is a source of its own context."""
    gaps = dict.fromkeys(("group", "question", "score"), float("nan"))
    rows = [GOOD | {"context": [f"Kettle {i}."]} | gaps for i in range(3)]
    examples = read_labels(rows)
    assert len({example.group_key for example in examples}) == 3
    assert [example.question for example in examples] == [None] * 3


def test_who_gave_a_label():
    """It is kept as a tag; models are told by their names, people are not."""
    tags = ({"labeled_by": "openai/gpt-4o"}, {"labelled_by": "Claude"}, {})
    examples = read_labels([GOOD | {"id": i} | tag for i, tag in enumerate(tags)])
    assert labellers(examples) == {"openai/gpt-4o": 1, "Claude": 1, "not said": 1}
    models = "model: ours", "an LLM", "gpt-4o-mini", "Qwen2.5 7B", "o3"
    people = "person", "Claude", "annotator 2", "Mia Model-Meyer"
    assert all(map(is_model, models))
    assert not any(map(is_model, people))
