"""Columns of verdicts and numbers as judges."""

import pytest

from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.recorded import judge_columns, read_column, with_own_sources


def rows(column, values):
    """Answers faithful and not in turn, with what a judge said of them."""
    return [{"faithful": i % 2 == 0, column: value} for i, value in enumerate(values)]


def read(column, values, ask=""):
    labelled = read_labels(rows(column, values), recorded=[column], texts=False)
    return read_column(ask or column, labelled, "r.csv")


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("verdict", ["PASS", "fail", "Supported", None], [1, 0, 1, None]),
        ("deepeval_hallucination", ["yes", "no"], [0, 1]),
        ("!verdict", ["yes", "no"], [0, 1]),
        ("ragas_faithfulness", ["0.2", 0.9, "1"], [0.2, 0.9, 1]),
        ("p", ["85 %", "0%"], [0.85, 0]),
        ("stars", [1, 5, "3", None], [1, 5, 3, None]),
        ("hallucination_score", [0.25, 1.0], [0.75, 0]),
    ],
)
def test_what_a_column_says(column, values, expected):
    """Verdicts are read as labels are, numbers of any scale; a name that says so, or “!”, turns the column round."""
    judge = read(column.strip("!"), values, column)
    assert judge.values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.1, 0.2, "high"], "'s' is 'high' in 1 row, expected numbers"),
        (["99 %", "50 %", "101 %"], "'s' is '101 %' in 1 row, expected numbers with a decimal point, 0 % to 100 %"),
        (["PASS", "perhaps", "perhaps"], "'s' is 'perhaps' in 2 rows, expected numbers"),
        ([0.5, 0.5], "'s' is 0.5 throughout"),
        ([None, None], "got --scores s, which no row has a value in"),
    ],
)  # fmt: skip
def test_what_is_no_judge(values, said):
    """One sentence says what was got and what is expected."""
    with pytest.raises(InputError) as caught:
        read("s", values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_threshold_of_a_number_has_not_seen_the_answer():
    """Each fold's threshold comes from the others; a perfect judge of any scale is right about all answers, and gaps
    are unscored."""
    values = [7.0 - 0.01 * i if i % 2 == 0 else 2.0 + 0.01 * i for i in range(40)]
    values[6] = None
    table = read_labels(rows("s", values), recorded=["s"], texts=False)
    examples, alone = with_own_sources(table)
    ((_, judged, how),) = judge_columns(["s"], examples, (), "r.csv")
    assert "an answer passes at 4.48 or above" in how
    assert alone == 40
    gap = judged.pop(6)
    assert gap.unscored == "parse_failed"
    assert len({j.threshold for j in judged}) > 1
    labels = [e.label for e in examples if e.id != "row 7"]
    assert [j.faithful for j in judged] == labels


def test_a_score_is_no_label():
    """A recorded column is not taken for the label, whatever it is called."""
    beside = {"faithfulness": "0.3", "topic": "tea"}
    table = [{"label": label, **beside} for label in ("faithful", "unfaithful")]
    examples = read_labels(table, recorded=["faithfulness"], texts=False)
    assert [e.label for e in examples] == [True, False]
    assert examples[0].columns == beside
