import io
import re

from made import agreement, judge, rows
from made import study as made
from rich.console import Console

from faith_dspy.optimize.report.pages import card, links, variant_markdown
from faith_dspy.optimize.report.plots import judge_figures, study_figures
from faith_dspy.optimize.report.studies import compare_studies, studies_tables
from faith_dspy.optimize.report.tables import by_group, predictions_table, study_tables
from faith_dspy.optimize.results import Difference, JudgeResult
from faith_dspy.report.tables import terminal
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import EvidenceAgreement, JudgeAgreement, StatementAgreement
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.statistics import Estimate

USAGE = Usage(calls=400, prompt_tokens=99_999, cached_tokens=9, output_tokens=40, seconds=432.1)
SPENT = {"usage": USAGE, "lm_share": 1.0}
SOME = Estimate(value=0.75, low=0.6, high=0.9)
EVIDENCE = EvidenceAgreement(n=9, scored=9, coverage=1.0, precision=SOME, recall=SOME, f1=SOME)
FLAT = {"names": (), "weights": (), "means": (), "scales": (), "intercept": 0}
STATEMENT = {"names": ("lm", "novel_words"), "weights": (1.2, -0.6), "means": (0, 0), "scales": (1, 1), "intercept": 0}


def judged(right):
    """Forty answers of two sources, the first ``right`` of the second source's twenty judged right."""
    labels = [i % 2 == 0 for i in range(40)]
    found = [0.81 if y is (i < 20 + right) else 0.23 for i, y in enumerate(labels)]
    long = {"source": "[bold]a source with a very long name[/bold]"}
    halves = ((slice(20), "a", long), (slice(20, 40), "b", {"source": "wiki"}))
    return tuple(a for at, prefix, tags in halves for a in rows(found[at], labels[at], prefix, group=None, tags=tags))


def of_test(name, answers, evidence=None):
    if name.endswith("baseline"):
        return judge(name, answers)
    found = agreement(answers)
    statements = StatementAgreement(**dict(found))
    return judge(name, answers, levels=JudgeAgreement(answers=found, statements=statements, evidence=evidence), **SPENT)


def study(seed=0, **changes):
    """A finished study with everything a table shows."""
    champion = judged(12 + seed)
    behind = Difference(value=-0.034, low=-0.08, high=0.01, standard_error=0.02)
    params = {"granularity": "sentence", "lm": "local"}
    skipped = {"status": "skipped", "note": "the 4 minutes for trying variants were over"}
    fields = {
        "study_id": f"51d{seed}",
        "labels_file": "some-labels.jsonl",
        "seed": seed,
        "budget": "standard",
        "lm": {"name": "openai/a-model-with-a-long-name"},
        "variants": (
            judge("sentence-bootstrap", judged(12), score=0.6, description="by sentence", params=params, **SPENT),
            judge("sentence", judged(10), score=0.5, behind=behind, **SPENT),
            JudgeResult(name="sentence-gepa", kind="lm", description="by sentence", **skipped),
        ),
        "champion": "sentence-bootstrap",
        "test": (
            of_test("champion", champion, EVIDENCE),
            of_test("untuned", judged(8)),
            of_test("lexical-baseline", judged(9)),
        ),
        "usage": USAGE,
        "seconds": 4000,
        "groups": by_group(champion),
        "ceiling": agreement(judged(18)),
        "judge_dir": f"judges/some-labels-seed-{seed}",
        "classifier": Classifier.model_validate({"threshold": 0.4, "statement": STATEMENT, "answer": FLAT}),
    }
    return made(champion, **fields | changes)


def shown(tables):
    """What an 80-column terminal shows; no line is longer."""
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(terminal(tables))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()


def test_a_study_in_eighty_columns():
    """Every number is whole; only names that are too long are cut. One that was stopped says so."""
    text = shown(study_tables(study(finished=False, replayed=3)))
    for line in text.splitlines():
        intervals = re.findall(r"\.\d\d \[-?[.\d]+, -?[.\d]+\]", line)
        assert line.count("[") - len(re.findall(r"\[/?[b…]", line)) == len(intervals), line
    words = " ".join(text.split())
    for told in (
        "sentence-gepa: skipped, the 4 minutes for trying variants were over.",
        "★ sentence-bootstrap",
        "3.4 ± 2.0",
        "source: [bold]a source",
        "Stopped early",
        "(3 of them kept from before and not paid again)",
    ):
        assert told in words
    assert "Stopped early" not in shown(study_tables(study()))


def test_the_test_table_has_all_judges():
    """Champion, untuned judge, baselines and people in one table, with answers scored and intervals."""
    table = next(t for t in study_tables(study()) if t.title.startswith("Agreement with people"))
    assert [row[0] for row in table.rows] == ["★ champion", "untuned", "lexical", "people"]
    assert table.rows[0][1] == "100%"
    assert re.fullmatch(r"\.80 \[\.\d\d, \.\d\d\]", table.rows[0][2])  # 16 of 20 on either side
    assert table.rows[2][-2:] == ("–", "–")  # a baseline costs nothing
    assert "people: one annotator" in table.caption


def test_the_card_says_what_the_judge_is_worth():
    """Three lines, how it judges, by which version, agreement, weights, cost, and what it is not."""
    text = card(study(version="2.0", date="2026-01-31", labels_file="a`b.csv"))
    assert "Tuned on `a'b.csv`" in text
    assert text.startswith("# Faithfulness judge\n\n- Agreement: balanced accuracy .80 [")
    for told in (
        "\n\nBy sentence; an LM is asked about 100% of the answers (`local`).",
        "faith_dspy 2.0, 2026-01-31.\n",
        "\n## Agreement with people on 40 answers of the testset\n",
        "\n## Agreement on statements\n",
        "\n## Agreement on evidence: the chunk ids named\n",
        "\n## What it is not\n",
        "| novel_words | -0.60 |",
        "The threshold is .40.",
    ):
        assert told in text
    assert "None" not in text
    unshown = {k: c.model_copy(update={"verdict": "not shown better"}) for k, c in study().comparisons.items()}
    assert "not shown better than its own untuned judge: if it is @champion" in card(study(comparisons=unshown))


def test_the_description_on_mlflow_begins_with_the_result():
    """Three lines; then come links to what opens in place, and the main tables."""
    text = card(study(), links(study(), "faithfulness", "#/runs/1"))
    assert re.search(r"\n- Agreement: .*\n- Gain: .*\n- Next: .*\n\nOpen: ", text)
    assert "[all tables](#/runs/1/artifacts/details.md)" in text
    assert "models:/faithfulness@champion" in text
    assert "models:/" not in links(study(), None, "#/runs/1")
    assert "balanced accuracy .80" in variant_markdown(study().variants[0])
    assert "**skipped**: the 4 minutes" in variant_markdown(study().variants[2])


def test_predictions_stand_with_the_worst_mistakes_first():
    """Wrong before unscored before right; the surer the judge, the earlier."""
    table = predictions_table(rows([0.9, 0.4, None, 0.1], [True] * 4))
    column = table.columns.index("id")
    assert [row[column] for row in table.rows] == ["a3", "a1", "a2", "a0"]


def test_figures_are_drawn_of_what_is_there():
    """One figure for each thing to show, without pyplot's list of open figures."""
    from matplotlib import pyplot

    result = study()
    champion = result.tested("champion")
    figures = study_figures(result) | judge_figures(champion.rows, champion.agreement, "champion")
    assert set(figures) == {"roc.png", "confusion.png", "calibration.png"}
    for figure in figures.values():
        figure.savefig(io.BytesIO())
    assert pyplot.get_fignums() == []
    unscored = tuple(r.model_copy(update={"predicted": None, "probability": None}) for r in champion.rows)
    assert set(judge_figures(unscored, champion.agreement, "none")) == {"confusion.png"}


def test_studies_in_eighty_columns():
    """Every figure of the comparison is whole, and seeds give their spread."""
    found = [study(0), study(1)]
    words = " ".join(shown(studies_tables(found, compare_studies(found))).split())
    for told in (
        "81f2aa",
        "tudy 1 is not shown to be better than study 2",
        "2 seeds of some-labels.jsonl",
        "Study 1: sentence-bootstrap, ",
    ):
        assert told in words
