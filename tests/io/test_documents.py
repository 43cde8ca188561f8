from types import SimpleNamespace

import pytest

from faith_dspy import Chunk
from faith_dspy.io.documents import documents_in

TEXT = "It runs for 14 hours."


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (Chunk(id=3, text=TEXT, source="a"), "a"),
        ({"page_content": TEXT, "metadata": {"source": "a"}}, "a"),
        (SimpleNamespace(page_content=TEXT, metadata={"file_name": "a"}), "a"),
        ({"node": {"text": TEXT, "id_": "a"}, "score": 1}, "a"),
        ({"id": "a", "data": {"text": TEXT, "title": "b"}}, "a"),
        ({"source": {"type": "text", "data": TEXT}, "title": "a"}, "a"),
        ({"content": [{"type": "text", "text": TEXT}], "source": "a"}, "a"),
        ({"documents": [{"snippet": TEXT, "id": 7}]}, "7"),
        ({"ids": [["b"]], "documents": [[TEXT]], "distances": [[0.1]]}, None),  # Chroma
        ({"matches": [{"id": "b", "score": 1, "metadata": {"text": TEXT}}]}, None),  # Pinecone
        ({"hits": {"total": 1, "hits": [{"_source": {"body": TEXT, "title": "a"}}]}}, "a"),  # Elasticsearch
        ({"value": [{"@search.score": 1, "chunk": TEXT}]}, None),  # Azure
        ([{"results": [TEXT, "https://x.org", {"text": " "}, {"score": 1}, None]}], None),
    ],
)  # fmt: skip
def test_a_document_wherever_it_stands(value, source):
    """Its text and its source, of whatever library; what has no text, or is only a link, is none."""
    assert documents_in(value) == [(TEXT, source)]
