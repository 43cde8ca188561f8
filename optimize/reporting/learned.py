"""What a study learned, as one self-contained HTML page: prompts, classifier, flips, remaining mistakes.

Texts under judgement are data: the template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import difflib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from faith_dspy.optimize.reporting import classifier_tables, tables
from faith_dspy.optimize.reporting.markdown import as_text
from faith_dspy.report.html import csp_hash
from faith_dspy.report.numbers import number
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult

MOST = {"wrong": 100, "flips": 50}
"""Answers shown in each list; all of them are in the runs' ``predictions.jsonl``."""
_CONTEXT = 8_000  # characters of context shown with an answer


class Piece(NamedTuple):
    """A part of a prompt's diff."""

    kind: Literal["same", "gone", "new"]
    text: str


class Flips(NamedTuple):
    """Untuned judge against champion on one part: the same answers, before and after tuning."""

    part: str
    counts: dict[str, int]
    """``both right``, ``now right``, ``now wrong``, ``both wrong``; an unscored answer is wrong."""
    now_right: list[tuple[PredictionRow, PredictionRow]]
    """(untuned judge's row, champion's row), the surest first."""
    now_wrong: list[tuple[PredictionRow, PredictionRow]]


def write_learned(result: StudyResult) -> str:
    """The page. Needs predictions with their texts: a result as a study returns it, not one read from study.json."""
    jinja2 = need("jinja2", "The page of what a study learned")
    here = files("faith_dspy.report")
    style = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "learned.css"))
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": number, "words": lambda name: str(name).replace("_", " ")}
    template = environment.from_string(here.joinpath("learned.html").read_text(encoding="utf-8"))
    champion = result.variant(result.champion)
    predictions = {"test": result.tested("champion").predictions, "dev": champion.predictions}
    page = template.render(
        result=result,
        champion=champion,
        tiles=_tiles(result),
        test=[tables.test_table(result), tables.statements_table(result)],
        verdict=tables.verdict(result).notes,
        prompts=[(v, _prompts(result, v)) for v in _with_prompts(result)],
        instructions=classifier_tables.instructions_table(champion),
        classifier=[classifier_tables.classifier_table(result), classifier_tables.ablation_table(result)],
        groups=tables.groups_table(result),
        costs=[tables.costs_table(result), tables.variants_table(result)],
        flips=[flips(result, part) for part in ("test", "dev")],
        mistakes=[(part, disagreements(rows)) for part, rows in predictions.items()],
        most=MOST,
        context=_clipped,
        style=style,
        style_hash=csp_hash(style),
    )
    return str(page).encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be written


def diff(before: str, after: str) -> list[Piece]:
    """Word by word what was taken out and put in; joined, all but the new is ``before``, all but the gone ``after``."""
    a, b = (re.findall(r"\s+|\S+", text) for text in (before, after))
    out = []
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            out.append(Piece("same", "".join(a[a1:a2])))
            continue
        out += [Piece("gone", "".join(a[a1:a2]))] if a2 > a1 else []
        out += [Piece("new", "".join(b[b1:b2]))] if b2 > b1 else []
    return out


def flips(result: StudyResult, part: Literal["test", "dev"]) -> Flips:
    """The answers on which the champion's verdict differs from the untuned judge's.

    On dev, the untuned judge has a threshold fitted on the same labels, cross-fitted.
    """
    before: Sequence[PredictionRow] = ()
    if part == "test":
        before, after = result.tested("untuned").predictions, result.tested("champion").predictions
    else:
        after = result.variant(result.champion).predictions
        before = next((v.predictions for v in result.variants if v.kind == "untuned"), before)
    known = {(r.group, r.id): r for r in before}
    names = {(True, True): "both right", (False, True): "now right", (True, False): "now wrong"}
    found: dict[str, list[tuple[PredictionRow, PredictionRow]]] = {n: [] for n in (*names.values(), "both wrong")}
    for new in sorted(after, key=lambda r: -_sure(r)):
        old = known.get((new.group, new.id))
        if old is not None:
            right = (old.predicted == old.label, new.predicted == new.label)
            found[names.get(right, "both wrong")].append((old, new))
    return Flips(part, {k: len(v) for k, v in found.items()}, found["now right"], found["now wrong"])


def disagreements(rows: Sequence[PredictionRow]) -> list[PredictionRow]:
    """The answers a judge is wrong about, worst first: the surer it was, the worse; unscored ones last."""
    wrong = [r for r in rows if r.predicted != r.label]
    return sorted(wrong, key=lambda r: (r.predicted is None, -_sure(r)))


def _sure(row: PredictionRow) -> float:
    return 0.0 if row.probability is None else abs(row.probability - 0.5)


def _tiles(result: StudyResult) -> list[tuple[str, Any]]:
    """Balanced accuracy on test, of whom it is worth knowing first."""
    names = {"champion": "champion, tuned", "untuned": "untuned judge, whole answer",
             "lexical-baseline": "lexical baseline, no LM"}  # fmt: skip
    tested = {t.name: t.agreement for t in result.test}
    out = [(said, tested[name].balanced_accuracy) for name, said in names.items() if name in tested]
    if result.ceiling is not None:
        out.append(("people: one annotator against the others", result.ceiling.balanced_accuracy))
    return out


def _with_prompts(result: StudyResult) -> list[VariantResult]:
    """The champion, then the other variants that were compiled."""
    others = [v for v in result.variants if v.name != result.champion and v.params.get("optimizer", "none") != "none"]
    return [result.variant(result.champion), *(v for v in others if v.prompts)]


def _prompts(result: StudyResult, variant: VariantResult) -> list[tuple[str, list[Piece], list[dict[str, str]]]]:
    """For each predictor: name, the diff of its instructions, and its demos."""
    seeds = [variant.seed_prompts, *(v.prompts for v in result.variants if v.params.get("optimizer") == "none")]
    out = []
    for name, prompt in variant.prompts.items():
        after = str(prompt.get("instructions", ""))
        before = next((str(s[name]["instructions"]) for s in seeds if name in s), after)
        demos = [{k: as_text(v) for k, v in demo.items()} for demo in prompt.get("demos", ())]
        out.append((name, diff(before, after), demos))
    return out


def _clipped(chunks: Sequence[str]) -> tuple[list[tuple[int, str]], bool]:
    """Chunks with their ids, as far as there is room; and whether something was left out."""
    out: list[tuple[int, str]] = []
    room = _CONTEXT
    for i, chunk in enumerate(chunks):
        if room <= 0:
            return out, True
        out.append((i, chunk if len(chunk) <= room else chunk[:room] + " …"))
        room -= len(chunk)
    return out, room < 0
