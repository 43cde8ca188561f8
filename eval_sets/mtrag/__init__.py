"""MTRAG: https://github.com/IBM/mt-rag-benchmark, mtrag-human/evaluations/. See CARD.md."""

from faith_dspy.eval_sets.public import Files, Rows, read_object

_NAME = "reference_subset_with_human_evaluations.json"
FILES = {
    _NAME: f"https://raw.githubusercontent.com/IBM/mt-rag-benchmark/main/mtrag-human/evaluations/{_NAME}"
}
TOP = 4
"""Of ratings from 1 to 4 only “yes” means faithful, not “mostly yes”."""


def rows(files: Files) -> Rows:
    """Return the last turn of conversations, by each system and by people, against the reference passages."""
    data = read_object(files[_NAME])
    texts = {d["document_id"]: d["text"] for d in data["documents"]}
    tasks = {t["task_id"]: t for t in data["tasks"]}
    for e in data["evaluations"]:
        task, ratings = tasks[e["task_id"]], e["annotations"].get("faithfulness", {})
        people = {
            f"annotator {who}": int(r["value"]) == TOP for who, r in ratings.items()
        }
        if not task["contexts"] or not people:
            continue
        yes = sum(people.values())
        yield {
            "id": f"mtrag/{e['task_id']}/{e['model_id']}",
            "question": "\n".join(
                f"{turn['speaker']}: {turn['text']}" for turn in task["input"]
            ),
            "context": [
                {"text": texts[c["document_id"]], "source": c["document_id"]}
                for c in task["contexts"]
            ],
            "answer": e["model_response"],
            "faithful": None
            if 2 * yes == len(people)
            else 2 * yes > len(people),  # a tie is no label
            "annotators": people,
            "group": f"mtrag/{e['task_id'].partition('<::>')[0]}",
            "domain": task.get("Collection"),
            "model": e["model_id"],
        }
