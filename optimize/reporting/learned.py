"""What a study learned, as one self-contained HTML page: prompts, classifier, what flipped, what is still wrong.

Texts under judgement are data: the template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import difflib
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from faith_dspy.optimize.reporting.wording import ablation_table, figure, head_sentences
from faith_dspy.report.html import csp_hash
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult

MOST = {"wrong": 100, "flips": 50}
"""Answers shown in each list; all of them are in the runs' ``predictions.jsonl``."""
_CONTEXT = 8_000  # characters of context shown with an answer
_SEEN = 0.005  # a weight that is not 0.00
_HERE = "faith_dspy.report"


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
    here = files(_HERE)
    style = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "learned.css"))
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"figure": figure, "words": lambda name: str(name).replace("_", " ")}
    template = environment.from_string(here.joinpath("learned.html").read_text(encoding="utf-8"))
    champion = result.variant(result.champion)
    parts = (("test", result.tested("champion").predictions), ("dev", champion.predictions))
    page = template.render(
        result=result,
        champion=champion,
        tested={t.name: t for t in result.test},
        style=style,
        style_hash=csp_hash(style),
        prompts=[(v, _prompts(result, v)) for v in _with_prompts(result)],
        search=_table(champion.search),
        ablation=_table(ablation_table(result.diagnosis)) if result.diagnosis else None,
        of_head=head_sentences(result.diagnosis) if result.diagnosis else [],
        stages=_stages(result.classifier),
        flips=[flips(result, part) for part in ("test", "dev")],
        remaining=[(part, [r for r in rows if r.predicted != r.label], disagreements(rows)) for part, rows in parts],
        most=MOST,
        context=_clipped,
    )
    # Half a character, as broken texts hold them, cannot be written.
    return str(page).encode("utf-8", "replace").decode("utf-8")


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
    """What the champion judges otherwise than the untuned judge.

    On test the untuned judge; on dev the untuned judge with a threshold fitted on the same labels, cross-fitted.
    """
    before: Sequence[PredictionRow]
    if part == "test":
        before, after = result.tested("untuned").predictions, result.tested("champion").predictions
    else:
        untuned = next((v for v in result.variants if v.kind == "untuned"), None)
        before, after = untuned.predictions if untuned else [], result.variant(result.champion).predictions
    known = {(r.group, r.id): r for r in before}
    pairs = [(known[r.group, r.id], r) for r in after if (r.group, r.id) in known]
    right = {(True, True): "both right", (False, True): "now right", (True, False): "now wrong"}
    told: dict[str, list[tuple[PredictionRow, PredictionRow]]] = {name: [] for name in (*right.values(), "both wrong")}
    for old, new in pairs:
        told[right.get((old.predicted == old.label, new.predicted == new.label), "both wrong")].append((old, new))
    for name in ("now right", "now wrong"):
        told[name].sort(key=lambda pair: -_sure(pair[1]))
    return Flips(part, {k: len(v) for k, v in told.items()}, told["now right"], told["now wrong"])


def disagreements(rows: Sequence[PredictionRow]) -> list[PredictionRow]:
    """The answers a judge is wrong about, worst first: the surer it was, the worse; unscored ones last."""
    wrong = [r for r in rows if r.predicted != r.label]
    return sorted(wrong, key=lambda r: (r.predicted is None, -_sure(r)))


def _sure(row: PredictionRow) -> float:
    return 0.0 if row.probability is None else abs(row.probability - 0.5)


def _with_prompts(result: StudyResult) -> list[VariantResult]:
    """The champion, then the other variants that were compiled."""
    others = [v for v in result.variants if v.name != result.champion and v.params.get("optimizer", "none") != "none"]
    return [result.variant(result.champion), *(v for v in others if v.prompts)]


def _prompts(result: StudyResult, variant: VariantResult) -> list[tuple[str, list[Piece], list[dict[str, str]]]]:
    """Per predictor: the diff of its instructions, and its demos."""
    seeds = [variant.seed_prompts, *(v.prompts for v in result.variants if v.params.get("optimizer") == "none")]
    out = []
    for name, prompt in variant.prompts.items():
        after = str(prompt.get("instructions", ""))
        before = next((str(s[name]["instructions"]) for s in seeds if name in s), after)
        demos = [{k: _text(v) for k, v in demo.items()} for demo in prompt.get("demos", ())]
        out.append((name, diff(before, after), demos))
    return out


def _stages(classifier: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, float, float]]]]:
    """Per stage of the classifier: name, weight and length of the bar (percent of the longest), the strongest first."""
    out = []
    for stage in ("statement", "answer"):
        found = classifier.get(stage) or {}
        weights = sorted(
            ((n, w) for n, w in zip(found.get("names", ()), found.get("weights", ()), strict=True) if abs(w) >= _SEEN),
            key=lambda item: -abs(item[1]),
        )
        if weights:
            longest = abs(weights[0][1])
            out.append((stage, [(n, w, 100 * abs(w) / longest) for n, w in weights]))
    return out


def _table(found: Any) -> tuple[list[str], list[list[str]]] | None:
    """Rows given as mappings, or as models, with a column for each of their keys."""
    rows = [r.model_dump(mode="json") if hasattr(r, "model_dump") else r for r in found or () if r]
    rows = [r for r in rows if isinstance(r, dict)]
    columns = list(dict.fromkeys(k for r in rows for k in r))
    return (columns, [[_text(r.get(c)) for c in columns] for r in rows]) if rows else None


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict) and "value" in value:
        return _text(value["value"])
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
