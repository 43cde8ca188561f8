import random
from collections import Counter

import pytest

from faith_dspy.errors import InputError
from faith_dspy.optimize.data.pool import (
    assign_folds,
    check_leakage,
    halves,
    read_partition,
    sample,
    with_sources,
)
from faith_dspy.schema import Chunk, LabelledExample

WORDS = [f"word{i}" for i in range(400)]
LONG = "The treaty was signed in 1648 in Osnabrueck and ended a war of thirty years"


def text(i, n=40):
    """`n` random words, the same for the same `i`."""
    return " ".join(random.Random(i).choices(WORDS, k=n))


def make(i, context=None, **more):
    """Example ``e<i>``; every other one is faithful, each over a context of its own."""
    context = text(i) if context is None else context
    fields = {
        "id": f"e{i}",
        "context": (Chunk(id=0, text=context),) if context else (),
        "answer": "a b",
        "faithful": i % 2 == 0,
    }
    return LabelledExample(**fields | more)


def sources(examples):
    return [e.group_key for e in with_sources(examples)]


BASE = text(1, 200)
JAPANESE = "東京は日本の首都であり世界最大級の都市圏を形成している大都市である" * 2


STOCK = "Unable to answer based on given passages."
CHANGED = BASE.replace(BASE.split()[5], "changed", 1)
HALF = " ".join(BASE.split()[:100]) + " " + text(2, 100)


@pytest.mark.parametrize(
    ("examples", "joined"),
    [
        # A context with a word changed is the same source; one that shares half of its words is another.
        ([make(1, BASE), make(2, CHANGED), make(3, HALF)], "aab"),
        # Where words are not spaced, contexts are compared by character.
        ([make(1, JAPANESE), make(2, JAPANESE + "。はい"), make(3, JAPANESE[::-1])], "aab"),
        # The same long answer, whatever its case and punctuation, is one source; a short stock reply is not.
        ([make(1, answer=LONG), make(2, answer=LONG.upper() + "!")], "aa"),
        ([make(1, answer=STOCK), make(2, answer=STOCK)], "ab"),
        # Two contexts become one group through an example group that holds both.
        ([make(1, "one x"), make(2, "one x", group="g"), make(3, "two y", group="g"), make(4, "z w")], "aaab"),
        # Having no context is not a source in common.
        ([make(1, ""), make(2, ""), make(3, " ")], "abc"),
    ],
)  # fmt: skip
def test_what_is_one_source(examples, joined):
    found = sources(examples)
    names = list(dict.fromkeys(found))
    assert "".join("abc"[names.index(source)] for source in found) == joined


def labels_by_fold(examples, fold_of):
    found = {}
    for e in examples:
        found.setdefault(fold_of[e.group_key], set()).add(e.label)
    return found


@pytest.mark.parametrize(
    ("per_source", "folds"), [(1, 5), (15, 4)], ids=["alone", "of four"]
)
def test_every_source_has_one_fold_and_every_fold_both_labels(per_source, folds):
    """Sixty answers, also of four sources; the order of the lines does not matter, and the seed does."""
    examples = [make(i, text(i // per_source)) for i in range(60)]
    fold_of = assign_folds(examples, 0)
    assert set(fold_of) == {e.group_key for e in examples}
    assert labels_by_fold(examples, fold_of) == {k: {True, False} for k in range(folds)}
    assert assign_folds(random.Random(0).sample(examples, 60), 0) == fold_of
    assert assign_folds(examples, 1) != fold_of


@pytest.mark.parametrize("seed", range(5))
def test_a_label_in_three_sources_is_in_three_folds_and_both_halves(seed):
    """However few there are of it."""
    examples = [make(i, faithful=i > 2) for i in range(40)]
    fold_of = assign_folds(examples, seed)
    found = labels_by_fold(examples, fold_of)
    assert list(found.values()) == [{True, False}] * 3
    one, other = halves(examples, seed)
    assert {e.label for e in one} == {e.label for e in other} == {True, False}
    assert not set(sources(one)) & set(sources(other))


def rows(*numbers, **more):
    return [make(i, **more) for i in numbers]


def partition(labels, test=None, size=999, words=99_999):
    return read_partition(labels, test, size, words, 0)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (rows(*range(9)), "got 5 faithful answers over 5 sources and 4 unfaithful"),
        (rows(*range(0, 20, 2), 1, 3), "2 unfaithful over 2; .* 3 sources with each"),
        (rows(*range(20), context="one"), "10 faithful answers over 1 source and"),
    ],
    ids=["few", "a label in two sources", "one context"],
)
def test_too_few_labels_say_how_many_it_takes(labels, said):
    with pytest.raises(InputError, match=said) as raised:
        partition(labels)
    assert "label more of the rarer kind, over other contexts" in str(raised.value)


def test_every_label_teaches_and_tests():
    """Of the file all are in the pool, however it is divided; a smaller budget draws a sample, and counts the others as
    labels of the study, too; a file of test rows alone is tuned on."""
    apart = partition([*rows(*range(10), split="train"), *rows(*range(10, 18))])
    assert (len(apart.pool), len(apart.fold_of), apart.test) == (18, 18, [])
    assert apart.sentence.startswith("Labels: 18 answers (9 faithful, 18 sources), ")
    few = partition(rows(*range(18)), size=9)
    assert (len(few.pool), len(few.labelled)) == (9, 18)
    alone = partition(rows(*range(12), split="test"))
    assert len(alone.pool) == 12


@pytest.mark.parametrize("is_file", [True, False], ids=["--test", "split: test"])
def test_nothing_learns_from_a_test_of_ones_own(is_file):
    """Rows with ``split: test`` are one, and beside ``--test`` they are used for nothing."""
    labels = [*rows(*range(12)), *rows(12, 13, split="test")]
    parts = partition(labels, rows(*range(100, 106)) if is_file else None)
    assert {e.id for e in parts.pool} == {f"e{i}" for i in range(12)}
    expected = range(100, 106) if is_file else (12, 13)
    assert [e.id for e in parts.test] == [f"e{i}" for i in expected]
    assert f"a test of your own: {len(expected)} answers" in parts.sentence


def test_a_test_of_one_label_measures_nothing():
    with pytest.raises(InputError, match=r"3 faithful answers .* expected at least 1"):
        partition(rows(*range(12)), rows(100, 102, 104))


def test_answers_that_annotators_are_split_on_are_kept_for_their_agreement():
    tied = rows(50, faithful=None, annotators=["yes", "no"])
    parts = partition([*rows(*range(12)), *tied])
    assert (len(parts.pool), len(parts.answers)) == (12, 13)


def test_a_test_that_shares_a_source_is_refused_before_sources_are_renamed():
    """By the file's own group, though its source is called by the context that joins it to another."""
    labels = [*rows(*range(12)), *rows(20, 21, group="own", context=text(3))]
    with pytest.raises(InputError, match=r"got 1 of 4 test examples.*same group"):
        partition(labels, [*rows(100, 101, 102), *rows(103, group="own")])


def test_every_kind_of_leak_is_found_and_named():
    """One leak for each test example, with what it shares."""
    tuning = [make(1, BASE), make(2, group="g"), make(3, answer=LONG)]
    test = [make(11, BASE), make(12, group="g"), make(13, answer=LONG)]
    test += [make(14, BASE + " more"), make(15)]
    check_leakage(tuning, [make(15)])
    with pytest.raises(InputError, match="got 4 of 5 test examples") as raised:
        check_leakage(tuning, test)
    named = (
        "'e11' and 'e1' (same context); 'e12' and 'e2' (same group); 'e13' and 'e3' (same answer); "
        "'e14' and 'e1' (near-same context)"
    )
    assert named in str(raised.value)


def test_a_small_sample_holds_both_labels_in_three_groups():
    """Twelve answers over two contexts of one label each cannot be cross-fitted: the limit gives way."""
    part = [make(i, f"c{i // 6}", faithful=i // 6 % 4 != 0) for i in range(240)]
    for seed in range(5):
        drawn = sample(part, 12, 10**6, seed)
        sources = {(e.label, e.group_key) for e in drawn}
        assert min(Counter(label for label, _ in sources).values()) >= 3
        assert len(drawn) < len(part)
    assert len(sample(part[:18], 12, 10**6, 0)) == 18  # there is no more to take
    # Three words of a context, the first time, and two of an answer: eight answers, one of each of eight sources.
    by_words = [make(i, f"a b c{i // 8}") for i in range(64)]
    drawn = sample(by_words, 10**6, 8 * 5 - 1, 0)
    assert len(drawn) == len({e.group_key for e in drawn}) == 8
