"""Finished studies found again: exported folders, ``study.json`` files, runs in MLflow. Nothing is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from faith_dspy.errors import FaithDspyError, InputError, MissingExtraError
from faith_dspy.optimize.results import PredictionRow, StudyResult
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAST = 10


class StudyRecord(BaseModel):
    """What is known of one finished study."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    """As it was asked for: folder, file, run or study id."""
    study_id: str
    labels_file: str
    label_set_hash: str
    lm: str
    champion: str
    agreement: Agreement
    """Of the champion on the testset."""
    untuned: Agreement | None = None
    baseline: Agreement | None = None
    """Of the lexical baseline."""
    ceiling: Agreement | None = None
    verdict: str | None = None
    """The champion against the untuned judge."""
    finished: bool = True
    budget: str | None = None
    seed: int | None = None
    tokens: float | None = None
    """Computed tokens an answer, of the champion."""
    minutes: float | None = None
    rows: tuple[PredictionRow, ...] = ()
    """The champion's test predictions; empty where only an exported folder is left."""


def read_study(source: str, tracking_uri: str | None = None) -> StudyResult | StudyRecord:
    """One finished study.

    ``source``: a folder of an exported judge, a ``study.json``, or the id of a study or of its run in MLflow
    (``tracking_uri``, else MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder). A folder gives a
    `StudyRecord`, with what its manifest holds; the others the `StudyResult`, without the texts that were judged.
    `InputError` says what was found instead.
    """
    path = Path(source)
    if path.is_dir():
        return _exported(path)
    if path.is_file():
        return _result(path.read_text(encoding="utf-8"), source)
    store = _store(tracking_uri)
    if store is None or not (run := store.find(source.removeprefix("runs:/"))):
        raise InputError(
            f"{source}: neither a folder of an exported judge, a study.json, nor a study in {_shown(tracking_uri)}"
            + (f". There: {store.listed()}." if store else ", which is not there.")
        )
    return store.read(run)


def read_record(source: str, tracking_uri: str | None = None) -> StudyRecord:
    """The same as a `StudyRecord`; an exported folder's study is looked up in MLflow for its predictions."""
    found = read_study(source, tracking_uri)
    if isinstance(found, StudyResult):
        return record(found, source)
    try:
        store = _store(tracking_uri)
        run = store.find(found.study_id) if store else None
        more = record(store.read(run), source) if store and run else None
    except FaithDspyError:
        return found
    return more if more and more.agreement == found.agreement else found


def last_studies(experiment: str, tracking_uri: str | None = None, n: int = _LAST) -> list[StudyRecord]:
    """The last finished studies of an MLflow experiment, the newest first."""
    store = _store(tracking_uri)
    if store is None:
        raise InputError(f"there is no MLflow store at {_shown(tracking_uri)}; name it with --tracking-uri.")
    found = next((e for e in store.experiments if e.name == experiment), None)
    if found is None:
        names = ", ".join(sorted(e.name for e in store.experiments))
        raise InputError(f"there is no experiment {experiment!r} in {_shown(tracking_uri)}; there are {names}.")
    runs = [r for r in store.runs([found.experiment_id]) if "champion" in r.data.tags][:n]
    if len(runs) < 2:
        raise InputError(f"experiment {experiment!r} has {len(runs)} finished studies, expected at least two.")
    return [record(store.read(r), r.info.run_id[:8]) for r in runs]


def record(result: StudyResult, source: str) -> StudyRecord:
    """What a comparison needs of a study."""
    by_name = {t.name: t for t in result.test}
    champion, comparison = by_name["champion"], result.comparisons.get("untuned")
    return StudyRecord(
        source=source,
        study_id=result.study_id,
        labels_file=result.labels_file,
        label_set_hash=result.label_set_hash,
        lm=str(result.lm.get("name")),
        champion=result.champion,
        agreement=champion.agreement,
        untuned=by_name["untuned"].agreement if "untuned" in by_name else None,
        baseline=by_name["lexical-baseline"].agreement if "lexical-baseline" in by_name else None,
        ceiling=result.ceiling,
        verdict=comparison.verdict if comparison else None,
        finished=result.finished,
        budget=result.budget,
        seed=result.seed,
        tokens=champion.usage.computed_tokens / max(1, champion.agreement.n),
        minutes=result.seconds / 60,
        rows=champion.predictions,
    )


def _exported(folder: Path) -> StudyRecord:
    from faith_dspy.artifact import load_judge

    manifest = load_judge(folder).manifest
    same = ("study_id", "labels_file", "label_set_hash", "agreement", "finished", "budget", "seed")
    fields = {k: manifest[k] for k in same if k in manifest}
    try:
        fields |= {"source": str(folder), "lm": manifest["lm"]["model"], "champion": manifest["variant"]}
        fields |= {k: manifest.get(f"{k}_agreement") for k in ("untuned", "baseline")}
        fields["verdict"] = manifest.get("comparison", {}).get("untuned", {}).get("verdict")
        if "seconds" in manifest:
            fields["minutes"] = manifest["seconds"] / 60
        if "usage" in manifest:
            fields["tokens"] = Usage.model_validate(manifest["usage"]).computed_tokens / manifest["agreement"]["n"]
        return StudyRecord.model_validate(fields)
    except (KeyError, TypeError, ValidationError) as exc:
        raise InputError(
            f"{folder}: this judge holds no study ({type(exc).__name__}: {str(exc).splitlines()[0]}); it was not made "
            "by `faith-dspy tune`, or by another version. Tune again, or name the study's run in MLflow."
        ) from exc


def _result(text: str, where: str) -> StudyResult:
    try:
        result = StudyResult.model_validate(json.loads(text))
    except (ValueError, ValidationError) as exc:
        raise InputError(
            f"{where}: not a study.json that this version reads ({str(exc).splitlines()[0]}). Expected the artifact of "
            "that name of a study's run in MLflow; `faith-dspy tune` writes it anew without asking the LM again."
        ) from exc
    if not result.test:
        raise InputError(f"{where}: this study has no test result; it was not finished. Run it again to go on.")
    return result


class _Store(NamedTuple):
    """An MLflow store that is only read."""

    client: Any
    experiments: list[Any]

    def runs(self, experiments: Iterable[str] = ()) -> list[Any]:
        """Studies, the newest first."""
        ids = list(experiments) or [e.experiment_id for e in self.experiments]
        query = "tags.`faith_dspy.kind` = 'study'"
        return list(self.client.search_runs(ids, query, order_by=["attributes.start_time DESC"], max_results=200))

    def find(self, key: str) -> Any | None:
        """The study with this study id or run id, or the only one that begins with it (at least 6 digits)."""
        if not re.fullmatch(r"[0-9a-f]{4,32}", key):
            return None
        found = [r for r in self.runs() if any(k.startswith(key) for k in _keys(r))]
        exact = [r for r in found if key in _keys(r)]
        return exact[0] if exact else found[0] if len(found) == 1 and len(key) >= 6 else None

    def listed(self) -> str:
        """The newest studies by name."""
        known = [f"{r.info.run_id[:8]} ({r.data.params.get('labels_file', '?')})" for r in self.runs()[:5]]
        return ", ".join(known) or "no study at all"

    def read(self, run: Any) -> StudyResult:
        """A run's study.json."""
        from faith_dspy.optimize.tracking.store import quiet

        where = f"MLflow run {run.info.run_id[:8]}"
        try:
            with quiet():
                path = Path(self.client.download_artifacts(run.info.run_id, "study.json"))
        except Exception as exc:
            raise InputError(f"{where}: has no study.json; the study was not finished. Run it again to go on.") from exc
        return _result(path.read_text(encoding="utf-8"), where)


def _keys(run: Any) -> tuple[str, str]:
    return str(run.info.run_id), str(run.data.tags.get("faith_dspy.study_id", ""))


def _store(uri: str | None) -> _Store | None:
    """The store, if it is there; nothing is made. `FaithDspyError` when it does not answer."""
    from faith_dspy.optimize.tracking.store import existing, unusable

    try:
        client, _ = existing(uri)
        return None if client is None else _Store(client, client.search_experiments())
    except MissingExtraError:
        raise
    except Exception as exc:
        raise unusable(_uri(uri), exc) from exc


def _uri(uri: str | None) -> str:
    from faith_dspy.optimize.tracking.store import DEFAULT

    return uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT


def _shown(uri: str | None) -> str:
    from faith_dspy.optimize.tracking.store import shown

    return shown(_uri(uri))
