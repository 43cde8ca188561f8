from __future__ import annotations

import json

from benchmarks.public_labels import ask, read_replies
from faith_dspy import Judge
from faith_dspy.io.labels import parse_example
from faith_dspy.lm import make_lm

ANSWERS = {"The kettle is red. It holds two litres.": True, "The kettle is blue.": False, "I don't know.": False}
EXAMPLES = [
    parse_example({"id": f"{i}", "context": ["A red kettle.", "It holds two litres."], "answer": a, "faithful": label})
    for i, (a, label) in enumerate(ANSWERS.items())
]
SAYS = {"The kettle is red.": 0.9, "It holds two litres.": 0.8} | dict.fromkeys(ANSWERS, 0.3)


def test_what_the_lm_says_is_kept_without_text(chat_server, tmp_path):
    """The file has ids and numbers; with the labelled answers it is what was said. Nothing is asked twice."""
    server, path = chat_server(yes=SAYS), tmp_path / "kept.jsonl"
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    ask({"kettles": EXAMPLES[:1]}, lm, path)
    assert len(server.requests) == 3
    ask({"kettles": EXAMPLES}, lm, path)
    assert len(server.requests) == 4, "one sentence is the whole answer, the same call; declining is not asked about"
    text = path.read_text(encoding="utf-8")
    assert not any(word in text for word in ("kettle", "litres", "know"))
    assert {json.loads(line)["id"] for line in text.splitlines()} == {"0", "1", "2"}
    for granularity in ("answer", "sentence"):
        judge = Judge(lm, granularity=granularity, classifier=None)
        kept = read_replies(path, EXAMPLES, granularity)
        for e, (said, unscored) in zip(EXAMPLES, judge.verify_all(EXAMPLES), strict=True):
            assert kept[e.id].raw_judgment.without_usage().model_dump() == said.without_usage().model_dump()
            assert kept[e.id].unscored == unscored


def test_what_the_lm_fails_on_is_asked_again(chat_server, tmp_path):
    """A reply that could not be had is not kept."""
    server, path = chat_server(yes={}), tmp_path / "kept.jsonl"
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    ask({"kettles": EXAMPLES[1:2]}, lm, path)
    assert not path.read_text(encoding="utf-8")
    server.says = "Yes"
    ask({"kettles": EXAMPLES[1:2]}, lm, path)
    assert read_replies(path, EXAMPLES, "answer").keys() == {"1"}
