import io

import pytest
from rich.console import Console

from faith_dspy.optimize.report.pages import card, description
from faith_dspy.optimize.report.tables import (
    agreement_table,
    predictions_table,
    study_tables,
    worst_first,
)
from faith_dspy.report.tables import number, terminal
from tests.support.results import rows


@pytest.fixture
def study(recorded):
    """The recorded study with names and times that make a table wide."""
    changes = {
        "labels_file": "some-labels-with-a-long-name.jsonl",
        "lm": {"model": "openai/a-model-with-a-long-name"},
        "ceiling": recorded.result.test.champion.agreement,
        "seconds": 4000.0,
    }
    return recorded.result.model_copy(update=changes)


def test_a_study_in_eighty_columns(study):
    """No line is longer, no interval broken, and only names that are too long are. One that was stopped says so."""
    stopped = study.model_copy(update={"finished": False, "replayed": 3})
    out = io.StringIO()
    tables = terminal(study_tables(stopped))
    Console(file=out, width=80, force_terminal=False).print(tables)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.count("[") != line.count("]")]
    words = " ".join(out.getvalue().split())
    assert f"broken: failed, {study.skipped[0].note[:20]}" in words
    assert f"★ {study.champion[:12]}" in words
    assert "Stopped early" in words
    assert "(3 of them kept from before and not paid again)" in words


def test_the_test_table_has_all_judges(study):
    """Champion, what it is compared with, and annotators in one table, with answers scored and intervals."""
    tables = study_tables(study)
    table = next(t for t in tables if t.title.startswith("Agreement with people"))
    names = ", ".join(row[0] for row in table.rows)
    assert names == "★ champion, LM calibrated, lexical, untuned, length, annotators"
    assert table.rows[0][1] == "100%"
    assert table.rows[2][-2:] == ("–", "–")  # a baseline costs nothing
    assert "untuned: asked as it is; lexical" in table.caption
    lexical = study.cv.judge("lexical-baseline")
    without = study.cv.model_copy(update={"judges": (lexical,)})
    caption = agreement_table(study, without).caption
    assert "lexical, length: words and length alone, no LM. All are fitted" in caption
    assert "untuned" not in caption


def test_the_card_says_what_the_judge_is_worth(study):
    """Three lines, agreement, and its weights; what is measured of no level is left out."""
    text = card(study.model_copy(update={"labels_file": "a`b.csv"}))
    statement = study.classifier.statement
    weight, name = min(zip(statement.weights, statement.names, strict=True))
    for told in (
        "# Faithfulness judge\n\n- Agreement with people: of ",
        "Tuned on `a'b.csv`",
        "\n## Agreement with people on 12 answers, on the test\n",
        "\n## Agreement on statements\n",
        f"| {name} | {weight:.2f} |",
        f"The threshold is {number(study.classifier.threshold)}.",
        "Inconclusive: it takes 10 sources of each label",
    ):
        assert told in text
    for never in ("None", "@champion", "Stopped early"):
        assert never not in text


def test_a_judge_that_is_no_champion_is_loaded_by_its_version(study):
    text = description(study, "models:/faithfulness/4", "#/runs/1")
    assert 'load_judge("models:/faithfulness/4")' in text
    assert "@champion" not in text


def test_predictions_stand_with_the_worst_mistakes_first():
    """Wrong before unscored before right; the surer the judge, the earlier."""
    table = predictions_table(rows([0.9, 0.4, None, 0.1], [True] * 4))
    column = table.columns.index("id")
    assert [row[column] for row in table.rows] == ["a3", "a1", "a2", "a0"]


def test_how_sure_a_judge_is_counts_from_its_threshold():
    """Of .8: a faithful answer that fails at .40 is a worse mistake than an unfaithful one that passes at .85."""
    passed, failed = (
        row.with_judgment(row.judgment.model_copy(update={"threshold": 0.8}))
        for row in rows([0.85, 0.4], [False, True])
    )
    assert worst_first([passed, failed]) == [failed, passed]
