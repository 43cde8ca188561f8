from __future__ import annotations

from faith_dspy.text.sequences import character_grams, common_subsequence, longest_run, ngrams


def test_common_subsequence_by_hand() -> None:
    """“bdab” and “bcba” are in both ABCBDAB and BDCABA, and nothing longer is; order counts, and repetition."""
    assert common_subsequence("ABCBDAB", "BDCABA") == 4
    assert common_subsequence("AAB", "AB") == 2
    assert common_subsequence("AB", "BA") == 1
    assert common_subsequence("AB", "CD") == common_subsequence("", "A") == common_subsequence("A", "") == 0


def test_common_subsequence_of_long_texts() -> None:
    """More words than a machine word has bits: of 300 words every third is missing on one side."""
    words = [str(i) for i in range(300)]
    assert common_subsequence(words, [w for w in words if int(w) % 3]) == 200


def test_ngrams_by_hand() -> None:
    """Of four keys there are two runs of three, and none of five."""
    assert ngrams(["a", "b", "c", "d"], 3) == [("a", "b", "c"), ("b", "c", "d")]
    assert ngrams(["a", "b", "c", "d"], 5) == []


def test_character_grams_by_hand() -> None:
    """Case and punctuation do not count: “A-bcd, e” is “a bcd e”, which has three strings of five."""
    assert character_grams("A-bcd, e") == {"a bcd", " bcd ", "bcd e"}


def test_longest_run_by_hand() -> None:
    """Three in a row, after one by itself."""
    assert longest_run([True, False, True, True, True, False]) == 3
