from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from faith_dspy.optimize import results
from faith_dspy.optimize.diagnostics.groups import by_group
from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.select.optimism import selection
from faith_dspy.optimize.tracking.archive import StudyRecord, record
from faith_dspy.optimize.tracking.studies import compare_studies
from faith_dspy.report.studies import studies_view
from faith_dspy.report.study import study_view
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import measure


def rows(right: int) -> list[PredictionRow]:
    """Forty answers of two sources, the first ``right`` of the second source's twenty judged right."""
    out = []
    for i in range(40):
        label, ok = i % 2 == 0, i < 20 + right
        out.append(
            PredictionRow(
                id=str(i), group=str(i), part="test", label=label, predicted=label is ok,
                probability=0.81 if label is ok else 0.23, answer="One two three.",
                tags={"source": "[bold]a source with a very long name[/bold]" if i < 20 else "wiki"},
            )
        )  # fmt: skip
    return out


def agreement(part: list[PredictionRow]) -> Any:
    """As a study measures it."""
    labels, predicted = [r.label for r in part], [r.predicted for r in part]
    return measure(labels, predicted, [r.probability for r in part], n_resamples=50)


def study(seed: int = 0) -> StudyResult:
    """A finished study with everything a view shows."""
    usage = Usage(calls=400, prompt_tokens=99_999, cached_tokens=9, output_tokens=40, seconds=432.1)
    test = [
        results.TestResult(name=n, kind=k, agreement=agreement(rows(r)), usage=usage, predictions=rows(r))
        for n, k, r in (("champion", "lm", 12 + seed), ("untuned", "untuned", 8), ("lexical-baseline", "baseline", 9))
    ]
    variants = [
        VariantResult(name=n, kind="lm", description="", params={}, agreement=agreement(rows(r)), selection_score=r / 20,
                      predictions=rows(r), usage=usage, judged=40)
        for n, r in (("sentence-bootstrap", 12), ("sentence", 10))
    ]  # fmt: skip
    sides = [Side([r.predicted for r in t.predictions], [r.probability for r in t.predictions]) for t in test]
    labels = [r.label for r in test[0].predictions]
    return StudyResult(
        study_id=f"51d{seed}", labels_file="some-labels.jsonl", label_set_hash="81f2aa77", seed=seed, budget="standard",
        lm={"name": "openai/a-model-with-a-long-name"}, split={}, variants=variants, champion="sentence-bootstrap",
        test=test, comparisons={"untuned": compare(labels, *sides[:2], n_resamples=50)}, usage=usage, seconds=4000,
        optimism=selection(variants, "sentence-bootstrap", tie=0.01, n_resamples=50),
        groups=by_group(test[0].predictions, n_resamples=50), ceiling=agreement(rows(18)), judge_dir="judges/l",
    )  # fmt: skip


def shown(view: Any) -> str:
    """What an 80-column terminal shows; no line is longer, and no cell was cut to fit."""
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(view)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()


def test_a_study_in_eighty_columns():
    """Worst group, optimism and people stand with the figures, and no number is cut."""
    text = shown(study_view(study()))
    words = " ".join(text.split())
    assert "people" in text
    assert "Worst of the 2 groups that could be measured: source 'wiki'" in words
    assert "Chosen among 2: on dev" in words
    assert "too few" not in text
    table = [line for line in text.splitlines() if line.lstrip().startswith(("champion ", "people ", "source: wiki"))]
    assert all("…" not in line for line in table)
    assert "source: [bold]a source wi…" in text


def test_a_study_that_was_stopped_says_so():
    """The variants that were not tried stand nowhere, so a sentence does; calls that cost nothing are told apart."""
    stopped = study().model_copy(update={"finished": False, "replayed": 3})
    words = " ".join(shown(study_view(stopped)).split())
    assert "Stopped early" in words
    assert "(3 of them kept from before, not paid again)" in words
    assert "Stopped early" not in shown(study_view(study()))


def test_studies_in_eighty_columns():
    """Every figure of the comparison is whole, and seeds give their spread."""
    found: list[StudyRecord] = [record(study(seed), f"judges/some-labels-seed-{seed}") for seed in (0, 1)]
    text = shown(studies_view(compare_studies(found)))
    assert "…" not in text
    words = " ".join(text.split())
    assert "81f2aa" in text
    assert "study 1 is not shown to be better than study 2" in words.lower()
    assert "2 seeds of some-labels.jsonl" in words
