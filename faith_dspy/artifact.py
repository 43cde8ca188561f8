"""Save and load judges: a folder of JSON and Markdown, nothing executable inside.

``judge.json``    format version, config, classifier (numbers), LM, label set, agreement, versions, reference judgments
``program.json``  DSPy state: instructions and demos
``CARD.md``       the same for people
``escalate_to/``  the judge that answers are escalated to, if any: a folder like this
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ArtifactError, InputError, MissingExtraError
from faith_dspy.io.labels import as_chunks
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.schema import RawJudgment, Usage
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.upgrade import upgraded_manifest, upgraded_program

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT_VERSION = 2
"""Raise it when the meaning of a stored field changes, and add the step from the version before to `upgrade`."""
_REPRODUCED = ("score", "probability", "faithful")
_TOLERANCE = 1e-6
_NEXT = "escalate_to"
_WRITTEN = frozenset(
    {"sha256", "format_version", "config", "classifier", "lm", "program_sha256", "reference", "escalate_to_sha256"}
)
"""Keys of a manifest that saving writes; whatever else a study put there is kept."""


def save_judge(judge: Judge, folder: str | Path, *, card: str | None = None, reference: Sequence[Any] = ()) -> None:
    """Write ``judge`` to ``folder`` (made if missing).

    ``reference``: (question, context, answer, `RawJudgment`) of a few answers; their judgments are stored, and loading
    has to reproduce them. The LM is stored by name and hash only – no key, no address.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    program = _dump(judge)
    next_sha256 = None
    if judge.escalate_to is not None:
        save_judge(judge.escalate_to, folder / _NEXT)
        next_sha256 = _read(folder / _NEXT / "judge.json")["sha256"]
    elif (folder / _NEXT / "judge.json").is_file():
        shutil.rmtree(folder / _NEXT)  # of an older export
    # Stored answers are scored again: a copy of a loaded judge may have another config or classifier.
    kept = [(r["question"], r["context"], r["answer"], r["raw_judgment"]) for r in judge.manifest.get("reference", [])]
    document = {
        "format_version": FORMAT_VERSION,
        "config": judge.config.model_dump(mode="json"),
        "classifier": judge.classifier.model_dump(mode="json") if judge.classifier else None,
        "lm": {"model": _portable(judge.lm_name), **_identity(judge)},
        "program_sha256": hashlib.sha256(program).hexdigest(),
        **({"escalate_to_sha256": next_sha256} if next_sha256 else {}),
        "versions": {name: metadata.version(name) for name in ("faith_dspy", "dspy", "pydantic")},
        **{k: v for k, v in judge.manifest.items() if k not in _WRITTEN},
        "reference": [_reference(judge, *r) for r in reference or kept],
    }
    document["sha256"] = _content(document)
    (folder / "program.json").write_bytes(program)
    (folder / "judge.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "CARD.md").write_text(card or judge.manifest.get("card") or _plain_card(judge), encoding="utf-8")


def load_judge(source: str | Path, *, lm: Any = None, api_base: str | None = None, api_key: str | None = None) -> Judge:
    """Load a judge from a folder, or from MLflow's registry (``models:/faithfulness@champion``).

    ``lm`` replaces the LM it was tuned on, in a chain of judges the first one, wherever that is asked; ``api_base`` and
    ``api_key`` are that LM's, too. Thresholds were fitted to the LM it was tuned on, so expect less of another.

    Raises `ArtifactError` when files are missing or altered, or the stored judgments are not reproduced. The LM is not
    contacted before the first judgment.
    """
    registered = str(source).startswith(("models:/", "runs:/"))
    folder = _from_mlflow(str(source)) if registered else Path(source)
    return _load(folder, lm, api_base, api_key)


def _load(folder: Path, lm: Any, api_base: str | None, api_key: str | None, replaced: str = NO_LM) -> Judge:
    """``replaced``: the model whose place ``lm``, ``api_base`` and ``api_key`` take; the first that is one, if none."""
    manifest = _read(folder / "judge.json")
    version = manifest.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads 1 to "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    if manifest.get("sha256") != _content(manifest):
        raise _altered(folder / "judge.json", "its content is not what its SHA-256 says; it was altered")
    raw = _bytes(folder / "program.json")
    if hashlib.sha256(raw).hexdigest() != manifest.get("program_sha256"):
        raise _altered(folder / "program.json", "its SHA-256 is not the one judge.json names; it was altered")
    state = upgraded_program(json.loads(raw), version)
    manifest = upgraded_manifest(manifest, folder)
    try:
        config = JudgeConfig.model_validate(manifest["config"])
        classifier = Classifier.model_validate(manifest["classifier"]) if manifest["classifier"] else None
        stored = manifest["lm"]["model"]
    except (KeyError, TypeError, ValidationError) as exc:
        raise ArtifactError(f"{folder / 'judge.json'}: {exc}. Take the folder from where it was exported.") from exc
    replaced = stored if replaced == NO_LM else replaced
    given = {"lm": lm, "api_base": api_base, "api_key": api_key} if stored == replaced != NO_LM else {}
    following = None
    if wanted := manifest.get("escalate_to_sha256"):
        following = _load(folder / _NEXT, lm, api_base, api_key, replaced)
        if following.manifest["sha256"] != wanted:
            raise _altered(folder / _NEXT, "is not the judge that answers are escalated to; it was replaced")
    made: dict[str, Any] = {"config": config, "classifier": classifier, "manifest": manifest, "escalate_to": following}
    judge = Judge(given.pop("lm", None) or stored, **given, **made)
    if state:
        try:
            judge.program.load_state(state)
        except (KeyError, ValueError, TypeError) as exc:
            raise ArtifactError(f"{folder / 'program.json'}: does not fit this program ({exc!r}).") from exc
    _reproduce(judge, folder)
    wanted = manifest["lm"].get("sha256")
    if (lm is None or stored != replaced) and judge.lm_name == "local" and wanted is not None:
        from faith_dspy.lm.files import EMBEDDED

        if wanted != EMBEDDED.sha256:
            raise ArtifactError(
                f"{folder}: was tuned on the model file with SHA-256 {wanted[:12]}…, the embedded one has "
                f"{EMBEDDED.sha256[:12]}…. Give the file it was tuned on: load_judge(…, lm='local:FILE.gguf')."
            )
    return judge


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
    from faith_dspy.lm import identity

    if "lm" not in vars(judge):
        known: dict[str, Any] = judge.manifest.get("lm") or {}
        return known if known.get("model") == _portable(judge.lm_name) else {}
    return {k: v for k, v in identity(judge.lm).model_dump(mode="json").items() if v is not None}


def _portable(model: str) -> str:
    """No absolute path: of ``local:/home/me/model.gguf`` the file's name is kept."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


def _reference(
    judge: Judge, question: str | None, context: Any, answer: str, raw_judgment: RawJudgment | dict[str, Any]
) -> dict[str, Any]:
    chunks = as_chunks(context)
    raw_judgment = _without_usage(RawJudgment.model_validate(raw_judgment))
    judgment = judge.score_answer(raw_judgment, chunks, question)
    return {
        "question": question,
        "context": [c.text for c in chunks],
        "answer": answer,
        "raw_judgment": raw_judgment.model_dump(mode="json"),
        **{name: getattr(judgment, name) for name in _REPRODUCED},
    }


def _without_usage(raw: RawJudgment) -> RawJudgment:
    """Costs differ each time."""
    escalated = None if raw.escalated is None else _without_usage(raw.escalated)
    raw_verdicts = tuple(v.model_copy(update={"usage": Usage()}) for v in raw.raw_verdicts)
    none = {"usage": Usage(), "extraction": Usage(), "raw_verdicts": raw_verdicts, "escalated": escalated}
    return raw.model_copy(update=none)


def _reproduce(judge: Judge, folder: Path) -> None:
    """Score the stored `RawJudgment`s again; the same numbers must come out."""
    for i, r in enumerate(judge.manifest.get("reference", [])):
        try:
            raw_judgment = RawJudgment.model_validate(r["raw_judgment"])
            chunks, question = as_chunks(r["context"]), r["question"]
        except (KeyError, TypeError, InputError, ValidationError) as exc:
            raise ArtifactError(f"{folder / 'judge.json'}: reference {i} cannot be read ({exc!r}).") from exc
        now = judge.score_answer(raw_judgment, chunks, question)
        for name in _REPRODUCED:
            was, is_ = r.get(name), getattr(now, name)
            numbers = isinstance(was, float) and isinstance(is_, float)
            if was != is_ and not (numbers and math.isclose(was, is_, abs_tol=_TOLERANCE)):
                raise ArtifactError(
                    f"{folder}: reference {i} had {name} {was!r} when it was exported and has {is_!r} now. Either "
                    f"judge.json was altered, or this faith_dspy ({metadata.version('faith_dspy')}) measures features "
                    f"otherwise than {judge.manifest.get('versions', {}).get('faith_dspy')}, which exported it."
                )


def _from_mlflow(uri: str) -> Path:
    try:
        import mlflow
    except ImportError as exc:
        raise MissingExtraError("mlflow", "tune", f"Loading {uri}") from exc
    try:
        folder = Path(mlflow.artifacts.download_artifacts(uri))
    except Exception as exc:
        raise ArtifactError(
            f"{uri}: MLflow cannot give it ({exc}). The tracking store asked is {mlflow.get_tracking_uri()!r}; "
            "set MLFLOW_TRACKING_URI if it is another."
        ) from exc
    found = min(folder.rglob("judge.json"), key=lambda path: len(path.parts), default=None)
    if found is None:
        raise ArtifactError(f"{uri}: holds no judge.json; it was not exported by faith_dspy.")
    return found.parent


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_bytes(path))
    except ValueError as exc:
        raise ArtifactError(f"{path}: not JSON ({exc}); the export was cut off or altered. Export it again.") from exc
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
    kind = "Untuned" if judge.classifier is None else "Tuned"
    asked = f"asked of `{_portable(judge.lm_name)}`" if judge.asks_lm else "by lexical features alone, no LM"
    then = " What it is unsure of goes to the judge in `escalate_to/`." if judge.escalate_to else ""
    return (
        f"# Faithfulness judge\n\n{kind}: {judge.config.granularity.value} by {judge.config.granularity.value}, "
        f"{asked}. Its agreement with people has not been measured.{then}\n"
    )
