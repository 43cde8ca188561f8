import pytest

from faith_dspy import Chunk
from faith_dspy.scoring.evidence import find_quotes

TEXTS = (
    "The “Brennick” kettle –\n a K4 – holds 10.9 litres.",
    "It is BLUE; the lid is red.",
    "Le cafe\u0301 est ﬁnal, l’eau est à 100\u00a0°C.",
    "水壶的容量是0.9升。它是蓝色的！",
    "केतली नीली है। वारंटी दो साल की है।",
    "لون الغلاية أزرق. الضمان سنتان.",
    "It is blue inside, too.",
)
CHUNKS = tuple(Chunk(id=i, text=t) for i, t in enumerate(TEXTS))


@pytest.mark.parametrize(
    ("quote", "chunk", "shown"),
    [
        ("a K4", 0, "a K4"),
        ("'the \"brennick\" kettle - a k4'", 0, "The “Brennick” kettle –\n a K4"),
        ("“The lid is red.”", 1, "the lid is red"),
        ("café est final", 2, "cafe\u0301 est ﬁnal"),
        ("L'eau est à 100 °C", 2, "l’eau est à 100\u00a0°C"),
        ("容量是0.9升", 3, "容量是0.9升"),
        ("वारंटी दो साल", 4, "वारंटी दो साल"),
        ("الضمان سنتان", 5, "الضمان سنتان"),
    ],
)
def test_quotes_are_found_and_shown_as_the_chunk_has_them(quote, chunk, shown):
    """Case, white space, marks and Unicode forms aside, a quote is found; its offsets give the chunk's own words."""
    ((span,), dropped) = find_quotes([quote], CHUNKS)
    assert (span.chunk_id, TEXTS[span.chunk_id][span.start : span.end], dropped) == (
        chunk,
        shown,
        0,
    )


@pytest.mark.parametrize(
    "quote",
    ["The lid is green", "0.9 litres", "rennick", "cafe", "The lid … red", "दो स"],
)
def test_quotes_that_are_nowhere(quote):
    """What no chunk says is counted; so is what only is there inside a longer word, letter or number."""
    assert find_quotes([quote], CHUNKS) == ((), 1)


def test_quotes_that_are_none():
    """An empty quote, or the word for it, is neither found nor counted; one given twice counts once."""
    assert find_quotes(["", "none", "…", "N/A"], CHUNKS) == ((), 0)
    assert find_quotes(["green", "Green!"], CHUNKS) == ((), 1)
    assert len(find_quotes(["It is blue", "it is blue."], CHUNKS)[0]) == 1


def test_a_quote_in_several_chunks():
    """It stands for the chunk that was named, else for the first that has it."""
    assert find_quotes(["it is blue"], CHUNKS)[0][0].chunk_id == 1
    assert find_quotes(["it is blue"], CHUNKS, named=[6])[0][0].chunk_id == 6
