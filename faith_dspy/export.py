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
    describe_invalid,
    need,
    redact_secrets,
)
from faith_dspy.io.files import check_folder, write_files
from faith_dspy.io.inputs import as_chunks
from faith_dspy.io.readers import read_json
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm import LOCAL_SHA256
from faith_dspy.lm.addresses import base_from_environment, is_provider
from faith_dspy.lm.capabilities import Capabilities
from faith_dspy.lm.make import identity
from faith_dspy.schema import RawJudgment
from faith_dspy.scoring.classifier import Classifier, describe_fit

FILES = ("judge.json", "program.json", "CARD.md", "study.json")
"""All that an export consists of, with the same of the judge it escalates to; ``study.json`` where a study made it."""
FORMAT_VERSION = 1
"""Raise it when the meaning of a stored field changes."""
_NEXT = "escalate_to"
log = logging.getLogger(__name__)


def without_path(model: str) -> str:
    """The model string without an absolute path: of ``local:FOLDER/FILE.gguf`` the file's name is kept."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


def require_endpoint(
    tuned: Mapping[str, Any] | None, model: str, api_base: str | None
) -> None:
    """Refuse to ask elsewhere what was tuned at an address of the user's own; ``tuned``: the LM of an export."""
    own = tuned and tuned.get("api_base_hash") and tuned.get("model") == model
    if own and not (api_base or base_from_environment(model)):
        raise ConfigError(
            f"the judge was tuned on {model} at an address of your own, which exports do not hold; contexts are sent "
            "nowhere else: give it with api_base=, on the command line --api-base."
        )


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
        cls,
        judge: Judge,
        question: str | None,
        context: Any,
        answer: str,
        raw_judgment: Any,
    ) -> Self:
        """The judgment of this judge, now."""
        chunks = as_chunks(context)
        raw = RawJudgment.model_validate(raw_judgment).without_usage()
        found = judge.score_answer(raw, chunks, question).model_dump(
            include={"score", "probability", "faithful"}
        )
        return cls(
            question=question,
            context=[c.text for c in chunks],
            answer=answer,
            raw_judgment=raw,
            **found,
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
    check_folder(folder)
    write_files(contents)
    for older in [
        path for path in exported_files(folder / _NEXT) if path not in contents
    ]:
        older.unlink()
        with suppress(OSError):  # something else lies in it
            older.parent.rmdir()


def exported_files(folder: Path) -> Iterator[Path]:
    """The files of an export that are there, by name: whatever else lies in the folder is none of it."""
    if (folder / "judge.json").is_file():
        yield from (path for name in FILES if (path := folder / name).is_file())
        yield from exported_files(folder / _NEXT)


def _contents(
    judge: Judge, folder: Path, card: str | None, reference: Sequence[Any] = ()
) -> tuple[dict[Path, str | bytes], str]:
    """The files of an export, the one that vouches for the others first, and their hash."""
    following: dict[Path, str | bytes] = {}
    next_sha256 = None
    if judge.escalate_to is not None:
        following, next_sha256 = _contents(judge.escalate_to, folder / _NEXT, None)
    hashed = judge.program.prompts_hash if judge.asks_lm else None
    said = judge.manifest
    if said.get("prompts") not in (
        None,
        hashed,
    ):  # what was measured with other prompts
        said = {name: value for name, value in said.items() if name == "answer_keys"}
    # Stored answers are scored again: a copy of a loaded judge may have another config or classifier.
    kept = [
        (r["question"], r["context"], r["answer"], r["raw_judgment"])
        for r in said.get("reference", [])
    ]
    manifest = Manifest(
        config=judge.config,
        classifier=judge.classifier,
        lm=LMName(model=without_path(judge.lm_name), **_identity(judge)),
        prompts=hashed,
        versions={
            name: metadata.version(name) for name in ("faith_dspy", "dspy", "pydantic")
        },
        reference=[Reference.of(judge, *r) for r in reference or kept],
        **{
            k: v
            for k, v in said.items()
            if k not in Manifest.model_fields or k in ("card", "answer_keys")
        },
    )
    document = manifest.model_dump(mode="json")
    program = json.loads(json.dumps(_program_state(judge), default=list))
    document["sha256"] = _sha256(document, program, next_sha256)
    return {
        folder / "judge.json": json.dumps(document, indent=2, ensure_ascii=False)
        + "\n",
        folder / "program.json": json.dumps(program, indent=2, ensure_ascii=False)
        + "\n",
        folder / "CARD.md": card or said.get("card") or _plain_card(judge),
        **following,
    }, document["sha256"]


def _program_state(judge: Judge) -> dict[str, Any]:
    """Return DSPy's state of each predictor, with the demos that prompts show and without any LM; empty without one."""
    if not judge.asks_lm:
        return {}
    from faith_dspy.program.prompt import complete_demos

    state = {}
    for name, predict in judge.program.prompts.items():
        demos = complete_demos(predict.signature, predict.demos)
        state[name] = predict.dump_state() | {
            "lm": None,
            "traces": [],
            "train": [],
            "demos": demos,
        }
    return state


def _sha256(
    document: Mapping[str, Any], program: Mapping[str, Any], following: str | None
) -> str:
    parts = [{k: v for k, v in document.items() if k != "sha256"}, program, following]
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()


def open_judge(
    source: Any,
    *,
    lm: Any = None,
    api_base: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    context_window: int | None = None,
    **options: Any,
) -> Judge:
    """Return the judge that something stands for: the one way from a name to a judge.

    Args:
        source: A `Judge`, which is returned as it is; the folder of an exported judge, or its address in MLflow
            (``models:/faithfulness@champion``, ``runs:/…``), which `load_judge` loads; ``none`` (lexical features
            alone), ``local`` or ``default`` (the embedded model with the default classifier), ``local:FILE.gguf``, any
            DSPy model string (``openai/gpt-4o-mini``), or a `dspy.LM`: a new judge that asks it.
        lm: The LM that a loaded judge asks in place of its own.
        api_base: The address of the LM.
        api_key: Its key.
        timeout: Seconds a call of the LM may take.
        context_window: Tokens of the LM's prompt and reply together.
        options: Of a new judge, as for `Judge`. An exported one has its own.

    Raises:
        ArtifactError: A path where no judge is.
        ConfigError: Options for a judge that has its own, or something that stands for no judge.
    """
    if isinstance(source, Judge):
        return source
    endpoint: dict[str, Any] = {
        "api_base": api_base,
        "api_key": api_key,
        "timeout": timeout,
    }
    endpoint["context_window"] = context_window
    name = source.strip() if isinstance(source, str) else source
    if isinstance(source, Path) or (isinstance(name, str) and not names_lm(name)):
        if options:
            raise ConfigError(
                f"{source} has its own options: leave out {', '.join(options)}."
            )
        return _load(source if isinstance(source, Path) else name, lm=lm, **endpoint)
    if lm is not None:
        raise ConfigError(
            f"got the judge {source!r} and lm={lm!r}: one of them names the LM. Leave out the other."
        )
    return Judge("local" if name == "default" else name, **endpoint, **options)


_BARE_MODELS = re.compile(
    r"(?:gpt|o\d|chatgpt|claude|gemini|mistral|command|deepseek|llama|qwen)[\w.:-]*"
)
"""Names of models that LiteLLM knows without a provider."""


def names_lm(name: str) -> bool:
    """Whether a string names an LM or a judge of ours, and not a place."""
    if name in (NO_LM, "local", "default") or name.startswith(("local:", "typesafe:")):
        return True
    if (
        name.startswith(("models:/", "runs:/"))
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

    ``lm`` replaces the LM it was tuned on, of a cascade the first one, wherever that is asked; ``api_base`` and
    ``api_key`` are that LM's, too, and those of a second LM at the same address. ``escalate_to`` is the LM that the
    second judge of a cascade asks in place of its own, such as a `dspy.LM` with an address of its own. Thresholds were
    fitted to the LM it was tuned on, so expect less of another. ``timeout`` and ``context_window`` are as for `Judge`,
    and hold for every LM. Names such as ``none`` and ``local`` are taken, too: see `open_judge`.

    Of ``program.json`` only instructions and demos are taken. The LM's name in ``judge.json`` counts where the caller
    gives none; an address is only ever the caller's.

    Raises `ArtifactError` when files are missing or altered, or stored judgments are not reproduced; `ConfigError` for
    ``lm="none"`` in place of an LM, or an LM for a judge that asks none. Asks no LM.
    """
    endpoint: dict[str, Any] = {
        "api_base": api_base,
        "api_key": api_key,
        "timeout": timeout,
    }
    endpoint["context_window"] = context_window
    if isinstance(source, str) and names_lm(source.strip()):
        return open_judge(source, lm=lm, **endpoint)
    return _load(source, lm=lm, escalate_to=escalate_to, **endpoint)


def _load(
    source: str | Path,
    *,
    lm: Any,
    api_base: str | None,
    api_key: str | None,
    timeout: float | None,
    context_window: int | None,
    escalate_to: Any = None,
) -> Judge:
    if not isinstance(source, str | Path):
        raise ConfigError(
            f"the judge is {source!r}; expected its folder, or models:/name@alias from MLflow."
        )
    folder = (
        download_judge(str(source))
        if str(source).startswith(("models:/", "runs:/"))
        else Path(source)
    )
    first = _read(folder.expanduser())
    exports = [export for export in (first, first.following) if export is not None]
    asking = [
        export.manifest.lm for export in exports if export.manifest.lm.model != NO_LM
    ]
    asked = asking[0] if asking else None
    if lm is not None and (lm == NO_LM) != (asked is None):
        made_for = (
            f"was tuned on replies of {asked.model}"
            if asked
            else "judges by lexical features only"
        )
        raise ConfigError(f"{folder}: {made_for}, got lm={lm!r}. Leave out lm= (--lm).")
    if escalate_to is not None and first.following is None:
        raise ConfigError(
            f"{folder}: escalates to no other judge, got escalate_to={escalate_to!r}. Leave it out."
        )

    def settings_of(export: _Export) -> dict[str, Any]:
        """LM and address that the judge of an export asks."""
        stored = export.manifest.lm
        settings: dict[str, Any] = {"lm": stored.model}
        if export is first.following and escalate_to is not None:
            return {"lm": escalate_to}
        if asked and stored.model == asked.model:
            settings = {
                "lm": stored.model if lm is None else lm,
                "api_base": api_base,
                "api_key": api_key,
            }
        elif (
            asked
            and stored.api_base_hash
            and stored.api_base_hash == asked.api_base_hash
        ):
            settings |= {"api_base": api_base, "api_key": api_key}
        return settings | {"context_window": context_window or stored.context_window}

    def made(export: _Export) -> Judge:
        stored = export.manifest.lm
        following = export.following and made(export.following)
        try:
            judge = Judge(
                **settings_of(export),
                timeout=timeout,
                config=export.manifest.config,
                classifier=export.manifest.classifier,
                manifest=export.document,
                escalate_to=following,
            )
            _load_prompts(judge, export.program)
            if judge.asks_lm:
                judge.manifest["prompts"] = (
                    export.manifest.prompts or judge.program.prompts_hash
                )
                judge.classifier = export.manifest.classifier
            _reproduce(judge, export.manifest.reference)
        except _FAULTS as exc:
            raise _altered(export.folder, exc) from exc
        now = (
            without_path(judge.lm_name),
            LOCAL_SHA256.get(judge.lm_name, stored.sha256),
        )
        fitted = judge.classifier and judge.classifier.statement
        if (
            fitted
            and "lm" in fitted.names
            and now != (stored.model, stored.sha256 or now[1])
        ):
            other = now[0] if now[0] != stored.model else "another file of it"
            how = f"was fitted to probabilities of {stored.model}, and {other} is asked"
            log.warning(
                "%s: %s. Unless they are the same, measure it anew: faith-dspy agree.",
                export.folder,
                how,
            )
        return judge

    return made(first)


def _read(folder: Path) -> _Export:
    document, program = (
        _object(folder / name) for name in ("judge.json", "program.json")
    )
    if (version := document.get("format_version")) != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: format version {version!r}; this faith_dspy ({metadata.version('faith_dspy')}) reads "
            f"{FORMAT_VERSION}. Install the version that wrote it, or export the judge again."
        )
    following = (
        _read(folder / _NEXT) if (folder / _NEXT / "judge.json").is_file() else None
    )
    if document.get("sha256") != _sha256(
        document, program, following and following.manifest.sha256
    ):
        raise _altered(
            folder, ValueError("its content does not have the SHA-256 in judge.json")
        )
    try:
        return _Export(
            folder, document, Manifest.model_validate(document), program, following
        )
    except _FAULTS as exc:
        raise _altered(folder, exc) from exc


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
        fields = predictor.signature.fields
        demos = [
            {k: v for k, v in demo.items() if k in fields} for demo in prompt.demos
        ]
        for key, value in (pair for demo in demos for pair in demo.items()):
            TypeAdapter(fields[key].annotation).validate_json(
                json.dumps(value), strict=True
            )
        predictor.signature = predictor.signature.with_instructions(
            prompt.signature.instructions
        )
        predictor.demos = demos


def _reproduce(judge: Judge, stored: Sequence[Reference]) -> None:
    """Score the stored `RawJudgment`s again; the same numbers must come out."""
    for i, before in enumerate(stored):
        now = Reference.of(
            judge, before.question, before.context, before.answer, before.raw_judgment
        )
        for name in ("score", "probability", "faithful"):
            was, found = getattr(before, name), getattr(now, name)
            near = (
                isinstance(was, float)
                and isinstance(found, float)
                and math.isclose(was, found, abs_tol=1e-6)
            )
            if was != found and not near:
                raise ValueError(
                    f"reference {i} had {name} {was!r} when it was exported and has {found!r} now"
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
    """What is known of the LM beside its name; if it was not made yet, what the export it was loaded from says."""
    known: dict[str, Any] = judge.manifest.get("lm") or {}
    if "lm" in vars(judge):
        known = identity(judge.lm).model_dump(mode="json")
        known["capabilities"] = judge.lm.capabilities.model_dump(
            mode="json", exclude_defaults=True
        )
    elif known.get("model") != without_path(judge.lm_name):
        known = {}
    window = judge.context_window or known.get("context_window")
    return {k: v for k, v in known.items() if k != "model"} | {"context_window": window}


def _plain_card(judge: Judge) -> str:
    asked = (
        f"asked of `{without_path(judge.lm_name)}`"
        if judge.asks_lm
        else "by lexical features alone, no LM"
    )
    then = (
        " What it is unsure of goes to the judge in `escalate_to/`."
        if judge.escalate_to
        else ""
    )
    unit = judge.config.granularity.value
    judges = (
        f"{describe_fit(judge.classifier).capitalize()}: {unit} by {unit}, {asked}."
    )
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
            redact_secrets(
                f"{uri}: cannot be downloaded from the MLflow store {store!r} ({exc}). "
            )
            + "If the judge is in another store, set MLFLOW_TRACKING_URI."
        ) from exc
    found = min(
        folder.rglob("judge.json"), key=lambda path: len(path.parts), default=None
    )
    if found is None:
        raise ArtifactError(
            f"{uri}: holds no judge.json; it was not exported by faith_dspy."
        )
    return found.parent
