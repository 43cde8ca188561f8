"""Save and load judges: a folder of JSON and Markdown, nothing executable inside.

``judge.json``    a `Manifest`: options, classifier, LM, label set, agreement, versions, stored judgments, content hash
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, TypeAdapter, ValidationError, field_validator

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import (
    ArtifactError,
    ConfigError,
    InputError,
    describe_invalid,
    need,
    redact_secrets,
)
from faith_dspy.io.files import check_folder, write_files
from faith_dspy.io.inputs import as_chunks
from faith_dspy.io.readers import read_json
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm import LOCAL_SHA256
from faith_dspy.lm.addresses import is_provider
from faith_dspy.lm.capabilities import Capabilities
from faith_dspy.lm.make import identity
from faith_dspy.schema import RawJudgment
from faith_dspy.scoring.classifier import Classifier, describe_fit

FILES = ("judge.json", "program.json", "CARD.md", "study.json")
"""All that an export consists of, with the same of the judge it escalates to; ``study.json`` where a study made it."""
FORMAT_VERSION = 1
"""Raise it when the meaning of a stored field changes."""
_NEXT = "escalate_to"
_REPRODUCED = ("score", "probability", "faithful")
_VERSIONED = ("faith_dspy", "dspy", "pydantic")
log = logging.getLogger(__name__)


def without_path(model: str) -> str:
    """Return the model string without an absolute path: of ``local:FOLDER/FILE.gguf`` the file's name is kept."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


class LMName(BaseModel):
    """The LM that a judge asks, without its address."""

    model: str
    name: str | None = None
    sha256: str | None = None
    api_base_hash: str | None = None
    context_window: int | None = None
    """Tokens, where the judge was given one."""
    capabilities: Capabilities | None = None
    """What was found out about it."""

    @field_validator("model")
    @classmethod
    def _no_place(cls, model: str) -> str:
        if model != without_path(model) or "://" in model:
            raise ValueError(f"the LM name {model!r} contains a path or URL")
        return model


class Reference(BaseModel):
    """A stored judgment, which loading has to reproduce from what the LM said."""

    question: str | None
    context: list[str]
    answer: str
    raw_judgment: RawJudgment
    score: float | None = None
    probability: float | None = None
    faithful: bool | None = None

    @classmethod
    def of(
        cls, judge: Judge, question: Any, context: Any, answer: str, raw_judgment: Any
    ) -> Self:
        """Return the judgment of this judge, now, on what the LM said then."""
        chunks = as_chunks(context)
        raw = RawJudgment.model_validate(raw_judgment).without_usage()
        judgment = judge.score_answer(raw, chunks, question)
        return cls(
            question=question,
            context=[chunk.text for chunk in chunks],
            answer=answer,
            raw_judgment=raw,
            **judgment.model_dump(include=set(_REPRODUCED)),
        )


class Manifest(BaseModel, extra="allow"):
    """``judge.json``. A study adds fields of its own, such as ``agreement``, which are kept as they are."""

    format_version: int = FORMAT_VERSION
    config: JudgeConfig
    classifier: Classifier | None
    lm: LMName
    prompts: str | None = None
    """Hash of the prompts that classifier, thresholds and agreement were fitted with; None: those in the folder."""
    versions: dict[str, str] = {}
    card: str | None = None
    answer_keys: list[str] = []
    reference: list[Reference] = []
    sha256: str = ""
    """Of everything in the folder that a judge is made from."""


class _Export(NamedTuple):
    folder: Path
    document: dict[str, Any]
    manifest: Manifest
    program: dict[str, Any]
    following: _Export | None


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
    contents, _ = _contents(judge, folder, card, reference)
    if study is not None:
        contents[folder / "study.json"] = study
    for path in (folder / _NEXT, *contents):
        if path.is_symlink():
            raise InputError(
                f"{path} is a link to {path.readlink()}: saving would write and delete what lies there. Remove the "
                "link, or save to another folder."
            )
    check_folder(folder)
    write_files(contents)
    for older in list(exported_files(folder / _NEXT)):
        if older not in contents:
            older.unlink()
            with suppress(OSError):  # something else lies in it
                older.parent.rmdir()


def exported_files(folder: Path) -> Iterator[Path]:
    """Yield the files of an export that are there, by name: whatever else lies in the folder is none of it."""
    if (folder / "judge.json").is_file():
        yield from (path for name in FILES if (path := folder / name).is_file())
        if not (folder / _NEXT).is_symlink():
            yield from exported_files(folder / _NEXT)


def _contents(
    judge: Judge, folder: Path, card: str | None, reference: Sequence[Any] = ()
) -> tuple[dict[Path, str | bytes], str]:
    """Return the files of an export, the one that vouches for the others first, and their hash."""
    following: dict[Path, str | bytes] = {}
    next_sha256 = None
    if judge.escalate_to is not None:
        following, next_sha256 = _contents(judge.escalate_to, folder / _NEXT, None)
    prompts = judge.program.prompts_hash if judge.asks_lm else None
    stored = judge.manifest
    if stored.get("prompts") not in (None, prompts):
        # What was measured with other prompts goes.
        stored = {k: v for k, v in stored.items() if k == "answer_keys"}
    # Stored answers are scored again: a copy of a loaded judge may have another config or classifier.
    answers = reference or [
        (one["question"], one["context"], one["answer"], one["raw_judgment"])
        for one in stored.get("reference", [])
    ]
    anew = Manifest.model_fields.keys() - {"card", "answer_keys"}
    manifest = Manifest(
        config=judge.config,
        classifier=judge.classifier,
        lm=LMName(model=without_path(judge.lm_name), **_identity(judge)),
        prompts=prompts,
        versions={name: metadata.version(name) for name in _VERSIONED},
        reference=[Reference.of(judge, *answer) for answer in answers],
        **{name: value for name, value in stored.items() if name not in anew},
    )
    document = manifest.model_dump(mode="json")
    program = json.loads(json.dumps(_program_state(judge), default=list))
    document["sha256"] = _sha256(document, program, next_sha256)
    contents: dict[Path, str | bytes] = {
        folder / name: f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"
        for name, value in (("judge.json", document), ("program.json", program))
    }
    contents[folder / "CARD.md"] = card or stored.get("card") or _plain_card(judge)
    return contents | following, document["sha256"]


def _program_state(judge: Judge) -> dict[str, Any]:
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


def _sha256(
    document: Mapping[str, Any], program: Mapping[str, Any], following: str | None
) -> str:
    parts = [{k: v for k, v in document.items() if k != "sha256"}, program, following]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def open_judge(source: Any, *, lm: Any = None, **options: Any) -> Judge:
    """Return the judge that something stands for: the one way from a name to a judge.

        >>> open_judge("none")
        <Judge 'none', by sentence, default judge, not fitted to your labels>

    Args:
        source: A `Judge`, which is returned as it is; the folder of an exported judge, or its address in MLflow
            (``models:/faithfulness@champion``, ``runs:/…``), which `load_judge` loads; ``none`` (lexical features
            alone), ``local`` or ``default`` (the embedded model with the default classifier), ``local:FILE.gguf``, any
            DSPy model string (``openai/gpt-4o-mini``), or a `dspy.LM`: a new judge that asks it.
        lm: The LM that a loaded judge asks in place of its own.
        options: Keywords of `Judge`: ``api_base``, ``api_key``, ``timeout`` and ``context_window`` for any, the others
            for a new judge alone. An exported one has its own options.

    Returns:
        The judge. No LM has been asked.

    Raises:
        ArtifactError: A path where no judge is.
        ConfigError: Options for a judge that has its own, or something that stands for no judge.
    """
    if isinstance(source, Judge):
        return source
    if isinstance(source, str):
        source = source.strip()
    if isinstance(source, Path) or (isinstance(source, str) and not names_lm(source)):
        own = [name for name in options if name not in _ENDPOINT]
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
_ENDPOINT = ("api_base", "api_key", "timeout", "context_window")
_BARE_MODELS = re.compile(
    r"(?:gpt|o\d|chatgpt|claude|gemini|mistral|command|deepseek|llama|qwen)[\w.:-]*"
)
"""Names of models that LiteLLM knows without a provider."""


def names_lm(name: str) -> bool:
    """Return whether a string names an LM or a judge of ours, and not a place."""
    if name in (NO_LM, "local", "default") or name.startswith(("local:", "typesafe:")):
        return True
    if (
        name.startswith(_IN_MLFLOW)
        or Path(name).is_dir()
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
        timeout: Seconds a call of any LM may take, its retries included.
        context_window: Tokens of any LM's prompt and reply together.
        escalate_to: The LM that the second judge of a cascade asks in place of its own, such as a `dspy.LM` with an
            address of its own.

    Returns:
        The judge. No LM has been asked.

    Raises:
        ArtifactError: Files are missing or altered, or stored judgments are not reproduced.
        ConfigError: ``lm="none"`` in place of an LM, or an LM for a judge that asks none.
    """
    if isinstance(source, str) and names_lm(source.strip()):
        return open_judge(
            source,
            lm=lm,
            api_base=api_base,
            api_key=api_key,
            timeout=timeout,
            context_window=context_window,
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
    asking = [one.manifest.lm for one in exports if one.manifest.lm.model != NO_LM]
    tuned = asking[-1] if asking else None
    if lm is not None and (lm == NO_LM) != (tuned is None):
        made_for = "judges by lexical features only"
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
        settings["context_window"] = context_window or stored.context_window
        is_tuned = tuned is not None and stored.model == tuned.model
        base = stored.api_base_hash
        if export is second and escalate_to is not None:
            settings = {"lm": escalate_to}
        elif is_tuned or (tuned and base and base == tuned.api_base_hash):
            settings |= {"api_base": api_base, "api_key": api_key}
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
    stored, model = manifest.lm, without_path(judge.lm_name)
    sha256 = LOCAL_SHA256.get(judge.lm_name, stored.sha256)
    is_same = model == stored.model and stored.sha256 in (None, sha256)
    fitted = judge.classifier and judge.classifier.statement
    if fitted and "lm" in fitted.names and not is_same:
        log.warning(
            "%s: was fitted to probabilities of %s, and %s is asked. Unless they are the same, measure it anew: "
            "faith-dspy agree.",
            export.folder,
            stored.model,
            "another file of it" if model == stored.model else model,
        )
    return judge


def _read(folder: Path) -> _Export:
    document, program = _object(folder / "judge.json"), _object(folder / "program.json")
    if (version := document.get("format_version")) != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    following = None
    if (folder / _NEXT / "judge.json").is_file():
        following = _read(folder / _NEXT)
    next_sha256 = following and following.manifest.sha256
    try:
        if document.get("sha256") != _sha256(document, program, next_sha256):
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
        about = (before.question, before.context, before.answer, before.raw_judgment)
        now = Reference.of(judge, *about)
        for name in _REPRODUCED:
            old, new = getattr(before, name), getattr(now, name)
            is_same = old == new
            if None not in (old, new):
                is_same = math.isclose(old, new, abs_tol=1e-6)
            if not is_same:
                raise ValueError(
                    f"reference {i} had {name} {old!r} when it was exported and has {new!r} now"
                )


_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a value that somebody changed may raise where it is used."""


def _altered(folder: Path, exc: Exception) -> ArtifactError:
    how = describe_invalid(exc) if isinstance(exc, ValidationError) else str(exc)
    return ArtifactError(
        f"{folder}: was altered after the export, or written by a faith_dspy that measures otherwise ({how}). "
        "Take the folder from where it was exported, or export the judge again."
    )


def _identity(judge: Judge) -> dict[str, Any]:
    """Return what is known of the LM beside its name: by what was asked, else by the export it was loaded from."""
    stored: dict[str, Any] = dict(judge.manifest.get("lm") or {})
    if "lm" in vars(judge):
        stored = identity(judge.lm).model_dump(mode="json")
        stored["capabilities"] = judge.lm.capabilities.model_dump(
            mode="json", exclude_defaults=True
        )
    elif stored.get("model") != without_path(judge.lm_name):
        stored = {}
    stored.pop("model", None)
    window = judge.context_window or stored.get("context_window")
    return stored | {"context_window": window}


def _plain_card(judge: Judge) -> str:
    means = "by lexical features alone, no LM"
    if judge.asks_lm:
        means = f"asked of `{without_path(judge.lm_name)}`"
    then = ""
    if judge.escalate_to:
        then = " What it is unsure of goes to the judge in `escalate_to/`."
    unit = judge.config.granularity.value
    fit = describe_fit(judge.classifier).capitalize()
    return (
        f"# Faithfulness judge\n\n{fit}: {unit} by {unit}, {means}. Its agreement with people has not been "
        f"measured.{then}\n"
    )


def is_missing(uri: str) -> bool:
    """Return whether a store is a SQLite file that is not there, and that MLflow would make to read it."""
    file = re.fullmatch(r"sqlite:///([^?]+).*", uri)
    return file is not None and not Path(file[1]).is_file()


def download_judge(uri: str) -> Path:
    """Return the folder of the judge in ``models:/…`` or ``runs:/…``. `ArtifactError` where there is none."""
    mlflow = need("mlflow", f"Loading {uri}")
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
