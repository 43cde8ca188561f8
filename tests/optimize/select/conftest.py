import pytest

from tests.support.studies import CITIES, labels


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """162 answers over 54 contexts, half of them unfaithful, 54 a part; words tell them apart, and so does the LM."""
    cities = [f"{city}{letter}" for letter in "abcde" for city in CITIES]
    return labels(tmp_path_factory.mktemp("labels") / "l.jsonl", cities=cities[:54])
