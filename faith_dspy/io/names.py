"""The names that others give to fields, columns, labels and the parts of conversations: the tables in ``names.json``.

- ``fields`` of a record, those of RAGAS, DeepEval, axion, continuous-eval, rag_evals and Strands among them; the first
  that has a value counts. DeepEval's ``context`` is the ideal one, so it is last. ``further_columns`` of a table have
  names that mean something else on an object.
- ``model_answers`` beside an ``answer`` make it likely that this one is a reference.
- ``label_columns`` hold what people said. Names that tell what a yes means are a pattern in `faith_dspy.io.meanings`;
  those that may hold the label and do not tell are ``ambiguous_label_columns``, and, where there are none of those,
  the ``further`` ones. ``label_words`` tell by themselves, whatever the column is called. An object in such a column
  has offsets or a text (``spans``), or one of ``votes``; ``voters`` name who gave it, and a status that is
  ``unsubmitted`` makes it none.
- ``documents`` are listed, wrapped, and have a text and a source.
- ``conversation``: ``roles``; the keys of a request or response under which messages stand (``whole``), and evidence
  ``beside`` their content; under what a tool returns its results; what citations name, and what identifies a call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

Fields = Mapping[str, Any]
"""A record as it is read: values by the names of its fields."""
_CONTENT = (files(__package__) / "names.json").read_bytes()
TABLES: dict[str, Any] = json.loads(_CONTENT)
Names = Mapping[str, Sequence[str]]
NAMES: Names = TABLES["fields"]
"""Names of each field of a record; the first that has a value counts."""
COLUMNS: Names = {
    field: [*names, *TABLES["further_columns"].get(field, ())]
    for field, names in NAMES.items()
}
"""Names of a table's columns. Only letters and digits count: ``Retrieved Contexts`` is ``retrieved_contexts``. A row
with ``answer`` and ``context`` means those."""
