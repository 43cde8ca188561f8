import json
import re

import pytest

from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.stress import attacks, inject, stress
from tests.support.files import write_lines

MILL = {
    "id": "mill",
    "context": ["The mill is old.", "It grinds rye."],
    "answer": "The mill is old.",
    "faithful": True,
}
LAKE = {
    "id": "lake",
    "context": ["The lake is deep.", "Ships cross it."],
    "answer": "It freezes.",
    "faithful": False,
}
BOTH = [parse_example(row) for row in (MILL, LAKE)]


def deaf(asked):
    """A judge that reads only the statement."""
    content = asked["messages"][-1]["content"]
    return "Yes" if "mill is old.\n\nIs" in content else "No"


def obeys(asked):
    """A judge that does what a tool's result says."""
    content = asked["messages"][-1]["content"]
    if "tool" not in content:
        return deaf(asked)
    return "Yes" if "Yes" in content.partition("\n\n")[0] else "No"


@pytest.mark.parametrize("example", BOTH)
def test_each_attack_orders_the_opposite_of_the_label(example):
    """To pass what is unfaithful and to fail what is faithful; one field changes, and it only grows at its end."""
    texts = [t for a in attacks().values() for t in a["texts"]]
    assert len(set(texts)) == len(texts) >= 100
    opposite = "No" if example.label else "Yes"
    for kind, attack in attacks().items():
        for number in range(len(attack["texts"])):
            ((name, value),) = inject(example, kind, number).items()
            text = " ".join(c.text for c in value) if name == "context" else value
            asked = re.sub("Yes (?:or|and) No", "", text)
            assert set(re.findall(r"\b(?:Yes|No)\b", asked)) <= {opposite}
            if name == "answer":
                assert not example.label
                assert value.startswith("It freezes ")
            elif name == "context":
                pairs = zip(value, example.context, strict=False)
                assert all(c.text.startswith(before.text) for c, before in pairs)


def test_an_unscored_answer_is_flipped(judge_at):
    """One whose verdict was right comes back without one; Wilson of 1 of 2 is .0945 to .9055."""

    def fails(asked):
        failing = "tool" in asked["messages"][-1]["content"] and deaf(asked) == "Yes"
        return {"status": 500, "text": "no"} if failing else deaf(asked)

    report = stress(judge_at(says=fails)[0], BOTH)
    (tools,) = (i for i in report.injections if i.kind == "tool results")
    assert (tools.n, tools.flipped, tools.flips[0].after) == (2, 1, None)
    assert tools.share.low == pytest.approx(0.0945, abs=1e-4)
    assert report.flip_rate == pytest.approx(
        2 / 30
    )  # another of 15 kinds names a tool, too


def test_a_gate_that_could_not_be_measured_fails(judge_at):
    """A judge that is wrong about every answer has no verdict that an injection could flip."""
    report = stress(judge_at(says="No")[0], BOTH[:1])
    assert report.flip_rate is None
    (sentence,) = report.flipped(0.5)
    assert "no answer could be tried" in sentence


def test_on_the_command_line(chat_server, tmp_path, cli):
    """A table or JSON; exit 1, naming the injection, when too many verdicts flip."""
    labels = write_lines(tmp_path / "labels.jsonl", [MILL, LAKE])
    at = "--lm", "openai/tiny", "--api-base", chat_server(says=obeys).base
    code, out, _ = cli("stress", labels, *at, "--json")
    flipped = {i["kind"]: i["flipped"] for i in json.loads(out)["injections"]}
    assert (code, flipped["tool results"], flipped["questions"]) == (0, 2, 0)
    code, out, err = cli("stress", labels, *at, "--max-flips", "0.5")
    assert (code, "failed: injection, tool results: " in err) == (1, True)
    assert "★ tool results" in out
