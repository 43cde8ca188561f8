"""Save and load judges: a folder of JSON and Markdown, nothing executable inside.

``judge.json``    format version, config, classifier (numbers), LM, label set, agreement, versions, reference judgments
``program.json``  DSPy state: instructions and demos
``CARD.md``       the same for people
``escalate_to/``  the judge that answers are escalated to, if any: a folder like this
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ArtifactError, ConfigError, InputError, fault, in_short, need, without_secrets
from faith_dspy.io.files import check_folder, owned, remove, write_files
from faith_dspy.io.records import as_chunks, read_json
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.make import portable
from faith_dspy.schema import RawJudgment
from faith_dspy.scoring.classifier import Classifier, describe_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILES = ("judge.json", "program.json", "CARD.md", "study.json")
"""All that an export consists of, with the same of the judge it escalates to; ``study.json`` where a study made it."""
FORMAT_VERSION = 2
"""Raise it when the meaning of a stored field changes."""
log = logging.getLogger(__name__)
_REPRODUCED = ("score", "probability", "faithful")
_TOLERANCE = 1e-6
_NEXT = "escalate_to"
_WRITTEN = frozenset(
    {"sha256", "format_version", "config", "classifier", "lm", "program_sha256", "reference", "escalate_to_sha256"}
)
"""Keys of a manifest that saving writes; whatever else a study put there is kept."""


def save_judge(
    judge: Judge,
    folder: str | Path,
    *,
    card: str | None = None,
    reference: Sequence[Any] = (),
    study: str | None = None,
) -> None:
    """Write ``judge`` to ``folder`` (made if missing): all of it, or nothing.

    ``reference``: (question, context, answer, `RawJudgment`) of a few answers; their judgments are stored, and loading
    has to reproduce them. ``study``: content of ``study.json``. The LM is stored by name and hash only – no key, no
    address.
    """
    folder = Path(folder)
    contents = _contents(judge, folder, card, reference)
    if study is not None:
        contents[folder / "study.json"] = study
    check_folder(folder)
    with owned(folder):
        write_files(contents)
        for older in [path for path in exported_files(folder / _NEXT) if path not in contents]:
            remove(older)


def exported_files(folder: Path) -> Iterator[Path]:
    """The files of an export that are there, by name: whatever else lies in the folder is none of it."""
    if (folder / "judge.json").is_file():
        yield from (path for name in FILES if (path := folder / name).is_file())
        yield from exported_files(folder / _NEXT)


def _contents(judge: Judge, folder: Path, card: str | None, reference: Sequence[Any] = ()) -> dict[Path, str | bytes]:
    """The files of an export; the one that vouches for the others first."""
    program = _dump(judge)
    next_sha256 = None
    following: dict[Path, str | bytes] = {}
    if judge.escalate_to is not None:
        following = _contents(judge.escalate_to, folder / _NEXT, None)
        next_sha256 = json.loads(following[folder / _NEXT / "judge.json"])["sha256"]
    # Stored answers are scored again: a copy of a loaded judge may have another config or classifier.
    kept = [(r["question"], r["context"], r["answer"], r["raw_judgment"]) for r in judge.manifest.get("reference", [])]
    document = {
        "format_version": FORMAT_VERSION,
        "config": judge.config.model_dump(mode="json"),
        "classifier": judge.classifier.model_dump(mode="json") if judge.classifier else None,
        "lm": {"model": portable(judge.lm_name), **_identity(judge)},
        "program_sha256": hashlib.sha256(program).hexdigest(),
        **({"escalate_to_sha256": next_sha256} if next_sha256 else {}),
        "versions": {name: metadata.version(name) for name in ("faith_dspy", "dspy", "pydantic")},
        **{k: v for k, v in judge.manifest.items() if k not in _WRITTEN},
        "reference": [_reference(judge, *r) for r in reference or kept],
    }
    document["sha256"] = _content(document)
    return {
        folder / "judge.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        folder / "program.json": program,
        folder / "CARD.md": card or judge.manifest.get("card") or _plain_card(judge),
        **following,
    }


def load_judge(
    source: str | Path,
    *,
    lm: Any = None,
    api_base: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> Judge:
    """Load a judge from a folder, or from MLflow's registry (``models:/faithfulness@champion``).

    ``lm`` replaces the LM it was tuned on, in a chain of judges the first one, wherever that is asked; ``api_base`` and
    ``api_key`` are that LM's, too. Thresholds were fitted to the LM it was tuned on, so expect less of another.
    ``timeout`` is as for `Judge`, and holds for every LM of the chain.

    Of ``program.json`` only instructions and demos are taken. The LM's name in ``judge.json`` counts where the caller
    gives none; an address is only ever the caller's.

    Raises `ArtifactError` when files are missing or altered, or stored judgments are not reproduced; `ConfigError` for
    ``lm="none"`` in place of an LM. Asks no LM.
    """
    if not isinstance(source, str | PathLike):
        raise InputError(f"got {source!r}; expected the folder of an exported judge, or models:/name@alias.")
    if str(source) in ("none", "local") and not Path(source).exists():
        raise InputError(
            f"{source!r} is a model, not the folder of an exported judge: Judge({str(source)!r}), --lm {source}."
        )
    folder = download_judge(str(source)) if str(source).startswith(("models:/", "runs:/")) else Path(source)
    given = {"lm": lm, "api_base": api_base, "api_key": api_key}
    return _load(folder, given, {"timeout": timeout})


def _load(folder: Path, given: Mapping[str, Any], times: Mapping[str, Any], replaced: str = NO_LM) -> Judge:
    """``replaced``: the model whose place ``lm``, ``api_base`` and ``api_key`` take; the first that is one, if none."""
    manifest = _object(_bytes(folder / "judge.json"), folder / "judge.json")
    version = manifest.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    if manifest.get("sha256") != _content(manifest):
        raise _altered(folder / "judge.json", "its content is not what its SHA-256 says; it was altered")
    raw = _bytes(folder / "program.json")
    if hashlib.sha256(raw).hexdigest() != manifest.get("program_sha256"):
        raise _altered(folder / "program.json", "its SHA-256 is not the one judge.json names; it was altered")
    try:
        state = _object(raw, folder / "program.json")
        typed = _Manifest.model_validate(manifest)
        config, classifier, stored = typed.config, typed.classifier, typed.lm.model
        if stored != portable(stored) or "://" in stored:
            raise ValueError(f"the LM's name is {stored!r}, which holds a place")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise _altered(folder / "judge.json", f"{_fault(exc)}; it was altered") from exc
    replaced = stored if replaced == NO_LM else replaced
    here = dict(given) if stored == replaced != NO_LM else {}
    following = None
    if wanted := typed.escalate_to_sha256:
        following = _load(folder / _NEXT, given, times, replaced)
        if following.manifest["sha256"] != wanted:
            raise _altered(folder / _NEXT, "is not the judge that answers are escalated to; it was replaced")
    made: dict[str, Any] = {"config": config, "classifier": classifier, "manifest": manifest, "escalate_to": following}
    another = here.pop("lm", None)
    if another == NO_LM:
        raise ConfigError(
            f"{folder}: was tuned on replies of {stored}, got lm={NO_LM!r}. Leave out lm= (--lm), or leave out "
            "the judge (--judge) to judge by lexical features."
        )
    judge = Judge(stored if another is None else another, **here, **times, **made)
    if classifier and classifier.statement and "lm" in classifier.statement.names and portable(judge.lm_name) != stored:
        how = f"was fitted to probabilities of {stored}, and {portable(judge.lm_name)} is asked"
        log.warning("%s: %s. Unless they are the same, measure it anew: faith-dspy agree.", folder, how)
    _load_prompts(judge, state, folder / "program.json")
    _reproduce(judge, typed.reference, folder)
    wanted = typed.lm.sha256
    if (given["lm"] is None or stored != replaced) and judge.lm_name == "local" and wanted is not None:
        from faith_dspy.lm.embedded import EMBEDDED

        if wanted != EMBEDDED.sha256:
            raise ArtifactError(
                f"{folder}: was tuned on the model file with SHA-256 {wanted[:12]}…, the embedded one has "
                f"{EMBEDDED.sha256[:12]}…. Give the file it was tuned on: load_judge(…, lm='local:FILE.gguf')."
            )
    return judge


class _LM(BaseModel):
    model: str
    name: str | None = None
    sha256: str | None = None
    api_base_hash: str | None = None


class _Reference(BaseModel):
    question: str | None
    context: list[str]
    answer: str
    raw_judgment: RawJudgment
    score: float | None = None
    probability: float | None = None
    faithful: bool | None = None


class _Manifest(BaseModel):
    """What is used of ``judge.json``."""

    config: JudgeConfig
    classifier: Classifier | None
    lm: _LM
    escalate_to_sha256: str | None = None
    reference: list[_Reference] = []
    versions: dict[str, str] = {}
    card: str | None = None
    answer_keys: list[str] = []


class _Signature(BaseModel):
    instructions: str


class _Prompt(BaseModel):
    """What is used of ``program.json``, for each predictor."""

    signature: _Signature
    demos: list[dict[str, Any]]


def _load_prompts(judge: Judge, state: Mapping[str, Any], path: Path) -> None:
    """Give the program its instructions and demos, and nothing else: DSPy's own loader takes an LM and its settings."""
    predictors = dict(judge.program.named_predictors()) if judge.asks_lm else {}
    try:
        if state.keys() != predictors.keys():
            raise ValueError(f"it has the predictors {sorted(state)}, expected {sorted(predictors)}")
        for name, predictor in predictors.items():
            prompt = _Prompt.model_validate(state[name])
            fields = predictor.signature.fields
            for key, value in (pair for demo in prompt.demos for pair in demo.items()):
                if key in fields:
                    TypeAdapter(fields[key].annotation).validate_json(json.dumps(value), strict=True)
            predictor.signature = predictor.signature.with_instructions(prompt.signature.instructions)
            predictor.demos = [{k: v for k, v in demo.items() if k in fields} for demo in prompt.demos]
    except (TypeError, ValueError) as exc:
        raise ArtifactError(f"{path}: does not fit this program ({_fault(exc)}).") from exc


def _fault(exc: Exception) -> str:
    return fault(exc.errors()[0]) if isinstance(exc, ValidationError) else in_short(exc)


def _altered(path: Path, how: str) -> ArtifactError:
    return ArtifactError(f"{path}: {how} after the export. Take the folder from where it was exported.")


def _content(document: dict[str, Any]) -> str:
    """SHA-256 of everything in judge.json but itself."""
    rest = {k: v for k, v in document.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _dump(judge: Judge) -> bytes:
    """DSPy state of the program, without any LM; empty for a judge that asks none."""
    state = judge.program.dump_state() if judge.asks_lm else {}
    for predictor in state.values():
        if isinstance(predictor, dict) and "signature" in predictor:
            predictor["lm"] = None
            predictor["traces"] = predictor["train"] = []
    return (json.dumps(state, indent=2, ensure_ascii=False, default=list) + "\n").encode()


def _identity(judge: Judge) -> dict[str, Any]:
    """What is known of the LM; if it was not made yet, what the export it was loaded from says."""
    from faith_dspy.lm.make import identity

    if "lm" not in vars(judge):
        known: dict[str, Any] = judge.manifest.get("lm") or {}
        return known if known.get("model") == portable(judge.lm_name) else {}
    return {k: v for k, v in identity(judge.lm).model_dump(mode="json").items() if v is not None}


def _reference(
    judge: Judge, question: str | None, context: Any, answer: str, raw_judgment: RawJudgment | dict[str, Any]
) -> dict[str, Any]:
    chunks = as_chunks(context)
    raw_judgment = RawJudgment.model_validate(raw_judgment).without_usage()
    judgment = judge.score_answer(raw_judgment, chunks, question)
    return {
        "question": question,
        "context": [c.text for c in chunks],
        "answer": answer,
        "raw_judgment": raw_judgment.model_dump(mode="json"),
        **{name: getattr(judgment, name) for name in _REPRODUCED},
    }


def _reproduce(judge: Judge, references: Sequence[_Reference], folder: Path) -> None:
    """Score the stored `RawJudgment`s again; the same numbers must come out."""
    for i, r in enumerate(references):
        try:
            now = judge.score_answer(r.raw_judgment, as_chunks(r.context), r.question)
        except (ArithmeticError, LookupError, TypeError, ValueError) as exc:
            raise ArtifactError(f"{folder / 'judge.json'}: reference {i} cannot be scored ({_fault(exc)}).") from exc
        for name in _REPRODUCED:
            was, is_ = getattr(r, name), getattr(now, name)
            numbers = isinstance(was, float) and isinstance(is_, float)
            if was != is_ and not (numbers and math.isclose(was, is_, abs_tol=_TOLERANCE)):
                raise ArtifactError(
                    f"{folder}: reference {i} had {name} {was!r} when it was exported and has {is_!r} now. Either "
                    f"judge.json was altered, or this faith_dspy ({metadata.version('faith_dspy')}) measures features "
                    f"otherwise than {judge.manifest.get('versions', {}).get('faith_dspy')}, which exported it."
                )


def _object(text: bytes, path: Path) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError as exc:
        raise ArtifactError(f"{path}: {exc}; the export was cut off or altered. Export it again.") from exc
    if not isinstance(value, dict):
        raise ArtifactError(f"{path}: got {type(value).__name__}, expected an object. Export the judge again.")
    return value


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ArtifactError(
            f"{path}: cannot be read ({(exc.strerror or str(exc)).lower()}). A judge is a folder with judge.json, "
            "program.json and CARD.md, as `faith-dspy tune` writes it."
        ) from exc


def _plain_card(judge: Judge) -> str:
    asked = f"asked of `{portable(judge.lm_name)}`" if judge.asks_lm else "by lexical features alone, no LM"
    then = " What it is unsure of goes to the judge in `escalate_to/`." if judge.escalate_to else ""
    unit = judge.config.granularity.value
    judges = f"{describe_fit(judge.classifier).capitalize()}: {unit} by {unit}, {asked}."
    return f"# Faithfulness judge\n\n{judges} Its agreement with people has not been measured.{then}\n"


def is_missing(uri: str) -> bool:
    """Whether a store is a SQLite file that is not there, and that MLflow would make to read it."""
    file = re.fullmatch(r"sqlite:///([^?]+).*", uri)
    return file is not None and not Path(file[1]).is_file()


def download_judge(uri: str) -> Path:
    """The folder of the judge in ``models:/…`` or ``runs:/…``. `ArtifactError` where there is none."""
    mlflow = need("mlflow", f"Loading {uri}")
    store = str(mlflow.get_tracking_uri())
    try:
        if is_missing(store):
            raise FileNotFoundError("there is no such file")
        folder = Path(mlflow.artifacts.download_artifacts(uri))
    except Exception as exc:
        raise ArtifactError(
            without_secrets(f"{uri}: cannot be downloaded from the MLflow store {store!r} ({exc}). ")
            + "If the judge is in another store, set MLFLOW_TRACKING_URI."
        ) from exc
    found = min(folder.rglob("judge.json"), key=lambda path: len(path.parts), default=None)
    if found is None:
        raise ArtifactError(f"{uri}: holds no judge.json; it was not exported by faith_dspy.")
    return found.parent
