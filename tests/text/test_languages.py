from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from faith_dspy.text import words as languages
from faith_dspy.text.words import LANGUAGES, guess_language, magnitudes, stem, word_lists

FILES = Path(languages.__file__).parent / "word_lists"


def test_every_file_is_a_language() -> None:
    """A language is its file and its place in `LANGUAGES`; one without a file has empty lists."""
    assert {path.stem for path in FILES.glob("*.json")} == set(LANGUAGES)
    assert word_lists("klingon") == word_lists("other")
    assert not word_lists("klingon").function_words


def test_the_files_are_packaged() -> None:
    """They are package data, so that an installed copy has them."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "word_lists/*.json" in project["tool"]["setuptools"]["package-data"]["faith_dspy.text"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_listed_as_they_are_compared(language: str) -> None:
    """In lower case, without spaces, each once; a language with one list of words for refusals has all of them."""
    lists = word_lists(language)
    listed = (lists.function_words, lists.qualifiers, lists.negations, lists.number_words, lists.magnitudes)
    for words in (*listed, lists.stating_verbs):
        assert all(word == word.lower() and not re.search(r"\s", word) for word in words)
    assert len({bool(p) for p in (lists.apology, lists.greeting, lists.refusal, lists.clause_break)}) == 1


def test_languages_are_guessed_by_function_words() -> None:
    """Most hits win, of equal ones the first in `LANGUAGES`; a long text with few hits is of another language."""
    assert guess_language(["der", "hund", "und", "die", "katze"], "LATIN") == "german"
    assert guess_language(["zug"] * 19, "LATIN") == "english"
    assert guess_language(["zug"] * 20, "LATIN") == "other"
    assert guess_language([], "GREEK") == "greek"


def test_magnitudes_are_known_in_all_languages() -> None:
    """“Mille” counts in a text of any language."""
    assert (magnitudes()["mille"], magnitudes()["milliarde"]) == (10**3, 10**9)


def test_a_language_without_a_stemmer_keeps_the_beginning() -> None:
    """The first two thirds of a word, at least four letters."""
    assert (stem("stolicą", "klingon"), stem("ryba", "klingon")) == ("stoli", "ryba")
