import json
import re
from types import SimpleNamespace

import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import as_text, from_conversation
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.labels import read_labels

ASKED = "How long does the battery last?"
FOUND = "Model B runs for 14 hours."
EXPECTED = [
    {"text": ASKED, "source": "turn 0: user"},
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
    calls = [
        {"toolUse": {"toolUseId": i, "name": n, "input": {}}}
        for i, n in (("a", "stock"), ("b", "price"))
    ]
    results = [
        {"toolResult": {"toolUseId": "b", "content": [{"json": {"eur": 12}}]}},
        {
            "toolResult": {
                "toolUseId": "a",
                "status": "error",
                "content": [{"text": "no such item"}],
            }
        },
    ]
    messages = [
        {"role": "user", "content": [{"text": "Price?"}]},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"text": "12 euros."}]},
    ]
    question, context, _ = from_conversation(messages)
    assert (
        question == "Price?"
    )  # results are not the user's words, though they come in a user's message
    assert context[1:] == [
        {"text": '{"eur": 12}', "source": "turn 2: tool price"},
        {"text": "no such item", "source": "turn 2: tool stock (failed)"},
    ]


def test_the_last_turn_is_judged():
    """What the assistant said before is no evidence."""
    messages = [
        *OPENAI,
        {"role": "user", "content": "And model C?"},
        {"role": "assistant", "content": "Unknown."},
    ]
    question, context, answer = from_conversation(
        [*messages, {"role": "user", "content": "Thanks."}]
    )
    assert (question, answer) == ("And model C?", "Unknown.")
    assert context[-2:] == [
        {"text": FOUND, "source": "turn 2: tool search_docs"},
        {"text": "And model C?", "source": "turn 4: user"},
    ]


def test_an_answer_that_is_only_a_tool_call_is_empty():
    """A conversation that stops at a tool call has no answer yet; no earlier turn is judged instead."""
    messages = [
        {"role": "assistant", "content": "It is blue."},
        OPENAI[0],
        {**OPENAI[1], "content": None},
    ]
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
        assert from_conversation(messages) == (ASKED, [], "I can't help.")
    for content in (7, [7], [["a"]]):
        with pytest.raises(
            InputError,
            match=r"conversation\[0\]: content is .*, expected text or a list of blocks",
        ):
            from_conversation([{"role": "user", "content": content}, refusal])


E, Q, A = FOUND, ASKED, ANSWER
U = {"role": "user", "content": Q}
FORMATS = {
    "openai chat tool": [
        U,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "s", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": E},
        {"role": "assistant", "content": A},
    ],
    "openai tool content parts": [
        U,
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": E}]},
        {"role": "assistant", "content": [{"type": "text", "text": A}]},
    ],
    "openai developer": [
        {"role": "developer", "content": E},
        U,
        {"role": "assistant", "content": A},
    ],
    "openai azure context": [
        U,
        {
            "role": "assistant",
            "content": A,
            "context": {"citations": [{"content": E, "title": "b.md", "url": "u"}]},
        },
    ],
    "openai chat response": {
        "messages": [U],
        "choices": [{"message": {"role": "assistant", "content": A}}],
        "documents": [{"text": E}],
    },
    "responses file search": [
        U,
        {
            "type": "file_search_call",
            "id": "f",
            "queries": ["battery"],
            "results": [{"file_id": "x", "filename": "b.md", "text": E}],
        },
        {"type": "reasoning", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": A,
                    "annotations": [
                        {"type": "file_citation", "filename": "b.md", "index": 3}
                    ],
                }
            ],
        },
    ],
    "responses function": [
        U,
        {"type": "function_call", "call_id": "c", "name": "s", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": E},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": A, "annotations": []}],
        },
    ],
    "responses whole": {
        "input": Q,
        "output": [
            {"type": "file_search_call", "results": [{"text": E, "filename": "b.md"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": A}],
            },
        ],
    },
    "anthropic tool result": [
        U,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "s", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "text", "text": E}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": A}]},
    ],
    "anthropic tool result str": [
        U,
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": E}],
        },
        {"role": "assistant", "content": A},
    ],
    "anthropic document text": [
        {
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": E},
                    "title": "b.md",
                    "citations": {"enabled": True},
                },
                {"type": "text", "text": Q},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "It lasts "},
                {
                    "type": "text",
                    "text": "14 hours",
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": E,
                            "document_index": 0,
                            "document_title": "b.md",
                        }
                    ],
                },
                {"type": "text", "text": "."},
            ],
        },
    ],
    "anthropic document content": [
        {
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "source": {
                        "type": "content",
                        "content": [{"type": "text", "text": E}],
                    },
                },
                {"type": "text", "text": Q},
            ],
        },
        {"role": "assistant", "content": A},
    ],
    "anthropic search_result": [
        {
            "role": "user",
            "content": [
                {
                    "type": "search_result",
                    "source": "https://b",
                    "title": "B",
                    "content": [{"type": "text", "text": E}],
                },
                {"type": "text", "text": Q},
            ],
        },
        {"role": "assistant", "content": A},
    ],
    "anthropic search_result in tool": [
        U,
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [
                        {
                            "type": "search_result",
                            "source": "https://b",
                            "title": "B",
                            "content": [{"type": "text", "text": E}],
                        }
                    ],
                }
            ],
        },
        {"role": "assistant", "content": A},
    ],
    "anthropic web search": [
        U,
        {
            "role": "assistant",
            "content": [
                {
                    "type": "server_tool_use",
                    "id": "w",
                    "name": "web_search",
                    "input": {},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "w",
                    "content": [
                        {
                            "type": "web_search_result",
                            "title": "B",
                            "url": "https://b",
                            "encrypted_content": "xx",
                        }
                    ],
                },
                {
                    "type": "text",
                    "text": "It lasts 14 hours.",
                    "citations": [
                        {
                            "type": "web_search_result_location",
                            "url": "https://b",
                            "title": "B",
                            "cited_text": E,
                        }
                    ],
                },
            ],
        },
    ],
    "bedrock toolResult": [
        {"role": "user", "content": [{"text": Q}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "c", "name": "s", "input": {}}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "c",
                        "content": [{"text": E}],
                        "status": "success",
                    }
                }
            ],
        },
        {"role": "assistant", "content": [{"text": A}]},
    ],
    "bedrock document": [
        {
            "role": "user",
            "content": [
                {"document": {"name": "b", "format": "txt", "source": {"text": E}}},
                {"text": Q},
            ],
        },
        {"role": "assistant", "content": [{"text": A}]},
    ],
    "bedrock citationsContent": [
        {
            "role": "user",
            "content": [
                {
                    "document": {
                        "name": "b",
                        "format": "txt",
                        "source": {"content": [{"text": E}]},
                    }
                },
                {"text": Q},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {
                    "citationsContent": {
                        "content": [{"text": A}],
                        "citations": [
                            {
                                "title": "b",
                                "sourceContent": [{"text": "14 hours"}],
                                "location": {"documentChar": {"documentIndex": 0}},
                            }
                        ],
                    }
                }
            ],
        },
    ],
    "bedrock citations only": [
        {"role": "user", "content": [{"text": Q}]},
        {
            "role": "assistant",
            "content": [
                {
                    "citationsContent": {
                        "content": [{"text": A}],
                        "citations": [{"title": "b", "sourceContent": [{"text": E}]}],
                    }
                }
            ],
        },
    ],
    "bedrock kb": {
        "messages": [U, {"role": "assistant", "content": A}],
        "retrievedReferences": [
            {"content": {"text": E}, "location": {"s3Location": {"uri": "s3://b"}}}
        ],
    },
    "bedrock converse response": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": Q},
                    {
                        "searchResult": {
                            "source": "s",
                            "title": "t",
                            "content": [{"text": E}],
                        }
                    },
                ],
            }
        ],
        "output": {"message": {"role": "assistant", "content": [{"text": A}]}},
    },
    "gemini function": {
        "contents": [
            {"role": "user", "parts": [{"text": Q}]},
            {"role": "model", "parts": [{"functionCall": {"name": "s", "args": {}}}]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "s", "response": {"result": E}}}
                ],
            },
            {"role": "model", "parts": [{"text": A}]},
        ]
    },
    "gemini grounding": {
        "contents": [{"role": "user", "parts": [{"text": Q}]}],
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": A}]},
                "groundingMetadata": {
                    "groundingChunks": [
                        {"retrievedContext": {"uri": "gs://b", "title": "b", "text": E}}
                    ],
                    "groundingSupports": [],
                },
            }
        ],
    },
    "gemini thought": [
        {"role": "user", "parts": [{"text": E + " " + Q}]},
        {
            "role": "model",
            "parts": [
                {"text": "hmm 99", "thought": True},
                {"text": "It lasts "},
                {"text": "14 hours."},
            ],
        },
    ],
    "langchain objects": [
        SimpleNamespace(type="human", content=Q),
        SimpleNamespace(
            type="ai", content="", tool_calls=[{"name": "s", "args": {}, "id": "c"}]
        ),
        SimpleNamespace(
            type="tool", content=E, tool_call_id="c", artifact=None, name=None
        ),
        SimpleNamespace(type="ai", content=A, tool_calls=[]),
    ],
    "langchain dumped": [
        {"type": "human", "content": Q},
        {"type": "tool", "content": E, "tool_call_id": "c"},
        {"type": "ai", "content": A},
    ],
    "langchain artifact": [
        SimpleNamespace(type="human", content=Q),
        SimpleNamespace(
            type="tool",
            content="1 document",
            tool_call_id="c",
            artifact=[SimpleNamespace(page_content=E, metadata={"source": "b.md"})],
            name="s",
        ),
        SimpleNamespace(type="ai", content=A),
    ],
    "llamaindex": [
        SimpleNamespace(role=SimpleNamespace(value="user"), content=Q, blocks=None),
        SimpleNamespace(role=SimpleNamespace(value="tool"), content=E, blocks=None),
        SimpleNamespace(
            role=SimpleNamespace(value="assistant"), content=A, blocks=None
        ),
    ],
    "vercel parts v5": [
        {"role": "user", "parts": [{"type": "text", "text": Q}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {
                    "type": "tool-search",
                    "toolCallId": "c",
                    "state": "output-available",
                    "input": {},
                    "output": E,
                },
                {"type": "text", "text": A},
            ],
        },
    ],
    "vercel invocation": [
        {"role": "user", "content": Q},
        {
            "role": "assistant",
            "content": "",
            "parts": [
                {
                    "type": "tool-invocation",
                    "toolInvocation": {
                        "toolName": "s",
                        "toolCallId": "c",
                        "state": "result",
                        "result": E,
                    },
                },
                {"type": "text", "text": A},
            ],
        },
    ],
    "vercel tool message": [
        {"role": "user", "content": Q},
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c",
                    "toolName": "s",
                    "output": {"type": "text", "value": E},
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": A}]},
    ],
    "otel": [
        {"role": "user", "parts": [{"type": "text", "content": Q}]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c", "response": E}],
        },
        {"role": "assistant", "parts": [{"type": "text", "content": A}]},
    ],
    "cohere documents": [
        {"role": "user", "content": Q, "documents": [{"id": "1", "data": {"text": E}}]},
        {"role": "assistant", "content": A},
    ],
    "refusal": [
        {"role": "system", "content": E},
        U,
        {"role": "assistant", "content": None, "refusal": A},
    ],
    "user pasted": [
        {"role": "user", "content": f"Context:\n{E}\n\nQuestion: {Q}"},
        {"role": "assistant", "content": A},
    ],
}
"""The same question, evidence and answer as each API and library writes them, the answer torn where they tear it."""
INVOCATION = {
    "state": "result",
    "toolCallId": "c",
    "toolName": "s",
    "args": {},
    "result": E,
}
DUMPED = {"lc": 1, "type": "constructor"}
FORMATS |= {
    "vercel content and parts": [U, {
        "role": "assistant", "content": A, "toolInvocations": [INVOCATION],
        "parts": [{"type": "tool-invocation", "toolInvocation": INVOCATION}, {"type": "text", "text": A}],
    }],
    "vercel content and parts without words": [U, {
        "role": "assistant", "content": A, "parts": [{"type": "tool-invocation", "toolInvocation": INVOCATION}],
    }],
    "vercel content and invocations": [U, {"role": "assistant", "content": A, "toolInvocations": [INVOCATION]}],
    "vercel empty parts": [U, {"role": "tool", "content": E}, {"role": "assistant", "content": A, "parts": []}],
    "langchain messages_to_dict": [
        {"type": "human", "data": {"content": Q}},
        {"type": "tool", "data": {"content": E, "tool_call_id": "c", "type": "tool"}},
        {"type": "ai", "data": {"content": A, "type": "ai"}},
    ],
    "langchain dumpd": [
        {**DUMPED, "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": Q}},
        {**DUMPED, "id": ["langchain", "schema", "messages", "ToolMessage"], "kwargs": {"content": E}},
        {**DUMPED, "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": A, "type": "ai"}},
    ],
    "langchain dumpd artifact": [
        {**DUMPED, "id": ["HumanMessage"], "kwargs": {"content": Q}},
        {**DUMPED, "id": ["ToolMessage"], "kwargs": {"content": "1 document", "artifact": [
            {**DUMPED, "id": ["Document"], "kwargs": {"page_content": E, "metadata": {"source": "b.md"}}},
        ]}},
        {**DUMPED, "id": ["AIMessageChunk"], "kwargs": {"content": A}},
    ],
    "sharegpt": [
        {"from": "human", "value": Q},
        {"from": "function_call", "value": '{"name": "s"}'},
        {"from": "observation", "value": E},
        {"from": "gpt", "value": A},
    ],
    "pairs": [("system", E), ("human", Q), ("ai", A)],
    "pairs as json": [["user", Q], ["tool", E], ["assistant", A]],
    "cohere chat history": [
        {"role": "SYSTEM", "message": E}, {"role": "USER", "message": Q}, {"role": "CHATBOT", "message": A},
    ],
    "tool result as an item": [U, {"type": "tool_result", "content": E}, {"role": "assistant", "content": A}],
    "documents in a tool result": [U, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": [
            {"type": "text", "text": "1 document"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": E}},
        ]},
    ]}, {"role": "assistant", "content": A}],
    "audio": [{"role": "system", "content": E}, U, {"role": "assistant", "content": None, "audio": {"transcript": A}}],
}  # fmt: skip
SAID = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": A}],
}
DOCUMENTS = [{"page_content": E, "metadata": {"source": "b.md"}}]
REFERENCE = {
    "content": {"text": E},
    "location": {"type": "S3", "s3Location": {"uri": "s3://b"}},
}
RECORDS = {
    "responses": {"input": Q, "output": [{"type": "function_call_output", "call_id": "c", "output": E}, SAID]},
    "responses items": {"input": [U, {"type": "function_call_output", "call_id": "c", "output": E}], "output": [SAID]},
    "gemini": {"contents": [
        {"role": "user", "parts": [{"text": Q}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "s", "response": {"result": E}}}]},
        {"role": "model", "parts": [{"text": A}]},
    ]},
    "gemini without roles": {
        "contents": [{"parts": [{"text": Q}]}],
        "candidates": [{
            "content": {"parts": [{"text": A}]},
            "groundingMetadata": {"groundingChunks": [{"retrievedContext": {"text": E}}]},
        }],
    },
    "RetrievalQA": {"query": Q, "result": A, "source_documents": DOCUMENTS},
    "conversational retrieval": {"question": Q, "answer": A, "source_documents": DOCUMENTS, "chat_history": []},
    "LangChain.js": {"question": Q, "answer": A, "sourceDocuments": DOCUMENTS},
    "RetrievalQA dumpd": {"query": Q, "result": A, "source_documents": [
        {**DUMPED, "id": ["langchain", "schema", "document", "Document"], "kwargs": DOCUMENTS[0]},
    ]},
    "RetrieveAndGenerate": {
        "input": {"text": Q}, "output": {"text": A}, "sessionId": "s",
        "citations": [{
            "generatedResponsePart": {"textResponsePart": {"text": A, "span": {"start": 0, "end": 17}}},
            "retrievedReferences": [REFERENCE],
        }],
    },
    "ShareGPT": {"conversations": FORMATS["sharegpt"]},
    "RAGAS MultiTurnSample": {"user_input": FORMATS["langchain dumped"]},
    "DeepEval turns": {"turns": [U, {"role": "assistant", "content": A, "retrieval_context": [E]}]},
    "messages and context": {"messages": [U, {"role": "assistant", "content": A}], "context": [E]},
    "documents and a later turn": {
        "messages": [U, {"role": "assistant", "content": A}, {"role": "user", "content": "Thanks."}],
        "documents": [{"text": E}],
    },
    "Cohere": {"messages": [U, {"role": "assistant", "content": A, "citations": [
        {"text": "14 hours", "sources": [{"type": "document", "document": {"id": "d", "snippet": E}}]},
    ]}]},
    "Perplexity": {
        "messages": [U], "choices": [{"message": {"role": "assistant", "content": A}}],
        "citations": ["https://b.org/x"], "search_results": [{"url": "https://b.org/x", "snippet": E}],
    },
    "Claude's export": {"chat_messages": [
        {"sender": "human", "text": Q},
        {"sender": "assistant", "text": A, "content": [
            {"type": "tool_result", "content": E}, {"type": "text", "text": A},
        ]},
    ]},
}  # fmt: skip
"""Requests and responses as one object, as APIs return them and files hold them."""
BYTES = "JVBERi0xLjQKJcfs"
PDF = {"type": "base64", "media_type": "application/pdf", "data": BYTES}
FILES = {
    "anthropic document": {"type": "document", "source": PDF, "title": "b.pdf"},
    "anthropic file id": {"type": "document", "source": {"type": "file", "file_id": "f"}},
    "anthropic image": {"type": "image", "source": PDF},
    "openai file": {"type": "file", "file": {"filename": "b.pdf", "file_data": BYTES}},
    "openai image": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BYTES}"}},
    "openai audio": {"type": "input_audio", "input_audio": {"data": BYTES, "format": "wav"}},
    "responses": {"type": "input_file", "filename": "b.pdf", "file_data": f"data:application/pdf;base64,{BYTES}"},
    "gemini": {"inlineData": {"mimeType": "application/pdf", "data": BYTES}},
    "gemini in Python": {"inline_data": {"mime_type": "image/png", "data": BYTES.encode()}},
    "bedrock": {"document": {"name": "b", "format": "pdf", "source": {"bytes": BYTES}}},
    "vercel": {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{BYTES}"},
    "langchain": {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": BYTES},
    "mcp": {"type": "image", "data": BYTES, "mimeType": "image/png"},
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
    odd = [
        U,
        {
            "role": "assistant",
            "content": [{"type": "hologram", "beams": 3}, {"type": "text", "text": A}],
        },
    ]
    assert from_conversation(odd)[2] == A
    assert "conversation[1]: a block of kind 'hologram' is not read" in caplog.messages


def test_a_conversation_without_evidence_has_no_context(caplog):
    """A question is no evidence for its answer, nor is what the assistant said before; the places are named."""
    messages = [
        U,
        {"role": "assistant", "content": "Perhaps 14 hours."},
        U,
        {"role": "assistant", "content": A},
    ]
    assert from_conversation(messages[:1] + messages[-1:])[1] == []
    assert "looked at tool results, documents, search results" in caplog.text
    assert all(
        "Perhaps" not in chunk["text"] for chunk in from_conversation(messages)[1]
    )


@pytest.mark.parametrize("first", ["Hi.", "Which models are there?", "And the price?"])
def test_several_questions_are_no_evidence(first):
    """What a user asked and greeted with before is no evidence either; what the user told is."""
    later = [
        {"role": "assistant", "content": "Models A and B."},
        U,
        {"role": "assistant", "content": A},
    ]
    assert from_conversation([{"role": "user", "content": first}, *later])[1] == []
    told = [{"role": "user", "content": "Our model B runs for 14 hours."}, *later]
    assert [chunk["source"] for chunk in from_conversation(told)[1]] == [
        "turn 0: user",
        "turn 2: user",
    ]


def test_parts_of_further_apis():
    """Gemini signs its parts, the Assistants API wraps texts, and LangChain's chunks are messages."""
    signed = {"contents": [
        {"role": "user", "parts": [{"text": f"{E} {Q}"}]},
        {"role": "model", "parts": [{"text": A, "thoughtSignature": "x"}]},
    ]}  # fmt: skip
    wrapped = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": {"value": f"{E} {Q}", "annotations": []}}
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "text", "text": {"value": A, "annotations": []}}],
        },
    ]
    chunks = [
        {"type": "human", "content": f"{E} {Q}"},
        {"type": "AIMessageChunk", "content": A},
    ]
    for conversation in (signed, wrapped, chunks):
        question, context, answer = from_conversation(conversation)
        assert (question, answer, len(context)) == (f"{E} {Q}", A, 1)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
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
    messages = [
        {"role": "user", "content": blocks},
        U,
        {"role": "assistant", "content": A},
    ]
    _, context, _ = from_conversation(messages)
    assert any(E in chunk["text"] for chunk in context)
    assert BYTES not in str(context)
    is_named = "type" in block or "document" in block or not inside
    assert ("is not read: the bytes of a file" in caplog.text) is is_named


@pytest.mark.parametrize(
    ("conversation", "got"),
    [
        ("User: hi", "got 'User: hi', expected messages like"),
        (7, "got 7, expected messages"),
        ({}, "got {}, expected messages"),
        ([["hi", "hello"]], r"got \['hi', 'hello'\], expected messages"),
        ([{"content": "x"}], "got an object with content, expected messages"),
        ({"input": {"q": 1}, "output": {"a": 2}}, "got an object with q, expected messages"),
        ({"mapping": {}}, "got an object with mapping, expected messages"),
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
