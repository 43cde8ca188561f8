"""A study as pages: the judge's card, the descriptions on MLflow's pages, and what the study learned, in HTML.

Texts under judgement are data: the HTML template escapes everything, and its policy allows no script and no network.
"""

from __future__ import annotations

import difflib
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.report import headline, tables
from faith_dspy.optimize.report.plots import has_roc
from faith_dspy.report.judgment import csp_hash
from faith_dspy.report.tables import Table, each, estimate, markdown, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import JudgedAnswer, JudgeResult, StudyResult

_WEIGHTS = 8
"""Features on the card."""
_MOST = 100
"""Answers shown in each list; all of them are in the run's ``predictions.csv``."""
_CHUNK, _CHUNKS = 2_000, 10
"""Characters of a chunk, and chunks, shown with an answer."""
_NAMES = {
    (True, True): "both right",
    (False, True): "now right",
    (True, False): "now wrong",
    (False, False): "both wrong",
}


def card(result: StudyResult, links: str = "") -> str:
    """``CARD.md`` of the exported judge, and with ``links`` the study's description in MLflow, which has a heading of
    its own: what it is, what it is worth, and what it is not."""
    champion = result.variant(result.champion)
    asks = (
        f"an LM is asked about {champion.lm_share:.0%} of the answers"
        if champion.lm_share
        else "no LM is asked"
    )
    lm = (
        f" (`{champion.params.get('lm', result.lm['name'])}`)"
        if champion.lm_share
        else ""
    )
    file = result.labels_file.replace("`", "'")  # it would end the code
    about = (
        f"{tables.capitalised(champion.description)}; {asks}{lm}. Tuned on `{file}` (label set "
        f"{result.label_set_hash}). Study {result.study_id[:8]}, faith_dspy {result.version}, {result.date}."
    )
    if lacks := headline.not_shown(result):
        about += f" It is {lacks}: if it is `@champion` all the same, `faith-dspy study rollback` takes the alias back."
    limits = (
        "It stands in for the people who labelled its set, on answers like those. On other traffic measure it again: "
        "`faith-dspy agree LABELS --judge DIR`."
    )
    sections = (
        tables.testset_table(result),
        *tables.levels_tables(result),
        tables.verdict(result),
        tables.classifier_table(result, _WEIGHTS),
        tables.variants_table(result),
        Table("What it is not", notes=(limits,)),
    )
    three = "\n".join(f"- {line}" for line in headline.of_study(result).notes)
    parts = [
        "" if links else "# Faithfulness judge",
        three,
        links,
        about,
        markdown(t for t in sections if t),
    ]
    return "\n\n".join(p for p in parts if p)


def links(result: StudyResult, model: str | None, here: str) -> str:
    """What opens in place on MLflow's pages. ``model``: its name in the registry; ``here``: the run's address."""
    found = {
        "all tables": f"{here}/artifacts/details.md",
        "prompts, flips and mistakes": f"{here}/artifacts/learned.html",
        **({"ROC curves": f"{here}/artifacts/roc.png"} if has_roc(result) else {}),
        "every test answer": f"{here}/artifacts/test/champion/predictions.csv",
        "the judge": f"{here}/artifacts/judge/CARD.md",
        "traces": f"{here}/traces",
        **({"model": f"#/models/{model}"} if model else {}),
    }
    load = (
        f' In code: `faith_dspy.load_judge("models:/{model}@champion")`.'
        if model
        else ""
    )
    return (
        "Open: "
        + " · ".join(f"[{name}]({address})" for name, address in found.items())
        + f".{load}"
    )


def variant_markdown(v: JudgeResult) -> str:
    """A variant's description in MLflow, one line."""
    if v.levels.answers is None:
        return f"{v.description}. **{v.status}**: {v.note}"
    a = v.agreement
    text = f"{v.description}. Pool: balanced accuracy {estimate(a.balanced_accuracy)}, AUROC {estimate(a.auroc)}"
    if v.judged:
        prompt, completion = (
            each(v.usage.computed_tokens, v.judged),
            each(v.usage.output_tokens, v.judged),
        )
        text += f"; {prompt} prompt tokens (not cached) and {completion} completion tokens an answer"
    return text + (f". **{v.status}**: {v.note}" if v.note else "") + "."


def prompt_markdown(prompt: Mapping[str, Any]) -> str:
    """Instructions and demos of a predictor."""
    lines = [str(prompt.get("instructions", "")), ""]
    for i, demo in enumerate(prompt.get("demos", ()), 1):
        lines += [
            f"## Example {i}",
            "",
            *(f"- {key}: {_as_text(value)}" for key, value in demo.items()),
            "",
        ]
    return "\n".join(lines)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_learned(result: StudyResult) -> str:
    """The page, of a result as a study returns it: with the texts that study.json leaves out."""
    import jinja2  # comes with MLflow

    here = files("faith_dspy.report")
    style = "".join(
        here.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "learned.css")
    )
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "number": number,
        "words": lambda name: str(name).replace("_", " "),
    }
    template = environment.from_string(
        here.joinpath("learned.html").read_text(encoding="utf-8")
    )
    champion, untuned = (
        result.tested("champion").answers,
        result.tested("untuned").answers,
    )
    variant = result.variant(result.champion)
    page = template.render(
        result=result,
        champion=variant,
        three=headline.of_study(result).notes,
        prompts=_prompts(variant),
        flips=flips(untuned, champion),
        mistakes=[r for r in tables.worst_first(champion) if r.predicted != r.label],
        most=_MOST,
        chunk=_CHUNK,
        chunks=_CHUNKS,
        style=style,
        style_hash=csp_hash(style),
    )
    return (
        str(page).encode("utf-8", "replace").decode("utf-8")
    )  # lone surrogates cannot be written


def diff(before: str, after: str) -> list[tuple[str, str]]:
    """Word by word what is the ``same``, ``gone`` and ``new``, each with its text.

    Joined, all but the new is ``before``, and all but the gone ``after``.
    """
    a, b = (re.findall(r"\s+|\S+", text) for text in (before, after))
    out = []
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(
        None, a, b, autojunk=False
    ).get_opcodes():
        gone, new = "".join(a[a1:a2]), "".join(b[b1:b2])
        out += [("same", new)] if kind == "equal" else [("gone", gone), ("new", new)]
    return [(kind, text) for kind, text in out if text]


def flips(
    untuned: Sequence[JudgedAnswer], champion: Sequence[JudgedAnswer]
) -> dict[str, list[tuple[JudgedAnswer, JudgedAnswer]]]:
    """The answers as (untuned judge's, champion's), by who was right (`_NAMES`); the surest come first. An unscored one
    is wrong."""
    found: dict[str, list[tuple[JudgedAnswer, JudgedAnswer]]] = {
        name: [] for name in _NAMES.values()
    }
    before = {r.id: r for r in untuned}
    for new in sorted(champion, key=tables.sure, reverse=True):
        old = before[new.id]
        found[_NAMES[old.predicted == old.label, new.predicted == new.label]].append(
            (old, new)
        )
    return found


def _prompts(
    variant: JudgeResult,
) -> list[tuple[str, list[tuple[str, str]], list[dict[str, str]]]]:
    """For each predictor: name, the diff of its instructions, and its demos."""
    out = []
    for name, prompt in variant.prompts.items():
        after = str(prompt.get("instructions", ""))
        before = str(variant.seed_prompts.get(name, {}).get("instructions", after))
        demos = [
            {k: _as_text(v) for k, v in demo.items()}
            for demo in prompt.get("demos", ())
        ]
        out.append((name, diff(before, after), demos))
    return out
