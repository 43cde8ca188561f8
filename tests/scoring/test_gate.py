from faith_dspy.io.inputs import as_chunks
from faith_dspy.scoring.gate import words_key


def test_the_words_of_an_answer_have_one_key():
    """However it is spaced and marked, and however its context is divided; other words have another."""
    key = words_key(as_chunks(["It is blue.", "It is light."]), "It is blue.")
    same = [
        (["It is blue. It is light."], "It is blue."),
        (["It is light.", "It is blue."], " It is **blue**  [1]"),
    ]
    assert {words_key(as_chunks(context), answer) for context, answer in same} == {key}
    assert words_key(as_chunks(["It is blue."]), "It is light.") != key
