import io
import re

import pytest
from rich.console import Console

from faith_dspy.optimize.report.pages import candidate_markdown, card, description
from faith_dspy.optimize.report.plots import agreement_by_cost, calibration, roc
from faith_dspy.optimize.report.tables import (
    predictions_table,
    prompts_table,
    study_tables,
    worst_first,
)
from faith_dspy.optimize.results import CHEAPER, COLUMN
from faith_dspy.report.tables import number, points, terminal
from faith_dspy.scoring.agreement import EvidenceAgreement
from faith_dspy.scoring.statistics import Estimate
from tests.support.results import rows


@pytest.fixture
def study(recorded):
    """The recorded study with what makes a table wide, and more of it: annotators, evidence, thousands."""
    result, some = recorded.result, Estimate(value=0.75, low=0.6, high=0.9)
    champion, *others = result.test.judges
    evidence = EvidenceAgreement(
        n=9, scored=9, coverage=1.0, precision=some, recall=some, f1=some
    )
    champion = champion.model_copy(
        update={"levels": champion.levels.model_copy(update={"evidence": evidence})}
    )
    changes = {
        "labels_file": "some-labels-with-a-long-name.jsonl",
        "lm": {"model": "openai/a-model-with-a-long-name"},
        "test": result.test.model_copy(update={"judges": (champion, *others)}),
        "ceiling": champion.agreement,
        "seconds": 4000.0,
    }
    return result.model_copy(update=changes)


def shown(tables):
    """What an 80-column terminal shows, in which no line is longer and every interval is whole."""
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(terminal(tables))
    for line in out.getvalue().splitlines():
        assert len(line) <= 80
        intervals = re.findall(r"[.\d]+ \[[-+]?[.\d]+, [-+]?[.\d]+\]", line)
        assert len(re.findall(r"\[[-+.\d]", line)) == len(intervals), line
    return " ".join(out.getvalue().split())


def test_a_study_in_eighty_columns(study):
    """Only names that are too long are cut. One that was stopped says so."""
    words = shown(
        study_tables(study.model_copy(update={"finished": False, "replayed": 3}))
    )
    for told in (
        f"broken: failed, {study.skipped[0].note[:20]}",
        f"★ {study.champion[:12]}",
        "Stopped early",
        "(3 of them kept from before and not paid again)",
    ):
        assert told in words
    assert "Stopped early" not in shown(study_tables(study))


def test_the_test_table_has_all_judges(study):
    """Champion, what it is compared with, and annotators in one table, with answers scored and intervals."""
    table = next(
        t for t in study_tables(study) if t.title.startswith("Agreement with people")
    )
    names = [row[0] for row in table.rows]
    assert names == [
        "★ champion",
        "LM calibrated",
        "lexical",
        "untuned",
        "length",
        "annotators",
    ]
    assert table.rows[0][1] == "100%"
    assert table.rows[2][-2:] == ("–", "–")  # a baseline costs nothing
    assert "annotators: one against" in table.caption


def test_the_card_says_what_the_judge_is_worth(study):
    """Three lines, how it judges, by which version, agreement, weights, cost, and what it is not."""
    text = card(
        study.model_copy(
            update={"version": "2.0", "date": "2026-01-31", "labels_file": "a`b.csv"}
        )
    )
    statement = study.classifier.statement
    weight, name = min(zip(statement.weights, statement.names, strict=True))
    assert text.startswith("# Faithfulness judge\n\n- Agreement with people: of ")
    for told in (
        "Tuned on `a'b.csv`",
        "faith_dspy 2.0, 2026-01-31.",
        "\n## Agreement with people on 12 answers, on the test\n",
        "\n## Agreement on statements\n",
        "\n## Agreement on evidence: the chunk ids named\n",
        "\n## What it is not\n",
        f"| {name} | {weight:.2f} |",
        f"The threshold is {number(study.classifier.threshold)}.",
    ):
        assert told in text
    assert "None" not in text
    assert "It is not significantly better than chance." in text
    assert "@champion" not in text


def test_the_description_on_mlflow_begins_with_the_result(study):
    """Three lines; then come links to what opens in place, and the main tables."""
    address = "models:/faithfulness@champion"
    text = description(study, address, "#/runs/1")
    assert re.match(
        r"- Agreement with people: .*\n- Gain: .*\n- Next: .*\n\nOpen: ", text
    )
    assert "[all tables](#/runs/1/artifacts/details.md)" in text
    assert f'load_judge("{address}")' in text
    assert f"--judge {address}" in text
    assert "models:/" not in description(study, None, "#/runs/1")
    assert "**failed**: " in candidate_markdown(study.skipped[0])


def test_a_judge_that_is_no_champion_is_loaded_by_its_version(study):
    text = description(study, "models:/faithfulness/4", "#/runs/1")
    assert "[model](#/models/faithfulness)" in text
    assert 'load_judge("models:/faithfulness/4")' in text
    assert "@champion" not in text


def test_predictions_stand_with_the_worst_mistakes_first():
    """Wrong before unscored before right; the surer the judge, the earlier."""
    table = predictions_table(rows([0.9, 0.4, None, 0.1], [True] * 4))
    column = table.columns.index("id")
    assert [row[column] for row in table.rows] == ["a3", "a1", "a2", "a0"]


def test_how_sure_a_judge_is_counts_from_its_threshold():
    """Of .8: a faithful answer that fails at .40 is a worse mistake than an unfaithful one that passes at .85."""
    mistakes = []
    for row in rows([0.85, 0.4], [False, True]):
        judgment = row.judgment.model_copy(update={"threshold": 0.8})
        mistakes.append(row.with_judgment(judgment))
    assert [row.id for row in worst_first(mistakes)] == ["a1", "a0"]


def test_figures_are_drawn_of_what_is_there(study):
    """The judges' curves but that of length, without pyplot's list of open figures; none of answers without a score."""
    from matplotlib import pyplot

    champion = study.measured.champion
    curves = [line.get_label() for line in roc(study.measured.judges).axes[0].lines]
    names = [c.partition(" ")[0] for c in curves if "hance" not in c]
    assert names == ["champion", *(name for name in CHEAPER if name != COLUMN)]
    calibration(champion).savefig(io.BytesIO())
    assert pyplot.get_fignums() == []
    no_score = {"predicted": None, "probability": None}
    unscored = [r.model_copy(update=no_score) for r in champion.rows]
    nothing = champion.model_copy(update={"rows": tuple(unscored)})
    assert calibration(nothing) is roc([nothing]) is None


def test_agreement_against_cost(study):
    """Each candidate is drawn, the champion as a star; those on the front are named, and the front only rises."""
    lines = agreement_by_cost(study).axes[0].lines
    points = [line for line in lines if line.get_linestyle() == "None"]
    assert len(points) == len(study.candidates)
    named = {p.get_label(): p for p in points if not p.get_label().startswith("_")}
    stars = [name for name, point in named.items() if point.get_marker() == "*"]
    assert stars == [study.champion]
    assert set(named) < {c.name for c in study.candidates}
    (front,) = (line for line in lines if line.get_linestyle() == "--")
    heights = list(front.get_ydata())
    assert heights == sorted(set(heights))


def test_compiled_prompts_are_shown_with_what_changed(study):
    """Their gain over their own seed on the same answers, what compiling took, and what is new; on the card, too."""
    table = prompts_table(study)
    (row,) = table.rows
    prompts = next(c.prompts for c in study.candidates if c.variant == row[0])
    gain = points(prompts.gain.comparison.balanced_accuracy)
    assert (row[0], row[2]) == ("sentence-few-shot", gain)
    assert row[5:] == ("0", "0.0")
    (note,) = table.notes
    assert re.fullmatch(r"sentence-few-shot: verify\.predict: \d+ examples\.", note)
    assert table.title in card(study)
