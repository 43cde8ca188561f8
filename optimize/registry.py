"""The champion as a registered MLflow model, with an alias that says which version to use."""

from __future__ import annotations

import hashlib
import os
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.notes import verdicts
from faith_dspy.optimize.words import figure

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult

CHAMPION, PREVIOUS = "champion", "previous"
_SHA256 = "faith_dspy.judge_sha256"
_EXAMPLE = [
    {
        "question": "When did the museum open?",
        "context": ["The museum opened in 1932 and was extended in 1987."],
        "answer": "The museum opened in 1932.",
    }
]


def register(client: Any, experiment_id: str, run_id: str, result: StudyResult, name: str) -> None:
    """Make the exported judge the newest version of the registered model ``name`` and move the aliases.

    The version that was champion becomes ``previous``. A judge that is the champion already, byte for byte, is left as
    it is. The LM is not called.
    """
    sha256 = _sha256(Path(result.judge_dir))
    known = next((m for m in client.search_registered_models(f"name = '{name}'") if m.name == name), None)
    alias = known.aliases.get(CHAMPION) if known else None
    former = client.get_model_version(name, str(alias)) if alias else None
    if former is not None and former.tags.get(_SHA256) == sha256:
        return
    model_id = _log(client, experiment_id, run_id, result, name)
    if known is None:
        client.create_registered_model(
            name,
            description="Faithfulness judges tuned on human labels. Use one with "
            f'`faith_dspy.load_judge("models:/{name}@{CHAMPION}")`; `@{PREVIOUS}` is the one before.',
        )
    tested = result.tested("champion").agreement
    version = client.create_model_version(
        name,
        source=f"models:/{model_id}",
        run_id=run_id,
        model_id=model_id,
        tags={
            _SHA256: sha256,
            "study_id": result.study_id,
            "variant": result.champion,
            "labels_file": result.labels_file,
            "test_balanced_accuracy": figure(tested.balanced_accuracy),
        },
        description="\n\n".join(verdicts(result)),
    )
    if former is not None:
        client.set_registered_model_alias(name, PREVIOUS, former.version)
    client.set_registered_model_alias(name, CHAMPION, version.version)


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
            input_example=_EXAMPLE,
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


def _sha256(folder: Path) -> str:
    return hashlib.sha256(b"".join((folder / f).read_bytes() for f in ("judge.json", "program.json"))).hexdigest()
