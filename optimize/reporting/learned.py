"""What a study learned, as one self-contained HTML page: prompts before and after, flips, remaining mistakes.

Texts under judgement are data: the template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import base64
import difflib
import io
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.reporting import headline, tables
from faith_dspy.optimize.reporting.markdown import as_text
from faith_dspy.optimize.reporting.plots import learning_curve
from faith_dspy.report.html import csp_hash
from faith_dspy.report.numbers import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult

_MOST = 100
"""Answers shown in each list; all of them are in the run's ``predictions.csv``."""
_CHUNK, _CHUNKS = 2_000, 10
"""Characters of a chunk, and chunks, shown with an answer."""


def write_learned(result: StudyResult) -> str:
    """The page. Needs predictions with their texts: a result as a study returns it, not one read from study.json."""
    import jinja2  # comes with MLflow

    here = files("faith_dspy.report")
    style = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "learned.css"))
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": number, "words": lambda name: str(name).replace("_", " ")}
    template = environment.from_string(here.joinpath("learned.html").read_text(encoding="utf-8"))
    champion, untuned = result.tested("champion").predictions, result.tested("untuned").predictions
    variant = result.variant(result.champion)
    page = template.render(
        result=result,
        champion=variant,
        test=[tables.testset_table(result), *tables.levels_tables(result)],
        three=headline.of_study(result).notes,
        learning=tables.learning_table(result),
        learning_curve=_png(learning_curve(result)),
        notes=result.notes,
        prompts=_prompts(variant),
        instructions=tables.instructions_table(variant),
        flips=flips(untuned, champion),
        mistakes=[r for r in tables.worst_first(champion) if r.predicted != r.label],
        most=_MOST,
        chunk=_CHUNK,
        chunks=_CHUNKS,
        style=style,
        style_hash=csp_hash(style),
    )
    return str(page).encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be written


def _png(figure: Any | None) -> str | None:
    if figure is None:
        return None
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return base64.b64encode(out.getvalue()).decode()


def diff(before: str, after: str) -> list[tuple[str, str]]:
    """Word by word what is the ``same``, ``gone`` and ``new``, each with its text.

    Joined, all but the new is ``before``, and all but the gone ``after``.
    """
    a, b = (re.findall(r"\s+|\S+", text) for text in (before, after))
    out = []
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        gone, new = "".join(a[a1:a2]), "".join(b[b1:b2])
        out += [("same", new)] if kind == "equal" else [("gone", gone), ("new", new)]
    return [(kind, text) for kind, text in out if text]


def flips(
    untuned: Sequence[PredictionRow], champion: Sequence[PredictionRow]
) -> dict[str, list[tuple[PredictionRow, PredictionRow]]]:
    """The answers that both judged as (untuned judge's row, champion's row), by who was right; the surest come first.

    Keys are ``both right``, ``now right``, ``now wrong``, ``both wrong``; an unscored answer is wrong.
    """
    names = {(True, True): "both right", (False, True): "now right", (True, False): "now wrong"}
    names[False, False] = "both wrong"
    found: dict[str, list[tuple[PredictionRow, PredictionRow]]] = {name: [] for name in names.values()}
    before = {(r.group, r.id): r for r in untuned}
    for new in sorted(champion, key=tables.sure, reverse=True):
        old = before[new.group, new.id]
        found[names[old.predicted == old.label, new.predicted == new.label]].append((old, new))
    return found


def _prompts(variant: VariantResult) -> list[tuple[str, list[tuple[str, str]], list[dict[str, str]]]]:
    """For each predictor: name, the diff of its instructions, and its demos."""
    out = []
    for name, prompt in variant.prompts.items():
        after = str(prompt.get("instructions", ""))
        before = str(variant.seed_prompts.get(name, {}).get("instructions", after))
        demos = [{k: as_text(v) for k, v in demo.items()} for demo in prompt.get("demos", ())]
        out.append((name, diff(before, after), demos))
    return out
