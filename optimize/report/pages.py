"""A study as pages: the judge's card, its report in HTML, and the descriptions on MLflow's pages.

Texts under judgement are data: the HTML template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from faith_dspy.optimize.report import headline, tables
from faith_dspy.optimize.report.plots import agreement_by_cost, calibration, roc
from faith_dspy.optimize.results import StudyResult
from faith_dspy.report.judgment import fill_page
from faith_dspy.report.tables import Table, markdown, number

_WEIGHTS = 8
"""Features on the card."""
_MOST = 100
"""Mistakes in the report; every answer is in the run's ``predictions.csv``."""
_CHUNK, _CHUNKS = 2_000, 10
"""Characters of a chunk, and chunks, shown with an answer."""
_CALIBRATION = (
    "Whether a probability of .80 is right eight times in ten: on the diagonal it is."
)
_RANKING = "How well each judge ranks faithful answers above unfaithful ones."
_COST = "What agreement costs. A candidate below the dashed line costs more than one that agrees as well."
_PLACES = {
    "report: charts, prompts and mistakes": "artifacts/judge/report.html",
    "all tables": "artifacts/details.md",
    "every answer": "artifacts/predictions.csv",
    "the judge": "artifacts/judge/CARD.md",
    "traces": "traces",
}
"""What a run has on MLflow's pages."""


def card(result: StudyResult) -> str:
    """Write ``CARD.md`` of the exported judge: what it is, what it is worth, and what it is not."""
    return "\n\n".join(("# Faithfulness judge", _three(result), _details(result)))


def _three(result: StudyResult) -> str:
    return "\n".join(f"- {line}" for line in headline.of_study(result).notes)


def _details(result: StudyResult) -> str:
    champion = result.chosen
    asks = ""
    if champion.lm_share:
        lm = champion.params.get("lm", result.lm["model"])
        asks = f"; `{lm}` is asked about {champion.lm_share:.0%} of the answers"
    if champion.columns:
        asks += f"; every answer needs {' and '.join(map(repr, champion.columns))}"
    file = result.labels_file.replace("`", "'")  # it would end the code
    about = (
        f"{tables.capitalised(champion.description)}{asks}. Tuned on `{file}` (label set "
        f"{result.label_set_hash}). Study {result.study_id[:8]}, faith_dspy {result.version}, {result.date}."
    )
    if result.labelled_by:
        counts = ", ".join(f"{who} {n:,}" for who, n in result.labelled_by.items())
        about += f" Labels by: {counts}."
    limits = (
        "It stands in for those who labelled its set, on answers like those. On other traffic measure it again: "
        "`faith-dspy agree LABELS --judge DIR`."
    )
    sections = (
        tables.agreement_table(result, result.measured),
        *tables.levels_tables(result),
        tables.verdict(result),
        tables.classifier_table(result, _WEIGHTS),
        tables.candidates_table(result),
        tables.prompts_table(result),
        Table("What it is not", notes=(limits,)),
    )
    return f"{about}\n\n{markdown(table for table in sections if table)}"


def description(result: StudyResult, address: str | None, here: str) -> str:
    """Describe the study in MLflow: the card with links to what opens in place, without its heading, which would be
    all that MLflow's lists show.

    Args:
        result: the study.
        address: the judge's in the registry; None where it is not registered.
        here: the run's on MLflow's pages.
    """
    pages = [f"[{name}]({here}/{place})" for name, place in _PLACES.items()]
    code = ""
    if address is not None:
        model = re.split("[@/]", address.removeprefix("models:/"))[0]
        pages.append(f"[model](#/models/{model})")
        code = f' In code: `faith_dspy.load_judge("{address}")`.'
        result = result.model_copy(update={"judge_dir": address})
    links = f"Open: {' · '.join(pages)}.{code}"
    text = "\n\n".join((_three(result), links, _details(result)))
    return text.replace(" |", "&ensp;|")  # MLflow's cells have no margin


def prompt_markdown(prompt: Mapping[str, Any]) -> str:
    """Write instructions and demos of a predictor."""
    parts = [str(prompt.get("instructions", ""))]
    for i, demo in enumerate(prompt.get("demos", ()), 1):
        fields = [f"- {key}: {_as_text(value)}" for key, value in demo.items()]
        parts += [f"## Example {i}", "\n".join(fields)]
    return "\n\n".join(parts) + "\n"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_report(result: StudyResult) -> str:
    """Render ``report.html``, of a result as a study returns it: with the texts that study.json leaves out."""
    answers = tables.worst_first(result.measured.champion.answers)
    return fill_page(
        "study.html",
        ["page.css", "study.css"],
        {"number": number, "prompt": prompt_markdown},
        result=result,
        champion=result.chosen,
        three=headline.of_study(result).notes,
        mistakes=[row for row in answers if row.predicted != row.label],
        pictures=_pictures(result),
        most=_MOST,
        chunk=_CHUNK,
        chunks=_CHUNKS,
    )


def _pictures(result: StudyResult) -> list[tuple[str, str]]:
    """Return an image as a ``data:`` address and its caption, each."""
    figures = (
        (calibration(result.measured.champion), _CALIBRATION),
        (roc(result.measured.judges), _RANKING),
        (agreement_by_cost(result), _COST),
    )
    pictures = []
    for figure, caption in figures:
        if figure is None:
            continue
        png = io.BytesIO()
        figure.savefig(png, format="png")
        data = base64.b64encode(png.getvalue()).decode()
        pictures.append((f"data:image/png;base64,{data}", caption))
    return pictures
