import json
import math
from pathlib import Path

import pytest
from made import rows

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.drift import DriftRun, drift_report, drift_tables, faithful_share, ppi_mean
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.schema import Judgment, Unscored

GOOD = [0.9] * 20 + [0.1] * 20
"""Twenty faithful answers passed, twenty unfaithful ones failed."""
WORSE = [0.4] * 10 + GOOD[10:]
"""Ten of the faithful ones failed: balanced accuracy (1/2 + 1)/2."""
LABELLED = [
    parse_example({"id": f"a{i:02}", "group": f"g{i}", "context": ["c"], "answer": f"Answer {i}.", "faithful": i < 20})
    for i in range(40)
]


def judgments(scores):
    return [
        Judgment(unscored=Unscored.LM_FAILED) if s is None else Judgment(score=s, faithful=s >= 0.5, probability=s)
        for s in scores
    ]


def report(scores, judge="v1", unlabelled=(), **more):
    return drift_report(LABELLED, judgments(scores), judge, unlabelled=judgments(unlabelled), **more)


def test_worse_than_the_last_report():
    """−25 points of balanced accuracy, paired, and ten flips to wrong; the first has nothing to compare with."""
    first = report(GOOD, minimum=1.0)
    assert (first.alarms, first.flips, first.changes) == ((), (), ())
    found = report(WORSE, "v2", earlier=[first], minimum=0.8)
    (change,) = found.changes
    assert change.comparison.balanced_accuracy.value == pytest.approx(-0.25)
    assert [f.id for f in found.flips] == [f"a{i:02}" for i in range(10)]
    assert (found.flips[0].label, found.flips[0].before, found.flips[0].now) == (True, True, False)
    assert (found.new_version, change.since, change.coverage) == (True, "last", 0.0)
    assert found.alarms[0] == "balanced accuracy is 0.750, below the minimum of 0.8."
    assert found.alarms[1].startswith("worse than the last report")
    drift, flips = drift_tables(found)
    assert "10 verdicts flipped, 10 of them to wrong or unscored; another version of the judge." in drift.notes
    assert flips.rows[0] == ("Answer 0.", "faithful", "faithful", "unfaithful", "a00")


def test_a_slow_decline_is_found():
    """Each step is too small to tell from the last report, but not from the first."""
    found = report([0.4] * 6 + GOOD[6:], earlier=[report(GOOD), report([0.4] * 5 + GOOD[5:])])
    assert {c.since: c.comparison.verdict for c in found.changes} == {"last": "not shown better", "first": "worse"}
    assert [a.partition(" (")[0] for a in found.alarms] == ["worse than the first report"]
    with pytest.raises(InputError, match="other labels"):
        drift_report(LABELLED[1:], judgments(GOOD[1:]), "v1", earlier=[report(GOOD)])


def test_lost_coverage():
    """It raises an alarm; the share of faithful answers in the traffic is estimated all the same.

    Where nothing was scored no number is made up: the minimum is missed because nothing is known.
    """
    now = report([*GOOD[:28], *[None] * 12], earlier=[report(GOOD)], unlabelled=[0.9] * 5, max_shift=0.29)
    assert now.changes[0].coverage == pytest.approx(-0.3)
    assert now.prevalence is not None
    assert len(now.flips) == 12
    assert now.alarms[-1].startswith("the coverage has changed by -0.30 since the last report (")
    nothing = report([None] * 40, earlier=[report(GOOD)], minimum=0.5)
    assert nothing.alarms[0].startswith("balanced accuracy is unknown (no answer was scored)")
    assert "coverage -1.00" in nothing.changes[0].sentence


def test_reports_are_kept_in_one_run(own_store):
    """Each report is a step of the metrics of one run, and the next is compared with the first and the last.

    A report that this version cannot read is an error that names the run, not a comparison with nothing.
    """
    store = connect()

    def run(labels_hash="5ab1"):
        return DriftRun(store, "models:/faithfulness@champion", "labels.jsonl", labels_hash)

    for scores in (GOOD, GOOD, WORSE):
        now = run()
        now.log(report(scores, earlier=now.earlier))
    again = run()
    assert (again.run_id, again.steps) == (now.run_id, 3)
    assert [r.agreement.answers.balanced_accuracy.value for r in again.earlier] == [1.0, 0.75]
    history = store.client.get_metric_history(now.run_id, "labelled/balanced_accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (1, 1.0), (2, 0.75)]
    flips = Path(store.client.download_artifacts(now.run_id, "flips.csv")).read_text().splitlines()
    assert flips[1] == "Answer 0.,faithful,faithful,unfaithful,a00"
    kept = store.client.get_run(now.run_id)
    assert kept.info.status == "FINISHED"
    assert kept.data.tags["alarms"].startswith("worse than the last report")
    assert "Alarms\n\n- worse than the last report" in kept.data.tags["mlflow.note.content"]
    other = run("0ther")
    assert other.earlier == ()
    store.client.log_text(other.run_id, '{"at": "today"}', "history/000000.json")
    with pytest.raises(FaithDspyError, match=rf"MLflow run {other.run_id} is not a drift report .* Delete the run"):
        run("0ther")


def test_on_the_command_line(own_store, chat_server, cli):
    """`agree --track` keeps reports: when the LM behind the name has changed, the next one alarms."""
    labels = [
        {"context": ["The kettle is blue.", f"Number {i}."], "answer": f"It is {word} {i}.", "faithful": word == "blue"}
        for word in ("blue", "red")
        for i in range(12)
    ]
    Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    server = chat_server(says=lambda asked: "Yes" if "blue" in server.statement(asked) else "No")

    def agree(*more):
        at = ("--lm", "openai/tiny", "--api-base", server.base, "--track", "--json")
        code, out, err = cli("agree", "labels.jsonl", *at, *more)
        return code, json.loads(out), err

    code, found, _ = agree("--min", "0.9")
    assert (code, found["drift"]["step"], found["alarms"]) == (0, 0, [])
    server.says = "No"
    code, found, err = agree("--max-drift", "1")
    assert (code, found["drift"]["step"], found["balanced_accuracy"]["value"]) == (1, 1, 0.5)
    assert (len(found["drift"]["flips"]), found["drift"]["new_version"]) == (12, False)
    assert "worse than the last report" in err


def labelled_scores(scores, labels):
    return [r.row for r in rows(scores, labels)]


def test_traffic_is_held_against_the_labels():
    """The same scores on both sides: the share is that of the labels. Scores that the labelled answers never had: the
    labels no longer fit, and the sentence says what to do."""
    labels = [i % 4 != 0 for i in range(80)]
    scores = [0.8 if ok else 0.3 for ok in labels]
    alike = faithful_share(labelled_scores(scores, labels), scores * 5)
    assert alike.labels_fit
    assert abs(alike.share.powered.value - 0.75) < 0.01
    other = faithful_share(labelled_scores([0.8 if ok else 0.6 for ok in labels], labels), [0.1] * 200)
    assert not other.labels_fit
    assert "Label a random sample" in other.sentence


def test_prediction_powered_share_worked_by_hand():
    """The powered share is the labels' mean, moved by λ times how far the scores differ on the unlabelled answers."""
    # Labels 1 0 1 0, scores .8 .2 .4 .6 | unlabelled .8 .8 .6 .6. cov(Y, F): .5 (.3 + .3 - .1 - .1) / 3 = .2 / 3.
    # var of all eight scores (mean .6): squares .04 .16 .04 0 .04 .04 0 0 -> .32 / 7. n/N = 1.
    # λ = (.2 / 3) / (2 * .32 / 7) = .729. Share = .5 + λ (.7 - .5).
    share = ppi_mean([0.8, 0.2, 0.4, 0.6], [True, False, True, False], [0.8, 0.8, 0.6, 0.6])
    weight = (0.2 / 3) / (2 * 0.32 / 7)
    assert (share.weight, share.powered.value) == (pytest.approx(weight), pytest.approx(0.5 + 0.2 * weight))
    # Variance: λ² var(F_u) / 4 + var(Y - λF) / 4; Y - λF is .5 ± (.5 - .3 λ) and .5 ± (.5 + .1 λ), less λ/2.
    variance = (weight**2 * 0.04 + 2 * (0.5 - 0.3 * weight) ** 2 + 2 * (0.5 + 0.1 * weight) ** 2) / 12
    z = 1.959964
    assert share.powered.low == pytest.approx(share.powered.value - z * math.sqrt(variance))
    # Wilson for 2 of 4: .5 ± 1.96 sqrt(.25/4 + 1.96²/64) / (1 + 1.96²/4)
    assert share.labels_only.high == pytest.approx(0.5 + z * math.sqrt(0.0625 + z**2 / 64) / (1 + z**2 / 4), abs=1e-6)
    # Scores that follow the labels more steeply than one to one count once: λ = 1.458 is cut.
    assert ppi_mean([0.8, 0.2, 0.6, 0.4], [True, False, True, False], [0.8, 0.8, 0.6, 0.6]).weight == 1.0


def test_useless_scores_are_not_used():
    """Constant scores get weight 0 and leave the labels' mean; labels all alike give no normal interval."""
    share = ppi_mean([0.5] * 4, [True, False, True, True], [0.5, None, 0.5])
    assert (share.weight, share.powered.value) == (0.0, 0.75)
    same = ppi_mean([0.9, 0.8], [True, True], [0.9, 0.1])
    assert (same.powered.low, same.labels_only.low is None) == (None, False)
    with pytest.raises(InputError, match="expected at least 2 of each"):
        ppi_mean([0.5], [True], [0.5])
