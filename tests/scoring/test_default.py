import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faith_dspy import Judge, JudgeConfig
from faith_dspy.scoring.classifier import default_classifiers

pytestmark = pytest.mark.usefixtures("with_default_classifier")

UNFITTED = [
    "granularity=answer",
    "criteria=Is it polite?",
    "cite=true",
    "threshold=0.5",
]


@pytest.mark.parametrize("option", UNFITTED)
def test_options_it_was_not_fitted_to(option):
    """A judge that asks otherwise than the default classifier was fitted, by however little, is untuned and says so; so
    is one with a threshold on the score."""
    judge = Judge("local", config=JudgeConfig.make(**JudgeConfig.parse([option])))
    assert judge.classifier is None
    assert "untuned" in repr(judge)


def test_another_lm_has_none():
    """It was fitted to the embedded model's replies; what another LM says is reported as it is. An LM to escalate to is
    like the first."""
    default = default_classifiers()["local"]
    assert Judge("openai/tiny").classifier is None
    assert Judge("local", classifier=None).classifier is None
    _, second = Judge("none", escalate_to="local").cascade
    assert Judge("local").classifier == second.classifier == default
    untuned = Judge("openai/tiny", classifier=None, escalate_to="local")
    assert untuned.escalate_to.classifier is None


@pytest.mark.parametrize("lm", default_classifiers())
def test_shipped_numbers(lm):
    """Every shipped classifier is marked as the default; without an LM it reads none; and an answer is as
    probable as its weakest statement, so that nothing said beside it makes it truer."""
    classifier = default_classifiers()[lm]
    assert classifier.fitted_to == "default"
    assert ("lm" in classifier.statement.names) == (lm != "none")
    assert classifier.answer.probability([0.3, 0.9, 0.6]) == pytest.approx(0.3)


TRUE = [
    "Lamps can be returned within 30 days.",
    "The warranty covers the filters of the kettle.",
    "The bridge is open to cyclists all year.",
    "Evening classes are included in the plan.",
    "The kettle weighs 900 grams without its base.",
    "The museum opens at nine in the morning.",
]


def test_a_plain_contradiction_does_not_pass():
    """Of one sentence, and behind twelve true ones."""
    wrong = "Lamps cannot be returned within 30 days."
    padded = " ".join(TRUE * 2)
    for answer, faithful in (
        (TRUE[0], True),
        (wrong, False),
        (padded, True),
        (f"{padded} {wrong}", False),
    ):
        judgment = Judge("none")(context=TRUE, answer=answer)
        assert judgment.faithful is faithful
        assert (judgment.probability < 0.15) is not faithful


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        (TRUE[0], "Yes, they can."),
        (TRUE[0], "- Yes."),
        ("Only members may enter.", "Members may enter."),
        ("Two of the three boards failed.", "Three of the two boards failed."),
        ("The first version of it is out.", "The second version of it is out."),
        ("The total is 1,249.50 euros.", "The total is roughly 1,250 euros."),
        ("Die Summe ist 1.249,50 Euro.", "Die Summe ist rund 1.250 Euro."),
    ],
)
def test_what_words_do_not_settle_is_in_doubt(context, answer):
    judgment = Judge("none")(context=[context], answer=answer)
    assert judgment.needs_review or not judgment.faithful


SENTENCES = st.permutations([*TRUE, *(f"{one[:-1]} and 77 cats." for one in TRUE)])


@given(SENTENCES, st.integers(1, 6), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_neither_a_true_sentence_nor_a_missing_value_makes_an_answer_truer(
    sentences, length, place
):
    """Whatever is beside them, a sentence of the context and a number or an identifier that it lacks never raise the
    probability; and no answer with such a value passes."""
    judge = Judge("none")

    def probability(answer):
        return judge(context=TRUE, answer=answer).probability

    answer = " ".join(sentences[:length])
    for true in TRUE:
        assert probability(f"{answer} {true}") <= probability(answer)
        assert probability(f"{true} {answer}") <= probability(answer)
    words = answer.split()
    for value in ("4711", "qx_77", "https://a.example/b"):
        longer = " ".join([*words[:place], value, *words[place:]])
        assert probability(longer) <= probability(answer) + 1e-9
        assert probability(longer) < 0.5
