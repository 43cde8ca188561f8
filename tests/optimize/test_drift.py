import json
import math
from pathlib import Path

import pytest

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.drift import (
    DriftRun,
    drift_report,
    drift_tables,
    estimate_share,
)
from faith_dspy.optimize.results import Row
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.schema import Judgment, Unscored
from tests.support.files import blue_kettles, write_lines

GOOD = [0.9] * 20 + [0.1] * 20
"""Twenty faithful answers passed, twenty unfaithful ones failed."""
WORSE = [0.4] * 10 + GOOD[10:]
"""Ten of the faithful ones failed: balanced accuracy (1/2 + 1)/2."""
LABELLED = [
    parse_example(
        {
            "id": f"a{i:02}",
            "group": f"g{i}",
            "context": ["c"],
            "answer": f"Answer {i}.",
            "faithful": i < 20,
        }
    )
    for i in range(40)
]


def judgments(scores):
    return [
        Judgment(unscored=Unscored.LM_FAILED)
        if s is None
        else Judgment(score=s, faithful=s >= 0.5, probability=s)
        for s in scores
    ]


def report(scores, judge="v1", **more):
    return drift_report(LABELLED, judgments(scores), judge, **more)


def test_worse_than_the_last_report():
    """−25 points of balanced accuracy, paired, and ten flips to wrong; the first has nothing to compare with."""
    first = report(GOOD, minimum=1.0)
    assert (first.alarms, first.flips, first.changes) == ((), (), ())
    worse = report(WORSE, "v2", earlier=[first], minimum=0.8)
    (change,) = worse.changes
    assert change.comparison.balanced_accuracy.value == pytest.approx(-0.25)
    assert (worse.new_version, change.since, change.coverage) == (True, "last", 0.0)
    assert [f.id for f in worse.flips] == [f"a{i:02}" for i in range(10)]
    low, decline = worse.alarms
    assert low == "balanced accuracy is 0.750, below the minimum of 0.8."
    assert decline.startswith("worse than the last report")
    drift, flips = drift_tables(worse)
    flipped = "10 verdicts flipped, 10 of them to wrong or unscored"
    assert f"{flipped}; another version of the judge." in drift.notes
    assert flips.rows[0] == ("Answer 0.", "faithful", "faithful", "unfaithful", "a00")


def test_a_slow_decline_is_found():
    """Each step is too small to tell from the last report, but not from the first."""
    found = report(
        [0.4] * 6 + GOOD[6:], earlier=[report(GOOD), report([0.4] * 5 + GOOD[5:])]
    )
    assert {c.since: c.comparison.verdict for c in found.changes} == {
        "last": "inconclusive",
        "first": "worse",
    }
    assert [a.partition(" (")[0] for a in found.alarms] == [
        "worse than the first report"
    ]
    with pytest.raises(InputError, match="other labels"):
        drift_report(LABELLED[1:], judgments(GOOD[1:]), "v1", earlier=[report(GOOD)])


def test_lost_coverage():
    """It raises an alarm, and an unscored answer counts as wrong against the minimum: twenty of twenty faithful answers
    passed and eight of twenty unfaithful ones failed are .7, and no answer scored is 0."""
    bars = {"minimum": 0.71, "min_coverage": 0.7, "max_shift": 0.29}
    now = report([*GOOD[:28], *[None] * 12], earlier=[report(GOOD)], **bars)
    assert now.changes[0].coverage == pytest.approx(-0.3)
    assert len(now.flips) == 12
    wrong = "unscored answers counted as wrong), below the minimum of"
    assert now.alarms[0] == f"balanced accuracy is 0.700 (12 {wrong} 0.71."
    change = "the coverage has changed by -0.30 since the last report ("
    assert now.alarms[-1].startswith(change)
    nothing = report([None] * 40, earlier=[report(GOOD)], minimum=0.5)
    assert nothing.alarms[1].startswith(f"balanced accuracy is 0.000 (40 {wrong}")


def test_reports_are_kept_in_one_run(own_store):
    """Each report is a step of the metrics of one run, and the next is compared with the first and the last.

    A report that this version cannot read is an error that names the run, not a comparison with nothing.
    """
    store = connect()

    def run(labels_hash="5ab1"):
        return DriftRun(
            store, "models:/faithfulness@champion", "labels.jsonl", labels_hash
        )

    for scores in (GOOD, GOOD, WORSE):
        now = run()
        now.log(report(scores, earlier=now.earlier))
    again = run()
    assert (again.run_id, again.steps) == (now.run_id, 3)
    assert [r.agreement.answers.balanced_accuracy.value for r in again.earlier] == [
        1.0,
        0.75,
    ]
    history = store.client.get_metric_history(now.run_id, "labelled/balanced_accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (1, 1.0), (2, 0.75)]
    flips = (
        Path(store.client.download_artifacts(now.run_id, "flips.csv"))
        .read_text()
        .splitlines()
    )
    assert flips[1] == "Answer 0.,faithful,faithful,unfaithful,a00"
    kept = store.client.get_run(now.run_id)
    assert kept.info.status == "FINISHED"
    assert kept.data.tags["alarms"].startswith("worse than the last report")
    assert (
        "Alarms\n\n- worse than the last report"
        in kept.data.tags["mlflow.note.content"]
    )
    other = run("0ther")
    assert other.earlier == ()
    store.client.log_text(other.run_id, '{"at": "today"}', "first.json")
    store.client.set_tag(other.run_id, "faith_dspy.reports", "1")
    with pytest.raises(
        FaithDspyError,
        match=rf"MLflow run {other.run_id} is not a drift report .* Delete the run",
    ):
        run("0ther")


def test_on_the_command_line(own_store, chat_server, cli):
    """`agree --track` keeps reports: when the LM behind the name has changed, the next one alarms."""
    write_lines("labels.jsonl", blue_kettles(12))
    server = chat_server(
        says=lambda asked: "Yes" if "blue" in server.statement(asked) else "No"
    )

    def agree(*more):
        at = ("--lm", "openai/tiny", "--api-base", server.base, "--track", "--json")
        code, out, err = cli("agree", "labels.jsonl", *at, *more)
        return code, json.loads(out), err

    code, found, _ = agree("--min", "0.9")
    assert (code, found["drift"]["step"], found["alarms"]) == (0, 0, [])
    server.says = "No"
    code, found, err = agree("--max-drift", "1")
    assert (code, found["drift"]["step"], found["balanced_accuracy"]["value"]) == (
        1,
        1,
        0.5,
    )
    assert (len(found["drift"]["flips"]), found["drift"]["new_version"]) == (12, False)
    assert "worse than the last report" in err


def labelled_scores(scores, labels, sources=None):
    sources = sources or [f"s{i}" for i in range(len(labels))]
    return [
        Row(
            id=f"a{i}",
            source=source,
            label=bool(label),
            predicted=None,
            probability=score,
        )
        for i, (score, label, source) in enumerate(
            zip(scores, labels, sources, strict=True)
        )
    ]


def test_prediction_powered_share_worked_by_hand():
    """The powered share is the labels' mean, moved by λ times how far the scores differ on the unlabelled answers."""
    # Labels 1 0 1 0, scores .8 .2 .4 .6 | unlabelled .8 .8 .6 .6, each a source of its own.
    # cov(Y, F) = .5 (.3 + .3 - .1 - .1) / 3 = .2 / 3; var(F) = (.09 + .09 + .01 + .01) / 3 = .2 / 3.
    # var(F_N) = .04 / 3. λ = (.2 / 12) / (.2 / 12 + .04 / 12) = 5/6. Share = .5 + 5/6 (.7 - .5).
    labelled = labelled_scores([0.8, 0.2, 0.4, 0.6], [1, 0, 1, 0])
    share = estimate_share(labelled, [0.8, 0.8, 0.6, 0.6])
    assert (share.weight, share.powered.value) == (
        pytest.approx(5 / 6),
        pytest.approx(0.5 + 1 / 6),
    )
    # Variance: λ² .04 / 12 + Σ r² / 12; r is ± (.5 - .3 λ) = ± .25 twice and ± (.5 + .1 λ) = ± .58333 twice.
    variance = (25 / 36 * 0.04 + 2 * 0.25**2 + 2 * 0.583333**2) / 12
    t = 3.182446  # 97.5 % with 3 degrees of freedom
    assert share.powered.low == pytest.approx(
        max(0, 2 / 3 - t * math.sqrt(variance)), abs=1e-5
    )
    # From the labels alone: variance (4 · .25) / 12.
    assert share.labels_only.high == pytest.approx(min(1, 0.5 + t * math.sqrt(1 / 12)))
    # Scores that follow the labels more steeply than one to one count once: λ is cut.
    steep = labelled_scores([0.55, 0.45, 0.55, 0.45], [1, 0, 1, 0])
    assert estimate_share(steep, [0.5, 0.55, 0.5, 0.55]).weight == 1.0


def test_useless_scores_are_not_used():
    """Constant scores get weight 0 and leave the labels' mean; labels all alike get the interval of a share (Wilson),
    each source counted once: two of two."""
    share = estimate_share(labelled_scores([0.5] * 4, [1, 0, 1, 1]), [0.5, None, 0.5])
    assert (share.weight, share.powered.value) == (0.0, 0.75)
    same = estimate_share(
        labelled_scores([0.9, 0.8, 0.9], [1, 1, 1], ["a", "a", "b"]), [0.9, 0.1]
    )
    # Wilson's lower end of 2 of 2: n / (n + z²) = 2 / 5.8415.
    assert (same.powered.value, same.powered.low) == (
        1.0,
        pytest.approx(0.3424, abs=1e-4),
    )
    with pytest.raises(
        InputError,
        match="over 1 source and unlabelled ones over 1, expected at least 2 of each",
    ):
        estimate_share(labelled_scores([0.5, 0.6], [1, 0], ["a", "a"]), [0.5])


def test_five_copies_of_an_answer_tell_no_more_than_one():
    """Rows of one source are one draw: the interval is that of the sources alone, not √5 narrower."""
    scores, labels = [0.8, 0.2, 0.4, 0.6], [1, 0, 1, 0]
    more, sources = [0.8, 0.8, 0.6, 0.6], ["w", "x", "y", "z"]
    once = estimate_share(labelled_scores(scores, labels), more)
    copied = estimate_share(
        labelled_scores(scores * 5, labels * 5, sources * 5), more * 5, sources * 5
    )
    assert copied.powered.low == pytest.approx(once.powered.low)
    assert (copied.labelled, copied.sources) == (20, 4)
