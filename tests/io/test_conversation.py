import json

import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import as_text, from_conversation

ASKED = "How long does the battery last?"
FOUND = "Model B runs for 14 hours."
EXPECTED = [
    {"text": ASKED, "source": "turn 0: user"},
    {"text": "Let me look.", "source": "turn 1: assistant"},
    {"text": FOUND, "source": "turn 2: tool search_docs"},
]
QUERY = {"q": "battery 99 hours"}
ANSWER = "It lasts 14 hours."
OPENAI = [
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "search_docs", "arguments": json.dumps(QUERY)}},
    ]},
    {"role": "tool", "tool_call_id": "c1", "content": FOUND},
    {"role": "assistant", "content": ANSWER},
]  # fmt: skip
ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": ASKED}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Perhaps 99 hours.", "signature": "s"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "search_docs", "input": QUERY},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": FOUND}]},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]  # fmt: skip
BEDROCK = [
    {"role": "user", "content": [{"text": ASKED}]},
    {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "Perhaps 99 hours."}}},
        {"text": "Let me look."},
        {"toolUse": {"toolUseId": "c1", "name": "search_docs", "input": QUERY}},
    ]},
    {"role": "user", "content": [
        {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": FOUND}]}},
    ]},
    {"role": "assistant", "content": [{"text": ANSWER}]},
]  # fmt: skip
OPENTELEMETRY = [
    {"role": "user", "parts": [{"type": "text", "content": ASKED}]},
    {"role": "assistant", "parts": [
        {"type": "text", "content": "Let me look."},
        {"type": "tool_call", "id": "c1", "name": "search_docs", "arguments": QUERY},
    ]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": FOUND}]},
    {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"},
]  # fmt: skip


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC, BEDROCK, OPENTELEMETRY])
def test_each_way_of_writing_messages(messages):
    """A question, a tool call with its result and an answer are the same record in whichever form they are written.

    The arguments of the call and the model's thinking, which speak of 99 hours, are in no chunk.
    """
    assert from_conversation(messages) == (ASKED, EXPECTED, ANSWER)


def test_two_results_in_one_turn():
    calls = [{"toolUse": {"toolUseId": i, "name": n, "input": {}}} for i, n in (("a", "stock"), ("b", "price"))]
    results = [
        {"toolResult": {"toolUseId": "b", "content": [{"json": {"eur": 12}}]}},
        {"toolResult": {"toolUseId": "a", "status": "error", "content": [{"text": "no such item"}]}},
    ]
    messages = [
        {"role": "user", "content": [{"text": "Price?"}]},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"text": "12 euros."}]},
    ]
    question, context, _ = from_conversation(messages)
    assert question == "Price?"  # results are not the user's words, though they come in a user's message
    assert context[1:] == [
        {"text": '{"eur": 12}', "source": "turn 2: tool price"},
        {"text": "no such item", "source": "turn 2: tool stock (failed)"},
    ]


def test_the_last_turn_is_judged():
    messages = [*OPENAI, {"role": "user", "content": "And model C?"}, {"role": "assistant", "content": "Unknown."}]
    question, context, answer = from_conversation([*messages, {"role": "user", "content": "Thanks."}])
    assert (question, answer) == ("And model C?", "Unknown.")
    assert context[-2:] == [
        {"text": "It lasts 14 hours.", "source": "turn 3: assistant"},
        {"text": "And model C?", "source": "turn 4: user"},
    ]


def test_an_answer_that_is_only_a_tool_call_is_empty():
    """A conversation that stops at a tool call has no answer yet; no earlier turn is judged instead."""
    messages = [{"role": "assistant", "content": "It is blue."}, OPENAI[0], {**OPENAI[1], "content": None}]
    assert from_conversation(messages)[2] == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"text": "a"}, {"type": "text", "text": "b"}, "c"], "a\nb\nc"),
        ({"hours": [14, 9]}, '{"hours": [14, 9]}'),
        ([{"image": {"format": "png"}}], '[{"image": {"format": "png"}}]'),
        (None, ""),
    ],
)
def test_what_a_tool_returns_as_text(value, text):
    """Blocks give their texts, one a line; a value without text is JSON; nothing is nothing."""
    assert as_text(value) == text


def test_odd_messages():
    """A refusal is the answer, calls of no known form name no tool, and content of another type is an error."""
    refusal = {"role": "assistant", "content": None, "refusal": "I can't help."}
    calls = {"toolUse": "search"}
    for odd in ({"tool_calls": 5}, {"tool_calls": [calls]}, {"content": [calls]}):
        messages = [OPENAI[0], {"role": "assistant", **odd}, refusal]
        assert from_conversation(messages) == (ASKED, [EXPECTED[0]], "I can't help.")
    for content in (7, [7], {"a"}):
        with pytest.raises(InputError, match=r"conversation\[0\]: content is .*, expected text or a list of blocks"):
            from_conversation([{"role": "user", "content": content}, refusal])
