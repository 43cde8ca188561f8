from __future__ import annotations

import pytest

from faith_dspy.text.words import has_words, visible


@pytest.mark.parametrize(
    "text",
    [
        "", " \t\n", "\u200b\u200d", "\x00", "\u3164", "\u115f\u1160", "\uffa0", "\u2800", "\U000e0041", "\u202e",
        "\ufe0f", "\u034f", "---", "* * *", "| --- | :-: |", "+----+", "┌──┐", "═══", "…", "[ ]",
    ],
)  # fmt: skip
def test_a_text_without_words(text: str) -> None:
    """What cannot be seen, fillers that Unicode calls letters, rules of tables and punctuation say nothing."""
    assert not has_words(text)


@pytest.mark.parametrize("text", ["a", "7", "\u200b7", "你", "| ½ |", "한", "ก", "ʼn"])
def test_a_text_with_words(text: str) -> None:
    """One letter or digit of any script is enough."""
    assert has_words(text)


def test_what_is_visible() -> None:
    """Letters, marks, emoji, private characters and number signs that Unicode calls formats stay; joiners may."""
    for text in ("é", "e\u0301", "👩", "\uf8ff", "\u0600١", "ی\u200cخ", "\t "):
        assert visible(text) == text
    assert visible("👩\u200d💻❤\ufe0f") == "👩💻❤"
    assert visible("\u3164\u200d\u3164") == ""
