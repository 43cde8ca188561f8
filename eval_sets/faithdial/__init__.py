"""FaithDial: https://huggingface.co/datasets/McGill-NLP/FaithDial, data/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_object

_HOME = "hf://datasets/McGill-NLP/FaithDial/data/"
PARTS = {"train.json": "train", "valid.json": "dev", "test.json": "test"}
FILES = {name: _HOME + name for name in PARTS}


def rows(files: Files) -> Rows:
    """Wizards' replies against their knowledge: as they stood, with annotators' tags, and as annotators wrote them.

    Of original replies those tagged *Entailment* alone are faithful and those tagged with a hallucination are not; the
    others have no label. A rewritten reply was written to be faithful.
    """
    for name, path in files.items():
        for d in read_object(path):
            for i, u in enumerate(d["utterances"]):
                group = f"faithdial/{PARTS[name]}/{d['dialog_idx']}"
                key, tags = f"{group}/{i}", set(u["BEGIN"] or ())
                original = u["original_response"] or u["response"]
                wrong = any("hallucination" in tag.casefold() for tag in tags)
                row = {
                    "question": u["history"][-1] if u["history"] else None,
                    "context": [u["knowledge"]],
                    "group": group,
                    "split": PARTS[name],
                }
                if wrong or tags == {"Entailment"}:
                    yield {
                        **row,
                        "id": key,
                        "answer": original,
                        "faithful": not wrong,
                        "kind": "original",
                    }
                if u["original_response"]:
                    yield {
                        **row,
                        "id": f"{key}/new",
                        "answer": u["response"],
                        "faithful": True,
                        "kind": "rewritten",
                    }
