"""Save judges: a folder of JSON and Markdown, nothing executable inside. `faith_dspy.load` reads it.

``judge.json``    a `Manifest`: options, classifier, LM, label set, agreement, versions, stored judgments, content hash
``program.json``  DSPy state: instructions and demos
``CARD.md``       the same for people
``study.json``    the study that made it, without texts; ``report.html`` the same for people, with the texts of its
                  mistakes. Nothing of either is loaded.
``escalate_to/``  the judge that answers are escalated to, if any: a folder like this
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, field_validator

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import InputError
from faith_dspy.io.files import check_folder, write_files
from faith_dspy.io.inputs import as_chunks
from faith_dspy.lm.make import LMIdentity, identity, without_path
from faith_dspy.schema import RawJudgment
from faith_dspy.scoring.classifier import Classifier, describe_fit
from faith_dspy.scoring.measure import measure_features

log = logging.getLogger(__name__)
FILES = ("judge.json", "program.json", "CARD.md", "study.json", "report.html")
"""All that an export consists of, with the same of the judge it escalates to; the last two where a study made it."""
FORMAT_VERSION = 1
"""Raise it when the meaning of a stored field changes."""
NEXT = "escalate_to"
REPRODUCED = ("score", "probability", "faithful")
"""What loading compares with the stored judgments."""
FORMER_OPTIONS = {"ask_about": "all", "nearest_demos": 0, "embedder": None}
"""Options that there were, and the value with which an export judges as it did."""
_IN_PROMPTS = ("instruction", "strictness", "system_prompt", "strict_mode")
"""Options that there were, and that an export's prompts and weights hold."""
_FORMER_LABELS = ("grounded", "true_false_unknown")
"""Values of ``instruction`` whose labels are no longer asked for."""
_VERSIONED = ("faith_dspy", "dspy", "pydantic")


class Reference(BaseModel):
    """A stored judgment, which loading has to reproduce from what the LM said."""

    question: str | None
    context: list[str]
    answer: str
    raw_judgment: RawJudgment
    score: float | None = None
    probability: float | None = None
    faithful: bool | None = None

    def anew(self, judge: Any) -> Self:
        """Return the judgment of this judge, now, on what the LM said then."""
        chunks = as_chunks(self.context)
        features = measure_features(self.raw_judgment, chunks, self.question)
        judgment = judge.score_answer(self.raw_judgment, features)
        numbers = judgment.model_dump(include=set(REPRODUCED))
        return self.model_copy(update=numbers)


class Manifest(BaseModel, extra="allow"):
    """``judge.json``. A study adds fields of its own, such as ``agreement``, which are kept as they are."""

    format_version: int = FORMAT_VERSION
    config: JudgeConfig
    classifier: Classifier | None
    lm: LMIdentity
    prompts: str | None = None
    """Hash of the prompts that classifier, thresholds and agreement were fitted with; None: those in the folder."""
    versions: dict[str, str] = {}
    card: str | None = None
    answer_keys: list[str] = []
    reference: list[Reference] = []
    sha256: str = ""
    """Of everything in the folder that a judge is made from."""

    @field_validator("config", mode="before")
    @classmethod
    def _without_former_options(cls, config: Any) -> Any:
        if not isinstance(config, Mapping):
            return config
        options = dict(config)
        if options.get("instruction") in _FORMER_LABELS:
            raise ValueError(
                f"instruction={options['instruction']!r} is no longer asked: tune it again"
            )
        for name in _IN_PROMPTS:
            options.pop(name, None)
        if "max_statements" in options:
            options["max_sentences"] = options.pop("max_statements")
        for name, usual in FORMER_OPTIONS.items():
            value = options.pop(name, usual)
            if value != usual:
                log.warning(
                    "the judge was tuned with %s=%r, which is no longer an option: it goes on without it. Measure it "
                    "anew (faith-dspy agree).",
                    name,
                    value,
                )
        return options


def save_judge(
    judge: Any,
    folder: str | Path,
    *,
    card: str | None = None,
    reference: Sequence[Any] = (),
    study: Mapping[str, str] = {},
) -> None:
    """Write a `Judge` to ``folder`` (made if missing): all of it, or nothing.

    ``reference``: (question, context, answer, `RawJudgment`) of a few answers; their judgments are stored, and loading
    has to reproduce them. ``study``: what a study adds by name, ``study.json`` and ``report.html``. The LM is stored by
    name and hash only – no key, no address.
    """
    folder = Path(folder)
    contents, _ = _contents(judge, folder, card, reference)
    contents |= {folder / name: text for name, text in study.items()}
    for path in (folder / NEXT, *contents):
        if path.is_symlink():
            raise InputError(
                f"{path} is a link to {path.readlink()}: saving would write and delete what lies there. Remove the "
                "link, or save to another folder."
            )
    check_folder(folder)
    write_files(contents)
    for older in list(exported_files(folder / NEXT)):
        if older not in contents:
            older.unlink()
            with suppress(OSError):  # something else lies in it
                older.parent.rmdir()


def exported_files(folder: Path) -> Iterator[Path]:
    """Yield the files of an export that are there, by name: whatever else lies in the folder is none of it."""
    if (folder / "judge.json").is_file():
        yield from (path for name in FILES if (path := folder / name).is_file())
        if not (folder / NEXT).is_symlink():
            yield from exported_files(folder / NEXT)


def _contents(
    judge: Any, folder: Path, card: str | None, reference: Sequence[Any] = ()
) -> tuple[dict[Path, str], str]:
    """Return the files of an export, the one that vouches for the others first, and their hash."""
    following: dict[Path, str] = {}
    next_sha256 = None
    if judge.escalate_to is not None:
        following, next_sha256 = _contents(judge.escalate_to, folder / NEXT, None)
    prompts = judge.program.prompts_hash if judge.asks_lm else None
    stored = judge.manifest
    if stored.get("prompts") not in (None, prompts):
        # What was measured with other prompts goes.
        stored = {k: v for k, v in stored.items() if k == "answer_keys"}
    # Scored again: a copy of a loaded judge may have another config or classifier.
    before = [] if reference else stored.get("reference", [])
    answers = [Reference.model_validate(one) for one in before]
    for question, context, answer, raw in reference:
        texts = [chunk.text for chunk in as_chunks(context)]
        about = {"question": question, "context": texts, "answer": answer}
        answers.append(Reference(**about, raw_judgment=raw.without_usage()))
    new = {
        "config": judge.config,
        "classifier": judge.classifier,
        "lm": _identity(judge),
        "prompts": prompts,
        "versions": {name: metadata.version(name) for name in _VERSIONED},
        "reference": [answer.anew(judge) for answer in answers],
    }
    document = Manifest.model_validate({**stored, **new}).model_dump(mode="json")
    program = json.loads(json.dumps(_program_state(judge), default=list))
    document["sha256"] = content_hash(document, program, next_sha256)
    contents: dict[Path, str] = {
        folder / name: f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"
        for name, value in (("judge.json", document), ("program.json", program))
    }
    contents[folder / "CARD.md"] = card or stored.get("card") or _plain_card(judge)
    return contents | following, document["sha256"]


def _program_state(judge: Any) -> dict[str, Any]:
    """Return DSPy's state of each predictor, with the demos that prompts show and without any LM; empty without one."""
    if not judge.asks_lm:
        return {}
    from faith_dspy.program.prompt import complete_demos

    state = {}
    for name, predict in judge.program.prompts.items():
        demos = complete_demos(predict.signature, predict.demos)
        left_out: dict[str, Any] = {"lm": None, "traces": [], "train": []}
        state[name] = predict.dump_state() | left_out | {"demos": demos}
    return state


def content_hash(
    document: Mapping[str, Any], program: Mapping[str, Any], following: str | None
) -> str:
    """Return the SHA-256 over what a judge is made from, that of the judge it escalates to included."""
    parts = [{k: v for k, v in document.items() if k != "sha256"}, program, following]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _identity(judge: Any) -> LMIdentity:
    """Return which LM the judge asks: by the LM itself, else by the export that it was loaded from."""
    stored = dict(judge.manifest.get("lm") or {})
    model = without_path(judge.lm_name)
    if judge.function is not None or "lm" in vars(judge):
        stored = identity(judge.function or judge.lm).model_dump()
    elif stored.get("model") != model:
        stored = {}
    stored["model"] = model
    limits = judge.limits.items()
    stored |= {name: limit for name, limit in limits if limit and name != "timeout"}
    return LMIdentity.model_validate(stored)


def _plain_card(judge: Any) -> str:
    means = "by lexical features, no LM"
    if judge.asks_lm:
        means = f"asked of `{without_path(judge.lm_name)}`"
    then = ""
    if judge.escalate_to:
        then = " What it is unsure of goes to the judge in `escalate_to/`."
    if judge.columns:
        means += f", with {' and '.join(map(repr, judge.columns))} of each record"
    unit = judge.config.granularity.value
    fit = describe_fit(judge.classifier).capitalize()
    return (
        f"# Faithfulness judge\n\n{fit}: {unit} by {unit}, {means}. Its agreement with labels has not been "
        f"measured.{then}\n"
    )
