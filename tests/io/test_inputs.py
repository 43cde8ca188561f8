import asyncio
import base64
import io
import json
import os
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from faith_dspy import Chunk, Judge
from faith_dspy.errors import InputError, LabelsError
from faith_dspy.io.inputs import AnswerInput, as_chunks, fields_of
from faith_dspy.io.labels import read_labels
from faith_dspy.io.readers import STANDARD, check_records, count_lines, read_records

BASE64 = base64.b64encode(bytes(range(256)) * 4).decode()
BLUE = "The kettle is blue."
ROWS = json.loads(Path(__file__).with_name("rows.json").read_bytes())
"""A record under the names of each library."""


@pytest.mark.parametrize("row", [*ROWS.values(), SimpleNamespace(**ROWS["RAGAS"])])
def test_names_of_each_library(row):
    """What each library calls question, context and answer is the same record, a row or an object."""
    one = AnswerInput.of(row)
    texts = [chunk.text for chunk in one.chunks]
    assert (one.question, texts, one.answer) == ("Q?", ["C."], "A.")


def test_a_conversation_or_an_answer():
    messages = [("assistant", "Blue.")]
    assert AnswerInput.of({"messages": messages}).answer == "Blue."
    assert fields_of({"messages": messages, "answer": "A."}) == {"answer": "A."}
    both = AnswerInput.of({"conversation": messages, "answer": "A."})
    assert "got both" in both.problem


def test_abatch_is_cancellable(judge_at):
    """Cancelled while the first answer is asked about, it makes no further call."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(asked):
        begun.set()
        go_on.wait(60)
        return "Yes"

    judge, server = judge_at(says=wait)

    async def cancel():
        records = [{"context": [BLUE], "answer": f"It is {i}."} for i in range(9)]
        task = asyncio.ensure_future(judge.abatch(records, 1))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(cancel())
    assert len(server.requests) == 1


def test_lines_are_read_as_they_are(tmp_path):
    """A byte order mark, line ends of Windows and a last line without one change nothing; blank lines are counted."""
    raw = b'\xef\xbb\xbf{"id": 1}\r\n\r\n  \n{"id": "\xe2\x80\xa8"}\n{"id": 3}'
    found = list(read_records(io.BytesIO(raw)))
    assert [(r.line, r.row["id"]) for r in found] == [(1, 1), (4, "\u2028"), (5, 3)]
    (tmp_path / "in").write_bytes(raw)
    os.mkfifo(tmp_path / "pipe")  # can be read only once: not for its length
    paths = (tmp_path / "in", tmp_path / "pipe", STANDARD)
    assert [count_lines(path) for path in paths] == [5, None, None]


@pytest.mark.parametrize(
    ("file", "left"),
    [
        (f"data:image/png;base64,{BASE64}", "data:image/png;base64,…"),
        (BASE64, "…"),
        ("\n".join(textwrap.wrap(BASE64, 76)), "…"),
        ("0123456789abcdef" * 20, None),  # hexadecimal digits
        ("=" * 300, None),
        ("https://x.org/a/" + "a-long-name/" * 20, None),
    ],
)
def test_a_file_inside_a_text_is_left_out(file, left):
    """Of chunk and answer; what is not one stays."""
    text = f"The kettle is blue. ![it]({file}) It has a lid."
    one = AnswerInput.make(None, [text], text)
    assert one.answer == one.chunks[0].text == text.replace(file, left or file)


def test_half_a_character_is_replaced():
    """Question, chunks and answer can be sent and written; two halves of a character become it."""
    chunks = [{"text": "c \udc00", "source": "s \ud800"}, "\ud83d\ude00"]
    half = AnswerInput.make("q \ud83d", chunks, "a \ud83d b")
    assert (half.question, half.answer) == ("q \ufffd", "a \ufffd b")
    assert half.chunks[0].text == "c \ufffd"
    assert half.chunks[0].source == "s \ufffd"
    assert half.chunks[1].text == "😀"


def test_ids_of_rows():
    rows = [
        {"id": 2, "user_input": "Which?", "contexts": [BLUE]},
        SimpleNamespace(sample_id="c", response=BLUE, retrieved_contexts=[BLUE]),
    ]
    judgments = asyncio.run(Judge("none").abatch(rows))
    assert [(j.id, j.unscored) for j in judgments] == [(2, "parse_failed"), ("c", None)]


CIRCLE = {"role": "user"}
CIRCLE["content"] = [CIRCLE]
DEEP = "It is blue."
for _ in range(5_000):
    DEEP = [DEEP]
LC = {"lc": 1, "type": "constructor", "kwargs": {"content": "It is blue."}}
BROKEN = [
    {"messages": [{**LC, "id": 5}]},
    {"messages": [{"role": "user", "name": LC}]}, {"messages": [{"role": "tool", "content": {**LC, "kwargs": None}}]},
    {"messages": [CIRCLE]}, {"messages": DEEP}, {"context": DEEP, "answer": "It is blue."},
    {"context": [CIRCLE], "answer": "It is blue."},
]  # fmt: skip


@pytest.mark.parametrize("record", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_record_is_unscored_and_the_next_is_judged(record):
    good = {"context": ["It is blue."], "answer": "It is blue."}
    broken, judged = Judge("none").batch([record, good])
    assert (broken.unscored, judged.faithful) == ("parse_failed", True)


def test_a_question_beside_a_conversation_counts():
    """It is what was asked, in a call as in a record; without one the user's last message is."""
    messages = [("user", "The kettle is blue. Is it?"), ("assistant", "It is.")]
    called = AnswerInput.make("Which colour?", conversation=messages)
    record = {"messages": messages, "question": "Which colour?"}
    assert called.question == AnswerInput.of(record).question == "Which colour?"
    assert read_labels([{**record, "faithful": True}])[0].question == "Which colour?"
    asked = AnswerInput.of({"messages": messages}).question
    assert asked == "The kettle is blue. Is it?"


@pytest.mark.parametrize("name", ["prediction", "Generated Answer", "response", "output"])  # fmt: skip
def test_an_answer_beside_a_model_s_is_not_guessed(name):
    """Either may be the reference, so both are named; the same text, or a label, is no second answer."""
    row = {"context": "It is red.", "answer": "It is red."}
    other = {**row, name: "It is blue."}
    message = f"it has 'answer' and {name!r}, which differ"
    assert AnswerInput.of(other).problem.startswith(message)
    with pytest.raises(InputError, match=message):
        check_records([other])
    labelled = [{**other, "faithful": False}]
    with pytest.raises(LabelsError, match=f"{message}.* --map answer=COLUMN"):
        read_labels(labelled)
    example, *_ = read_labels(labelled, columns={"answer": name})
    assert example.answer == "It is blue."
    for same in (" It is red.", "PASS", "not faithful", None):
        assert AnswerInput.of({**row, name: same}).problem is None


def test_arrays_and_lists_as_text_are_contexts():
    """Whatever else begins with a bracket is one text."""
    import numpy

    texts = ["It is red.", "It is new."]
    array = numpy.array(texts)
    broken = str(array).replace("' '", "'\n '")
    for context in (array, broken):
        chunks = AnswerInput.of({"context": context, "answer": "x"}).chunks
        assert [chunk.text for chunk in chunks] == texts
    for text in ("[1, 2]", "[1] It is red.", '{"a": 1}'):
        assert as_chunks(text) == (Chunk(id=0, text=text),)


@pytest.mark.parametrize("null", ["None", "nan", "NULL", "[document]", "…"])
def test_a_null_written_as_text_is_nothing(null):
    judge, text = Judge("none"), "The lamp is red."
    assert judge(context=[text], answer=null).unscored == "no_statements"
    assert judge(context=[null], answer=text).unscored == "no_context"
    assert judge(context=[null, text], answer=text).unscored is None
