"""Save and load judges: a folder of JSON and Markdown, nothing executable inside.

``judge.json``    format version, config, head (numbers), LM, label set, agreement, versions, reference judgments
``program.json``  DSPy state: instructions and demos
``CARD.md``       the same for people
"""

from __future__ import annotations

import hashlib
import json
import math
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.calibration import Head
from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ArtifactError, InputError
from faith_dspy.judge import Judge
from faith_dspy.labels import as_chunks
from faith_dspy.schema import Observation, Usage
from faith_dspy.scoring import conclude

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT_VERSION = 1
"""Raise it when the meaning of a stored field changes, and add the step from the version before to `_upgrade`.

Fields that are only added need no new version.
"""
_TOLERANCE = 1e-6
_WRITTEN = frozenset({"sha256", "format_version", "config", "head", "lm", "program_sha256", "reference"})
"""Of a manifest what is written anew on saving; whatever else a study put there is kept."""


def save_judge(judge: Judge, folder: str | Path, *, card: str | None = None, reference: Sequence[Any] = ()) -> None:
    """Write ``judge`` to ``folder`` (made if missing).

    ``reference``: (question, context, answer, `Observation`) of a few answers; their judgments are stored, and loading
    has to reproduce them. The LM is stored by name and hash only – no key, no address.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    program = _dump(judge)
    # Stored ones are concluded anew: a copy of a loaded judge may have another config or head.
    kept = [(r["question"], r["context"], r["answer"], r["observation"]) for r in judge.manifest.get("reference", [])]
    document = {
        "format_version": FORMAT_VERSION,
        "config": judge.config.model_dump(mode="json"),
        "head": judge.head.model_dump(mode="json") if judge.head else None,
        "lm": {"model": _portable(judge.lm_name), **_identity(judge)},
        "program_sha256": hashlib.sha256(program).hexdigest(),
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

    ``lm`` replaces the LM it was tuned on – its thresholds were fitted to that one, so expect less of another.
    Raises `ArtifactError` when files are missing or altered, or the stored judgments are not reproduced. The LM is not
    contacted before the first judgment.
    """
    registered = str(source).startswith(("models:/", "runs:/"))
    folder = _from_mlflow(str(source)) if registered else Path(source)
    manifest = _read(folder / "judge.json")
    version = manifest.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads 1 to "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    if manifest.get("sha256") != _content(manifest):
        raise ArtifactError(
            f"{folder / 'judge.json'}: its content is not what its SHA-256 says; it was altered after the export. "
            "Take the folder from where it was exported."
        )
    raw = _bytes(folder / "program.json")
    if hashlib.sha256(raw).hexdigest() != manifest.get("program_sha256"):
        raise ArtifactError(
            f"{folder / 'program.json'}: its SHA-256 is not the one judge.json names; it was altered after the export. "
            "Take the folder from where it was exported."
        )
    try:
        config = JudgeConfig.model_validate(manifest["config"])
        head = Head.model_validate(manifest["head"]) if manifest["head"] else None
        name = lm or manifest["lm"]["model"]
    except (KeyError, TypeError, ValidationError) as exc:
        raise ArtifactError(f"{folder / 'judge.json'}: {exc}. Take the folder from where it was exported.") from exc
    judge = Judge(name, api_base=api_base, api_key=api_key, config=config, head=head, manifest=manifest)
    state = json.loads(raw)
    if state:
        try:
            judge.program.load_state(state)
        except (KeyError, ValueError, TypeError) as exc:
            raise ArtifactError(f"{folder / 'program.json'}: does not fit this program ({exc!r}).") from exc
    _reproduce(judge, folder)
    if lm is None:
        _same_model_file(judge, folder)
    return judge


def _content(document: dict[str, Any]) -> str:
    """SHA-256 of everything in judge.json but itself."""
    rest = {k: v for k, v in document.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _dump(judge: Judge) -> bytes:
    """DSPy state of the program; empty for a judge that asks the seed prompts as they are."""
    state = {} if judge._program is None else judge.program.dump_state()
    for predictor in state.values():
        if isinstance(predictor, dict) and "signature" in predictor:
            predictor["lm"] = None
            predictor["traces"] = predictor["train"] = []
    return (json.dumps(state, indent=2, ensure_ascii=False, default=list) + "\n").encode()


def _identity(judge: Judge) -> dict[str, Any]:
    """What is known of the LM; of one that was not made yet, what the export it was loaded from knew."""
    from faith_dspy.lm import identity

    if judge._lm is None:
        known: dict[str, Any] = judge.manifest.get("lm") or {}
        return known if known.get("model") == _portable(judge.lm_name) else {}
    return {k: v for k, v in identity(judge.lm).model_dump(mode="json").items() if v is not None}


def _portable(model: str) -> str:
    """No absolute path: of ``local:/home/me/model.gguf`` the file's name is kept."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


def _reference(
    judge: Judge, question: str | None, context: Any, answer: str, observation: Observation | dict[str, Any]
) -> dict[str, Any]:
    chunks = as_chunks(context)
    observation = _without_usage(Observation.model_validate(observation))
    judgment = conclude(observation, chunks, question, judge.config, judge.head)
    return {
        "question": question,
        "context": [c.text for c in chunks],
        "answer": answer,
        "observation": observation.model_dump(mode="json"),
        "score": judgment.score,
        "probability": judgment.probability,
        "faithful": judgment.faithful,
    }


def _without_usage(seen: Observation) -> Observation:
    """What it cost is not the same each time."""
    findings = tuple(f.model_copy(update={"usage": Usage()}) for f in seen.findings)
    return seen.model_copy(update={"usage": Usage(), "extraction": Usage(), "findings": findings})


def _reproduce(judge: Judge, folder: Path) -> None:
    """Draw the stored conclusions again from the stored observations: same code, same numbers, same judgment."""
    for i, r in enumerate(judge.manifest.get("reference", [])):
        try:
            observation = Observation.model_validate(r["observation"])
            chunks, question = as_chunks(r["context"]), r["question"]
        except (KeyError, TypeError, InputError, ValidationError) as exc:
            raise ArtifactError(f"{folder / 'judge.json'}: reference {i} cannot be read ({exc!r}).") from exc
        now = conclude(observation, chunks, question, judge.config, judge.head)
        for name in ("score", "probability", "faithful"):
            was, is_ = r.get(name), getattr(now, name)
            same = was == is_ or (
                isinstance(was, float) and isinstance(is_, float) and math.isclose(was, is_, abs_tol=_TOLERANCE)
            )
            if not same:
                raise ArtifactError(
                    f"{folder}: reference {i} had {name} {was!r} when it was exported and has {is_!r} now. Either "
                    f"judge.json was altered, or this faith_dspy ({metadata.version('faith_dspy')}) measures signals "
                    f"otherwise than {judge.manifest.get('versions', {}).get('faith_dspy')}, which exported it."
                )


def _same_model_file(judge: Judge, folder: Path) -> None:
    """The embedded model's known hash against the one the judge was tuned on."""
    wanted = judge.manifest["lm"].get("sha256")
    if judge.lm_name == "local" and wanted is not None:
        from faith_dspy.lm.files import EMBEDDED

        if wanted != EMBEDDED.sha256:
            raise ArtifactError(
                f"{folder}: was tuned on the model file with SHA-256 {wanted[:12]}…, the embedded one has "
                f"{EMBEDDED.sha256[:12]}…. Give the file it was tuned on: load_judge(…, lm='local:FILE.gguf')."
            )


def _from_mlflow(uri: str) -> Path:
    from faith_dspy.errors import MissingExtraError

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
    found = next(iter(sorted(folder.rglob("judge.json"))), None)
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
    return (
        f"# Faithfulness judge\n\nUntuned: {judge.config.granularity.value} by {judge.config.granularity.value}, "
        f"asked of `{_portable(judge.lm_name)}`. Its agreement with people has not been measured.\n"
    )
