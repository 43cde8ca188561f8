from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from . import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JUDGMENTS, PROMPTS, STUDY, ROWS = (
    json.loads((record.HERE / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("judgments", "prompts", "study", "rows")
)


def differences(found: Any, golden: Any, at: str = "") -> Iterator[str]:
    """Where two values differ; numbers by more than a millionth."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in golden.keys() | found.keys():
            yield from differences(found.get(key), golden.get(key), f"{at}.{key}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for i, (one, other) in enumerate(zip(found, golden, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif isinstance(golden, float) and isinstance(found, float):
        if abs(found - golden) > 1e-6:
            yield f"{at}: {found} instead of {golden}"
    elif found != golden:
        yield f"{at}: {str(found)[:400]} instead of {str(golden)[:400]}"


def as_recorded(found: dict[str, Any], name: str) -> None:
    """Judgments and requests are those of the golden files."""
    assert not list(differences(found["judgments"], JUDGMENTS[name]))
    asked = record.unpacked(PROMPTS, name)
    assert len(found["requests"]) == len(asked)
    assert not list(differences(found["requests"], asked))


judged = cache(record.judged)


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A whole study, once, and its folder."""
    folder = tmp_path_factory.mktemp("study")
    return record.study(folder), folder


@pytest.mark.parametrize("name", record.SETS)
def test_option_sets(name: str) -> None:
    """With every set of options each record gets the recorded judgment, by the recorded requests, byte for byte."""
    as_recorded(judged(name), name)


@pytest.mark.parametrize("name", ["default", "faulty"])
def test_threads(name: str) -> None:
    """Eight threads ask and conclude what one does."""
    as_recorded(record.judged(name, threads=8), name)


def test_one_by_one() -> None:
    """A batch judges each record as a call does."""
    from faith_dspy import Judge

    with record.Endpoint() as endpoint, record.no_cache():
        judge = Judge("openai/golden", api_base=endpoint.base, classifier=None)
        given = [{k: r.get(k) for k in ("question", "context", "answer", "conversation")} for r in record.RECORDS[:-1]]
        found = {r["id"]: record.kept(judge(**g)) for r, g in zip(record.RECORDS, given, strict=False)}
    assert not list(differences(found, {k: v for k, v in JUDGMENTS["default"].items() if k in found}))


def test_every_reason_is_covered() -> None:
    """The golden judgments hold every reason for which an answer is unscored."""
    reasons = {j.get("unscored") for by_record in JUDGMENTS.values() for j in by_record.values()}
    assert reasons - {None} == {
        "no_statements", "abstained", "no_context", "parse_failed", "lm_failed", "too_long"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["default", "statement"])
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    """An untuned judge that was saved and loaded asks and concludes the same."""
    from faith_dspy import Judge

    Judge("openai/golden", classifier=None, **record.SETS[name].get("options", {})).save(tmp_path / "judge")
    as_recorded(record.loaded(tmp_path / "judge", record.SETS[name].get("records", record.CORE)), name)


@pytest.mark.parametrize("name", record.CHAMPIONS)
def test_champions(name: str) -> None:
    """The shipped champions judge as ever."""
    as_recorded(record.loaded(record.SHIPPED / name, record.RECORDS), name)


def test_study(studied: tuple[dict[str, Any], Path]) -> None:
    """The same labels, LM and seed give the same champion: its classifier, its agreement, on train, test and others."""
    assert not list(differences(studied[0]["found"], STUDY))


def test_requests_of_a_study(studied: tuple[dict[str, Any], Path]) -> None:
    """A study asks what it asked, byte for byte and as often."""
    assert not list(differences(studied[0]["requests"], record.unpacked(PROMPTS, "tune")))


def test_export_of_a_study(studied: tuple[dict[str, Any], Path]) -> None:
    """The judge that a study exports judges as the recorded one."""
    as_recorded(record.loaded(studied[1] / "judge", record.FIVE), "exported")


def test_files(tmp_path: Path) -> None:
    """A file's rows, going on where it was cut off, and the exit codes of what is done and what is refused."""
    assert not list(differences(record.rows(tmp_path), ROWS))
