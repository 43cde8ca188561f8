"""The champion as a registered MLflow model, with an alias that says which version to use.

A study registers its champion; the alias moves to it only when it has earned that (`earned`), and `rollback` moves it
back.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.artifact import load_judge
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.integrations.rows import EXAMPLE, PARAMS
from faith_dspy.optimize.results import StudyResult
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.tracking.archive import read_study
from faith_dspy.optimize.tracking.store import existing, quiet, reason, shown
from faith_dspy.report.numbers import estimate, points
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faith_dspy.optimize.results import PredictionRow

MODEL = "faithfulness"
"""Name of the registered model."""
CHAMPION, PREVIOUS = "champion", "previous"
_JUDGE = "faith_dspy.judge"
_MAX_DESCRIPTION = 5000  # characters MLflow keeps


class Earned(NamedTuple):
    """Whether a judge takes the alias from the present champion."""

    promoted: bool
    why: str
    """What follows "because"."""


def register(client: Any, experiment_id: str, run_id: str, result: StudyResult, name: str) -> str:
    """Make the exported judge the newest version of the registered model ``name``; say in a sentence what became of it.

    When it has `earned` it, it is the champion, and the version that was becomes ``previous``. A study run again with
    the same outcome changes nothing, so that it takes back no rollback. The LM is not called.
    """
    key = digest([result.study_id, load_judge(result.judge_dir).fingerprint])
    aliases = _aliases(client, name)
    for version in client.search_model_versions(f"name = '{name}'") if aliases is not None else ():
        if version.tags.get(_JUDGE) == key:
            known_as = [f"@{alias}" for alias, v in (aliases or {}).items() if v == str(version.version)]
            return f"Registered before as {name} version {version.version}" + (
                f" ({', '.join(known_as)})." if known_as else "."
            )
    present = client.get_model_version(name, aliases[CHAMPION]) if aliases and CHAMPION in aliases else None
    found = _earned(client, result, present, run_id)
    model_id = _log(client, experiment_id, run_id, result, name)
    if aliases is None:
        client.create_registered_model(
            name,
            description="Faithfulness judges tuned on human labels. Use one with "
            f'`faith_dspy.load_judge("models:/{name}@{CHAMPION}")`; `@{PREVIOUS}` is the one before.',
        )
    tags = {
        _JUDGE: key,
        "study_id": result.study_id,
        "variant": result.champion,
        "labels_file": result.labels_file,
        "test_balanced_accuracy": estimate(result.tested("champion").agreement.balanced_accuracy),
        "promoted": f"{'yes' if found.promoted else 'no'}: {found.why}",
    }
    with _process_at(client.tracking_uri):
        version = client.create_model_version(
            name,
            source=f"models:/{model_id}",
            run_id=run_id,
            model_id=model_id,
            tags=tags,
            description=_card(Path(result.judge_dir)),
        )
    here = f"Registered as {name} version {version.version}"
    if not found.promoted:
        assert present is not None
        return f"{here}, but @{CHAMPION} stays version {present.version}: {found.why}."
    if present is not None:
        client.set_registered_model_alias(name, PREVIOUS, present.version)
    client.set_registered_model_alias(name, CHAMPION, version.version)
    return f"{here} and @{CHAMPION}: {found.why}."


def earned(result: StudyResult, present: StudyResult | None) -> Earned:
    """The rule by which a new judge takes the alias from the champion of ``present``; None: of an unknown study.

    Tested on the same answers, it must not be shown worse than the present champion, and is promoted when it is shown
    better. Else it must be shown better than its own untuned judge: one that is worth no more than not tuning at all
    replaces nothing.
    """
    against = ""
    if present is not None:
        mine, theirs = (sorted(r.tested("champion").predictions, key=_key) for r in (result, present))
        if [(*_key(r), r.label) for r in mine] == [(*_key(r), r.label) for r in theirs]:
            labels, groups = [r.label for r in mine], [r.group for r in mine]
            c = compare(labels, _side(mine), _side(theirs), groups)
            facts = f"the present champion on the same {c.n} test answers ({points(c.balanced_accuracy)} points)"
            if c.verdict != "not shown better":
                return Earned(c.verdict == "better", f"it is {c.verdict} than {facts}")
            against = f", and not shown worse than {facts}"
    own = result.comparisons.get("untuned")
    if own is None or own.verdict != "better":
        return Earned(False, "it is not shown better than its own untuned judge")
    against = against or "; the present champion was not tested on the same answers"
    return Earned(True, f"it is better than its own untuned judge{against}")


def rollback(name: str = MODEL, tracking_uri: str | None = None) -> str:
    """Exchange the aliases: the version that was champion before is again. Says in a sentence what is champion now.

    Done twice, everything is as it was. `InputError` when there is nothing to go back to.
    """
    with quiet():
        client, uri = existing(tracking_uri)
        if client is None:
            raise InputError(f"there is no MLflow store at {shown(uri)}; name it with --tracking-uri.")
        try:
            aliases = _aliases(client, name)
        except Exception as exc:
            raise FaithDspyError(f"MLflow at {shown(uri)} cannot say what is registered: {reason(exc)}.") from exc
        if aliases is None:
            raise InputError(f"no model {name!r} is registered at {shown(uri)}; `faith-dspy tune` registers champions.")
        if not {CHAMPION, PREVIOUS} <= set(aliases):
            raise InputError(
                f"model {name!r} has no version @{PREVIOUS} to go back to: no champion has replaced another yet."
            )
        back, gone = aliases[PREVIOUS], aliases[CHAMPION]
        client.set_registered_model_alias(name, CHAMPION, back)
        client.set_registered_model_alias(name, PREVIOUS, gone)
    return f"{name} version {back} is @{CHAMPION} again; version {gone} is @{PREVIOUS}. The same again takes it back."


def _aliases(client: Any, name: str) -> dict[str, str] | None:
    """Alias → version; None when no such model is registered."""
    known = next((m for m in client.search_registered_models(f"name = '{name}'") if m.name == name), None)
    return {k: str(v) for k, v in known.aliases.items()} if known else None


def _earned(client: Any, result: StudyResult, present: Any | None, run_id: str) -> Earned:
    if present is None:
        return Earned(True, "there was no champion")
    if present.run_id == run_id:
        return Earned(True, f"it is the same study as version {present.version}, gone on")
    try:
        study = read_study(client.download_artifacts(present.run_id, "study.json"))
    except Exception:  # noqa: BLE001 - its run may be deleted, or from another version
        study = None
    return earned(result, study if isinstance(study, StudyResult) else None)


def _key(row: PredictionRow) -> tuple[str, str]:
    return row.id, row.group


def _side(rows: list[PredictionRow]) -> Side:
    return Side([r.predicted for r in rows], [r.probability for r in rows])


def _card(folder: Path) -> str:
    """CARD.md, as far as a description holds it."""
    card = (folder / "CARD.md").read_text(encoding="utf-8")
    if len(card) <= _MAX_DESCRIPTION:
        return card
    rest = "\n\n*The rest is in* `CARD.md` *of the model's artifacts.*"
    return card[: _MAX_DESCRIPTION - len(rest)].rpartition("\n")[0] + rest


@contextmanager
def _process_at(uri: str) -> Iterator[None]:
    """Point the process's own store there: MLflow 3.17 looks a version's model up in it, whatever store was asked."""
    import mlflow
    from mlflow.tracking._tracking_service.utils import _use_tracking_uri

    if mlflow.get_tracking_uri() == uri:
        yield
        return
    before = os.environ.get("MLFLOW_TRACKING_URI")
    try:
        with _use_tracking_uri(uri):
            yield
    finally:
        if before is not None:  # MLflow takes it out
            os.environ["MLFLOW_TRACKING_URI"] = before


def _log(client: Any, experiment_id: str, run_id: str, result: StudyResult, name: str) -> str:
    """What `mlflow.pyfunc.log_model` does, less the parts that would call the LM, change global state or print."""
    import mlflow
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    code = util.find_spec("faith_dspy.integrations.mlflow_pyfunc")
    assert code is not None
    extra = "[local]" if result.lm.get("sha256") else ""
    logged = client.create_logged_model(
        experiment_id, name=name, source_run_id=run_id, model_type="judge", params={"variant": result.champion}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        mlflow.pyfunc.save_model(
            path=path,
            python_model=str(code.origin),
            artifacts={"judge": os.path.relpath(result.judge_dir)},  # MLflow keeps the path: not an absolute one
            input_example=(EXAMPLE, PARAMS),
            pip_requirements=[
                f"faith_dspy{extra}=={metadata.version('faith_dspy')}",
                f"mlflow=={mlflow.__version__}",
            ],
            mlflow_model=Model(
                artifact_path=logged.artifact_location,
                model_uuid=logged.model_id,
                model_id=logged.model_id,
                run_id=run_id,
            ),
        )
        client.log_model_artifacts(logged.model_id, path)
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_id)
