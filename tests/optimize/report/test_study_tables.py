from __future__ import annotations

import io
import re
from typing import Any

from made import agreement, judge, rows
from made import study as made
from rich.console import Console

from faith_dspy.optimize.report.pages import card, links, variant_markdown
from faith_dspy.optimize.report.plots import judge_figures, study_figures
from faith_dspy.optimize.report.studies import compare_studies, studies_tables
from faith_dspy.optimize.report.tables import by_group, predictions_table, study_tables
from faith_dspy.optimize.results import Difference, JudgeResult, StudyResult
from faith_dspy.report.tables import terminal
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import EvidenceAgreement, JudgeAgreement, StatementAgreement
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.statistics import Estimate

USAGE = Usage(calls=400, prompt_tokens=99_999, cached_tokens=9, output_tokens=40, seconds=432.1)
SOME = Estimate(value=0.75, low=0.6, high=0.9)
LOST = Difference(value=-0.034, low=-0.08, high=0.01, standard_error=0.02)
EVIDENCE = EvidenceAgreement(n=9, scored=9, coverage=1.0, precision=SOME, recall=SOME, f1=SOME)


def judged(right: int) -> Any:
    """Forty answers of two sources, the first ``right`` of the second source's twenty judged right."""
    labels = [i % 2 == 0 for i in range(40)]
    found = [0.81 if y is (i < 20 + right) else 0.23 for i, y in enumerate(labels)]
    long = {"source": "[bold]a source with a very long name[/bold]"}
    halves = ((slice(20), "a", long), (slice(20, 40), "b", {"source": "wiki"}))
    return tuple(a for at, prefix, tags in halves for a in rows(found[at], labels[at], prefix, group=None, tags=tags))


def study(seed: int = 0, **changes: Any) -> StudyResult:
    """A finished study with everything a table shows."""
    found = {"champion": judged(12 + seed), "untuned": judged(8), "lexical-baseline": judged(9)}
    spent = {"usage": USAGE, "lm_share": 1.0}
    test = []
    for name, answers in found.items():
        lm = "baseline" not in name
        levels = JudgeAgreement(
            answers=agreement(answers),
            statements=StatementAgreement(**dict(agreement(answers))) if lm else None,
            evidence=EVIDENCE if name == "champion" else None,
        )
        test.append(judge(name, answers, levels=levels, **(spent if lm else {})))
    variants = (
        judge("sentence-bootstrap", judged(12), score=0.6, description="by sentence", **spent,
              params={"granularity": "sentence", "lm": "local"}),
        judge("sentence", judged(10), score=0.5, behind=LOST, **spent),
        JudgeResult(name="sentence-gepa", kind="lm", description="by sentence", params={}, status="skipped",
                    note="the 4 minutes for trying variants were over"),
    )  # fmt: skip
    weights = {"names": ("lm", "novel_words"), "weights": (1.2, -0.6), "means": (0, 0), "scales": (1, 1)}
    flat = {"names": (), "weights": (), "means": (), "scales": ()}
    classifier = {"threshold": 0.4, "statement": {**weights, "intercept": 0}, "answer": {**flat, "intercept": 0}}
    return made(
        found["champion"],
        **{"study_id": f"51d{seed}", "labels_file": "some-labels.jsonl", "seed": seed, "budget": "standard",
           "lm": {"name": "openai/a-model-with-a-long-name"}, "variants": variants, "champion": "sentence-bootstrap",
           "test": tuple(test), "usage": USAGE, "seconds": 4000, "groups": by_group(found["champion"]),
           "ceiling": agreement(judged(18)), "judge_dir": "judges/l",
           "classifier": Classifier.model_validate(classifier),
           } | changes,
    )  # fmt: skip


def shown(tables: Any) -> str:
    """What an 80-column terminal shows; no line is longer."""
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(terminal(tables))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()


def test_a_study_in_eighty_columns():
    """Every number is whole; only names that are too long are cut."""
    text = shown(study_tables(study()))
    words = " ".join(text.split())
    assert "sentence-gepa: skipped, the 4 minutes for trying variants were over." in words
    assert "★ sentence-bootstrap" in text
    assert "3.4 ± 2.0" in text
    assert "source: [bold]a source" in text
    for line in text.splitlines():
        assert line.count("[") - len(re.findall(r"\[/?[b…]", line)) == len(
            re.findall(r"\.\d\d \[-?[.\d]+, -?[.\d]+\]", line)
        ), line


def test_the_test_table_has_all_judges():
    """Champion, untuned judge, baselines and people in one table, with answers scored and intervals."""
    table = next(t for t in study_tables(study()) if t.title.startswith("Agreement with people"))
    assert [row[0] for row in table.rows] == ["★ champion", "untuned", "lexical", "people"]
    assert table.rows[0][1] == "100%"
    assert re.fullmatch(r"\.80 \[\.\d\d, \.\d\d\]", table.rows[0][2])  # 16 of 20 on either side
    assert table.rows[2][-2:] == ("–", "–")  # a baseline costs nothing
    assert "people: one annotator" in table.caption


def test_a_study_that_was_stopped_says_so():
    """The variants that were not tried stand nowhere, so a sentence does; calls that cost nothing are counted apart."""
    words = " ".join(shown(study_tables(study(finished=False, replayed=3))).split())
    assert "Stopped early" in words
    assert "(3 of them kept from before and not paid again)" in words
    assert "Stopped early" not in shown(study_tables(study()))


def test_the_card_says_what_the_judge_is_worth():
    """Three lines, how it judges, by which version, agreement, weights, cost, and what it is not."""
    text = card(study(version="2.0", date="2026-01-31", labels_file="a`b.csv"))
    assert "Tuned on `a'b.csv`" in text
    assert text.startswith("# Faithfulness judge\n\n- Agreement: balanced accuracy .80 [")
    assert "\n\nBy sentence; an LM is asked about 100% of the answers (`local`)." in text
    assert "faith_dspy 2.0, 2026-01-31.\n" in text
    unshown = {k: c.model_copy(update={"verdict": "not shown better"}) for k, c in study().comparisons.items()}
    assert "not shown better than its own untuned judge: if it is @champion" in card(study(comparisons=unshown))
    titles = re.findall("^## (.*)$", text, re.MULTILINE)
    assert titles == [
        "Agreement with people on 40 answers of the testset",
        "Agreement on statements",
        "Agreement on evidence: the chunk ids named",
        "Verdict",
        "What the classifier uses",
        "Variants on dev: to choose by, not agreement with people",
        "What it is not",
    ]
    assert "| novel_words | -0.60 |" in text
    assert "The threshold is .40." in text
    assert "None" not in text
    alone = study().variants[0].model_copy(update={"lm_share": 0.0})
    assert "no LM is asked" in card(study(variants=(alone,)))


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
    assert set(study_figures(result)) == {"roc.png"}
    champion = result.tested("champion")
    made = judge_figures(champion.rows, champion.agreement, "champion")
    assert set(made) == {"confusion.png", "calibration.png"}
    for figure in [*made.values(), *study_figures(result).values()]:
        figure.savefig(io.BytesIO())
    assert pyplot.get_fignums() == []
    unscored = tuple(r.model_copy(update={"predicted": None, "probability": None}) for r in champion.rows)
    assert set(judge_figures(unscored, champion.agreement, "none")) == {"confusion.png"}


def test_studies_in_eighty_columns():
    """Every figure of the comparison is whole, and seeds give their spread."""
    found = [study(seed).model_copy(update={"judge_dir": f"judges/some-labels-seed-{seed}"}) for seed in (0, 1)]
    text = shown(studies_tables(found, compare_studies(found)))
    words = " ".join(text.split())
    assert "81f2aa" in text
    assert "study 1 is not shown to be better than study 2" in words.lower()
    assert "2 seeds of some-labels.jsonl" in words
    assert "Study 1: sentence-bootstrap, " in words
