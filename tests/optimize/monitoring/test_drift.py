from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from faith_dspy.cli import main
from faith_dspy.errors import FaithDspyError
from faith_dspy.optimize.monitoring.drift import History, Look, look, sentences, watched
from faith_dspy.optimize.monitoring.drift_run import WatchRun
from faith_dspy.optimize.results import PredictionRow
from faith_dspy.optimize.select.evaluate import agreement
from faith_dspy.optimize.tracking.store import connect

GOOD = [0.9] * 20 + [0.1] * 20
"""Twenty faithful answers passed, twenty unfaithful ones failed."""
WORSE = [0.4] * 10 + GOOD[10:]
"""Ten of the faithful ones are failed: balanced accuracy (1/2 + 1)/2."""


def _look(scores: list[float | None], judge: str = "v1", traffic: list[float | None] | None = None) -> Look:
    rows = [
        PredictionRow(
            id=f"a{i:02}",
            group=f"g{i}",
            part="test",
            label=i < 20,
            predicted=None if s is None else s >= 0.5,
            probability=s,
            answer=f"Answer {i}.",
        )
        for i, s in enumerate(scores)
    ]
    return look(rows, scores, agreement(rows), judge, traffic or [])


def test_the_first_look_has_nothing_to_compare_with() -> None:
    """No alarm but the bar's, no flip, no drift."""
    found = watched(_look([*GOOD]), History(), minimum=0.9)
    assert (found.step, found.alarms, found.flips, found.drifts, sentences(found)) == (0, [], [], [], [])


def test_worse_than_the_last_time() -> None:
    """−25 points of balanced accuracy, paired, and ten flips to wrong; a quarter of the scores' distribution moved."""
    found = watched(_look([*WORSE], "v2"), History(1, _look([*GOOD]), _look([*GOOD])), minimum=0.8)
    assert found.since["last"].balanced_accuracy.value == pytest.approx(-0.25)
    assert [f.id for f in found.flips] == [f"a{i:02}" for i in range(10)]
    assert (found.flips[0].label, found.flips[0].before, found.flips[0].now) == (True, True, False)
    assert found.other_version
    # Below .9 were 20 of 40 scores, now 30 of 40.
    (drift,) = found.drifts
    assert (drift.of, drift.since, drift.distance, drift.coverage) == ("anchor", "last", pytest.approx(0.25), 0.0)
    assert [a.split(" ")[0] for a in found.alarms] == ["balanced", "worse", "the"]
    assert found.alarms[0] == "balanced accuracy is 0.750, below the 0.8 that was asked for."
    assert found.alarms[2] == "the scores of the anchor set since the last time have moved by 0.25, more than 0.2."


def test_a_slow_decline_is_seen() -> None:
    """Each step is too small to tell from the last one, but not from the first."""
    first, last = _look([*GOOD]), _look([0.4] * 5 + GOOD[5:])
    found = watched(_look([0.4] * 6 + GOOD[6:]), History(5, first, last))
    assert {k: c.verdict for k, c in found.since.items()} == {"last": "not shown better", "first": "worse"}
    assert [a.partition(" (")[0] for a in found.alarms] == ["worse than the first time"]
    assert found.step == 5


def test_coverage_and_traffic_drift() -> None:
    """Answers that are no longer scored, and traffic that is scored otherwise, raise the alarm without any flip to
    wrong among the scored."""
    before = _look([*GOOD], traffic=[0.9] * 10)
    now = _look([*GOOD[:28], *[None] * 12], traffic=[0.9] * 5 + [0.2] * 5)
    found = watched(now, History(1, before, before), max_drift=0.29)
    by = {d.of: d for d in found.drifts}
    assert by["anchor"].coverage == pytest.approx(-0.3)
    assert by["traffic"].distance == pytest.approx(0.5)
    assert len(found.flips) == 12
    assert found.alarms[-2:] == [
        "the coverage of the anchor set since the last time has moved by -0.30, more than 0.29.",
        "the scores of the traffic since the last time have moved by 0.50, more than 0.29.",
    ]


def test_nothing_scored() -> None:
    """No number is made up: the bar is failed because nothing is known, and there is no distance."""
    before = _look([*GOOD])
    found = watched(_look([None] * 40), History(1, before, before), minimum=0.5)
    assert found.alarms[0].startswith("balanced accuracy is not known (no answer was scored)")
    assert found.drifts[0].distance is None
    assert "scores not comparable, coverage -1.00" in sentences(found)[-1]


def test_looks_are_kept_in_one_run(own_store: Path) -> None:
    """Each look is a step of the metrics of one run, and the next is compared with what the run kept."""
    store = connect()
    for scores in (GOOD, GOOD, WORSE):
        run = WatchRun(store, "models:/faithfulness@champion", "anchor.jsonl", "5ab1")
        run.add(watched(_look([*scores]), run.before), {"seconds_per_answer": 0.5})
    again = WatchRun(store, "models:/faithfulness@champion", "anchor.jsonl", "5ab1")
    assert again.run_id == run.run_id
    assert again.before.steps == 3
    assert again.before.last is not None
    assert again.before.last.agreement.balanced_accuracy.value == 0.75
    history = store.client.get_metric_history(run.run_id, "balanced_accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (1, 1.0), (2, 0.75)]
    flips = json.loads(Path(store.client.download_artifacts(run.run_id, "flips.json")).read_text())
    assert flips["data"][0] == ["NO", "faithful", "faithful", "unfaithful", "Answer 0.", "a00"]
    kept = store.client.get_run(run.run_id)
    assert kept.info.status == "FINISHED"
    assert kept.data.tags["alarms"].startswith("worse than the last time")
    other = WatchRun(store, "models:/faithfulness@champion", "anchor.jsonl", "0ther")
    assert (other.run_id == run.run_id, other.before.steps) == (False, 0)


def test_a_look_of_another_version(own_store: Path) -> None:
    """A look that this version cannot read is an error that names the run, not a comparison with nothing."""
    store = connect()
    run = WatchRun(store, "a", "b", "c")
    store.client.log_text(run.run_id, '{"at": "today"}', "history/000000.json")
    with pytest.raises(FaithDspyError, match=rf"MLflow run {run.run_id} is not one .* Delete the run"):
        WatchRun(store, "a", "b", "c")


CONTEXT = ["The kettle is blue."]
LABELS = [
    {
        "id": f"{word}{i}",
        "context": [*CONTEXT, f"Number {i}."],
        "answer": f"It is {word} {i}.",
        "faithful": word == "blue",
    }
    for word in ("blue", "red")
    for i in range(12)
]


def test_agree_on_a_schedule(
    own_store: Path, chat_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`agree --track` asks the LM anew, exits 1 with the reason when it has become worse, and lists what flipped."""
    Path("anchor.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LABELS))
    server = chat_server(yes={str(r["answer"]): 0.9 if r["faithful"] else 0.1 for r in LABELS})

    def agree(*more: str) -> tuple[int, Any, str]:
        at = ("--lm", "openai/tiny", "--api-base", server.base, "--track", "--json")
        monkeypatch.setattr(sys, "argv", ["faith-dspy", "agree", "anchor.jsonl", *at, *more])
        code = 0
        try:
            main()
        except SystemExit as exc:
            code = int(exc.code or 0)
        out = capsys.readouterr()
        return code, json.loads(out.out), out.err

    code, found, _ = agree("--min", "0.9")
    assert (code, found["watch"]["step"], found["alarms"]) == (0, 0, [])
    server.says = server._yes({str(r["answer"]): 0.1 for r in LABELS})  # the LM behind the name has changed
    code, found, err = agree("--max-drift", "1")
    assert (code, found["watch"]["step"], found["balanced_accuracy"]["value"]) == (1, 1, 0.5)
    assert len(found["watch"]["flips"]) == 12
    assert not found["watch"]["other_version"]
    assert "failed: worse than the last time" in err
