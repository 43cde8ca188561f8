from pathlib import Path

import pytest

from tests.support.chat_server import yes_or_no

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
ORDER = ("tune_load_trust", "in_production")
"""The second uses what the first leaves in the folder."""


def test_all_are_run():
    """No notebook is left out."""
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(ORDER)


@pytest.mark.all
def test_run(chat_server, monkeypatch, tmp_path):
    """Both run from top to bottom in one empty folder, on an endpoint in place of the embedded model."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    server = chat_server(says=yes_or_no(0.6))
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name in ORDER:
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        text = text.replace('LM = \\"local\\"', 'LM = \\"openai/tiny\\"')
        notebook = nbformat.reads(text, as_version=4)
        nbclient.NotebookClient(
            notebook, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    assert server.requests
