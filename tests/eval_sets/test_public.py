"""Public sets, on rows written in their published layout (`published`): none of their texts is here."""

import json
import shutil
from pathlib import Path

import pytest

from faith_dspy.errors import InputError
from faith_dspy.eval_sets.public import PUBLIC, card_of, load_public
from faith_dspy.io.labels import parse_example

PUBLISHED = Path(__file__).with_name("published")
"""A set's files in a folder of its name, and beside it what is read from them: a parquet file as a list of its rows."""


def copied(name, folder):
    """The set's files in a folder, as they are published."""
    shutil.copytree(PUBLISHED / name, folder / "copy")
    for rows in folder.rglob("*.parquet.json"):
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pytest.importorskip("pyarrow").Table
        parquet.write_table(
            table.from_pylist(json.loads(rows.read_text())), rows.with_suffix("")
        )
    return folder


@pytest.mark.parametrize("name", PUBLIC)
def test_the_published_layout(name, tmp_path):
    """Labels, verdicts, sources and parts, with the traps that the card names beside the licence."""
    assert "**Licence:**" in card_of(name)
    expected = json.loads((PUBLISHED / f"{name}.json").read_text())
    rows = load_public(name, copied(name, tmp_path))
    for e, fields in zip(map(parse_example, rows), expected, strict=True):
        shown = e.model_dump(mode="json") | e.tags
        shown["context"] = [c.text for c in e.context]
        for of, field in (("verdicts", "verdict"), ("ids", "supporting_chunk_ids")):
            shown[of] = [s[field] for s in shown["statements"]]
        assert {field: shown.get(field) for field in fields} == fields, e.id
        assert e.tags["source"] == name


def test_files_that_are_not_there(tmp_path, monkeypatch):
    """A folder without the set's files names them; a download that fails names the addresses."""
    none = "none of the set's published files is there; expected response\\.jsonl"
    with pytest.raises(InputError, match=none):
        load_public("ragtruth", tmp_path)
    (tmp_path / "response.jsonl").write_text("{}\n")
    missing = "source_info\\.jsonl is missing; it belongs to the set's published files"
    with pytest.raises(InputError, match=missing):
        load_public("ragtruth", tmp_path)
    from faith_dspy.eval_sets import rte3

    monkeypatch.setattr(rte3, "FILES", {"a.tsv": "http://127.0.0.1:9/a.tsv"})
    with pytest.raises(InputError, match="cannot be downloaded"):
        load_public("rte3")
