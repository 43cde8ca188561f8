"""Public sets, on rows written in their published layout: none of their texts is here."""

import json

import pytest

from faith_dspy.errors import InputError
from faith_dspy.eval_sets.public import PUBLIC, card_of, load_public
from faith_dspy.io.labels import parse_example


def _lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def _span(start, end, kind, **flags):
    return {"start": start, "end": end, "label_type": kind, "meta": "why", **flags}


def _mark(label, start=0, end=5):
    return {
        "label": ["Unwanted", label],
        "note": "n",
        "summary_start": start,
        "summary_end": end,
        "summary_span": "x",
    }


def _evaluation(task, model, ratings):
    faithfulness = {str(i): {"value": value} for i, value in enumerate(ratings)}
    about = {"task_id": task, "model_id": model, "model_response": "r"}
    return {**about, "annotations": {"faithfulness": faithfulness}}


_SOURCES = [
    {
        "source_id": "9",
        "task_type": "QA",
        "source_info": {"question": "q", "passages": "p 1:a\n\np 2:b\n\n"},
    },
    {
        "source_id": "8",
        "task_type": "Data2txt",
        "source_info": {"name": "S", "WiFi": None},
    },
]
_RESPONSE = {
    "id": "1",
    "source_id": "9",
    "model": "m",
    "split": "train",
    "quality": "good",
    "response": "Blue. Red.",
}
_OF_TABLE = {**_RESPONSE, "id": "4", "source_id": "8"}
_WICE = {
    "claim": "It is blue.",
    "evidence": ["Blue.", "No.", "Old."],
    "meta": {"id": "d1", "claim_title": "Kettle"},
}
_SAMPLE = {
    "source": "s",
    "summary": "Blue tea. Red.",
    "metadata": {"summarizer": "m", "raw_sample_id": 1},
}
_ANNOTATIONS = (
    [],
    [_mark("Unwanted.Intrinsic", 10, 13)],
    [{**_mark("x"), "label": ["Benign"]}],
    [{**_mark("x"), "label": ["Questionable"]}],
)
_SAMPLES = [
    {**_SAMPLE, "sample_id": i, "annotations": marks}
    for i, marks in enumerate(_ANNOTATIONS)
]
_CLAIM = {
    "claim_string": "It is blue. [1]",
    "evidence": ["[1] https://a.b/c\n\nA blue kettle.", "[2] https://a.b"],
}
_CLAIMS = [
    {**_CLAIM, "support": support}
    for support in ("Complete", "Partial", "Missing", "Incomplete")
]
_CLAIMS[-1]["evidence"] = ["[1] https://a.b"]
_EXPERTQA = {
    "question": "q",
    "metadata": {"field": "Law"},
    "answers": {"gpt4": {"claims": _CLAIMS}},
}
_TURN = {"history": ["Hi."], "knowledge": "A kettle.", "response": "A kettle."}
_TURNS = [
    {
        **_TURN,
        "original_response": "A red one.",
        "BEGIN": ["Hallucination", "Entailment"],
    },
    {**_TURN, "original_response": None, "BEGIN": ["Entailment"]},
    {**_TURN, "original_response": "Hm.", "BEGIN": ["Generic"]},
]
_TASK = {
    "task_id": "c<::>2",
    "input": [{"speaker": "user", "text": "Q?"}],
    "contexts": [{"document_id": "d"}],
}
_HAGRID = {
    "query": "q",
    "query_id": 7,
    "quotes": [{"idx": 1, "docid": "d#1", "text": "A kettle."}],
}
_HAGRID_ANSWERS = [
    {
        "answer": "A [1]. B.",
        "attributable": 0,
        "sentences": [
            {"text": "A [1].", "attributable": 1},
            {"text": "B.", "attributable": 0},
        ],
    },
    {"answer": "C.", "attributable": None, "sentences": []},
]
BEGIN = "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label\n"

LAYOUTS = {
    "ragtruth": (
        {
            "source_info.jsonl": _lines(*_SOURCES),
            "response.jsonl": _lines(
                {**_RESPONSE, "labels": []},
                {
                    **_RESPONSE,
                    "id": "2",
                    "labels": [_span(6, 9, "Evident Conflict", implicit_true=False)],
                },
                {
                    **_RESPONSE,
                    "id": "3",
                    "labels": [_span(0, 4, "Subtle Baseless Info", implicit_true=True)],
                },
                {
                    **_OF_TABLE,
                    "labels": [_span(0, 4, "Evident Conflict", due_to_null=True)],
                },
                {**_RESPONSE, "id": "5", "labels": [], "quality": "truncated"},
            ),
        },
        [
            (
                "ragtruth/1",
                True,
                {"context": ["p 1:a", "p 2:b"], "question": "q", "group": "ragtruth/9"},
            ),
            (
                "ragtruth/2",
                False,
                {"verdicts": ["fully_supported", "contradictory"], "split": "train"},
            ),
            (
                "ragtruth/3",
                False,
                {
                    "verdicts": ["no_evidence", "fully_supported"],
                    "kind": "implicit_true",
                },
            ),
            (
                "ragtruth/4",
                False,
                {"context": ["name: S\nWiFi: None"], "kind": "due_to_null"},
            ),
        ],
    ),
    "wice": (
        {
            "claim/dev.jsonl": _lines(
                {**_WICE, "label": "supported", "supporting_sentences": [[0, 2], [1]]}
            ),
            "claim/test.jsonl": _lines(
                {
                    **_WICE,
                    "label": "partially_supported",
                    "supporting_sentences": [],
                    "meta": {"id": "t1"},
                }
            ),
        },
        [
            (
                "wice/d1",
                True,
                {"ids": [(0, 2)], "split": "dev", "group": "wice/Kettle"},
            ),
            ("wice/t1", False, {"verdicts": ["partially_supported"], "split": "test"}),
        ],
    ),
    "llm_aggrefact": (
        {
            "dev-00000-of-00001.parquet": [
                {"dataset": "Reveal", "doc": "d", "claim": "c", "label": 1}
            ]
        },
        [("", True, {"domain": "Reveal", "split": "dev", "context": ["d"]})],
    ),
    "halubench": (
        {
            "test-00000-of-00001.parquet": [
                {
                    "id": "a",
                    "passage": "p",
                    "question": "q",
                    "answer": "12",
                    "label": "PASS",
                    "source_ds": "DROP",
                },
                {
                    "id": "b",
                    "passage": "p",
                    "question": "q",
                    "answer": "x",
                    "label": "FAIL",
                    "source_ds": "DROP",
                },
            ]
        },
        [
            ("halubench/a", True, {"domain": "DROP", "answer": "12"}),
            ("halubench/b", False, {}),
        ],
    ),
    "faithbench": (
        {"batch_2.json": json.dumps({"samples": _SAMPLES})},
        [
            ("faithbench/batch_2/0", True, {"verdicts": ["fully_supported"] * 2}),
            (
                "faithbench/batch_2/1",
                False,
                {"verdicts": ["fully_supported", "contradictory"]},
            ),
            (
                "faithbench/batch_2/2",
                False,
                {"verdicts": ["no_evidence", "fully_supported"], "kind": "benign"},
            ),
        ],
    ),
    "expertqa": (
        {"r2_compiled_anon.jsonl": _lines(_EXPERTQA)},
        [
            (
                "expertqa/0/gpt4/0",
                True,
                {
                    "answer": "It is blue.",
                    "context": ["A blue kettle."],
                    "domain": "Law",
                },
            ),
            (
                "expertqa/0/gpt4/1",
                False,
                {"verdicts": ["partially_supported"], "group": "expertqa/0"},
            ),
        ],
    ),
    "hagrid": (
        {"dev.jsonl": _lines({**_HAGRID, "answers": _HAGRID_ANSWERS})},
        [
            (
                "hagrid/7/0",
                False,
                {"verdicts": ["fully_supported", "not_supported"], "split": "dev"},
            )
        ],
    ),
    "summedits": (
        {
            "summedits_news.json": json.dumps(
                [
                    {
                        "id": "n1",
                        "doc": "d",
                        "summary": "s",
                        "label": 0,
                        "edit_types": ["negation"],
                        "split": "test",
                    }
                ]
            )
        },
        [
            (
                "summedits/news/n1",
                False,
                {"domain": "news", "kind": "negation", "split": None},
            )
        ],
    ),
    "begin": (
        {
            "wow/begin_dev_wow.tsv": BEGIN
            + 't5\twow\tk\tm\t"a\tFully attributable\nt5\twow\tk\tm\tb\tNot fully attributable\n'
            + "t5\twow\tk\tm\tc\tGeneric\n"
        },
        [
            ("begin/begin_dev_wow/0", True, {"answer": '"a', "split": "dev"}),
            ("begin/begin_dev_wow/1", False, {}),
        ],
    ),
    "faithdial": (
        {"valid.json": json.dumps([{"dialog_idx": 3, "utterances": _TURNS}])},
        [
            (
                "faithdial/dev/3/0",
                False,
                {"answer": "A red one.", "kind": "original", "question": "Hi."},
            ),
            (
                "faithdial/dev/3/0/new",
                True,
                {"answer": "A kettle.", "kind": "rewritten"},
            ),
            ("faithdial/dev/3/1", True, {"kind": "original", "split": "dev"}),
            ("faithdial/dev/3/2/new", True, {}),
        ],
    ),
    "mtrag": (
        {
            "reference_subset_with_human_evaluations.json": json.dumps(
                {
                    "documents": [{"document_id": "d", "text": "t"}],
                    "tasks": [_TASK, {**_TASK, "task_id": "e<::>1", "contexts": []}],
                    "evaluations": [
                        _evaluation("c<::>2", "x", "443"),
                        _evaluation("c<::>2", "y", "433"),
                        _evaluation("c<::>2", "z", "43"),
                        _evaluation("e<::>1", "x", "44"),
                    ],
                }
            )
        },
        [
            ("mtrag/c<::>2/x", True, {"question": "user: Q?", "group": "mtrag/c"}),
            (
                "mtrag/c<::>2/y",
                False,
                {
                    "annotators": {
                        "annotator 0": True,
                        "annotator 1": False,
                        "annotator 2": False,
                    }
                },
            ),
            ("mtrag/c<::>2/z", None, {}),
        ],
    ),
    "rte3": (
        {
            "RTE3-FR-dev-set-3class.tsv": "id\tlanguage\tpremise\thypothesis\tlabel\tlabel_text\ttask\tlength\n"
            "1\tfr\tp\th\t0\tentailment\tIE\tshort\n2\tfr\tp\th2\t1\tneutral\tIR\tshort\n3\tfr\tp\th3\t2\tc\tQA\tlong\n"
        },
        [
            ("rte3/dev/1", True, {"language": "fr", "split": "dev"}),
            ("rte3/dev/2", False, {"verdicts": ["no_evidence"]}),
            ("rte3/dev/3", False, {"verdicts": ["contradictory"]}),
        ],
    ),
}


def _write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        else:
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(
                pytest.importorskip("pyarrow").Table.from_pylist(content), path
            )


@pytest.mark.parametrize("name", PUBLIC)
def test_the_published_layout(name, tmp_path):
    """Labels, verdicts, sources and parts, with the traps that the card names."""
    files, expected = LAYOUTS[name]
    _write(tmp_path / "copy", files)
    examples = [parse_example(row) for row in load_public(name, tmp_path)]
    for e, (key, faithful, fields) in zip(examples, expected, strict=True):
        shown = e.tags | e.model_dump() | {
            "context": [c.text for c in e.context],
            "verdicts": [s.verdict for s in e.statements],
            "ids": [s.supporting_chunk_ids for s in e.statements],
        }  # fmt: skip
        assert (e.id, e.faithful) == (key or e.id, faithful)
        assert {field: shown.get(field) for field in fields} == fields, e.id
        assert e.tags["source"] == name


@pytest.mark.parametrize("name", PUBLIC)
def test_a_card_says_what_there_is_to_know(name):
    for field in (
        "What it is for:",
        "Size:",
        "Source:",
        "Licence:",
        "Labels:",
        "Traps",
        "How people agree:",
        "Judges",
    ):
        assert f"**{field}" in card_of(name), field


def test_files_that_are_not_there(tmp_path, monkeypatch):
    """A folder without the set's files names them; a download that fails names the addresses."""
    with pytest.raises(
        InputError,
        match=r"none of the set's published files is there; expected response\.jsonl",
    ):
        load_public("ragtruth", tmp_path)
    (tmp_path / "response.jsonl").write_text("{}\n")
    with pytest.raises(
        InputError,
        match=r"source_info\.jsonl is missing; it belongs to the set's published files",
    ):
        load_public("ragtruth", tmp_path)
    from faith_dspy.eval_sets import rte3

    monkeypatch.setattr(rte3, "FILES", {"a.tsv": "http://127.0.0.1:9/a.tsv"})
    with pytest.raises(InputError, match="cannot be downloaded"):
        load_public("rte3")
