"""A study as pages: the judge's card, the descriptions on MLflow's pages, and what the study learned, in HTML.

Texts under judgement are data: the HTML template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import base64
import io
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.report import headline, tables
from faith_dspy.optimize.report.plots import judge_figures, study_figures
from faith_dspy.optimize.results import SkippedVariant
from faith_dspy.report.judgment import csp_hash
from faith_dspy.report.tables import Table, markdown, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faith_dspy.optimize.results import CandidateResult, StudyResult

_WEIGHTS = 8
"""Features on the card."""
_MOST = 100
"""Answers shown in each list; all of them are in the run's ``predictions.csv``."""
_CHUNK, _CHUNKS = 2_000, 10
"""Characters of a chunk, and chunks, shown with an answer."""
_PICTURES = {
    "roc.png": "How well each judge ranks faithful answers above unfaithful ones.",
    "cost.png": "What agreement costs. A candidate below the dashed line costs more than one that agrees as well.",
    "calibration.png": "Whether a probability of .80 is right eight times in ten: on the diagonal it is.",
}
"""Of the page of what was learned, with their captions."""
_PLACES = {
    "all tables": "artifacts/details.md",
    "charts, prompts and mistakes": "artifacts/learned.html",
    "every answer": "artifacts/{part}/champion/predictions.csv",
    "the judge": "artifacts/judge/CARD.md",
    "traces": "traces",
}
"""What a run has on MLflow's pages."""


def card(result: StudyResult, links: str = "") -> str:
    """Write ``CARD.md`` of the exported judge, and with ``links`` the study's description in MLflow, which has a
    heading of its own: what it is, what it is worth, and what it is not."""
    champion = result.chosen
    asks = "no LM is asked"
    if champion.lm_share:
        lm = champion.params.get("lm", result.lm["name"])
        asks = f"an LM is asked about {champion.lm_share:.0%} of the answers (`{lm}`)"
    file = result.labels_file.replace("`", "'")  # it would end the code
    about = (
        f"{tables.capitalised(champion.description)}; {asks}. Tuned on `{file}` (label set "
        f"{result.label_set_hash}). Study {result.study_id[:8]}, faith_dspy {result.version}, {result.date}."
    )
    lacks = headline.not_shown(result)
    if lacks:
        about += f" It is {lacks}."
    limits = (
        "It stands in for the people who labelled its set, on answers like those. On other traffic measure it again: "
        "`faith-dspy agree LABELS --judge DIR`."
    )
    sections = (
        tables.agreement_table(result),
        *tables.levels_tables(result),
        tables.verdict(result),
        tables.classifier_table(result, _WEIGHTS),
        tables.candidates_table(result),
        tables.prompts_table(result),
        Table("What it is not", notes=(limits,)),
    )
    three = "\n".join(f"- {line}" for line in headline.of_study(result).notes)
    heading = "" if links else "# Faithfulness judge"
    details = markdown(table for table in sections if table)
    return "\n\n".join(part for part in (heading, three, links, about, details) if part)


def links(result: StudyResult, address: str | None, here: str) -> str:
    """Link what opens in place on MLflow's pages.

    Args:
        result: the study.
        address: the judge's in the registry; None where it is not registered.
        here: the run's on MLflow's pages.
    """
    part = "cv" if result.test is None else "test"
    pages = []
    for name, place in _PLACES.items():
        pages.append(f"[{name}]({here}/{place.format(part=part)})")
    if address is None:
        return f"Open: {' · '.join(pages)}."
    model = re.split("[@/]", address.removeprefix("models:/"))[0]
    pages.append(f"[model](#/models/{model})")
    load = f'`faith_dspy.load_judge("{address}")`'
    text = f"Open: {' · '.join(pages)}. In code: {load}."
    if address.endswith("@champion") and headline.not_shown(result):
        text += " `faith-dspy study rollback` takes the alias back."
    return text


def candidate_markdown(one: CandidateResult | SkippedVariant) -> str:
    """Describe a candidate, or a variant that became none, in one line."""
    text = f"{one.description}."
    if isinstance(one, SkippedVariant):
        text += f" **{one.status}**: {one.note}."
    return text


def prompt_markdown(prompt: Mapping[str, Any]) -> str:
    """Write instructions and demos of a predictor."""
    parts = [str(prompt.get("instructions", ""))]
    for i, demo in enumerate(prompt.get("demos", ()), 1):
        fields = [f"- {key}: {_as_text(value)}" for key, value in demo.items()]
        parts += [f"## Example {i}", "\n".join(fields)]
    return "\n\n".join(parts) + "\n"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_words(name: object) -> str:
    return str(name).replace("_", " ")


def write_learned(result: StudyResult) -> str:
    """Render the page, of a result as a study returns it: with the texts that study.json leaves out."""
    import jinja2  # comes with MLflow

    folder = files("faith_dspy.report")
    template, *styles = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("learned.html", "page.css", "learned.css")
    )
    style = "".join(styles)
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Any] = {"number": number, "text": _as_text, "words": _as_words}
    environment.filters |= filters
    champion = result.measured.champion.answers
    wrong = [r for r in tables.worst_first(champion) if r.predicted != r.label]
    page = environment.from_string(template).render(
        result=result,
        champion=result.chosen,
        three=headline.of_study(result).notes,
        mistakes=wrong,
        pictures=_pictures(result),
        most=_MOST,
        chunk=_CHUNK,
        chunks=_CHUNKS,
        style=style,
        style_hash=csp_hash(style),
    )
    # Lone surrogates cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


def _pictures(result: StudyResult) -> list[tuple[str, str]]:
    """Return an image as a ``data:`` address and its caption, each."""
    champion = result.measured.champion
    figures = study_figures(result)
    figures |= judge_figures(champion.rows, champion.agreement, "the champion")
    pictures = []
    for name, caption in _PICTURES.items():
        if name in figures:
            png = io.BytesIO()
            figures[name].savefig(png, format="png")
            data = base64.b64encode(png.getvalue()).decode()
            pictures.append((f"data:image/png;base64,{data}", caption))
    return pictures
