"""A study's tables, computed once. Terminal, Markdown and HTML only render them.

A column is one line of its table's dictionary here; in a terminal all of them share 80 characters
(`faith_dspy.report.tables.WIDTH`). Tables that have nothing to show are None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from faith_dspy.errors import counted
from faith_dspy.optimize.results import (
    CALIBRATED,
    LENGTH,
    GroupResult,
    JudgedAnswer,
    JudgeResult,
    costs,
)
from faith_dspy.report.tables import (
    MARK,
    NONE,
    Table,
    each,
    estimate,
    level_tables,
    number,
    table_of,
)
from faith_dspy.scoring.agreement import JudgeAgreement, measure_agreement
from faith_dspy.text.languages import language_of

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult
    from faith_dspy.optimize.stress import StressReport
    from faith_dspy.schema import StatementVerdict

INTERVALS = "In brackets 95 % intervals."
OUTCOME = {True: "faithful", False: "unfaithful", None: "unscored"}
"""What is said of an answer, by people or by a judge."""
MIN_CLASS = 8
"""Scored answers of each label that a group needs to be measured; below, one answer moves its figure by six points."""
_READ = 2_000  # characters from which a language is guessed
_VISIBLE = 0.005
"""A weight that is not written as .00."""


def study_tables(result: StudyResult) -> list[Table]:
    """All tables, the most important last, as one reads a terminal."""
    tables = (
        variants_table(result),
        groups_table(result),
        testset_table(result),
        *levels_tables(result),
        verdict(result),
        spent(result),
    )
    return [t for t in tables if t is not None]


def variants_table(result: StudyResult) -> Table:
    """All candidates, on the pool."""
    tried = [v for v in result.variants if v.levels.answers is not None]
    cost = dict(zip((v.name for v in tried), costs(tried), strict=True))
    columns = {
        "candidate": lambda v: _judge_name(v, result.champion),
        "balanced\naccuracy": lambda v: estimate(v.agreement.balanced_accuracy),
        "AUROC": lambda v: number(v.agreement.auroc.value),
        "behind\n± SE": _behind,
        "LM\nasked": lambda v: f"{v.lm_share:.0%}",
        "prompt\ntokens": lambda v: each(v.usage.computed_tokens, v.judged),
        "s": lambda v: each(v.usage.seconds, v.judged),
    }
    return table_of(
        "Candidates on the pool: to choose by, not agreement with people",
        columns,
        sorted(tried, key=lambda v: (cost[v.name], -(v.score or 0))),
        caption="The cheapest first, all cross-fitted. Behind: the Brier score (both labels weighing the same) behind "
        "the best, and the standard error of that, in points. LM asked: share of the answers. Prompt tokens that were "
        f"not cached, and seconds, for each answer. {INTERVALS}",
        notes=tuple(
            f"{v.name}: {v.status}, {v.note}." for v in result.variants if v.note
        ),
    )


def _behind(v: JudgeResult) -> str:
    if v.score is None:
        return NONE
    if v.behind is None or v.behind.value is None:
        return "best"
    return f"{-100 * v.behind.value:.1f} ± {100 * (v.behind.standard_error or 0):.1f}"


def testset_table(result: StudyResult) -> Table:
    """The champion, what it is compared with, and people, on the testset."""
    rows = list(result.test)
    if result.ceiling is not None:
        people = JudgeAgreement(answers=result.ceiling, statements=None, evidence=None)
        rows.append(JudgeResult(name="people", kind="baseline", levels=people))
    columns = {
        "judge": lambda t: _judge_name(t),
        "scored": lambda t: f"{t.agreement.coverage:.0%}",
        "balanced\naccuracy": lambda t: estimate(t.agreement.balanced_accuracy),
        "AUROC": lambda t: estimate(t.agreement.auroc),
        "Cohen's κ": lambda t: estimate(t.agreement.cohen_kappa),
        "prompt\ntokens": lambda t: (
            each(t.usage.computed_tokens, t.judged) if t.lm_share else NONE
        ),
        "s": lambda t: each(t.usage.seconds, t.judged) if t.lm_share else NONE,
    }
    tested = (
        ", cross-fitted: there is no testset"
        if result.split.get("cross_fitted")
        else " of the testset"
    )
    ceiling = (
        "; people: one annotator against the majority of the others"
        if result.ceiling is not None
        else ""
    )
    return table_of(
        f"Agreement with people on {counted(result.test[0].agreement.n, 'answer')}{tested}",
        columns,
        rows,
        caption=f"champion: {_short(result.variant(result.champion))}; LM calibrated: slope, offset and threshold, "
        "nothing else; untuned: the LM asked about the whole answer; lexical, length: baselines without an LM. All but "
        f"the untuned judge are fitted on the same labels{ceiling}. {INTERVALS}",
        notes=(result.test[0].levels.measured,),
    )


def levels_tables(result: StudyResult) -> list[Table]:
    """Agreement on statements and evidence, on the testset, as far as labels tell."""
    says = [t for t in result.test if t.name != LENGTH]  # which says nothing of them
    return level_tables({_judge_name(t): t.levels for t in says})


def verdict(result: StudyResult) -> Table:
    """What may be said of the champion, a sentence each."""
    notes = [capitalised(c.sentence) for c in result.comparisons.values()]
    notes += result.notes
    if not result.finished:
        notes.append(
            "Stopped early: the champion is the best of the variants that were finished."
        )
    return Table("Verdict", notes=tuple(notes))


def by_group(answers: Sequence[JudgedAnswer]) -> tuple[GroupResult, ...]:
    """Agreement of one judge by kind of test answer: each value of each tag of the labels file, and each language,
    guessed where the file does not say.

    In each facet the largest group comes first; those with too few answers to be measured are counted in one row.
    Facets with fewer than two groups, or none to measure, are left out.
    """
    facets: defaultdict[str, defaultdict[str, list[JudgedAnswer]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for a in answers:
        texts, tags = (
            [a.example.answer, *(c.text for c in a.example.context)],
            a.example.tags,
        )
        language = tags.get("language") or language_of(" ".join(texts)[:_READ])
        for facet, name in {**tags, "language": language}.items():
            facets[facet][" ".join(name.split())].append(
                a
            )  # a name is one line of a table
    found = []
    for facet, groups in facets.items():
        small = [part for part in groups.values() if not _enough(part)]
        if len(small) == len(groups) or len(groups) < 2:
            continue
        for name, part in sorted(groups.items(), key=lambda i: -len(i[1])):
            if _enough(part):
                levels = measure_agreement(
                    [a.example for a in part], [a.judgment for a in part]
                )
                found.append(
                    GroupResult(
                        facet=facet, name=name, n=len(part), agreement=levels.answers
                    )
                )
        if small:
            found.append(
                GroupResult(
                    facet=facet,
                    name=f"({len(small)} too small)",
                    n=sum(map(len, small)),
                )
            )
    return tuple(found)


def _enough(part: Sequence[JudgedAnswer]) -> bool:
    labels = [r.label for r in part if r.predicted is not None]
    return min(sum(labels), len(labels) - sum(labels)) >= MIN_CLASS


def groups_table(result: StudyResult) -> Table | None:
    """The champion by kind of answer, on the testset; None where all answers are alike, or too few to be divided."""
    if not result.groups:
        return None
    columns = {
        "group": lambda g: f"{g.facet}: {g.name}",
        "n": lambda g: str(g.n),
        "balanced\naccuracy": lambda g: estimate(
            g.agreement and g.agreement.balanced_accuracy
        ),
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
    if (c := result.classifier) is None:
        return None
    stages = (("", c.statement), (" (answer)", c.answer))
    weights = [
        (f"{name}{stage}", weight)
        for stage, found in stages
        if found is not None
        for name, weight in zip(found.names, found.weights, strict=True)
        if abs(weight) >= _VISIBLE
    ]
    weights.sort(key=lambda item: -abs(item[1]))
    return table_of(
        "What the classifier uses",
        {"feature": lambda w: w[0], "weight": lambda w: f"{w[1]:+.2f}"},
        weights[:most],
        caption="Weight: log-odds of support for each standard deviation of the feature.",
        notes=(f"The threshold is {number(c.threshold)}.",),
    )


def worst_first(rows: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """The answers a judge is wrong about, the surer the earlier; then those it left unscored; then the right ones."""
    return sorted(
        rows, key=lambda r: (r.predicted == r.label, r.predicted is None, -sure(r))
    )


def sure(row: JudgedAnswer) -> float:
    """How far the judge is from undecided, at most .5."""
    return 0.0 if row.probability is None else abs(row.probability - 0.5)


def predictions_table(rows: Sequence[JudgedAnswer]) -> Table:
    """One judge's answers, its worst mistakes first."""
    columns = {
        "right": lambda r: (
            NONE if r.predicted is None else "yes" if r.predicted == r.label else "NO"
        ),
        "people": lambda r: OUTCOME[r.label],
        "judge": lambda r: (
            OUTCOME[r.predicted]
            + (f": {why.value}" if (why := r.judgment.unscored) else "")
        ),
        "probability": lambda r: (
            "" if r.probability is None else f"{r.probability:.3f}"
        ),
        "answer": lambda r: r.example.answer,
        "statements": lambda r: "\n".join(
            map(_statement, r.judgment.statements, r.labels)
        ),
        "question": lambda r: r.example.question or "",
        "id": lambda r: r.id,
        "group": lambda r: r.source,
    }
    return table_of("Predictions", columns, worst_first(rows))


def _statement(s: StatementVerdict, label: bool | None) -> str:
    people = (
        ""
        if label is None
        else f", people: {'supported' if label else 'not supported'}"
    )
    confidence = "" if s.confidence is None else f" {number(s.confidence)}"
    return (
        f"[{s.verdict.value if s.verdict else 'unjudged'}{confidence}{people}] {s.text}"
    )


def spent(result: StudyResult) -> Table:
    """What the study cost."""
    u = result.usage
    kept = (
        f" ({result.replayed} of them kept from before and not paid again)"
        if result.replayed
        else ""
    )
    sentence = (
        f"{result.seconds / 60:.1f} minutes: {counted(u.calls, 'call')}{kept}, "
        f"{counted(u.prompt_tokens, 'prompt token')}, {u.cached_tokens:,} of them cached, and "
        f"{counted(u.output_tokens, 'completion token')}."
    )
    return Table("What the study spent", notes=(sentence,))


def _judge_name(judge: JudgeResult, champion: str = "champion") -> str:
    return MARK * (judge.name == champion) + _short(judge)


def _short(judge: JudgeResult) -> str:
    """For a narrow column: ``lexical`` for the lexical baseline, ``LM calibrated`` for that of the test."""
    return (
        "LM calibrated"
        if judge.name == CALIBRATED
        else judge.name.removesuffix("-baseline")
    )


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
    tables = [
        table_of(
            f"{counted(report.answers, 'answer')} under stress",
            columns,
            report.perturbed,
            caption=caption,
        )
    ]
    worst = next((p for p in report.perturbed if p.name == report.worst), None)
    if worst is not None and worst.misses:
        scores = [
            [number(s) if s is not None else "unscored" for s in (m.before, m.after)]
            for m in worst.misses
        ]
        misses = tuple(
            f"{' → '.join(s)}  {m.answer}"
            for s, m in zip(scores, worst.misses, strict=True)
        )
        tables.append(
            Table(f"Worst: {worst.what}. Not {worst.must}, for example", notes=misses)
        )
    return tables


def capitalised(sentence: str) -> str:
    """With a capital at its beginning, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
