"""Judges on labelled answers, for ``faith-dspy agree``: each asked, or read from its column, and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faith_dspy.errors import LMUnavailableError, counted
from faith_dspy.io.labels import labellers
from faith_dspy.judge import Judge
from faith_dspy.optimize.recorded import judge_columns
from faith_dspy.optimize.report.headline import Headline, of_judge, three_lines
from faith_dspy.optimize.results import Comparison, Cost, JudgeResult, Row
from faith_dspy.optimize.select.candidates import cost_of
from faith_dspy.optimize.select.validation import compare_with_words
from faith_dspy.report.tables import Table
from faith_dspy.schema import Judgment, LabelledExample, Unscored, Usage
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.gate import count_tuned_on


@dataclass(frozen=True)
class JudgedLabels:
    """What a judge said of the labels, and how far it agrees with them."""

    judgments: list[Judgment]
    traffic: list[Judgment]
    """Of the unlabelled answers."""
    result: JudgeResult
    three_lines: Table
    summary: str
    """The judge in one line."""
    outage: str | None = None
    """Why its LM stopped answering."""
    seen: int = 0
    """How many of the answers had a part in its study."""
    against_words: Comparison | None = None
    column: str = ""
    """Where a recorded judge stands."""

    @property
    def caveat(self) -> str:
        """Say that some of the answers had a part in its study."""
        return (
            f"{self.result.name}: {counted(self.seen, 'answer')} had a part in the study that tuned it: "
            "measure it on others."
        )

    @property
    def pass_rate(self) -> float | None:
        """Share of the unlabelled answers that it passes, of those that it scores."""
        passed = [j.faithful for j in self.traffic if j.faithful is not None]
        return sum(passed) / len(passed) if passed else None

    @property
    def usage(self) -> Usage:
        """Return what judging the labels took now."""
        return sum((j.usage for j in self.judgments), Usage())

    @property
    def replayed(self) -> Usage:
        """Return what it would have taken without replies from the cache."""
        return sum((j.replayed for j in self.judgments), Usage())


def ask_judge(
    judge: Judge,
    source: str | None,
    examples: Sequence[LabelledExample],
    unlabelled: Sequence[LabelledExample],
) -> JudgedLabels:
    """Have a judge judge the answers.

    Args:
        judge: the judge.
        source: where it was loaded from.
        examples: labelled answers.
        unlabelled: others of the same traffic.
    """
    from faith_dspy.report.judgment import judge_summary

    seen = count_tuned_on(judge.manifest.get("answer_keys", ()), examples)
    judged, outage = _judged(judge, examples, "judging")
    traffic: list[Judgment] = []
    if unlabelled and not outage:
        traffic, outage = _judged(judge, unlabelled, "judging the unlabelled")
    cost = cost_of([j.usage + j.replayed for j in judged], judge)
    result = _result(source or judge.lm_name, examples, judged, cost)
    against_words = None if seen else compare_with_words(judge, examples, judged)
    lines = of_judge(
        judge,
        source,
        result,
        seen=seen,
        against_words=against_words,
        labelled_by=labellers(examples),
    )
    return JudgedLabels(
        judgments=judged,
        traffic=traffic,
        result=result,
        three_lines=lines,
        summary=judge_summary(judge),
        outage=outage,
        seen=seen,
        against_words=against_words,
    )


def read_judges(
    columns: Sequence[str],
    examples: Sequence[LabelledExample],
    unlabelled: Sequence[LabelledExample],
    file: str,
) -> list[JudgedLabels]:
    """Read what recorded judges said of the answers, the first of the unlabelled, too
    (`faith_dspy.optimize.recorded`)."""
    whole = [  # they say nothing of statements
        e.model_copy(update={"faithful": e.label, "statements": ()}) for e in examples
    ]
    free = Cost(usage=Usage(), judged=len(examples), lm_share=0)
    judges = []
    read = judge_columns(columns, examples, unlabelled, file)
    for column, (judge, judgments, how) in zip(columns, read, strict=True):
        name = judge.column.name
        judged, traffic = judgments[: len(examples)], judgments[len(examples) :]
        result = _result(name, whole, judged, free)
        headline = Headline(
            result.agreement, {}, column, labelled_by=labellers(examples), recorded=how
        )
        judges.append(
            JudgedLabels(
                judgments=judged,
                traffic=traffic,
                result=result,
                three_lines=three_lines(headline),
                summary=f"column {name!r} of {file}",
                column=name,
            )
        )
    return judges


def _result(
    name: str,
    examples: Sequence[LabelledExample],
    judged: Sequence[Judgment],
    cost: Cost,
) -> JudgeResult:
    return JudgeResult(
        **dict(cost),
        name=name,
        levels=measure_agreement(examples, judged),
        rows=tuple(map(Row.of, examples, judged)),
    )


def _judged(
    judge: Judge, examples: Sequence[LabelledExample], what: str
) -> tuple[list[Judgment], str | None]:
    """Judgments of the examples, with a progress bar; where the LM stops answering, the rest is unscored and the
    reason is said."""
    from faith_dspy.lm.metered import metered
    from faith_dspy.report.progress import TerminalView

    judged: list[Judgment] = []
    try:
        judge.preflight()
        with TerminalView().task(what, len(examples)) as advance, metered():
            for judgment in judge.stream(examples):
                judged.append(judgment)
                advance(1)
    except LMUnavailableError as exc:
        lost = Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))
        return judged + [lost] * (len(examples) - len(judged)), str(exc)
    return judged, None
