import random
from collections import Counter

import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.data.splits import (
    check_leakage,
    read_parts,
    sample,
    split,
    with_sources,
)
from faith_dspy.schema import Chunk, LabelledExample

WORDS = [f"word{i}" for i in range(400)]
LONG = "The treaty was signed in 1648 in Osnabrueck and ended a war of thirty years"


def text(i, n=40):
    """`n` random words, the same for the same `i`."""
    return " ".join(random.Random(i).choices(WORDS, k=n))


def make(i, context=None, *, faithful=None, answer=None, **more):
    """Example ``e<i>``; two of three are faithful, each over a context of its own."""
    context = text(i) if context is None else context
    return LabelledExample(
        id=f"e{i}",
        context=(Chunk(id=0, text=context),) if context else (),
        answer=answer or f"short answer {i}",
        faithful=i % 3 > 0 if faithful is None else faithful,
        **more,
    )


def sources(examples):
    return [e.group_key for e in with_sources(examples)]


def where(splits):
    """The part of each id."""
    return {e.id: part for part in ("pool", "test") for e in getattr(splits, part)}


@pytest.mark.parametrize(
    ("examples", "shares"),
    [
        ([make(i) for i in range(300)], {"pool": 0.65, "test": 0.35}),
        # Four sources hold 30 answers each, sixty hold one or two.
        (
            [make(i, text(i % 4 if i < 120 else 100 + i % 60)) for i in range(220)],
            {"pool": 0.65, "test": 0.35},
        ),
        # A separate test file leaves the pool alone.
        ([make(i) for i in range(30)], {"pool": 1.0}),
    ],
)
def test_parts_meet_the_shares_with_both_classes(examples, shares):
    """Sizes come within two points, class shares within five of the whole."""
    for seed in range(3):
        s = split(examples, parts=tuple(shares), seed=seed)
        assert {
            k: part["n"] / len(examples) for k, part in s.report["parts"].items()
        } == pytest.approx(shares, abs=0.02)
        rates = {k: part["faithful_share"] for k, part in s.report["parts"].items()}
        assert rates == pytest.approx(dict.fromkeys(shares, 2 / 3), abs=0.05)
        assert (s.report["fixed"], s.report["unlabelled"]) == (False, 0)


def test_no_group_and_no_context_in_two_parts():
    """Groups of uneven size stay whole, whether they come from `group` or from the context."""
    s = split(
        [
            make(i, context=text(i % 30), group=f"g{i % 30 // 2}" if i % 2 else None)
            for i in range(240)
        ]
    )
    for key in ("group", "context_key"):
        pool, test = ({getattr(e, key) for e in part} - {None} for part in s[:2])
        assert pool & test == set()


BASE = text(1, 200)
JAPANESE = "東京は日本の首都であり世界最大級の都市圏を形成している大都市である" * 2


@pytest.mark.parametrize(
    ("examples", "joined"),
    [
        # A context with a word changed is the same source; one that shares half of its words is another.
        (
            [
                make(1, BASE),
                make(2, BASE.replace(BASE.split()[5], "changed", 1)),
                make(3, " ".join(BASE.split()[:100]) + " " + text(2, 100)),
            ],
            "aab",
        ),
        # Where words are not spaced, contexts are compared by character.
        (
            [
                make(1, JAPANESE),
                make(2, JAPANESE + "。はい"),
                make(3, "富士山は静岡県と山梨県にまたがる活火山"),
            ],
            "aab",
        ),
        # The same long answer, whatever its case and punctuation, is one source; a short stock reply is not.
        ([make(1, answer=LONG), make(2, answer=LONG.upper() + "!")], "aa"),
        (
            [
                make(i, answer="Unable to answer based on given passages.")
                for i in range(2)
            ],
            "ab",
        ),
        # Two contexts become one group through an example group that holds both.
        (
            [
                make(1, "one x"),
                make(2, "one x", group="g"),
                make(3, "two y", group="g"),
                make(4, "z w"),
            ],
            "aaab",
        ),
        # Having no context is not a source in common.
        ([make(1, ""), make(2, ""), make(3, " ")], "abc"),
    ],
)
def test_what_is_one_source(examples, joined):
    found = sources(examples)
    names = list(dict.fromkeys(found))
    assert "".join("abc"[names.index(source)] for source in found) == joined


def test_the_source_is_written_on_the_examples():
    """Joined examples get one group; a context or group that joins nothing says it already."""
    a, b, c, d = with_sources(
        [make(1, BASE), make(2, BASE + " more", group="g"), make(3, group="h"), make(4)]
    )
    assert a.group_key == b.group_key == min(a.context_key, "g")
    assert (c.group, d.group, d.group_key) == ("h", None, d.context_key)


@pytest.mark.parametrize("n", [4, 6, 8, 20])
def test_every_part_that_is_fitted_or_measured_has_two_sources_of_each_label(n):
    """Forty answers labelled by coin flips: parts hold each label over two sources at least, or all is cross-fitted."""
    for seed in range(20):
        flip = random.Random(seed)
        s = split(
            [make(i, text(i % n), faithful=flip.random() < 0.5) for i in range(40)],
            seed=seed,
        )
        for part in filter(None, s[:2]):
            assert all(
                len({e.group_key for e in part if e.label is label}) >= 2
                for label in (True, False)
            )


def test_the_order_of_the_lines_does_not_matter_and_the_seed_does():
    """Shuffled lines land in the same parts; another seed gives other parts; each part keeps the input's order."""
    examples = [make(i, context=text(i % 60)) for i in range(180)]
    first = split(examples, seed=1)
    assert where(first) == where(split(random.Random(0).sample(examples, 180), seed=1))
    assert where(first) != where(split(examples, seed=2))
    assert [e.id for e in first.pool] == [
        e.id for e in examples if where(first)[e.id] == "pool"
    ]


@pytest.mark.parametrize(
    ("examples", "parts"),
    [
        (
            [make(i, faithful=i % 25 > 0) for i in range(200)],
            ["pool", "test"],
        ),  # eight unfaithful answers
        (
            [make(i, text(i % 4), faithful=i % 8 < 4) for i in range(48)],
            ["pool", "test"],
        ),  # four sources
        (
            [make(i, text(i % 3), faithful=i % 6 < 3) for i in range(60)],
            ["pool"],
        ),  # three sources
        ([make(i, faithful=i > 6) for i in range(60)], ["pool"]),  # seven unfaithful
        ([make(i) for i in range(10)], ["pool"]),
    ],
)
def test_few_labels_have_no_test_part(examples, parts):
    """Ten labels or more that cannot be divided stay together, to be cross-fitted; nothing is dropped."""
    s = split(examples)
    assert list(s.report["parts"]) == parts
    assert sum(p["n"] for p in s.report["parts"].values()) == len(examples)
    assert all(0 < p["faithful_share"] < 1 for p in s.report["parts"].values())


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        (
            [make(i) for i in range(9)],
            "got 6 faithful answers over 6 sources and 3 unfaithful over 3; ",
        ),
        (
            [make(i, text(i % 20), faithful=i % 20 > 1) for i in range(200)],
            "expected at least 10 answers, and",
        ),
        ([], "got 0 faithful answers over 0 sources"),
    ],
)
def test_too_few_labels_say_how_many_it_takes(examples, said):
    with pytest.raises(InputError, match=f"{said}.*abel.*contexts"):
        split(examples)


def test_fixed_parts_are_kept():
    """Where a labels file has a test beside train or dev, every example goes where it says: train and dev are the pool.
    A test alone fixes nothing. What has no label is in no part."""
    parts = {"train": "pool", "dev": "pool", "test": "test"}
    names = list(parts)
    s = split([make(i, split=names[i // 3 % 3]) for i in range(30)])
    assert s.report["fixed"]
    assert all(
        part == parts[names[int(i[1:]) // 3 % 3]] for i, part in where(s).items()
    )
    unlabelled = make(99).model_copy(update={"faithful": None})
    anew = split([unlabelled, *(make(i, split="test") for i in range(60))])
    assert (anew.report["fixed"], anew.report["unlabelled"], "e99" in where(anew)) == (
        False,
        1,
        False,
    )
    assert anew.pool


FIXED = [make(i, split=["train", "dev", "test"][i // 3 % 3]) for i in range(30)]


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ([*FIXED, make(99)], "'e99' with None"),
        ([*FIXED, make(99, text(0), split="test")], r"'e99' and 'e0' \(same context\)"),
        (
            [e for e in FIXED if e.split != "test" or e.faithful],
            "split test: 6 faithful answers over 6 sources and 0 unfaithful over 0; expected at least 1",
        ),
        (
            [e for e in FIXED if e.split == "test" or e.faithful or e.id == "e3"],
            "split train and dev: .*unfaithful over 1; expected at least 2",
        ),
    ],
)
def test_fixed_parts_must_be_complete_and_must_not_leak(examples, said):
    with pytest.raises(InputError, match=said):
        split(examples)


def test_every_kind_of_leak_is_found_and_named():
    """One leak for each test example, with what it shares."""
    tuning = [make(1, BASE), make(2, group="g"), make(3, answer=LONG)]
    test = [
        make(11, BASE),
        make(12, group="g"),
        make(13, answer=LONG),
        make(14, BASE + " more"),
        make(15),
    ]
    check_leakage(tuning, [make(15)])
    with pytest.raises(InputError, match="got 4 of 5 test examples") as raised:
        check_leakage(tuning, test)
    named = (
        "'e11' and 'e1' (same context); 'e12' and 'e2' (same group); 'e13' and 'e3' (same answer); "
        "'e14' and 'e1' (near-same context)"
    )
    assert named in str(raised.value)


def rows(*ids, **more):
    return [
        {"id": f"{i}", "context": [text(i)], "answer": "a b", "faithful": i % 2 == 0}
        | more
        for i in ids
    ]


def test_a_study_begins_by_saying_how_its_labels_are_split():
    """Parts of the file that are not used are named; of few labels all are used; a test file is checked."""
    limits = ([9, 99], 9999, 0)
    anew = read_parts(rows(*range(36), split="train"), None, *limits)
    assert (
        "the file's own split (train) has no test beside train or dev" in anew.sentence
    )
    assert "own split" not in read_parts(rows(*range(36)), None, *limits).sentence
    assert anew.report["used"] == {"pool": 9, "test": len(anew.splits.test)}
    few = read_parts(rows(*range(12)), None, [99, 99], 9999, 0)
    assert few.report["used"] == {"pool": 12, "test": 0}
    assert few.cross_fitted
    with pytest.raises(InputError, match="unfaithful over 0; expected at least 1"):
        read_parts(rows(*range(36)), rows(*range(100, 110, 2)), *limits)


def test_each_labelled_answer_of_a_study_counts_once():
    """Whether it is used or not; an answer of the testset is not counted again as one that tests."""
    parts = read_parts(rows(*range(36)), None, [9, 9], 9999, 0)
    assert len(parts.test) == 9
    assert sorted(int(e.id) for e in parts.labelled) == list(range(36))
    apart = read_parts(rows(*range(36)), rows(*range(100, 112)), [9, 99], 9999, 0)
    assert len(apart.labelled) == 36 + 12


def test_a_small_sample_holds_both_labels_in_three_groups():
    """Twelve answers over two contexts of one label each cannot be cross-fitted: the limit gives way."""
    part = [
        make(10 * i + j, f"c{i}", answer="a b", faithful=i % 4 != 0)
        for i in range(40)
        for j in range(6)
    ]
    for seed in range(5):
        drawn = sample(part, 12, 10**6, seed)
        groups = {
            label: {e.group_key for e in drawn if e.label is label}
            for label in (True, False)
        }
        assert min(map(len, groups.values())) >= 3
        assert len(drawn) < len(part)
    assert len(sample(part[:18], 12, 10**6, 0)) == 18  # there is no more to take
    # Three words of a context, the first time, and two of an answer: eight answers, one of each of eight sources.
    by_words = [
        make(10 * i + j, f"a b c{i}", answer="a b", faithful=j % 2 == 0)
        for i in range(8)
        for j in range(8)
    ]
    drawn = sample(by_words, 10**6, 8 * 5 - 1, 0)
    assert len(drawn) == len({e.group_key for e in drawn}) == 8


def test_a_sample_has_one_answer_of_each_source_before_the_second_of_any():
    """Of ten sources with six answers each: 24 are two of each and a third of four."""
    part = [
        make(10 * i + j, f"c{i}", faithful=j % 2 == 0)
        for i in range(10)
        for j in range(6)
    ]
    turns = Counter(e.group_key for e in sample(part, 24, 10**6, 3))
    assert sorted(turns.values()) == [2] * 6 + [3] * 4
