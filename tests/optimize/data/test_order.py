from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.data.order import in_order
from faith_dspy.optimize.data.splits import split


def answers(n):
    """Over ``n`` contexts two each, of which the second is half new: nearer to the threshold than the first."""
    texts = [(f"A kettle of kind {i}.", end) for i in range(n) for end in (".", " was sold.")]
    return [parse_example({"id": c + end, "context": [c], "answer": c[:-1] + end}) for c, end in texts]


def test_random_first():
    """Every answer once, in an order that does not depend on how they come; none is marked."""
    found = in_order(answers(8), "random", Judge(NO_LM).batch)
    assert sorted(found, key=lambda e: e.id) == sorted(answers(8), key=lambda e: e.id)
    assert found == in_order(answers(8)[::-1], "random", Judge(NO_LM).batch) != answers(8)


def test_uncertain_first():
    """Every second answer is of half of the sources, unmarked; the others are marked, one of each source at a time, and
    of a source first the answer that the judge is least sure of."""
    judge = Judge(NO_LM)
    found = in_order(answers(8), "uncertain", judge.batch)
    drawn, chosen = found[::2], found[1::2]
    assert not {e.group_key for e in drawn} & {e.group_key for e in chosen}
    assert {e.tags.get("drawn") for e in drawn} == {None}
    assert {e.tags["drawn"] for e in chosen} == {"uncertain"}
    assert len({e.group_key for e in chosen[:4]}) == len({e.group_key for e in chosen}) == 4
    far = {e.id: abs(j.probability - j.threshold) for e, j in zip(chosen, judge.batch(chosen), strict=True)}
    for early in chosen[:4]:
        (late,) = (e for e in chosen[4:] if e.group_key == early.group_key)
        assert far[early.id] <= far[late.id]


def test_what_was_chosen_is_not_tested_on():
    """It is in train, and the others are dealt to all parts."""
    labelled = [
        e.model_copy(update={"faithful": "sold" not in e.id})
        for e in in_order(answers(60), "uncertain", Judge(NO_LM).batch)
    ]
    parts = split(labelled)
    assert parts.test
    assert not [e for e in (*parts.dev, *parts.test) if "drawn" in e.tags]
    assert {e.tags.get("drawn") for e in parts.train} == {None, "uncertain"}
    assert parts.report["groups"] == 60
