"""FaithBench: https://github.com/vectara/FaithBench, data_for_release/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, of_spans, read_object

_HOME = "https://raw.githubusercontent.com/vectara/FaithBench/main/data_for_release/"
FILES = {f"batch_{i}.json": f"{_HOME}batch_{i}.json" for i in range(1, 17) if i != 13}


def rows(files: Files) -> Rows:
    """Summaries with the spans that annotators marked; a summary without a span is faithful.

    Unwanted and benign spans say what the source does not. A summary whose only spans are questionable has no label.
    """
    for name, path in files.items():
        for s in read_object(path)["samples"]:
            told = [(set(a["label"]), a) for a in s["annotations"]]
            wrong = [(labels, a) for labels, a in told if labels - {"Questionable"}]
            if told and not wrong:
                continue
            summary = s["summary"]
            spans = [
                (a["summary_start"], a["summary_end"], _verdict(labels), a["note"])
                for labels, a in wrong
                if a["summary_start"] is not None
            ]
            yield {
                "id": f"faithbench/{name.removesuffix('.json')}/{s['sample_id']}",
                "context": [s["source"]],
                "answer": summary,
                "faithful": not wrong,
                "statements": of_spans(summary, spans) if spans or not wrong else None,
                "model": s["metadata"]["summarizer"],
                "kind": "benign"
                if wrong and all("Benign" in labels for labels, _ in wrong)
                else None,
            }


def _verdict(labels: set[str]) -> str:
    """Intrinsic: at odds with the source; otherwise not in it."""
    is_intrinsic = any(label.endswith("Intrinsic") for label in labels)
    return "contradictory" if is_intrinsic else "no_evidence"
