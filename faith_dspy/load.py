"""Load judges: the one way from a name, a folder or an address in MLflow to a judge."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Sequence
from importlib import metadata
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter

from faith_dspy.errors import (
    ArtifactError,
    ConfigError,
    describe_invalid,
    import_optional,
    redact_secrets,
)
from faith_dspy.export import (
    FORMAT_VERSION,
    NEXT,
    REPRODUCED,
    Manifest,
    Reference,
    content_hash,
)
from faith_dspy.io.readers import read_json
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm import LOCAL_SHA256
from faith_dspy.lm.addresses import is_provider
from faith_dspy.lm.function import FunctionLM, is_function
from faith_dspy.lm.make import LMIdentity, without_path

log = logging.getLogger(__name__)


class _Export(NamedTuple):
    folder: Path
    document: dict[str, Any]
    manifest: Manifest
    program: dict[str, Any]
    following: _Export | None


def open_judge(source: Any, *, lm: Any = None, **options: Any) -> Judge:
    """Return the judge that something stands for: the one way from a name to a judge.

        >>> open_judge("none")
        <Judge 'none', by sentence, default judge, not fitted to your labels>

    Args:
        source: A `Judge`, which is returned as it is; the folder of an exported judge, or its address in MLflow
            (``models:/faithfulness@champion``, ``runs:/…``), which `load_judge` loads; ``none`` (lexical features
            alone), ``local`` or ``default`` (the embedded model with the default classifier), ``local:FILE.gguf``, any
            DSPy model string (``openai/gpt-4o-mini``), a `dspy.LM`, or a function: a new judge that asks it.
        lm: The LM that a loaded judge asks in place of its own.
        options: Keywords of `Judge`: ``api_base``, ``api_key``, ``timeout``, ``context_window``, ``thinking_tokens``
            for any, the others for a new judge alone. An exported one has its own options; it takes ``function`` and
            ``escalate_to`` as `load_judge` does.

    Returns:
        The judge. No LM has been asked.

    Raises:
        ArtifactError: A path where no judge is.
        ConfigError: Options for a judge that has its own, or something that stands for no judge.
    """
    if isinstance(source, Judge):
        return source
    if isinstance(source, Path) or (isinstance(source, str) and not names_lm(source)):
        of_any = signature(load_judge).parameters
        own = [name for name in options if name not in of_any]
        if own:
            raise ConfigError(
                f"{source} has its own options: leave out {', '.join(own)}."
            )
        return load_judge(source, lm=lm, **options)
    if lm is not None:
        raise ConfigError(
            f"got the judge {source!r} and lm={lm!r}: one of them names the LM. Leave out the other."
        )
    return Judge("local" if source == "default" else source, **options)


_IN_MLFLOW = ("models:/", "runs:/")
_BARE_MODELS = re.compile(
    r"(?:gpt|o\d|chatgpt|claude|gemini|mistral|command|deepseek|llama|qwen)[\w.:-]*"
)
"""Names of models that LiteLLM knows without a provider."""


def names_lm(name: str) -> bool:
    """Return whether a string names an LM or a judge of ours, and not a place."""
    name = name.strip()
    if name in (NO_LM, "local", "default") or name.startswith("local:"):
        return True
    if is_function(name):
        return True
    if (
        name.startswith(_IN_MLFLOW)
        or os.path.isdir(name)  # noqa: PTH112 - False where a path cannot be that long
        or re.match(r"[./~\\]|[A-Za-z]:\\", name)
    ):
        return False
    provider, slash, model = name.partition("/")
    if not slash:
        return _BARE_MODELS.fullmatch(name) is not None
    return bool(model) and is_provider(provider)


def load_judge(
    source: str | Path,
    *,
    lm: Any = None,
    api_base: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    context_window: int | None = None,
    thinking_tokens: int | None = None,
    function: Any = None,
    escalate_to: Any = None,
) -> Judge:
    """Load a judge from a folder, or from MLflow's registry (``models:/faithfulness@champion``).

    Of ``program.json`` only instructions and demos are taken. The LM's name in ``judge.json`` counts where the caller
    gives none; an address is only ever the caller's. Thresholds were fitted to the LM it was tuned on, so expect less
    of another.

        >>> judge = load_judge("judges/champion")  # doctest: +SKIP
        >>> judge(context=["The kettle is blue."], answer="It is red.").faithful  # doctest: +SKIP
        False

    Args:
        source: The folder, or the address in MLflow. Names such as ``none`` and ``local`` are taken, too: see
            `open_judge`.
        lm: In place of the LM it was tuned on, of a cascade the first one, wherever that is asked.
        api_base: That LM's address, and that of a second LM at the same one.
        api_key: Its key.
        timeout: Seconds to wait for a reply of any LM to begin or go on.
        context_window: Tokens of any LM's prompt and reply together.
        thinking_tokens: Room for any LM's thoughts.
        function: What a judge asks that was tuned on a function (`faith_dspy.lm.function`), itself or as
            ``"package.module:function"``: the name in the export is never imported. Without it, the judge can be read,
            and its first judgment raises
            `LMUnavailableError`.
        escalate_to: The LM that the second judge of a cascade asks in place of its own, such as a `dspy.LM` with an
            address of its own.

    Returns:
        The judge. No LM has been asked.

    Raises:
        ArtifactError: Files are missing or altered, or stored judgments are not reproduced.
        ConfigError: ``lm="none"`` in place of an LM, or an LM for a judge that asks none.
    """
    address = {"api_base": api_base, "api_key": api_key}
    if isinstance(source, str) and names_lm(source):
        return open_judge(
            source,
            lm=lm,
            timeout=timeout,
            context_window=context_window,
            thinking_tokens=thinking_tokens,
            **address,
        )
    if not isinstance(source, str | Path):
        raise ConfigError(
            f"the judge is {source!r}; expected its folder, or models:/name@alias from MLflow."
        )
    folder = Path(source)
    if str(source).startswith(_IN_MLFLOW):
        folder = download_judge(str(source))
    first = _read(folder.expanduser())
    second = first.following
    exports = [first] if second is None else [second, first]
    stored_lms = [one.manifest.lm for one in exports]
    if function is not None and not any(is_function(one.model) for one in stored_lms):
        raise ConfigError(
            f"{folder}: asks no function, got function={function!r}. Leave it out."
        )
    tuned = None  # the first that asks an LM
    for stored in stored_lms:
        if stored.model != NO_LM and not is_function(stored.model):
            tuned = stored
    if lm is not None and (lm == NO_LM) != (tuned is None):
        made_for = "asks no LM"
        if tuned:
            made_for = f"was tuned on replies of {tuned.model}"
        raise ConfigError(f"{folder}: {made_for}, got lm={lm!r}. Leave out lm= (--lm).")
    if escalate_to is not None and second is None:
        raise ConfigError(
            f"{folder}: escalates to no other judge, got escalate_to={escalate_to!r}. Leave it out."
        )
    judge = None
    for export in exports:
        stored = export.manifest.lm
        settings: dict[str, Any] = {"lm": stored.model}
        if is_function(stored.model):  # it is only ever the caller's
            settings["lm"] = FunctionLM(stored.model, stored.sha256, stored.version)
            if function is not None:
                settings["lm"] = FunctionLM.of(function)
        settings["context_window"] = context_window or stored.context_window
        settings["thinking_tokens"] = thinking_tokens or stored.thinking_tokens
        is_tuned = tuned is not None and stored.model == tuned.model
        base = stored.api_base_hash
        if export is second and escalate_to is not None:
            settings = {"lm": escalate_to}
        elif is_tuned or (tuned and base and base == tuned.api_base_hash):
            settings |= address
            if is_tuned and lm is not None:
                settings["lm"] = lm
        judge = _build(export, escalate_to=judge, timeout=timeout, **settings)
    assert judge is not None
    return judge


def _build(export: _Export, **settings: Any) -> Judge:
    """Return the judge of an export; ``settings`` are keywords of `Judge`."""
    manifest = export.manifest
    try:
        judge = Judge(
            config=manifest.config,
            classifier=manifest.classifier,
            manifest=export.document,
            **settings,
        )
        _load_prompts(judge, export.program)
        if judge.asks_lm:
            prompts = manifest.prompts or judge.program.prompts_hash
            judge.manifest["prompts"] = prompts
            judge.classifier = manifest.classifier
        _reproduce(judge, manifest.reference)
    except _FAULTS as exc:
        raise _altered(export.folder, exc) from exc
    _warn_of_another_lm(judge, manifest.lm, export.folder)
    return judge


def _warn_of_another_lm(judge: Judge, tuned: LMIdentity, folder: Path) -> None:
    """Warn where a classifier was fitted to probabilities of another LM than the one that is asked."""
    sha256 = LOCAL_SHA256.get(judge.lm_name, tuned.sha256)
    if judge.function is not None:
        sha256 = judge.function.sha256
    asked = without_path(judge.lm_name)
    if asked == tuned.model:
        if tuned.sha256 in (None, sha256):
            return
        asked = "another version of it"
    if judge.classifier and "lm" in judge.classifier.statement.names:
        log.warning(
            "%s: was fitted to probabilities of %s, and %s is asked. Unless they are the same, measure it anew: "
            "faith-dspy agree.",
            folder,
            tuned.model,
            asked,
        )


def _read(folder: Path) -> _Export:
    document, program = _object(folder / "judge.json"), _object(folder / "program.json")
    if (version := document.get("format_version")) != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    following = next_sha256 = None
    if (folder / NEXT / "judge.json").is_file():
        following = _read(folder / NEXT)
        next_sha256 = following.manifest.sha256
    try:
        if document.get("sha256") != content_hash(document, program, next_sha256):
            raise ValueError("its content does not have the SHA-256 in judge.json")
        manifest = Manifest.model_validate(document)
    except _FAULTS as exc:
        raise _altered(folder, exc) from exc
    return _Export(folder, document, manifest, program, following)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError(f"got {type(value).__name__}, expected an object")
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ArtifactError(
            f"{path}: cannot be read ({reason}). A judge is a folder with judge.json, program.json and CARD.md, as "
            "`faith-dspy tune` writes it; check the path, or export it again if it was cut off."
        ) from exc
    return value


class _Signature(BaseModel):
    instructions: str


class _Prompt(BaseModel):
    """What is used of ``program.json``, for each predictor."""

    signature: _Signature
    demos: list[dict[str, Any]]


def _load_prompts(judge: Judge, program: dict[str, Any]) -> None:
    """Give the program its instructions and demos, and nothing else: DSPy's own loader takes an LM and its settings."""
    predictors = judge.program.prompts if judge.asks_lm else {}
    if program.keys() != predictors.keys():
        raise ValueError(
            f"program.json has the predictors {sorted(program)}, expected {sorted(predictors)}"
        )
    for name, predictor in predictors.items():
        prompt = _Prompt.model_validate(program[name])
        signature, demos = predictor.signature, []
        for stored in prompt.demos:
            demo = {k: v for k, v in stored.items() if k in signature.fields}
            for name, value in demo.items():
                kind = TypeAdapter(signature.fields[name].annotation)
                kind.validate_json(json.dumps(value), strict=True)
            demos.append(demo)
        instructions = prompt.signature.instructions
        predictor.signature = signature.with_instructions(instructions)
        predictor.demos = demos


def _reproduce(judge: Judge, stored: Sequence[Reference]) -> None:
    """Score the stored `RawJudgment`s again; the same numbers must come out."""
    for i, before in enumerate(stored):
        now = before.anew(judge)
        for name in REPRODUCED:
            old, new = getattr(before, name), getattr(now, name)
            is_close = None not in (old, new) and math.isclose(old, new, abs_tol=1e-6)
            if old != new and not is_close:
                raise ValueError(
                    f"reference {i} had {name} {old!r} when it was exported and has {new!r} now"
                )


_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a value that somebody changed may raise where it is used."""


def _altered(folder: Path, exc: Exception) -> ArtifactError:
    return ArtifactError(
        f"{folder}: was altered after the export, or written by a faith_dspy that measures otherwise "
        f"({describe_invalid(exc)}). "
        "Take the folder from where it was exported, or export the judge again."
    )


def is_missing(uri: str) -> bool:
    """Return whether a store is a SQLite file that is not there, and that MLflow would make to read it."""
    file = re.fullmatch(r"sqlite:///([^?]+).*", uri)
    return file is not None and not Path(file[1]).is_file()


def download_judge(uri: str) -> Path:
    """Return the folder of the judge in ``models:/…`` or ``runs:/…``. `ArtifactError` where there is none."""
    mlflow = import_optional("mlflow", f"Loading {uri}")
    store = str(mlflow.get_tracking_uri())
    try:
        if is_missing(store):
            raise FileNotFoundError("there is no such file")
        folder = Path(mlflow.artifacts.download_artifacts(uri))
    except Exception as exc:
        what = f"{uri}: cannot be downloaded from the MLflow store {store!r} ({exc})."
        raise ArtifactError(
            f"{redact_secrets(what)} If the judge is in another store, set MLFLOW_TRACKING_URI."
        ) from exc
    documents = sorted(folder.rglob("judge.json"), key=lambda path: len(path.parts))
    if not documents:
        raise ArtifactError(
            f"{uri}: holds no judge.json; it was not exported by faith_dspy."
        )
    return documents[0].parent
