import json

import pytest

from faith_dspy.errors import InputError, LabelsError
from faith_dspy.io.inputs import log_once
from faith_dspy.io.labels import (
    is_model,
    label_set_hash,
    labellers,
    parse_example,
    read_labels,
)

GOOD = {"context": ["The kettle is blue."], "answer": "It is blue.", "faithful": True}


@pytest.fixture
def labels(tmp_path):
    """Writes a labels file of the given lines (objects or text)."""

    def write(*lines):
        path = tmp_path / "labels.jsonl"
        path.write_text(
            "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines),
            encoding="utf-8",
        )
        return path

    return write


def statement(**fields):
    """A labelled example with one statement."""
    return {
        "context": ["a", "b"],
        "answer": "x",
        "statements": [{"text": "t", **fields}],
    }


FAULTS = [
    (
        '{"context": [',
        r"is not JSON in UTF-8 \(EOF while parsing a list at line 1 column 13",
    ),
    ("[1, 2]", "got list, expected an object"),
    (
        statement(verdict="supported"),
        r"statements\.0\.verdict: expected .*'partially_supp.* \(got 'supported'\)",
    ),
    (
        statement(supporting_chunk_ids=[2]),
        r"statements\[0\] names chunk 2, but the context has 2 chunks, counted from",
    ),
    (
        statement(supporting_chunk_ids="0"),
        r"statements\.0\.supporting_chunk_ids: expected .* \(got '0'\)",
    ),
    (
        {**GOOD, "statements": [{"verdict": "no_evidence"}]},
        r"statements\.0\.text: is missing",
    ),
    (
        {**GOOD, "statements": {"text": "t"}},
        r"statements: expected .* \(got {'text': 't'}\)",
    ),
    (
        {**GOOD, "context": []},
        "context is empty: a labelled example needs the text the answer was judged against",
    ),
    (
        {"answer": "x", "faithful": True},
        "it has no context: got answer, faithful, expected retrieved_contexts",
    ),
    (
        {**GOOD, "context": [3]},
        r"context\[0\] is '3', expected text or an object with 'text'",
    ),
    (
        {**GOOD, "context": {"width": "x"}},
        "context is dict, expected a list of texts or chunks",
    ),
    ({**GOOD, "faithful": "maybe"}, "faithful is 'maybe', expected true or false"),
    ({**GOOD, "score": 1.5}, r"score: .*less than or equal to 1.* \(got 1.5\)"),
    (
        '{"context": ["a"], "answer": "x", "score": NaN}',
        r"is not JSON in UTF-8 \(expected value at line 1 column 44",
    ),
    (
        {**GOOD, "answer": "x" * 10_000_000},
        "characters of question, context and answer, expected at most 10,000,000",
    ),
    ({**GOOD, "answer": "  "}, "answer is '  ', expected text"),
    ({**GOOD, "question": 5}, "question is int, expected text or None"),
    (
        '{"context": ["a \\ud83d"], "answer": "x", "faithful": true}',
        "is not JSON in UTF-8 .*hex escape",
    ),
]


DEEP = ["[" * 900 + "]" * 900, '{"a": ' * 900 + "1" + "}" * 900, "9" * 5000, "9" * 4000]
"""What Python reads and cannot use, wherever it stands."""
FAULTS += [
    (
        json.dumps({**GOOD, key: "PLACE"}).replace('"PLACE"', deep),
        r"is not JSON .* \((recursion limit|number out of|a number is)",
    )
    for key in ("score", "unknown")
    for deep in DEEP
]


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
        (
            [{"context": ["a"], "answer": "x", "annotator": "y"}],
            "1 row, none with a usable label: it has no label: got context, answer, annotator, expected",
        ),
        (
            [statement(), statement(verdict=None) | {"answer": "y"}],
            "2 rows, none with a usable label",
        ),
    ],
)
def test_files_without_a_usable_label(labels, lines, message):
    with pytest.raises(LabelsError, match=rf'{message}(.|\n)*"faithful": true\|false'):
        read_labels(labels(*lines))


def test_missing_file_folder_and_other_encodings(tmp_path):
    with pytest.raises(
        InputError, match=r"nothing\.jsonl: cannot be read \(no such file"
    ):
        read_labels(tmp_path / "nothing.jsonl")
    with pytest.raises(
        InputError, match=r"cannot be read \(is a directory\); expected CSV, "
    ):
        read_labels(tmp_path)
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"answer": "é"}'.encode("latin-1"))
    words = r"latin\.jsonl, line 1: is not JSON in UTF-8 .*invalid unicode"
    with pytest.raises(LabelsError, match=words):
        read_labels(latin)


@pytest.mark.parametrize(
    ("given", "verdicts", "label"),
    [
        ({"faithful": False}, [], False), ({"faithful": True, "score": 0.0}, [], True),
        ({"faithful": True}, ["no_evidence"], True), ({"score": 1}, [], True), ({"score": 0.99}, [], False),
        ({"score": 1}, ["no_evidence"], False), ({"score": 1}, [None], True), ({}, [], None),
        ({}, ["fully_supported", "fully_supported"], True), ({}, ["fully_supported", "partially_supported"], False),
        ({}, ["not_supported"], False), ({}, ["contradictory", None], False), ({}, ["fully_supported", None], True),
    ],
)  # fmt: skip
def test_label_of_an_answer(given, verdicts, label):
    """`faithful` counts first, then the statements (all fully supported), then a score of 1; none of them: no label."""
    row = {
        "context": ["a"],
        "answer": "x",
        **given,
        "statements": [{"text": "t", "verdict": v} for v in verdicts],
    }
    assert parse_example(row).label is label


def test_what_makes_an_example():
    """A given id is kept as text; without one it is a hash of question, context and answer alone. A null counts as
    absent, keys we do not know are left out; of a set of labels, order does not matter and a label does."""
    more = ({}, {"faithful": False}, {"answer": "It is red."})
    plain, other, red = (parse_example(GOOD | fields) for fields in more)
    assert parse_example({**GOOD, "id": 7}).id == "7"
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
    return [example.faithful for example in read_labels(rows, **options)]


NEGATED = (
    "hallucination", "is_hallucination", "hallucinated", "hallucination_labels", "has_hallucination", "unfaithful",
    "contains_error", "Is Hallucinated", "containsHallucination", "hallucination_flag", "not_faithful", "unsupported",
    "is_ungrounded", "inconsistent", "has_factual_errors", "human_label_hallucination", "fabricated", "non_factual",
    "isHallucinated", "is_unsupported", "contains_hallucinations", "ungrounded", "factually_inconsistent",
    "not_grounded", "Hallucinated?", "nonfactual",
)  # fmt: skip
PLAIN = (
    "faithful", "is_faithful", "faithfulness", "supported", "grounded", "groundedness", "isGrounded", "factual",
    "factually_consistent", "attributable", "no_hallucination", "hallucination_free", "not_unfaithful", "entailed",
    "without_hallucination", "is_grounded", "grounded_label",
)  # fmt: skip


@pytest.mark.parametrize(("names", "yes"), [(NEGATED, False), (PLAIN, True)])
@pytest.mark.parametrize(
    "pair",
    [("yes", "no"), (1, 0), (1.0, 0.0), (True, False), ("True", "False"), ("Y", "N")],
)
def test_a_name_tells_what_a_yes_means(names, yes, pair):
    for name in names:
        assert faithful(rows_of(name, *pair)) == [
            yes,
            not yes,
        ], name


def test_words_that_tell_mean_the_same_under_every_name():
    for name in ("label", "hallucination", "is_faithful", "consistency"):
        rows = rows_of(name, "PASS", "Fail", "grounded", "not grounded")
        assert faithful(rows) == [True, False, True, False], name


@pytest.mark.parametrize("name", ["label", "Human Label", "result"])
def test_a_column_that_does_not_tell_is_not_guessed(name):
    """One sentence has the counts and the flag; one value that is said tells the other; a graded score is ours."""
    rows = rows_of(name, 1, 0, 1)
    with pytest.raises(LabelsError) as caught:
        read_labels(rows)
    asked = "does not tell which of its values means faithful: '1' (2), '0' (1). Say"
    assert f"labels: {name!r} {asked} what each means: `faith-dspy" in str(caught.value)
    assert "--value 1=unfaithful" in str(caught.value)
    assert faithful(rows, values={"1": False}) == [False, True, False]
    assert faithful(rows, values={"0": False}) == [True, False, True]
    assert [e.label for e in read_labels(rows, require_label=False)] == [None] * 3
    for pair in ((True, False), ("yes", "no")):
        with pytest.raises(LabelsError, match=f"{name!r} does not tell which"):
            read_labels(rows_of(name, *pair))


def test_a_score_under_foreign_names_is_not_guessed():
    foreign = [{"passage": "a", "response": f"x {i}", "score": i} for i in (0, 1)]
    with pytest.raises(LabelsError, match="'score' does not tell"):
        read_labels(foreign)
    assert [e.label for e in read_labels(rows_of("score", 0, 1, 0.5))] == [
        False,
        True,
        False,
    ]


def test_words_of_a_label_count_before_a_score():
    """A metric's score beside people's PASS and FAIL is no label; a column that does not tell leaves it one."""
    rows = rows_of("label", "PASS", "FAIL", "FAIL")
    for row, score in zip(rows, (0.4, 1.0, 0.2), strict=True):
        row["score"] = score
    assert faithful(rows) == [True, False, False]
    for row in rows:
        row["label"] = "reviewed"
    assert [e.label for e in read_labels(rows)] == [False, True, False]


def test_a_column_that_the_user_names():
    """By another name, negated by its own name, by hand, or inside an object; a value of any kind by its word."""
    rows = rows_of("made_up", "yes", "no", "partly")
    said = {"columns": {"faithful": "!made_up"}, "values": {"Partly": False}}
    assert faithful(rows, **said) == [False, True, False]
    rows = rows_of("hallucination", 1, 0)
    for column in ("hallucination", "!hallucination"):
        assert faithful(rows, columns={"faithful": column}) == [False, True]
    inside = [{"a": {"ctx": "a", "text": f"x {i}", "hallucinated": i}} for i in (1, 0)]
    columns = {"context": "a.ctx", "answer": "a.text", "faithful": "a.hallucinated"}
    assert faithful(inside, columns=columns) == [False, True]
    with pytest.raises(
        LabelsError,
        match=r"no .halucination. for --map faithful=halucination; did you mean .hallu",
    ):
        read_labels(rows, columns={"faithful": "halucination"})


def test_spans_of_unsupported_text_are_a_label():
    """An empty list is faithful, as are counts of nothing; a list whose name does not tell is none."""
    span = {"start": 0, "end": 1, "label_type": "Evident Conflict"}
    for name in ("hallucination_labels", "labels", "hallucination_spans"):
        assert faithful(rows_of(name, [span], [])) == [
            False,
            True,
        ], name
    as_text = rows_of("hallucination_labels", json.dumps([span]), "[]")
    assert faithful(as_text) == [False, True]
    counts = {"evident_conflict": 0, "baseless_info": 1}, {"evident_conflict": 0}
    assert faithful(rows_of("hallucination_labels", *counts)) == [False, True]
    with pytest.raises(LabelsError, match="'labels' has other words"):
        read_labels(rows_of("labels", ["Supported"], ["Refuted"]))


def test_objects_without_offsets_or_a_text_are_votes():
    """They are read by their value, of several people's the majority's, and say who voted; an empty list of votes is no
    label."""

    def votes(*words):
        return [{"user": f"p{i}", "vote": word} for i, word in enumerate(words)]

    rows = rows_of("labels", votes("up"), votes("up", "up", "down"), [])
    with pytest.raises(LabelsError, match=r"other words: 'up' \(3\), 'down' \(1\)"):
        read_labels(rows)
    said = {"values": {"up": True, "down": False}, "require_label": False}
    assert faithful(rows, **said) == [True, True, None]
    _, three, _ = read_labels(rows, **said)
    assert three.annotators == {"p0": True, "p1": True, "p2": False}
    tied = rows_of("labels", votes("PASS", "FAIL"), votes("FAIL"))
    assert faithful(tied, require_label=False) == [None, False]
    rows = rows_of("hallucination", [{"value": "no"}], [{"value": 1}], ["no"])
    assert faithful(rows) == [True, False, True]


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
    ("column", "cells", "said"),
    [
        ("grounded.responses", (["no"], ["yes", "yes"]), {}),
        ("responses", [{"faithful": [{"value": vote, "user_id": "u1", "status": "submitted"},
                                     {"value": other, "user_id": "u2", "status": "discarded"},
                                     {"value": other, "user_id": "u3", "status": "draft"}]}
                       for vote, other in (("no", "yes"), ("yes", "no"))],
         {"columns": {"faithful": "responses.faithful"}}),
        ("scores", ([{"name": "tone", "value": 1}, {"name": "faithful", "value": 0}],
                    [{"name": "faithful", "value": 1}]), {"columns": {"faithful": "scores"}}),
        ("feedback", ('[{"key": "hallucination", "score": 1}]', '[{"key": "hallucination", "score": 0}]'),
         {"columns": {"faithful": "feedback.hallucination"}}),
        ("annotations", ([{"completed_by": 1, "result": [{"value": {"choices": ["bad"]}}]},
                          {"completed_by": 2, "was_cancelled": True, "result": [{"value": {"choices": ["good"]}}]}],
                         [{"result": [{"value": {"choices": ["good"]}}]}]),
         {"columns": {"faithful": "annotations"}, "values": {"good": True, "bad": False}}),
        ("answer", ("reject", "accept", "ignore"), {"columns": {"faithful": "answer", "answer": "text"},
         "values": {"accept": True, "reject": False, "ignore": None}}),
    ],
)  # fmt: skip
def test_exports_of_labelling_tools_as_they_are(column, cells, said):
    """Of Argilla, Langfuse, LangSmith (a list as text, too), Label Studio; in Prodigy's ``answer`` is the label."""
    rows = [
        {"context": ["a"], "input": {"q": "?"}, "text": f"x {i}", column: cell}
        for i, cell in enumerate(cells)
    ]
    if column == "answer":
        with pytest.raises(
            LabelsError, match="--map answer=text --map faithful=answer"
        ):
            read_labels(rows)
    said = {**said, "columns": {"answer": "text"} | said.get("columns", {})}
    examples = read_labels(rows, **said)
    assert [example.faithful for example in examples] == [False, True]
    if column == "responses":
        assert examples[0].annotators == {"u1": False}


def test_only_submitted_votes_of_an_argilla_row_count():
    """Written flat, who voted and whether that is submitted stand beside the votes."""
    row = {"context": ["a"], "answer": "x", "faithful.responses": ["no", "yes", "yes"],
           "faithful.responses.status": ["submitted", "discarded", "draft"],
           "faithful.responses.users": ["u1", "u2", "u3"]}  # fmt: skip
    (example,) = read_labels([row])
    assert (example.faithful, example.annotators) == (False, {"u1": False})


def test_objects_whose_value_is_not_known_are_asked_about():
    rows = rows_of("labels", [{"user": "ann", "mark": "PASS"}])
    with pytest.raises(LabelsError, match=r"--map faithful=labels\.mark`"):
        read_labels(rows)
    assert faithful(rows, columns={"faithful": "labels.mark"}) == [True]
    rows = rows_of("scores", [{"name": "tone", "value": 1}, {"name": "ok", "value": 0}])
    with pytest.raises(LabelsError, match=r"about tone, ok; .* faithful=scores\.tone`"):
        read_labels(rows, columns={"faithful": "scores"})
    assert faithful(rows, columns={"faithful": "scores.ok"}, values={"0": False}) == [
        False
    ]


def test_a_csv_file_of_excel_with_objects_as_text(tmp_path):
    """``sep=`` is no header, --map reaches into JSON, and a number is an answer."""
    path = tmp_path / "labels.csv"
    path.write_text('sep=;\ninputs;answer;faithful\n"{""context"": ""a""}";3;yes\n')
    example, *_ = read_labels(path, columns={"context": "inputs.context"})
    assert (example.context[0].text, example.answer, example.faithful) == ("a", "3", True)  # fmt: skip
    row = {"context": ["a"], "answer": 3.0, "faithful": True}
    assert read_labels([row])[0].answer == "3"


def test_annotators_alone_are_a_label():
    rows = rows_of("annotators", {"ann": "yes", "bea": "PASS", "cem": 0}, ["no", 0])
    assert faithful(rows) == [True, False]
    rows = [{"context": ["a"], "answer": "x", "faithful_ann": "yes", "faithful_bea": 1}]
    columns = {"annotators.ann": "faithful_ann", "annotators.bea": "faithful_bea"}
    (example,) = read_labels(rows, columns=columns)
    assert (example.faithful, example.annotators) == (True, {"ann": "yes", "bea": 1})


def test_what_a_label_means_is_not_guessed():
    """“None” is no hallucination, and no label of faithfulness."""
    hallucinations = read_labels(rows_of("hallucination", "None", "yes"))
    assert [e.faithful for e in hallucinations] == [True, False]
    with pytest.raises(LabelsError, match=r"does not tell .*: 'none' \(1\)"):
        read_labels(rows_of("is_faithful", "None", "yes"))


def test_our_own_column_with_ratings_says_what_decides():
    unreadable = []
    with pytest.raises(LabelsError, match=r"'faithful' has other words: .*--value"):
        read_labels(rows_of("faithful", 1, 2, 5), unreadable=unreadable)
    with pytest.raises(LabelsError, match="row 1: 'faithful' does not tell"):
        read_labels(rows_of("faithful", 1, 2, 5))


def test_a_key_that_is_there_twice_is_refused(labels):
    line = '{"context": ["a"], "answer": "x", "faithful": true, "faithful": false}'
    with pytest.raises(LabelsError, match="'faithful' is there twice"):
        read_labels(labels(line))


@pytest.mark.parametrize(
    ("rows", "column", "values", "message"),
    [
        (rows_of("label", 1, 0), "!label", {"1": True, "0": False}, "leave out the “!”"),
        (rows_of("label", 1, 0), "!label", {"1": True}, "leave out the “!”"),
        (rows_of("label", "good", "bad"), "!label", {"good": True, "bad": False}, "leave out the “!”"),
        (rows_of("stars", 5, 1), "stars", {"5": True, "7": False}, r"--value 7, but 'stars' has '5' \(1\), '1' \(1\)"),
        (rows_of("faithful", "yes", "no"), None, {"1": False}, "got --value 1, but 'faithful' has 'yes'"),
        (rows_of("label", "PASS", "FAIL"), None, {"PASSED": True}, "got --value PASSED, but 'label' has 'pass'"),
        (rows_of("score", 1, 0.5), None, {"5": True}, "but no column with labels"),
    ],
)  # fmt: skip
def test_what_the_user_says_of_labels_without_effect_is_refused(rows, column, values, message):  # fmt: skip
    columns = {"faithful": column} if column else {}
    with pytest.raises(LabelsError, match=message) as caught:
        read_labels(rows, columns=columns, values=values)
    assert "One JSON object" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values", "is_negated"),
    [
        ("hallucination", ("faithful", "unfaithful"), False),
        ("hallucination", ("supported", "hallucinated"), False),
        ("is_unsupported", ("entailment", "contradiction"), False),
        ("hallucination", (0, 1), True),
        ("unfaithful", ("no", "yes"), True),
        ("!label", (0, 1), True),
        ("!label", ("FAIL", "PASS"), True),
        ("label", ("PASS", "FAIL"), False),
    ],
)
def test_negated_is_said_only_where_it_was_done(column, values, is_negated, caplog):
    log_once.cache_clear()
    rows = rows_of(column.lstrip("!"), *values)
    columns = {"faithful": column}
    examples = read_labels(rows, columns=columns)
    assert [example.faithful for example in examples] == [True, False]
    said = next(line for line in caplog.messages if "faithful: 1 yes, 1 no" in line)
    assert said.endswith(", negated") is is_negated


@pytest.mark.parametrize("name", ["faithfulness", "hallucination", "label"])
@pytest.mark.parametrize("ratings", [(1, 2, 3), (0, 1, 2), ("1", "5", "3"), (0, 0.5, 1)])  # fmt: skip
def test_the_ends_of_a_scale_are_not_guessed(name, ratings):
    """Beside other numbers a 1 is a rating, whatever the name and the ratings that the user explains."""
    rows = rows_of(name, *ratings)
    for values in (None, {str(ratings[2]): True}):
        with pytest.raises(
            LabelsError, match=f"{name!r} has other words|does not tell"
        ):
            read_labels(rows, values=values)
    means = {str(rating): i == 2 for i, rating in enumerate(ratings)}
    assert faithful(rows, values=means) == [False, False, True]


def test_a_gap_in_a_frame_is_no_group():
    """pandas writes NaN where a cell is empty: each answer without a group is a source of its own context."""
    nan = float("nan")
    rows = [
        {"context": [f"Kettle {i}."], "answer": "Blue.", "faithful": True, "group": nan, "question": nan, "score": nan}
        for i in range(3)
    ]  # fmt: skip
    examples = read_labels(rows)
    assert len({example.group_key for example in examples}) == 3
    assert [example.question for example in examples] == [None] * 3


def test_who_gave_a_label():
    """It is kept as a tag; models are told by their names, people are not."""
    row = {"context": ["Tea."], "answer": "Tea.", "faithful": True}
    examples = read_labels(
        [row | {"id": 1, "labeled_by": "openai/gpt-4o"}, row | {"id": 2, "labelled_by": "Claude"}, row | {"id": 3}]
    )  # fmt: skip
    assert labellers(examples) == {"openai/gpt-4o": 1, "Claude": 1, "not said": 1}
    models = "model", "model: ours", "an LLM", "gpt-4o-mini", "Qwen2.5 7B", "o3"
    people = "person", "ann", "Claude", "annotator 2", "Mia Model-Meyer", "expert"
    assert all(map(is_model, models))
    assert not any(map(is_model, people))
