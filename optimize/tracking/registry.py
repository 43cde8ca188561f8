"""The champion as a registered MLflow model: a version of `MODEL` for each study's judge, the best with the alias."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from faith_dspy.errors import FaithDspyError
from faith_dspy.export import exported_files
from faith_dspy.load import load_judge
from faith_dspy.optimize.report.pages import prompt_markdown
from faith_dspy.optimize.results import BASELINES, CHEAPER, UNTUNED, StudyResult
from faith_dspy.optimize.select.comparison import (
    better_than_chance,
    compare_champions,
)
from faith_dspy.optimize.tracking.store import (
    KIND,
    MAX_DESCRIPTION,
    Store,
    global_store,
    read_result,
)
from faith_dspy.report.tables import points, with_interval
from faith_dspy.schema import digest

MODEL = "faithfulness"
"""Name of the registered model."""
CHAMPION = "champion"
_CHAMPION_ADDRESS = f"models:/{MODEL}@{CHAMPION}"
_JUDGE = "faith_dspy.judge"


class Registration(NamedTuple):
    """What became of a judge in the registry."""

    sentence: str
    address: str
    """``models:/name@champion``; with its version's number where another has the alias."""


class Decision(NamedTuple):
    """Whether a judge takes the alias, and why."""

    promoted: bool
    reason: str


def register(store: Store, run_id: str, result: StudyResult) -> Registration:
    """Register the exported judge as the newest version of `MODEL`.

    The version takes the alias when `decide_promotion` says so. Registering the same judge of the same study again
    changes nothing, so that an alias that was set by hand stays. The LM is not called.
    """
    client = store.client
    models = client.search_registered_models(f"name = '{MODEL}'")
    aliases = models[0].aliases if models else {}
    if not models:
        about = (
            "Faithfulness judges tuned on labels. Load the best with "
            f'`faith_dspy.load_judge("{_CHAMPION_ADDRESS}")`.'
        )
        client.create_registered_model(MODEL, description=about)
    champion = str(aliases.get(CHAMPION, ""))
    judge = digest([result.study_id, load_judge(result.judge_dir).fingerprint])
    for version in client.search_model_versions(f"name = '{MODEL}'"):
        if version.tags.get(_JUDGE) == judge:
            number = str(version.version)
            registered = f"Registered before as {MODEL} version {number}"
            if number == champion:
                return Registration(f"{registered} (@{CHAMPION}).", _CHAMPION_ADDRESS)
            return Registration(f"{registered}.", f"models:/{MODEL}/{number}")
    study = None
    if champion:
        present = client.get_model_version(MODEL, champion)
        with suppress(FaithDspyError):  # deleted, or written by another version
            study = read_result(client, present.run_id)
    is_better, reason = decide_promotion(result, study, first=not champion)
    accuracy = result.measured.champion.agreement.balanced_accuracy
    tags = {
        _JUDGE: judge,
        **_origin(result),
        "balanced_accuracy": with_interval(accuracy),
        "promoted": f"{'yes' if is_better else 'no'}: {reason}",
    }
    # MLflow's lists show the first line of a description.
    card = Path(result.judge_dir, "CARD.md").read_text(encoding="utf-8")
    about = card.removeprefix("# Faithfulness judge").lstrip()[:MAX_DESCRIPTION]
    with global_store(store):
        model_id = _log_model(store, run_id, result)
        version = client.create_model_version(
            MODEL,
            f"models:/{model_id}",
            run_id,
            tags,
            description=about,
            model_id=model_id,
        )
    number = version.version
    registered = f"Registered as {MODEL} version {number}"
    if is_better:
        before = f", which was version {champion}" if champion else ""
        client.set_registered_model_alias(MODEL, CHAMPION, number)
        sentence = f"{registered} and @{CHAMPION}{before}: {reason}."
        return Registration(sentence, _CHAMPION_ADDRESS)
    but = f"@{CHAMPION} stays version {champion}" if champion else f"not @{CHAMPION}"
    sentence = f"{registered}, but {but}: {reason}."
    return Registration(sentence, f"models:/{MODEL}/{number}")


def _origin(result: StudyResult) -> dict[str, str]:
    """Tags that say which study a version is of."""
    return {
        "study_id": result.study_id,
        "variant": result.champion,
        "labels_file": result.labels_file,
    }


def register_prompts(store: Store, run_id: str, result: StudyResult) -> None:
    """Put the champion's compiled prompts into the prompt registry, one for each predictor, linked from the run.

    A prompt that the newest version holds already gets no new one; the seed's is the first.
    """
    client = store.client
    message = f"{result.champion} of study {result.study_id[:8]}"
    prompts = result.chosen.prompts
    if prompts is None:
        return
    with global_store(store):  # MLflow registers prompts for its experiment
        for predictor, prompt in prompts.now.items():
            where = f"{MODEL}.{predictor}"
            text = prompt_markdown(prompt)
            version = client.load_prompt(where, allow_missing=True, cache_ttl_seconds=0)
            if version is None and prompts.seed:
                seed = prompt_markdown(prompts.seed[predictor])
                client.register_prompt(where, seed, "before compiling")
            if version is None or version.template != text:
                version = client.register_prompt(where, text, message, _origin(result))
            client.link_prompt_version_to_run(run_id, version)


def decide_promotion(
    result: StudyResult, present: StudyResult | None, *, first: bool = False
) -> Decision:
    """Decide whether a study's champion takes the alias: from the champion whose study is ``present`` (None: unknown),
    or as the ``first``.

    It must be significantly better than chance, and not worse than what costs no labels or no LM. If both were
    measured on the same answers, one that is significantly better replaces the present champion, and one that is
    significantly worse does not. Otherwise it must be significantly better than its own untuned judge. It must need no
    column that the present one does without.
    """
    champion = result.measured.champion.agreement
    comparisons = result.measured.comparisons
    if result.held_back:
        return Decision(False, "it was held back under stress")
    if not better_than_chance(champion):
        return Decision(False, "it is not significantly better than chance")
    for name, comparison in comparisons.items():
        if name in CHEAPER and comparison.verdict == "worse":
            return Decision(False, f"it is worse than {BASELINES[name]}")
    if first:
        return Decision(True, "there was none")
    before = () if present is None else present.chosen.columns
    for column in result.chosen.columns:
        if column not in before:
            return Decision(
                False,
                f"it reads the column {column!r}, which the present @champion does not need; set the alias yourself",
            )
    context = "; the present @champion was not measured on the same answers"
    against = None if present is None else compare_champions(result, present)
    if against is not None:
        facts = (
            f"the present @champion on the same {against.n} answers "
            f"({points(against.balanced_accuracy)} points)"
        )
        if against.verdict != "inconclusive":
            reason = f"it is {against.verdict} than {facts}"
            return Decision(against.verdict == "better", reason)
        context = f", and not significantly worse than {facts}"
    untuned = comparisons.get(UNTUNED)
    if untuned is None or untuned.verdict != "better":
        return Decision(
            False, "it is not significantly better than its own untuned judge"
        )
    return Decision(True, f"it is better than its own untuned judge{context}")


def _log_model(store: Store, run_id: str, result: StudyResult) -> str:
    """Log the judge as a model, in MLflow's global store; returns the model's id.

    MLflow 3.17 leaves out runs with a model where it lists evaluation runs: the model's is one below the study's.
    """
    import mlflow

    from faith_dspy.integrations.mlflow_model import EXAMPLE, signature

    extra = "[local]" if result.lm["model"].startswith("local/") else ""
    requirements = [
        f"faith_dspy{extra}=={metadata.version('faith_dspy')}",
        f"mlflow=={mlflow.__version__}",
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        mlflow.start_run(
            experiment_id=store.experiment_id,
            run_name=f"{result.champion} as a model · {result.study_id[:8]}",
            parent_run_id=run_id,
            nested=True,
            tags={KIND: "model"},
        ),
    ):
        # MLflow takes a whole folder, whatever lies there.
        for file in exported_files(Path(result.judge_dir)):
            copy = Path(folder, file.relative_to(result.judge_dir))
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(file, copy)
        logged = mlflow.pyfunc.log_model(
            name=MODEL,
            python_model=str(files("faith_dspy.integrations") / "mlflow_model.py"),
            artifacts={"judge": folder},
            signature=signature(result.chosen.columns),
            input_example=EXAMPLE,
            pip_requirements=requirements,
            params={"variant": result.champion},
            model_type="judge",
        )
    return str(logged.model_id)
