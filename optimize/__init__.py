"""Tuning: labels in, champion out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import StudyResult

__all__ = ["tune"]


def tune(
    labels: Any,
    *,
    test: Any = None,
    lm: str = "local",
    api_base: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    reflection_lm: str | None = None,
    operating_point: str = "balanced",
    budget: Literal["quick", "standard", "thorough"] = "quick",
    out: str | Path | None = None,
    prefer: Literal["agreement", "cheapest"] = "agreement",
    max_flips: float | None = None,
    seed: int = 0,
    minutes: float | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    dollars: float | None = None,
    variants: str | Path | Sequence[str] = (),
    tracking_uri: str | None = None,
    experiment: str = "faithfulness",
    register: bool = True,
    view: Any = None,
) -> StudyResult:
    """Tune a judge on human labels, as ``faith-dspy tune`` does, and return what was found.

    ``labels``: a file (JSON lines, CSV, TSV, Parquet), the name of a shipped set, a pandas frame, a Hugging Face
    `Dataset` or `DatasetDict`, or a list of rows or examples. ``test``: labels to test on; else a part of ``labels`` is
    kept aside. ``out``: folder for the champion (default ``judges/<name of labels>``, of labels in memory
    ``judges/labels``); `StudyResult.judge_dir` says where.
    ``timeout``: of each LM, as for `faith_dspy.Judge`.
    ``operating_point``: what the threshold is for: ``balanced``, ``recall=0.9`` (of the unfaithful answers) or
    ``cost=5`` (how much worse it is to pass an unfaithful answer than to stop a faithful one). ``reflection_lm``: the
    LM that proposes instructions (mipro, gepa); default: the judged one. ``prefer``: whether what agrees best is
    exported (``agreement``) or the ``cheapest`` that is not shown to agree worse.
    ``max_flips``: try injections and other perturbations on dev answers, as `faith-dspy stress` does; a champion whose
    verdicts a kind of injection flips in a larger share is exported, but not promoted (`StudyResult.held_back`).
    ``minutes``, LM ``calls``, ``tokens`` (read and written) and ``dollars`` (by LiteLLM's prices): what the whole study
    may spend; what testing the champion costs is kept back, and replies that were paid for before are free.
    ``variants``: names from `faith_dspy.optimize.select.variants.VARIANTS` instead of the budget's (a list, or a text
    with commas between), or a ``.toml`` file that declares them (`faith_dspy.optimize.select.plan`). ``tracking_uri``:
    MLflow's store (default: MLFLOW_TRACKING_URI, else ``sqlite:///mlflow.db``).

    Raises `InputError` for labels that cannot be used and `LMUnavailableError` for an endpoint that is not there, both
    before any work is done.
    """
    from faith_dspy.errors import ConfigError
    from faith_dspy.eval_sets.catalog import source_of
    from faith_dspy.lm.metered import Limits
    from faith_dspy.optimize.classifier.operating_point import OperatingPoint
    from faith_dspy.optimize.options import Options
    from faith_dspy.optimize.select.plan import named
    from faith_dspy.optimize.study import run
    from faith_dspy.optimize.tracking.store import connect
    from faith_dspy.optimize.tracking.study_run import MlflowTracker
    from faith_dspy.report.progress import TerminalView

    if max_flips is not None and not 0 <= max_flips <= 1:
        raise ConfigError(f"max_flips is {max_flips}; expected a share from 0 to 1, such as 0.05.")
    options = Options(
        lm=lm,
        api_base=api_base,
        api_key=api_key,
        timeout=timeout,
        reflection_lm=reflection_lm,
        operating_point=OperatingPoint.parse(operating_point),
        budget=budget,
        prefer=prefer,
        max_flips=max_flips,
        seed=seed,
        out=None if out is None else Path(out),
        limits=Limits(calls=calls, tokens=tokens, dollars=dollars, seconds=None if minutes is None else minutes * 60),
        variants=named(variants),
    )
    return run(
        source_of(labels),
        options,
        view or TerminalView(),
        test=None if test is None else source_of(test),
        # Only now: faults in the labels are told at once, and leave no store behind.
        tracker=lambda result: MlflowTracker(connect(tracking_uri, experiment), result, register=register),
    )
