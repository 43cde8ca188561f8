"""The tables of a study, and of several compared. Terminal, Markdown and HTML only render them.

A column is one line of its table's dictionary here; in a terminal all of them share 80 characters
(`faith_dspy.report.tables.WIDTH`). Tables that have nothing to show are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from faith_dspy.errors import InputError, counted
from faith_dspy.io.labels import whose_labels
from faith_dspy.optimize.report.headline import PROCEDURE
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHAMPION,
    COLUMN,
    FUNCTION,
    LENGTH,
    LEXICAL,
    UNTUNED,
    CandidateResult,
    Comparison,
    JudgedAnswer,
    JudgeResult,
    Measured,
    PromptGain,
    Prompts,
    Row,
    StudyResult,
    costs,
)
from faith_dspy.optimize.select.comparison import compare_champions, measured_on
from faith_dspy.report.tables import (
    MARK,
    NONE,
    Table,
    each,
    level_tables,
    number,
    points,
    sureness,
    table_of,
    with_interval,
)
from faith_dspy.scoring.agreement import Agreement

INTERVALS = "In brackets 95 % intervals."
OUTCOME = {True: "faithful", False: "unfaithful", None: "unscored"}
"""What is said of an answer, by its label or by a judge."""
_CALIBRATED = {
    CALIBRATED: "LM calibrated",
    FUNCTION: "function calibrated",
    COLUMN: "column calibrated",
}
"""How a narrow column calls what is calibrated; the best of its kind."""
_LABEL = {True: ", label: supported", False: ", label: not supported", None: ""}
_WORST = 5
"""Mistakes that are listed."""
_VISIBLE = 0.005
"""A weight that is not written as .00."""
_SIDE_BY_SIDE = (
    "Studies tested on different answers stand side by side only: "
    "part of their difference is the luck of the answers."
)


def study_tables(result: StudyResult) -> list[Table]:
    """Return all tables, the most important last, as one reads a terminal."""
    tables = (
        candidates_table(result),
        prompts_table(result),
        agreement_table(result, result.cv) if result.test else None,
        agreement_table(result, result.measured),
        *levels_tables(result),
        verdict(result),
        spent(result),
    )
    return [t for t in tables if t is not None]


def candidates_table(result: StudyResult) -> Table:
    """Show all candidates, on the pool."""
    best_first = sorted(result.candidates, key=lambda c: -(c.score or 0.0))
    by_cost = sorted(zip(costs(best_first), best_first, strict=True), key=itemgetter(0))
    columns = {
        "candidate": lambda c: MARK * (c.name == result.champion) + c.name,
        "balanced\naccuracy": lambda c: with_interval(c.agreement.balanced_accuracy),
        "AUROC": lambda c: number(c.agreement.auroc.value),
        "to the best\n± SE": _behind,
        "LM\nasked": lambda c: f"{c.lm_share:.0%}",
        "prompt\ntokens": lambda c: each(c.usage.computed_tokens, c.judged),
        "s": lambda c: each(c.usage.seconds, c.judged),
    }
    return table_of(
        "Candidates: to choose by, not agreement",
        columns,
        [c for _, c in by_cost],
        caption="The cheapest first, all cross-fitted on the same answers. To the best: the distance in "
        "Brier score, in points, lower is better, with its standard error. LM asked: share of the answers. Prompt "
        f"tokens that were not cached, and seconds, for each answer. {INTERVALS}",
        notes=tuple(f"{v.name}: {v.status}, {v.note}." for v in result.skipped),
    )


def prompts_table(result: StudyResult) -> Table | None:
    """Show what compiled prompts gained over their own seed; None where nothing was compiled."""
    by_variant = {c.variant: c.prompts for c in result.candidates}
    compiled = [(name, p) for name, p in by_variant.items() if p and p.seed]
    if not compiled:
        return None
    columns: dict[str, Callable[[tuple[str, Prompts]], str]] = {
        "prompts": lambda row: row[0],
        "learned\nfrom": lambda row: row[1].learned.removeprefix("the "),
        "gained,\npoints": lambda row: (
            points(row[1].gain.comparison.balanced_accuracy) if row[1].gain else NONE
        ),
        "statements": lambda row: _before_and_after(
            row[1].gain, "statements", "balanced_accuracy"
        ),
        "chunk ids\nF1": lambda row: _before_and_after(row[1].gain, "evidence", "f1"),
        "metric\ncalls": lambda row: str(row[1].metric_calls),
        "min": lambda row: f"{row[1].seconds / 60:.1f}",
    }
    notes = [f"{name}: {'; '.join(prompts.changes)}." for name, prompts in compiled]
    return table_of(
        "Compiled prompts against their own seed",
        columns,
        compiled,
        caption="Gained: balanced accuracy on answers that the prompts had not learned from, paired, each with "
        "slope, offset and threshold of its own. Learned from: the other half, compiled on each half of the sources "
        "and on all for the export; one half, compiled once. Statements: balanced accuracy, before → after. Calls of "
        f"the metric, and minutes, that compiling took. {INTERVALS}",
        notes=tuple(notes),
    )


def _before_and_after(gain: PromptGain | None, level: str, name: str) -> str:
    if gain is None:
        return NONE
    before = getattr(gain.seed, level)
    after = getattr(gain.compiled, level)
    if before is None or after is None:
        return NONE
    values = [getattr(agreement, name).value for agreement in (before, after)]
    return " → ".join(map(number, values))


def _behind(v: CandidateResult) -> str:
    if v.score is None:
        return NONE
    if v.behind is None or v.behind.value is None:
        return "best"
    behind = round(-100 * v.behind.value, 1) + 0.0  # no -0.0
    return f"{behind:.1f} ± {100 * (v.behind.standard_error or 0):.1f}"


def agreement_table(result: StudyResult, measured: Measured) -> Table:
    """Show the champion, what it is compared with, and annotators, on answers that nothing learned from: the test's, or
    by cross-validation."""
    how, about = "cross-validated", f"{PROCEDURE} "
    if measured is result.test:
        how, about = "on the test", ""
    rows: list[tuple[str, Agreement, JudgeResult | None]] = []
    for judge in measured.judges:
        rows.append((_judge_name(judge), judge.agreement, judge))
    annotators = ""
    if result.ceiling is not None:
        rows.append(("annotators", result.ceiling, None))
        annotators = "; annotators: one against the majority of the others"
    columns: dict[str, Callable[[Any], str]] = {
        "judge": itemgetter(0),
        "scored": lambda row: f"{row[1].coverage:.0%}",
        "balanced\naccuracy": lambda row: with_interval(row[1].balanced_accuracy),
        "AUROC": lambda row: with_interval(row[1].auroc),
        "Cohen's κ": lambda row: with_interval(row[1].cohen_kappa),
        "prompt\ntokens": lambda row: by_lm(row[2], "computed_tokens"),
        "s": lambda row: by_lm(row[2], "seconds"),
    }
    champion = measured.champion
    meanings = [f"champion: {result.champion}"]
    calibrated = [name for name in _CALIBRATED if measured.judge(name)]
    if calibrated:
        names = ", ".join(_CALIBRATED[name] for name in calibrated)
        meanings.append(f"{names}: the best with a threshold fitted to these labels")
    fitted = "All"
    if measured.judge(UNTUNED):
        meanings.append("untuned: asked as it is")
        fitted = "All but the untuned judge"
    meanings.append("lexical, length: words and length alone, no LM")
    whose = whose_labels(result.labelled_by)
    return table_of(
        f"Agreement with {whose} on {counted(champion.agreement.n, 'answer')}, {how}",
        columns,
        rows,
        caption=f"{'; '.join(meanings)}. {fitted} are fitted on the same labels{annotators}. {about}{INTERVALS}",
        notes=(champion.levels.measured,),
    )


def by_lm(judge: JudgeResult | None, field: str) -> str:
    """Return what an answer takes; a dash without an LM."""
    if judge is None or not judge.lm_share:
        return NONE
    return each(getattr(judge.usage, field), judge.judged)


def levels_tables(result: StudyResult) -> list[Table]:
    """Show agreement on statements and evidence, of which length and columns say nothing, as far as labels tell."""
    judges = result.measured.judges
    compared = [judge for judge in judges if judge.name not in (LENGTH, COLUMN)]
    return level_tables({_judge_name(judge): judge.levels for judge in compared})


def verdict(result: StudyResult) -> Table:
    """Say what may be said of the champion, a sentence each."""
    comparisons = result.measured.comparisons.values()
    notes = [capitalised(c.sentence) for c in comparisons]
    notes += result.notes
    if not result.finished:
        notes.append(
            "Stopped early: the champion is the best of the variants that were finished."
        )
    return Table("Verdict", notes=tuple(notes))


def classifier_table(result: StudyResult, most: int | None = None) -> Table | None:
    """Show what the classifier uses, the strongest feature first; None without a classifier."""
    c = result.classifier
    if c is None:
        return None
    weights: list[tuple[str, float]] = []
    for stage, model in (("", c.statement), (" (answer)", c.answer)):
        for name, weight in zip(model.names, model.weights, strict=True):
            if abs(weight) >= _VISIBLE:
                weights.append((f"{name}{stage}", weight))
    weights.sort(key=lambda item: -abs(item[1]))
    return table_of(
        "What the classifier uses",
        {"feature": lambda w: w[0], "weight": lambda w: f"{w[1]:+.2f}"},
        weights[:most],
        caption="Weight: log-odds of support for each standard deviation of the feature.",
        notes=(f"The threshold is {number(c.threshold)}.",),
    )


def worst_first(rows: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """Sort answers: those a judge is wrong about, the surer the earlier; then those it left unscored; then the right
    ones."""

    def place(row: JudgedAnswer) -> tuple[bool, bool, float]:
        is_right = row.predicted == row.label
        return is_right, row.predicted is None, -sureness(row.judgment)

    return sorted(rows, key=place)


def mistakes_table(result: StudyResult) -> Table:
    """Show the champion's worst mistakes by id; their texts are in its report."""
    threshold = result.classifier.threshold if result.classifier else 0.5
    rows = result.measured.champion.rows
    wrong = [r for r in rows if r.predicted is not None and r.predicted != r.label]
    wrong.sort(key=lambda r: -abs((r.probability or 0.0) - threshold))
    columns: dict[str, Callable[[Row], str]] = {
        "answer": lambda r: r.id,
        "label": lambda r: OUTCOME[r.label],
        "probability": lambda r: number(r.probability),
    }
    title = f"{counted(len(wrong), 'mistake')} in {counted(len(rows), 'answer')}"
    caption = f"The worst first. Their texts: {result.judge_dir}/report.html."
    return table_of(title, columns, wrong[:_WORST], caption=caption)


def predictions_table(rows: Sequence[JudgedAnswer]) -> Table:
    """Show one judge's answers, its worst mistakes first."""
    columns = {
        "right": _right_mark,
        "label": lambda r: OUTCOME[r.label],
        "judge": _outcome,
        "probability": lambda r: (
            "" if r.probability is None else f"{r.probability:.3f}"
        ),
        "answer": lambda r: r.example.answer,
        "statements": _statements,
        "question": lambda r: r.example.question or "",
        "id": lambda r: r.id,
        "group": lambda r: r.source,
    }
    return table_of("Predictions", columns, worst_first(rows))


def _right_mark(row: JudgedAnswer) -> str:
    if row.predicted is None:
        return NONE
    return "yes" if row.predicted == row.label else "NO"


def _outcome(row: JudgedAnswer) -> str:
    unscored = row.judgment.unscored
    return OUTCOME[row.predicted] + (f": {unscored.value}" if unscored else "")


def _statements(row: JudgedAnswer) -> str:
    lines = []
    for s, label in zip(row.judgment.statements, row.labels, strict=True):
        verdict = s.verdict.value if s.verdict else "unjudged"
        confidence = "" if s.confidence is None else f" {number(s.confidence)}"
        lines.append(f"[{verdict}{confidence}{_LABEL[label]}] {s.text}")
    return "\n".join(lines)


def spent(result: StudyResult) -> Table:
    """Say what the study cost."""
    u = result.usage
    kept = ""
    if result.replayed:
        kept = f" ({result.replayed} of them kept from before and not paid again)"
    took = f"{counted(u.calls, 'call')}{kept}" if u.calls else "no LM was asked"
    if u.prompt_tokens:
        took += (
            f", {counted(u.prompt_tokens, 'prompt token')}, {u.cached_tokens:,} of them cached, and "
            f"{counted(u.output_tokens, 'completion token')}"
        )
    sentence = f"{result.seconds / 60:.1f} minutes: {took}."
    return Table("What the study spent", notes=(sentence,))


def _judge_name(judge: JudgeResult) -> str:
    """For a narrow column: ``lexical`` for the lexical baseline."""
    name = _CALIBRATED.get(judge.name) or judge.name.removesuffix("-baseline")
    return MARK * (judge.name == CHAMPION) + name


def capitalised(sentence: str) -> str:
    """Write a sentence with a capital at its beginning, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def compare_studies(studies: Sequence[StudyResult]) -> list[Comparison]:
    """Compare the first study with each of the others that was measured on the same answers, paired. `InputError` for
    fewer than two studies."""
    if len(studies) < 2:
        raise InputError(
            f"expected at least two studies to compare, got {len(studies)}."
        )
    first, *others = studies
    pairs = []
    for i, other in enumerate(others, 2):
        pair = compare_champions(first, other, ("study 1", f"study {i}"))
        if pair is not None:
            pairs.append(pair)
    return pairs


def studies_table(studies: Sequence[StudyResult], pairs: Sequence[Comparison]) -> Table:
    """Show what each reached, and what can be told apart."""
    numbered = list(enumerate(studies, 1))
    columns: dict[str, Callable[[tuple[int, StudyResult]], str]] = {
        "#": lambda row: str(row[0]),
        "study": lambda row: _end(row[1].judge_dir) or row[1].study_id[:8],
        "labels": lambda row: f"{row[1].labels_file} ({row[1].label_set_hash[:6]})",
        "champion": lambda row: row[1].champion,
        "balanced\naccuracy": lambda row: with_interval(
            row[1].measured.champion.agreement.balanced_accuracy
        ),
        "lexical": lambda row: _lexical_accuracy(row[1]),
    }
    notes = [capitalised(pair.sentence) for pair in pairs]
    if len({measured_on(study) for study in studies}) > 1:
        notes.append(_SIDE_BY_SIDE)
    return table_of("Studies side by side", columns, numbered, notes=tuple(notes))


def _lexical_accuracy(study: StudyResult) -> str:
    judge = study.measured.judge(LEXICAL)
    return NONE if judge is None else number(judge.agreement.balanced_accuracy.value)


def _end(text: str) -> str:
    """Return the last two parts of a path or model name, which distinguish it."""
    return "/".join([part for part in text.split("/") if part][-2:])
