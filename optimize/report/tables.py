"""The tables of a study, and of several compared. Terminal, Markdown and HTML only render them.

A column is one line of its table's dictionary here; in a terminal all of them share 80 characters
(`faith_dspy.report.tables.WIDTH`). Tables that have nothing to show are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.results import (
    CALIBRATED,
    LENGTH,
    LEXICAL,
    UNTUNED,
    JudgedAnswer,
    JudgeResult,
    costs,
)
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import (
    MARK,
    NONE,
    Table,
    each,
    level_tables,
    number,
    points,
    table_of,
    with_interval,
)
from faith_dspy.scoring.agreement import JudgeAgreement

if TYPE_CHECKING:
    from faith_dspy.optimize.results import Comparison, PromptGain, Row, StudyResult

INTERVALS = "In brackets 95 % intervals."
OUTCOME = {True: "faithful", False: "unfaithful", None: "unscored"}
"""What is said of an answer, by people or by a judge."""
_PEOPLE = {True: ", people: supported", False: ", people: not supported", None: ""}
_VISIBLE = 0.005
"""A weight that is not written as .00."""
_SIDE_BY_SIDE = (
    "Studies tested on different answers stand side by side only: "
    "part of their difference is the luck of the answers."
)


def study_tables(result: StudyResult) -> list[Table]:
    """Return all tables, the most important last, as one reads a terminal."""
    tables = (
        variants_table(result),
        prompts_table(result),
        testset_table(result),
        *levels_tables(result),
        verdict(result),
        spent(result),
    )
    return [t for t in tables if t is not None]


def variants_table(result: StudyResult) -> Table:
    """Show all candidates, on the pool."""
    tried = [v for v in result.variants if v.levels.answers is not None]
    tried.sort(key=lambda v: v.score or 0.0, reverse=True)
    by_cost = sorted(zip(costs(tried), tried, strict=True), key=itemgetter(0))
    columns = {
        "candidate": lambda v: MARK * (v.name == result.champion) + _short(v),
        "balanced\naccuracy": lambda v: with_interval(v.agreement.balanced_accuracy),
        "AUROC": lambda v: number(v.agreement.auroc.value),
        "behind\n± SE": _behind,
        "LM\nasked": lambda v: f"{v.lm_share:.0%}",
        "prompt\ntokens": lambda v: each(v.usage.computed_tokens, v.judged),
        "s": lambda v: each(v.usage.seconds, v.judged),
    }
    return table_of(
        "Candidates on the pool: to choose by, not agreement with people",
        columns,
        [v for _, v in by_cost],
        caption="The cheapest first, all cross-fitted. Behind: the Brier score (both labels weighing the same) behind "
        "the best, and the standard error of that, in points. LM asked: share of the answers. Prompt tokens that were "
        f"not cached, and seconds, for each answer. {_weighed(result)}{INTERVALS}",
        notes=tuple(
            f"{v.name}: {v.status}, {v.note}." for v in result.variants if v.note
        ),
    )


def _weighed(result: StudyResult) -> str:
    if not result.evidence_weight:
        return ""
    return f"The F1 of chunk ids counts {result.evidence_weight:.0%} of the score. "


def prompts_table(result: StudyResult) -> Table | None:
    """Show what compiled prompts gained over their own seed; None where nothing was compiled."""
    compiled = [(v, v.gain) for v in result.variants if v.gain is not None]
    if not compiled:
        return None
    columns = {
        "prompts": lambda row: row[0].name,
        "balanced accuracy\ngained, points": lambda row: points(
            row[1].comparison.balanced_accuracy
        ),
        "statements": lambda row: _before_and_after(
            row[1], "statements", "balanced_accuracy"
        ),
        "chunk ids\nF1": lambda row: _before_and_after(row[1], "evidence", "f1"),
        "metric\ncalls": lambda row: str(row[1].metric_calls),
        "min": lambda row: f"{row[1].seconds / 60:.1f}",
    }
    notes = [f"{v.name}: {'; '.join(v.changes)}." for v, _ in compiled]
    return table_of(
        "Compiled prompts against their own seed",
        columns,
        compiled,
        caption="On answers of the pool that neither saw, paired, each with slope, offset and threshold of its own. "
        "Statements: balanced accuracy, before → after. Calls of the metric, and minutes, that compiling took. "
        f"{INTERVALS}",
        notes=tuple(notes),
    )


def _before_and_after(gain: PromptGain, level: str, name: str) -> str:
    before = getattr(gain.seed, level)
    after = getattr(gain.compiled, level)
    if before is None or after is None:
        return NONE
    values = [getattr(agreement, name).value for agreement in (before, after)]
    return " → ".join(map(number, values))


def _behind(v: JudgeResult) -> str:
    if v.score is None:
        return NONE
    if v.behind is None or v.behind.value is None:
        return "best"
    return f"{-100 * v.behind.value:.1f} ± {100 * (v.behind.standard_error or 0):.1f}"


def testset_table(result: StudyResult) -> Table:
    """Show the champion, what it is compared with, and people, on the testset."""
    rows = list(result.test)
    people = ""
    if result.ceiling is not None:
        levels = JudgeAgreement(
            answers=result.ceiling,
            statements=None,
            evidence=None,
        )
        rows.append(
            JudgeResult(
                name="people",
                kind="baseline",
                levels=levels,
            )
        )
        people = "; people: one annotator against the majority of the others"
    columns = {
        "judge": _tested_name,
        "scored": lambda t: f"{t.agreement.coverage:.0%}",
        "balanced\naccuracy": lambda t: with_interval(t.agreement.balanced_accuracy),
        "AUROC": lambda t: with_interval(t.agreement.auroc),
        "Cohen's κ": lambda t: with_interval(t.agreement.cohen_kappa),
        "prompt\ntokens": lambda t: _by_lm(t, t.usage.computed_tokens),
        "s": lambda t: _by_lm(t, t.usage.seconds),
    }
    tested = " of the testset"
    if result.split.get("cross_fitted"):
        tested = ", cross-fitted: there is no testset"
    return table_of(
        f"Agreement with people on {counted(result.test[0].agreement.n, 'answer')}{tested}",
        columns,
        rows,
        caption=f"champion: {_short(result.variant(result.champion))}; LM calibrated: slope, offset and threshold, "
        "nothing else; untuned: the LM asked about the whole answer; lexical, length: baselines without an LM. All but "
        f"the untuned judge are fitted on the same labels{people}. {INTERVALS}",
        notes=(result.test[0].levels.measured,),
    )


def _by_lm(judge: JudgeResult, total: float) -> str:
    """Return a total for each answer; a dash for a judge without an LM."""
    return each(total, judge.judged) if judge.lm_share else NONE


def levels_tables(result: StudyResult) -> list[Table]:
    """Show agreement on statements and evidence, of which the length baseline says nothing, as far as labels tell."""
    judges = {_tested_name(t): t.levels for t in result.test if t.name != LENGTH}
    return level_tables(judges)


def verdict(result: StudyResult) -> Table:
    """Say what may be said of the champion, a sentence each."""
    notes = [capitalised(c.sentence) for c in result.comparisons.values()]
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
    return sorted(
        rows, key=lambda r: (r.predicted == r.label, r.predicted is None, -sure(r))
    )


def sure(row: JudgedAnswer) -> float:
    """Return how far the judge is from undecided, at most .5."""
    return 0.0 if row.probability is None else abs(row.probability - 0.5)


def predictions_table(rows: Sequence[JudgedAnswer]) -> Table:
    """Show one judge's answers, its worst mistakes first."""
    columns = {
        "right": _right_mark,
        "people": lambda r: OUTCOME[r.label],
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
        lines.append(f"[{verdict}{confidence}{_PEOPLE[label]}] {s.text}")
    return "\n".join(lines)


def spent(result: StudyResult) -> Table:
    """Say what the study cost."""
    u = result.usage
    cached = ""
    if result.replayed:
        cached = f" ({result.replayed} of them kept from before and not paid again)"
    sentence = (
        f"{result.seconds / 60:.1f} minutes: {counted(u.calls, 'call')}{cached}, "
        f"{counted(u.prompt_tokens, 'prompt token')}, {u.cached_tokens:,} of them cached, and "
        f"{counted(u.output_tokens, 'completion token')}."
    )
    return Table("What the study spent", notes=(sentence,))


def _tested_name(judge: JudgeResult) -> str:
    return MARK * (judge.name == "champion") + _short(judge)


def _short(judge: JudgeResult) -> str:
    """For a narrow column: ``lexical`` for the lexical baseline, ``LM calibrated`` for that of the test."""
    if judge.name == CALIBRATED:
        return "LM calibrated"
    return judge.name.removesuffix("-baseline")


def capitalised(sentence: str) -> str:
    """Write a sentence with a capital at its beginning, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def compare_studies(studies: Sequence[StudyResult]) -> list[Comparison]:
    """Compare the first study with each of the others that was tested on the same answers, paired. `InputError` for
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


def compare_champions(
    a: StudyResult, b: StudyResult, names: tuple[str, str] = ("A", "B")
) -> Comparison | None:
    """Compare study a's champion with study b's, paired; None where they were tested on different answers: other ids,
    groups or labels."""
    return compare(_rows(a), _rows(b), names) if _answers(a) == _answers(b) else None


def studies_tables(
    studies: Sequence[StudyResult], pairs: Sequence[Comparison]
) -> list[Table]:
    """Show what each reached, and what can be told apart."""

    rows = []
    notes = []
    for i, study in enumerate(studies, 1):
        champion = study.tested("champion").agreement
        people = study.ceiling.balanced_accuracy.value if study.ceiling else None
        cells = [
            str(i),
            _end(study.judge_dir) or study.study_id[:8],
            with_interval(champion.balanced_accuracy),
            with_interval(champion.auroc),
            number(study.tested(UNTUNED).agreement.balanced_accuracy.value),
            number(study.tested(LEXICAL).agreement.balanced_accuracy.value),
            number(people),
        ]
        rows.append(tuple(cells))
        notes.append(_summary(i, study))
    notes += [capitalised(pair.sentence) for pair in pairs]
    if len({_answers(study) for study in studies}) > 1:
        notes.append(_SIDE_BY_SIDE)
    champions = Table(
        "Champions, each on its own testset",
        ("#", "study", "balanced\naccuracy", "AUROC", UNTUNED, "lexical", "people"),
        tuple(rows),
        caption="untuned, lexical, people: balanced accuracy of the untuned judge, of the lexical baseline, and of "
        f"one annotator against the others. {INTERVALS}",
    )
    return [champions, Table("Verdict", notes=tuple(notes))]


def _rows(study: StudyResult) -> list[Row]:
    return sorted(study.tested("champion").rows, key=lambda row: (row.id, row.source))


def _answers(study: StudyResult) -> tuple[tuple[str, str, bool], ...]:
    """Return what a study was tested on; labels that were corrected since make other answers."""
    return tuple((row.id, row.source, row.label) for row in _rows(study))


def _summary(i: int, study: StudyResult) -> str:
    on = counted(study.tested("champion").agreement.n, "test answer")
    labels = f"{study.labels_file} ({study.label_set_hash[:6]})"
    stopped = "" if study.finished else ", stopped early"
    return (
        f"Study {i}: {study.champion}, against the untuned judge {study.comparisons[UNTUNED].verdict} on {on}; "
        f"{labels}, {_end(str(study.lm.get('name')))}, {study.budget}, seed {study.seed}; "
        f"{study.seconds / 60:.1f} minutes{stopped}."
    )


def _end(text: str) -> str:
    """Return the last two parts of a path or model name, which distinguish it."""
    return "/".join([part for part in text.split("/") if part][-2:])
