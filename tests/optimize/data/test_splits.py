from __future__ import annotations

import random

import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.fitting import grouped_folds
from faith_dspy.optimize.data.splits import (
    Splits,
    check_leakage,
    near_same,
    split,
    with_sources,
)
from faith_dspy.schema import Chunk, LabelledExample

WORDS = [f"word{i}" for i in range(400)]


def text(i: int, n: int = 40) -> str:
    """`n` random words, the same for the same `i`."""
    return " ".join(random.Random(i).choices(WORDS, k=n))


def make(
    i: int,
    context: str | None = None,
    *,
    faithful: bool | None = None,
    answer: str | None = None,
    group: str | None = None,
    split: str | None = None,
) -> LabelledExample:
    """Example ``e<i>``; two of three are faithful, each over a context of its own."""
    context = text(i) if context is None else context
    return LabelledExample(
        id=f"e{i}",
        context=(Chunk(id=0, text=context),) if context else (),
        answer=answer or f"short answer {i}",
        faithful=i % 3 > 0 if faithful is None else faithful,
        group=group,
        split=split,
    )


def source_of(examples: list[LabelledExample]) -> list[str]:
    """The source of each."""
    return [e.group_key for e in with_sources(examples)]


def ids(part: tuple[LabelledExample, ...]) -> set[str]:
    """The ids in a part."""
    return {e.id for e in part}


def where(splits: Splits) -> dict[str, str]:
    """The part of each id."""
    return {e.id: part for part in ("train", "dev", "test") for e in getattr(splits, part)}


def test_parts_meet_the_shares_with_both_classes() -> None:
    """With many groups, sizes come within two points of 40, 25 and 35 %, and class shares within five of the whole."""
    examples = [make(i) for i in range(300)]
    s = split(examples)
    assert sum(p["n"] for p in s.report["parts"].values()) == 300
    for part, share in (("train", 0.40), ("dev", 0.25), ("test", 0.35)):
        assert s.report["parts"][part]["n"] / 300 == pytest.approx(share, abs=0.02)
        assert s.report["parts"][part]["faithful_share"] == pytest.approx(2 / 3, abs=0.05)
    assert (s.report["groups"], s.report["fixed"], s.report["unlabelled"]) == (300, False, 0)


def test_no_group_and_no_context_in_two_parts() -> None:
    """Groups of uneven size stay whole, whether they come from `group` or from the context."""
    examples = [make(i, context=text(i % 30), group=f"g{i % 30 // 2}" if i % 2 else None) for i in range(240)]
    s = split(examples)
    by_group = [{e.group for e in part} - {None} for part in (s.train, s.dev, s.test)]
    by_context = [{e.context_key for e in part} for part in (s.train, s.dev, s.test)]
    for train, dev, test in (by_group, by_context):
        assert train & dev == train & test == dev & test == set()


def test_near_same_contexts_are_joined_and_others_are_not() -> None:
    """A context with a word changed is the same source; one that shares half of its words is another."""
    base = text(1, 200)
    edited = base.replace(base.split()[5], "changed", 1)
    half = " ".join(base.split()[:100]) + " " + text(2, 100)
    a, b, c, d = source_of([make(1, base), make(2, edited), make(3, half), make(4, text(9, 200))])
    assert a == b
    assert len({a, c, d}) == 3


def test_near_same_works_where_words_are_not_spaced() -> None:
    """Chinese and Japanese contexts are compared by character."""
    one = "東京は日本の首都であり世界最大級の都市圏を形成している大都市である" * 2
    other = "富士山は静岡県と山梨県にまたがる活火山である"
    a, b, c = source_of([make(1, one), make(2, one + "。はい"), make(3, other)])
    assert a == b != c


def test_one_near_same_pair_among_many_is_found() -> None:
    """Of 1,500 contexts of 100 words one is another with two words more."""
    texts = [text(i, 100) for i in range(1500)]
    texts[1400] = texts[7] + " and more"
    assert near_same(texts) == [(7, 1400)]


def test_long_answers_are_joined_and_stock_replies_are_not() -> None:
    """The same long answer, whatever its case and punctuation, is one source; a short stock reply is not."""
    long = "The treaty was signed in 1648 in Osnabrueck and ended a war of thirty years"
    answers = (long, long.upper() + "!", *["Unable to answer based on given passages."] * 2)
    a, b, c, d = source_of([make(i, answer=answer) for i, answer in enumerate(answers)])
    assert a == b
    assert len({a, c, d}) == 3


def test_joining_reaches_through_others() -> None:
    """Two contexts become one group through an example group that holds both."""
    a, b, c, d = source_of([make(1, "one x"), make(2, "one x", group="g"), make(3, "two y", group="g"), make(4, "z w")])
    assert a == b == c != d


def test_answers_without_a_context_are_not_one_group() -> None:
    """Having no context is not a source in common."""
    assert len(set(source_of([make(1, ""), make(2, ""), make(3, " ")]))) == 3


def test_the_source_is_written_on_the_examples() -> None:
    """Joined examples get one group; a context or group that joins nothing says it already."""
    base = text(1, 200)
    a, b, c, d = with_sources([make(1, base), make(2, base + " more", group="g"), make(3, group="h"), make(4)])
    assert a.group_key == b.group_key == min(a.context_key, "g")
    assert (c.group, d.group, d.group_key) == ("h", None, d.context_key)
    bare = with_sources([make(5, ""), make(6, "")])
    assert bare[0].group_key != bare[1].group_key


def test_near_same_contexts_are_in_one_fold() -> None:
    """Folds of cross-fitting use the same sources as the split: an edited copy is never on the other side."""
    pairs = [make(2 * i + j, text(i, 200) + " more" * j, faithful=i % 2 == 0) for i in range(20) for j in (0, 1)]
    dev = with_sources(pairs)
    for held in grouped_folds([bool(e.label) for e in dev], [e.group_key for e in dev], 0):
        assert all(i ^ 1 in held for i in held)


@pytest.mark.parametrize("sources", [4, 6, 8, 10, 20])
def test_every_part_that_is_fitted_or_measured_has_two_sources_of_each_label(sources: int) -> None:
    """Forty answers labelled by coin flips: parts hold each label over two sources at least, or all is cross-fitted."""
    for seed in range(40):
        flip = random.Random(seed)
        s = split([make(i, text(i % sources), faithful=flip.random() < 0.5) for i in range(40)], seed=seed)
        for part in filter(None, s[:3]):
            assert all(len({e.group_key for e in part if e.label is label}) >= 2 for label in (True, False))
        assert bool(s.train) is bool(s.test)


def test_the_order_of_the_lines_does_not_matter_and_the_seed_does() -> None:
    """Shuffled lines land in the same parts; another seed gives other parts; each part keeps the input's order."""
    examples = [make(i, context=text(i % 60)) for i in range(180)]
    shuffled = random.Random(0).sample(examples, 180)
    first = split(examples, seed=1)
    assert where(first) == where(split(examples, seed=1)) == where(split(shuffled, seed=1))
    assert where(first) != where(split(examples, seed=2))
    assert [e.id for e in first.train] == [e.id for e in examples if e.id in ids(first.train)]


@pytest.mark.parametrize(
    "examples",
    [
        [make(i, faithful=i % 25 > 0) for i in range(200)],  # eight unfaithful answers
        [make(i, context=text(i % 6), faithful=i % 4 < 2) for i in range(48)],  # six groups
    ],
)
def test_the_smallest_set_that_can_be_split_is_split(examples: list[LabelledExample]) -> None:
    """Both classes are in each part."""
    assert all(0 < p["faithful_share"] < 1 for p in split(examples).report["parts"].values())


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ([make(i) for i in range(9)], "got 9 sources with 6 faithful and 3 unfaithful"),
        (
            [make(i, context=text(i % 20), faithful=i % 20 > 1) for i in range(200)],
            "expected at least 10 examples, and",
        ),
        ([], "got 0 sources"),
    ],
)
def test_too_few_labels_say_how_many_it_takes(examples: list[LabelledExample], said: str) -> None:
    """The error says what was got, what is needed, and what to label next."""
    with pytest.raises(InputError, match=said) as caught:
        split(examples)
    assert "abel" in str(caught.value)
    assert "contexts" in str(caught.value)


@pytest.mark.parametrize(
    "examples",
    [
        [make(i) for i in range(10)],
        [make(i, context=text(i % 5)) for i in range(60)],  # five groups
        [make(i, faithful=i > 6) for i in range(60)],  # seven unfaithful
    ],
)
def test_few_labels_have_no_test_part(examples: list[LabelledExample]) -> None:
    """Ten labels or more that cannot be divided stay together, to be cross-fitted; nothing is dropped."""
    s = split(examples)
    assert (s.train, s.test, len(s.dev)) == ((), (), len(examples))
    assert list(s.report["parts"]) == ["dev"]


def test_unlabelled_examples_are_in_no_part_and_counted() -> None:
    """What nobody labelled is neither trained on nor measured."""
    s = split([*(make(i) for i in range(60)), make(99).model_copy(update={"faithful": None})])
    assert s.report["unlabelled"] == 1
    assert "e99" not in where(s)


def test_fixed_parts_are_kept() -> None:
    """When all three parts occur in the labels file, every example goes where it says; two of them fix nothing."""
    parts = ["train", "dev", "test"]
    s = split([make(i, split=parts[i // 3 % 3]) for i in range(30)])
    assert s.report["fixed"]
    assert all(part == parts[int(i[1:]) // 3 % 3] for i, part in where(s).items())
    anew = split([make(i, split=["dev", "test"][i % 2]) for i in range(60)])
    assert not anew.report["fixed"]
    assert anew.train


def test_fixed_parts_must_be_complete_and_must_not_leak() -> None:
    """An example without a part, one whose context is in two parts, and a part of one label are errors that name it."""
    fixed = [make(i, split=["train", "dev", "test"][i // 3 % 3]) for i in range(30)]
    with pytest.raises(InputError, match="'e99' with None"):
        split([*fixed, make(99)])
    with pytest.raises(InputError, match=r"'e99' and 'e0' \(same context\)"):
        split([*fixed, make(99, context=text(0), split="test")])
    with pytest.raises(InputError, match=r"'e99' and 'e0' \(same context\)"):
        split([*fixed, make(99, context=text(0), split="dev")])
    with pytest.raises(
        InputError, match="split 'test': faithful answers over 6 sources, unfaithful ones over 0; expected at least 1"
    ):
        split([e for e in fixed if e.split != "test" or e.faithful])


def test_a_separate_test_file_leaves_train_and_dev() -> None:
    """Without a test part the rest is divided eight to five."""
    s = split([make(i) for i in range(260)], parts=("train", "dev"))
    assert s.test == ()
    assert list(s.report["parts"]) == ["train", "dev"]
    assert len(s.train) == pytest.approx(160, abs=6)


def test_every_kind_of_leak_is_found_and_named() -> None:
    """One leak for each test example, with what it shares."""
    long = "a long answer that is given word for word to two different questions by chance"
    base = text(1, 200)
    tuning = [make(1, base), make(2, group="g"), make(3, answer=long)]
    test = [make(11, base), make(12, group="g"), make(13, answer=long), make(14, base + " more"), make(15)]
    check_leakage(tuning, [make(15)])
    with pytest.raises(InputError, match="got 4 of 5 test examples") as raised:
        check_leakage(tuning, test)
    named = (
        "'e11' and 'e1' (same context); 'e12' and 'e2' (same group); 'e13' and 'e3' (same answer); "
        "'e14' and 'e1' (near-same context)"
    )
    assert named in str(raised.value)
