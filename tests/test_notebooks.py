from pathlib import Path

import pytest

from tests.support.chat_server import yes_or_no

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


@pytest.mark.all
def test_run(chat_server, monkeypatch, tmp_path):
    """Both run from top to bottom in one empty folder, on an endpoint in place of the embedded model."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    server = chat_server(says=yes_or_no(0.6))
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    # The last by name comes first: the other one uses what it leaves in the folder.
    for path in sorted(FOLDER.glob("*.ipynb"), reverse=True):
        text = path.read_text(encoding="utf-8")
        text = text.replace('LM = \\"local\\"', 'LM = \\"openai/tiny\\"')
        notebook = nbformat.reads(text, as_version=4)
        nbclient.NotebookClient(
            notebook, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    assert server.requests
