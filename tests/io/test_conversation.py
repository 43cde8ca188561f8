import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import answers_in, from_conversation
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.labels import read_labels

ASKED = "How long does the battery last?"
FOUND = "Model B runs for 14 hours."
EXPECTED = [
    {"text": ASKED, "source": "turn 0: user"},
    {"text": FOUND, "source": "turn 2: tool search_docs"},
]
ANSWER = "It lasts 14 hours."
WRITTEN = json.loads(Path(__file__).with_name("conversations.json").read_bytes())
"""Conversations as APIs, libraries and files hold them: the same tool call, further formats, requests with their
responses, and blocks with the bytes of a file."""
OPENAI = WRITTEN["tool_call"]["openai"]
BYTES = "JVBERi0xLjQKJcfs"


@pytest.mark.parametrize(
    "messages", WRITTEN["tool_call"].values(), ids=WRITTEN["tool_call"]
)
def test_each_way_of_writing_messages(messages):
    """A question, a tool call with its result and an answer are the same record in whichever form they are written.

    The arguments of the call and the model's thinking, which speak of 99 hours, are in no chunk.
    """
    assert from_conversation(messages) == (ASKED, EXPECTED, ANSWER)


def test_each_answer_with_what_was_retrieved_for_it():
    """A turn ends where the user goes on, not where the assistant calls a tool or its result comes in; an answer that
    nothing was retrieved for has all before it, and what stands beside the messages."""
    call = {"type": "tool_use", "id": "c", "name": "search", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": FOUND}
    sold = "Model A is sold out."
    messages = [
        ("user", "Model A?"), ("assistant", "None."), ("user", "Model B?"), ("assistant", [call]), ("user", [result]),
        ("assistant", ANSWER), ("user", "Sure?"), ("assistant", "Yes."),
    ]  # fmt: skip
    answers = answers_in({"messages": messages, "contexts": [sold]})
    evidence = {
        turn: [c["text"] for c in chunks if "user" not in c["source"]]
        for turn, (_, chunks, _) in answers.items()
    }
    assert evidence == {1: [sold], 5: [FOUND], 7: [sold, FOUND]}
    asked_and_said = [(question, answer) for question, _, answer in answers.values()]
    assert asked_and_said == [("Model A?", "None."), ("Model B?", ANSWER), ("Sure?", "Yes.")]  # fmt: skip


def test_an_answer_that_is_only_a_tool_call_is_empty():
    """A conversation that stops at a tool call has no answer yet; no earlier turn is judged instead."""
    messages = [("assistant", "It is blue."), OPENAI[0], {**OPENAI[1], "content": None}]
    assert from_conversation(messages)[2] == ""


def test_odd_messages():
    """A refusal is the answer, calls of no known form name no tool, and content of another type is an error."""
    refusal = {"role": "assistant", "content": None, "refusal": "I can't help."}
    calls = {"toolUse": "search"}
    for odd in ({"tool_calls": 5}, {"tool_calls": [calls]}, {"content": [calls]}):
        messages = [OPENAI[0], {"role": "assistant", **odd}, refusal]
        assert from_conversation(messages) == (ASKED, [], "I can't help.")
    for content in (7, [7], [["a"]]):
        words = r"conversation\[0\]: content is .*, expected text or a list of blocks"
        with pytest.raises(InputError, match=words):
            from_conversation([("user", content), refusal])


E, Q, A = FOUND, ASKED, ANSWER
U = {"role": "user", "content": Q}
SAYS = {"role": "assistant", "content": A}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": A}]}  # fmt: skip
FORMATS = {
    **WRITTEN["formats"],
    "pairs": [("system", E), ("human", Q), ("ai", A)],
    "langchain objects": [
        SimpleNamespace(type="human", content=Q),
        SimpleNamespace(type="ai", content="", tool_calls=[{"name": "s", "args": {}, "id": "c"}]),
        SimpleNamespace(type="tool", content=E, tool_call_id="c", artifact=None, name=None),
        SimpleNamespace(type="ai", content=A, tool_calls=[]),
    ],
    "langchain artifact": [
        SimpleNamespace(type="human", content=Q),
        SimpleNamespace(type="tool", content="1 document", artifact=[SimpleNamespace(page_content=E, metadata={})]),
        SimpleNamespace(type="ai", content=A),
    ],
    "llamaindex": [
        SimpleNamespace(role=SimpleNamespace(value="user"), content=Q, blocks=None),
        SimpleNamespace(role=SimpleNamespace(value="tool"), content=E, blocks=None),
        SimpleNamespace(role=SimpleNamespace(value="assistant"), content=A, blocks=None),
    ],
}  # fmt: skip
"""The same question, evidence and answer as each API and library writes them, the answer torn where they tear it."""
FILES = {
    **WRITTEN["files"],
    "gemini in Python": {"inline_data": {"mime_type": "image/png", "data": BYTES.encode()}},
}  # fmt: skip


@pytest.mark.parametrize("conversation", FORMATS.values(), ids=FORMATS)
def test_each_format_in_full(conversation, caplog):
    """The answer whole, its evidence once, the question from the last user turn; nothing that is read is noticed."""
    question, context, answer = from_conversation(conversation)
    assert re.sub(r" \[\d+\]", "", answer) == A
    assert Q in question
    assert sum(E in chunk["text"] for chunk in context) == 1
    assert A not in [chunk["text"] for chunk in context]
    assert caplog.messages == []


def test_citations_of_blocks_are_markers():
    """They name the chunk that their quotation stands in, or whose source they name."""
    assert (
        from_conversation(FORMATS["anthropic document text"])[2]
        == "It lasts 14 hours [1]."
    )
    assert (
        from_conversation(FORMATS["responses file search"])[2]
        == "It lasts 14 hours. [2]"
    )


def test_a_block_of_an_unknown_kind_is_named(caplog):
    blocks = [{"type": "hologram", "beams": 3}, {"type": "text", "text": A}]
    assert from_conversation([U, ("assistant", blocks)])[2] == A
    assert "conversation[1]: a block of kind 'hologram' is not read" in caplog.messages


@pytest.mark.parametrize(
    "before",
    [
        [], [U, ("assistant", "Perhaps 14 hours.")],
        *([("user", first), ("assistant", "Models A and B.")] for first in ("Hi.", "Which models?", "And A?")),
    ],
)  # fmt: skip
def test_a_conversation_without_evidence_has_no_context(before, caplog):
    """What a user asked and greeted with is no evidence, nor is what the assistant said; the places are named."""
    assert from_conversation([*before, U, SAYS])[1] == []
    assert "looked at tool results, documents, search results" in caplog.text


def test_what_the_user_told_is_evidence():
    """What the assistant said before is none."""
    messages = [("user", "Our model B runs for 14 hours."), ("assistant", "Good."), U, SAYS]  # fmt: skip
    sources = [chunk["source"] for chunk in from_conversation(messages)[1]]
    assert sources == ["turn 0: user", "turn 2: user"]


@pytest.mark.parametrize("record", WRITTEN["records"].values(), ids=WRITTEN["records"])
def test_each_record_is_read_alike_everywhere(record):
    """As a conversation, as a row of answers and as a row of labels it has the same question, evidence and answer."""
    called = AnswerInput.make(conversation=record)
    assert (called.question, called.answer) == (Q, A)
    assert sum(E in chunk.text for chunk in called.chunks) == 1
    assert A not in [chunk.text for chunk in called.chunks]
    assert AnswerInput.of({**record, "id": 7}) == AnswerInput.make(
        conversation=record, id=7
    )
    (label,) = read_labels([{**record, "faithful": True}])
    assert (label.question, label.context, label.answer) == (Q, called.chunks, A)


@pytest.mark.parametrize("block", FILES.values(), ids=FILES)
@pytest.mark.parametrize("inside", [False, True], ids=["asked", "in a tool's result"])
def test_the_bytes_of_a_file_are_no_evidence(block, inside, caplog):
    """Neither in what the user sends nor in what a tool returns; the kind is named in a notice."""
    blocks = [{"type": "text", "text": E}, block]
    if inside:
        blocks = [{"type": "tool_result", "tool_use_id": "c", "content": blocks}]
    _, context, _ = from_conversation([("user", blocks), U, SAYS])
    assert any(E in chunk["text"] for chunk in context)
    assert BYTES not in str(context)
    is_named = "type" in block or "document" in block or not inside
    assert ("is not read: the bytes of a file" in caplog.text) is is_named


@pytest.mark.parametrize(
    ("conversation", "got"),
    [
        ("User: hi", "got 'User: hi', expected messages like"),
        ([["hi", "hello"]], r"got \['hi', 'hello'\], expected messages"),
        ({"input": {"q": 1}, "output": {"a": 2}}, "got an object with q, expected messages"),
        ([None], "got None, expected messages"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_in_one_sentence(conversation, got):
    with pytest.raises(InputError, match=got) as caught:
        from_conversation(conversation)
    assert len(str(caught.value).splitlines()) == 1


def test_a_message_without_content_is_named(caplog):
    """One that only calls a tool has none; one whose words stand elsewhere loses them, which is said."""
    calls = {"role": "assistant", "tool_calls": [], "content": None}
    from_conversation([U, calls, {"role": "user", "body": E}, SAID])
    assert caplog.messages[0] == "conversation[2]: got role, body, but no content"


def test_what_a_tool_returned_is_kept_whatever_its_shape():
    _, context, _ = from_conversation([U, ("tool", {"weight": 900}), SAID])
    assert context[-1] == {"text": '{"weight": 900}', "source": "turn 1: tool"}


def test_thousands_of_documents_are_read_in_linear_time():
    """4,000 took 39 s; a quotation of one of them, and one that is there again, is left out."""
    documents = [{"text": f"Lamp {i} is red. " * 50} for i in range(4_000)]
    quoted = {"cited_text": "Lamp 7 is red. Lamp 7 is red."}
    says = {"type": "text", "text": "Red.", "citations": [quoted]}
    record = {"messages": [U, {**SAID, "content": [says]}]}
    started = time.process_time()
    _, context, answer = from_conversation(
        record | {"documents": [*documents, documents[0]]}
    )
    assert time.process_time() - started < 4
    assert [chunk["text"] for chunk in context[1:]] == [d["text"] for d in documents]
    assert answer == "Red. [9]"
