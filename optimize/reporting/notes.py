"""A study in words, for MLflow's pages: descriptions in Markdown, prompts as text, predictions as a table."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.reporting.wording import figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.checks import Groups
    from faith_dspy.optimize.results import PredictionRow, StatementRow, StudyResult, TestResult, VariantResult
    from faith_dspy.scoring.statistics import Estimate


def study(result: StudyResult, model: str | None, here: str) -> str:
    """Verdict first, then where to look, then the tables and where the judge is.

    ``here``: address of the study's run on MLflow's pages.
    """
    champion = result.tested("champion")
    n = champion.agreement.n
    lines = [
        f"**★ {result.champion}**: balanced accuracy {figure(champion.agreement.balanced_accuracy)} on {n} answers "
        "never seen" + ("." if result.finished else ". *The study was stopped early.*"),
        "",
        _links(here, model, frontier=bool(result.costs)),
        "",
        *(f"- {sentence}" for sentence in verdicts(result)),
        *([f"- {result.groups.sentence}"] if result.groups else []),
        *(f"- {sentence}" for sentence in result.notes),
        "",
        f"### Test: agreement with people on {n} answers",
        "",
        "| judge | balanced accuracy | AUROC | Cohen's κ | scored | tokens read | written | s |",
        "|---|---|---|---|---|---|---|---|",
        *(_test_row(t, result.champion) for t in result.test),
    ]
    if result.ceiling is not None:
        c = result.ceiling
        cells = (figure(c.balanced_accuracy), figure(c.auroc), figure(c.cohen_kappa), f"{c.coverage:.0%}")
        lines.append(f"| people among themselves | {' | '.join(cells)} | – | – | – |")
    if result.groups is not None and result.groups.groups:
        lines += ["", "### The champion by kind of answer", "", *_groups(result.groups)]
    lines += [
        "",
        "### Variants on dev: to choose by, not agreement with people",
        "",
        "| variant | balanced accuracy | AUROC | Cohen's κ | LM alone: AUROC | tokens read | written | s |",
        "|---|---|---|---|---|---|---|---|",
        *(_dev_row(v, result.champion) for v in result.variants),
        "",
        *([f"{result.optimism.sentence} Neither is agreement with people.", ""] if result.optimism else []),
        *(f"- {sentence}" for sentence in result.costs_in_words),
        "",
        "In brackets 95 % intervals; tokens and seconds are per answer.",
        "",
        f"Judge: `{result.judge_dir}`, also under *Artifacts* in `judge/`."
        + (f' In code: `faith_dspy.load_judge("models:/{model}@champion")`.' if model else ""),
    ]
    return "\n".join(lines)


def _links(here: str, model: str | None, *, frontier: bool) -> str:
    """To what opens in place."""
    found = {
        "prompts before and after, what flipped, what is still wrong": f"{here}/artifacts/learned.html",
        "test": f"{here}/artifacts/test.png",
        "every test answer": f"{here}/artifacts/test/champion/predictions.json",
        "the judge": f"{here}/artifacts/judge/CARD.md",
        "traces": f"{here}/traces",
    }
    if frontier:
        found["what agreement costs"] = f"{here}/artifacts/frontier.png"
    if model:
        found["model"] = f"#/models/{model}"
    return "Open: " + " · ".join(f"[{name}]({address})" for name, address in found.items())


def verdicts(result: StudyResult) -> list[str]:
    """The champion against the untuned judge and each baseline, a sentence each."""
    return [c.sentence[:1].upper() + c.sentence[1:] for c in result.comparisons.values()]


def variant(v: VariantResult) -> str:
    """One line."""
    if v.agreement is None:
        return f"{v.description}. **{v.status}**: {v.note}"
    text = f"{v.description}. dev: balanced accuracy {figure(v.agreement.balanced_accuracy)}, AUROC "
    text += figure(v.agreement.auroc)
    if v.judged:
        text += f"; {v.usage.computed_tokens / v.judged:.0f} tokens read, "
        text += f"{v.usage.output_tokens / v.judged:.0f} written an answer"
    return text + "."


def prompts(found: Mapping[str, Any]) -> str:
    """Instructions and demos of each predictor, to be read."""
    lines = []
    for name, prompt in found.items():
        lines += [f"# {name}", "", str(prompt.get("instructions", "")), ""]
        for i, demo in enumerate(prompt.get("demos", ()), 1):
            lines += [f"## Example {i}", ""]
            lines += [f"- {key}: {_text(value)}" for key, value in demo.items()]
            lines.append("")
    return "\n".join(lines)


def prompt_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What compiling changed, as a unified diff of both as text; empty where nothing was compiled."""
    if not before:
        return ""
    sides = (prompts(before).splitlines(), prompts(after).splitlines())
    return "\n".join(difflib.unified_diff(*sides, "before compiling", "after compiling", lineterm="", n=100))


def table(rows: Sequence[PredictionRow]) -> dict[str, Any]:
    """What `mlflow.log_table` would write, the judge's worst mistakes on top."""

    def wrong(r: PredictionRow) -> tuple[int, float]:
        rank = 2 if r.predicted == r.label else 1 if r.predicted is None else 0
        return rank, -abs((0.5 if r.probability is None else r.probability) - r.label)

    columns = ("right", "people", "judge", "probability", "answer", "statements", "question", "id", "group")
    return {"columns": columns, "data": [_cells(r) for r in sorted(rows, key=wrong)]}


def _cells(r: PredictionRow) -> list[Any]:
    words = {True: "faithful", False: "unfaithful", None: f"unscored: {r.unscored or 'no verdict'}"}
    right = "–" if r.predicted is None else "yes" if r.predicted == r.label else "NO"
    probability = None if r.probability is None else round(r.probability, 3)
    statements = "\n".join(_statement(s) for s in r.statements)
    return [right, words[r.label], words[r.predicted], probability, r.answer, statements, r.question, r.id, r.group]


def _statement(s: StatementRow) -> str:
    confidence = "" if s.confidence is None else f" {s.confidence:.2f}"
    label = {True: ", people: supported", False: ", people: not supported"}.get(s.label, "")  # type: ignore[arg-type]
    return f"[{s.verdict or 'unjudged'}{confidence}{label}] {s.text}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _dev_row(v: VariantResult, champion: str) -> str:
    name = f"**★ {v.name}**" if v.name == champion else v.name
    if v.agreement is None:
        why = str(v.note).replace("|", "\\|")
        return f"| {name} | {v.status}: {why} | | | | | | |"
    only = _short(v.lm_only.auroc) if v.lm_only else "–"
    a = v.agreement
    cells = (figure(a.balanced_accuracy), _short(a.auroc), _short(a.cohen_kappa), only, *_cost(v.usage, v.judged))
    return f"| {name} | {' | '.join(cells)} |"


def _test_row(t: TestResult, champion: str) -> str:
    name = f"**★ champion ({champion})**" if t.name == "champion" else t.name
    a = t.agreement
    cells = (figure(a.balanced_accuracy), figure(a.auroc), figure(a.cohen_kappa), f"{a.coverage:.0%}")
    return f"| {name} | {' | '.join((*cells, *_cost(t.usage, a.n if t.kind != 'baseline' else 0)))} |"


def _groups(groups: Groups) -> list[str]:
    rows = ["| group | answers | balanced accuracy | AUROC | people: balanced accuracy |", "|---|---|---|---|---|"]
    for g in groups.groups:
        name = f"{g.facet}: {g.name}".replace("|", "\\|")
        found = (figure(g.agreement.balanced_accuracy), figure(g.agreement.auroc)) if g.agreement else ("too few", "–")
        people = _short(g.ceiling.balanced_accuracy) if g.ceiling else "–"
        rows.append(f"| {name} | {g.n} | {' | '.join(found)} | {people} |")
    return rows


def _cost(usage: Any, answers: int) -> tuple[str, str, str]:
    if not answers:
        return "–", "–", "–"
    read, written = usage.computed_tokens / answers, usage.output_tokens / answers
    return f"{read:.0f}", f"{written:.0f}", f"{usage.seconds / answers:.1f}"


def _short(e: Estimate) -> str:
    return "–" if e.value is None else f"{e.value:.3f}"
