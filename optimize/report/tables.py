"""A study's tables, computed once. Terminal, Markdown and HTML only render them.

A column is one line of its table's dictionary here; in a terminal all of them share 80 characters
(`faith_dspy.report.tables.WIDTH`). Tables that have nothing to show are None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.errors import counted
from faith_dspy.optimize.results import TestsetResult
from faith_dspy.report.tables import MARK, NONE, Table, capitalised, each, estimate, level_tables, number, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow, StatementRow, StudyResult
    from faith_dspy.optimize.stress import StressReport

INTERVALS = "In brackets 95 % intervals."
OUTCOME = {True: "faithful", False: "unfaithful", None: "unscored"}
"""What is said of an answer, by people or by a judge."""
_VISIBLE = 0.005
"""A weight that is not written as .00."""


def study_tables(result: StudyResult) -> list[Table]:
    """All tables, the most important last, as one reads a terminal."""
    tables = (
        variants_table(result),
        costs_table(result),
        groups_table(result),
        learning_table(result),
        testset_table(result),
        *levels_tables(result),
        verdict(result),
        spent(result),
    )
    return [t for t in tables if t is not None]


def variants_table(result: StudyResult) -> Table:
    """What was tried, on the devset."""
    columns = {
        "variant": lambda v: MARK + v.name if v.name == result.champion else v.name,
        "balanced\naccuracy": lambda v: estimate(v.agreement.balanced_accuracy),
        "AUROC": lambda v: number(v.agreement.auroc.value),
        "κ": lambda v: number(v.agreement.cohen_kappa.value),
        "LM only:\nAUROC": lambda v: number(v.lm_only.auroc.value) if v.lm_only else NONE,
        "prompt\ntokens": lambda v: each(v.usage.computed_tokens, v.judged),
        "s": lambda v: each(v.usage.seconds, v.judged),
    }
    return table_of(
        "Variants on dev: to choose by, not agreement with people",
        columns,
        [v for v in result.variants if v.agreement is not None],
        caption="Cross-fitted. LM only: without lexical features. Prompt tokens that were not cached, and seconds, "
        f"for each answer. {INTERVALS}",
        notes=tuple(f"{v.name}: {v.status}, {v.note}." for v in result.variants if v.note),
    )


def testset_table(result: StudyResult) -> Table:
    """The champion, the untuned judge, the baselines and people, on the testset."""
    rows = list(result.test)
    if result.ceiling is not None:
        rows.append(TestsetResult(name="people", kind="baseline", agreement=result.ceiling))
    columns = {
        "judge": lambda t: _judge_name(t.name),
        "scored": lambda t: f"{t.agreement.coverage:.0%}",
        "balanced\naccuracy": lambda t: estimate(t.agreement.balanced_accuracy),
        "AUROC": lambda t: estimate(t.agreement.auroc),
        "Cohen's κ": lambda t: estimate(t.agreement.cohen_kappa),
        "prompt\ntokens": lambda t: NONE if t.kind == "baseline" else each(t.usage.computed_tokens, t.agreement.n),
        "s": lambda t: NONE if t.kind == "baseline" else each(t.usage.seconds, t.agreement.n),
    }
    tested = ", cross-fitted: there is no testset" if result.split.get("cross_fitted") else " of the testset"
    people = "; people: one annotator against the majority of the others" if result.ceiling is not None else ""
    return table_of(
        f"Agreement with people on {counted(result.test[0].agreement.n, 'answer')}{tested}",
        columns,
        rows,
        caption=f"champion: {result.champion}; untuned: the LM asked about the whole answer; default-judge: "
        "fitted to other sets, to none of these labels; lexical, length, majority: baselines without an LM, fitted on "
        f"the same labels{people}. {INTERVALS}",
        notes=(result.test[0].levels.measured,),
    )


def levels_tables(result: StudyResult) -> list[Table]:
    """Agreement on statements and evidence, on the testset, as far as labels tell."""
    return level_tables({_judge_name(t.name): t.levels for t in result.test})


def verdict(result: StudyResult) -> Table:
    """What may be said of the champion, a sentence each."""
    notes = [capitalised(c.sentence) for c in result.comparisons.values()]
    if result.comparisons["lexical-baseline"].verdict != "better":
        notes.append("Not shown better than the lexical baseline: on these labels the LM is not worth its cost.")
    notes += result.notes
    if not result.finished:
        notes.append("Stopped early: the champion is the best of the variants that were finished.")
    return Table("Verdict", notes=tuple(notes))


def costs_table(result: StudyResult) -> Table | None:
    """The cost–quality table, the cheapest first; None where there is no choice."""
    if len(result.costs) < 2:
        return None
    columns = {
        "": lambda p: MARK + p.name if p.exported else p.name,
        "n": lambda p: str(p.n),
        "LM\nasked": lambda p: f"{p.lm_share:.0%}",
        "balanced\naccuracy": lambda p: estimate(p.balanced_accuracy),
        "AUROC": lambda p: number(p.auroc.value),
        "calls": lambda p: f"{p.calls:.1f}",
        "prompt\ntokens": lambda p: f"{p.computed_tokens:.0f}",
        "s": lambda p: f"{p.seconds:.1f}",
    }
    return table_of(
        "Cost and quality: to choose by, not agreement with people",
        columns,
        result.costs,
        caption="Cross-fitted on train and dev, other variants on dev. LM asked: share of the answers. Calls, prompt "
        f"tokens that were not cached, and seconds, for each answer. {INTERVALS}",
        notes=result.costs_in_words,
    )


def learning_table(result: StudyResult) -> Table | None:
    """The learning curve, and what the next labels would bring; None for a study made before there was one."""
    if not result.learning_curve:
        return Table("Learning curve", notes=(result.outlook,)) if result.outlook else None
    columns = {
        "labels": lambda p: str(p.labels),
        "draws": lambda p: str(p.draws),
        "balanced accuracy": lambda p: estimate(p.balanced_accuracy),
        "AUROC": lambda p: estimate(p.auroc),
    }
    return table_of(
        "Agreement on the testset by number of labels",
        columns,
        result.learning_curve,
        caption="Classifier and threshold fitted on random draws of so many labels, in brackets 95 % of the draws. 0: "
        "the default judge, or the untuned one for an LM without a default classifier; last: the champion.",
        notes=(result.outlook,),
    )


def groups_table(result: StudyResult) -> Table | None:
    """The champion by kind of answer, on the testset; None where all answers are alike, or too few to be divided."""
    if not result.groups:
        return None
    columns = {
        "group": lambda g: f"{g.facet}: {g.name}",
        "n": lambda g: str(g.n),
        "balanced\naccuracy": lambda g: estimate(g.agreement and g.agreement.balanced_accuracy),
        "AUROC": lambda g: estimate(g.agreement and g.agreement.auroc),
    }
    return table_of(
        "The champion by kind of answer, on the testset",
        columns,
        result.groups,
        caption="Dashes: too few answers of a label. Not corrected for the number of groups: the lowest of many is low "
        f"by chance, too. {INTERVALS}",
    )


def classifier_table(result: StudyResult, most: int | None = None) -> Table | None:
    """What the classifier uses, the strongest feature first; None without a classifier."""
    weights = [
        (f"{name} (answer)" if stage == "answer" and result.classifier.get("statement") else name, weight)
        for stage in ("statement", "answer")
        if (found := result.classifier.get(stage))
        for name, weight in zip(found["names"], found["weights"], strict=True)
        if abs(weight) >= _VISIBLE
    ]
    if not weights:
        return None
    weights.sort(key=lambda item: -abs(item[1]))
    return table_of(
        "What the classifier uses",
        {"feature": lambda w: w[0], "weight": lambda w: f"{w[1]:+.2f}"},
        weights[:most],
        caption="Weight: log-odds of support for each standard deviation of the feature.",
        notes=(f"The threshold is {number(result.classifier['threshold'])}.",),
    )


def worst_first(rows: Sequence[PredictionRow]) -> list[PredictionRow]:
    """The answers a judge is wrong about, the surer the earlier; then those it left unscored; then the right ones."""
    return sorted(rows, key=lambda r: (r.predicted == r.label, r.predicted is None, -sure(r)))


def sure(row: PredictionRow) -> float:
    """How far the judge is from undecided, at most .5."""
    return 0.0 if row.probability is None else abs(row.probability - 0.5)


def predictions_table(rows: Sequence[PredictionRow]) -> Table:
    """One judge's answers, its worst mistakes first."""
    columns = {
        "right": lambda r: NONE if r.predicted is None else "yes" if r.predicted == r.label else "NO",
        "people": lambda r: OUTCOME[r.label],
        "judge": lambda r: OUTCOME[r.predicted] + (f": {r.unscored}" if r.unscored else ""),
        "probability": lambda r: "" if r.probability is None else f"{r.probability:.3f}",
        "answer": lambda r: r.answer,
        "statements": lambda r: "\n".join(_statement(s) for s in r.statements),
        "question": lambda r: r.question or "",
        "id": lambda r: r.id,
        "group": lambda r: r.group,
    }
    return table_of("Predictions", columns, worst_first(rows))


def _statement(s: StatementRow) -> str:
    label = "" if s.label is None else f", people: {'supported' if s.label else 'not supported'}"
    confidence = "" if s.confidence is None else f" {number(s.confidence)}"
    return f"[{s.verdict or 'unjudged'}{confidence}{label}] {s.text}"


def spent(result: StudyResult) -> Table:
    """What the study cost."""
    u = result.usage
    kept = f" ({result.replayed} of them kept from before and not paid again)" if result.replayed else ""
    sentence = (
        f"{result.seconds / 60:.1f} minutes: {counted(u.calls, 'call')}{kept}, "
        f"{counted(u.prompt_tokens, 'prompt token')}, {u.cached_tokens:,} of them cached, and "
        f"{counted(u.output_tokens, 'completion token')}."
    )
    return Table("What the study spent", notes=(sentence,))


def _judge_name(name: str) -> str:
    """The baselines stand in a narrow column."""
    return MARK + name if name == "champion" else name.removesuffix("-baseline")


def stress_tables(report: StressReport) -> list[Table]:
    """A row for each perturbation; the worst one is marked and its misses are shown."""
    columns = {
        "perturbation": lambda p: (MARK if p.name == report.worst else "") + p.name,
        "must be": lambda p: p.must,
        "n": lambda p: str(p.n),
        "share": lambda p: estimate(p.share),
    }
    caption = (
        "caught: an answer that passed fails once it is made unfaithful; unchanged: the verdict stays. share: how "
        f"often. {MARK.strip()}: the lowest share. In brackets 95 % intervals (Wilson)."
    )
    tables = [table_of(f"{counted(report.answers, 'answer')} under stress", columns, report.perturbed, caption=caption)]
    worst = next((p for p in report.perturbed if p.name == report.worst), None)
    if worst is not None and worst.misses:
        scores = [[number(s) if s is not None else "unscored" for s in (m.before, m.after)] for m in worst.misses]
        misses = tuple(f"{' → '.join(s)}  {m.answer}" for s, m in zip(scores, worst.misses, strict=True))
        tables.append(Table(f"Worst: {worst.what}. Not {worst.must}, for example", notes=misses))
    return tables
