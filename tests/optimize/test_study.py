import json
import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import (
    InputError,
    LimitReachedError,
    LMUnavailableError,
)
from faith_dspy.eval_sets.catalog import load
from faith_dspy.io.labels import label_set_hash, parse_example, read_labels
from faith_dspy.optimize.data.pool import Partition
from faith_dspy.optimize.plan import BUDGETS, VARIANTS, Options, Study, Variant
from faith_dspy.optimize.report.headline import of_study
from faith_dspy.optimize.results import BASELINES, CALIBRATED, COLUMN, FUNCTION, UNTUNED
from faith_dspy.optimize.select.ask import in_minutes
from faith_dspy.optimize.stress import stress
from faith_dspy.optimize.study import run, study_id
from faith_dspy.optimize.tracking.store import connect, read_study
from tests.support.files import MAIN, blue_kettles, write_lines
from tests.support.studies import (
    CITIES,
    Quiet,
    Record,
    knowing,
    labels,
    log_little,
    quick_study,
)
from tests.support.teachable import TeachableLM, annotated


def test_a_study_ends_in_a_champion_that_loads_and_judges_as_it_did(recorded):
    """It knows the labels it was tuned on, so that `agree` on them is told apart from agreement with people."""
    result, _, server, folder = recorded
    everyone = ["champion", *BASELINES]
    everyone = [name for name in everyone if name not in (FUNCTION, COLUMN)]
    for measured, n in ((result.cv, 24), (result.test, 12)):
        assert [judge.name for judge in measured.judges] == everyone
        assert {judge.agreement.n for judge in measured.judges} == {n}
    judge = load_judge(folder / "judge", api_base=server.base)
    examples = read_labels(folder / "cities.jsonl")
    assert judge.manifest["label_set_hash"] == label_set_hash(examples)
    tested = {row.id: row for row in result.test.champion.rows}
    for judgment in judge.batch([e for e in examples if e.id in tested]):
        row = tested[judgment.id]
        assert judgment.faithful == row.predicted
        assert judgment.probability == pytest.approx(row.probability)


def cities_in(text):
    return {city for city in CITIES if f"of {city}" in text or f"in {city}" in text}


def test_the_test_is_not_asked_about_before_the_champion_is_chosen(recorded):
    """No test context reaches the LM before the choice, and only the champion and its baselines ever see them."""
    begun = [n for what, n in recorded.view.tasks.items() if what.endswith(": test")]
    assert 1 <= len(begun) <= 3
    own = set(CITIES[2::3])
    asked = [r["messages"][-1]["content"] for r in recorded.server.requests]
    assert not any(cities_in(text) & own for text in asked[: begun[0]])
    assert all(cities_in(text) & own for text in asked[begun[0] :])


def test_no_answer_is_judged_by_a_prompt_that_shows_its_source(recorded):
    """Half of the sources show the examples by which the other half is judged."""
    prompts = [r["messages"] for r in recorded.server.requests]
    few_shot = [messages for messages in prompts if len(messages) > 2]
    assert few_shot
    for *shown, request in few_shot:
        examples = cities_in(" ".join(m["content"] for m in shown))
        assert examples
        assert not examples & cities_in(request["content"])


def test_a_study_says_what_it_will_take_before_it_goes_on(recorded):
    """After five answers: 24 of the pool take two calls by each of three variants, 12 of the test two, at 40 tokens
    read and 5 written."""
    lines = recorded.view.lines
    (said,) = (line for line in lines if line.startswith("The study will take"))
    calls = 24 * (2 + 2 + 2) + 12 * 2
    assert f"about {calls} LM calls, {45 * calls:,} tokens" in said
    minutes = [in_minutes(estimate) for estimate in (0.3, 1.2, 7.0)]
    assert minutes == ["1 minute", "1 to 2 minutes", "5 to 10 minutes"]


def test_a_study_may_ask_no_lm(tmp_path, chat_server):
    """Words alone are tuned, measured and exported: nothing is reached, and nothing else recommended."""
    dead = chat_server()
    dead.close()
    result = quick_study(tmp_path, dead, "lexical")
    assert result.cv.judge(CALIBRATED) is None
    assert result.usage.calls == 0
    assert of_study(result).notes[2].startswith("Next: use it (free): ")
    assert not load_judge(tmp_path / "judge").asks_lm


def test_a_column_is_a_candidate_and_what_needs_it_says_so(tmp_path, chat_server):
    """By itself, with words and with the LM. An answer without it is unscored, and no LM is asked about it."""
    server = chat_server(says=knowing)
    path = labels(tmp_path / "l.jsonl", parts=False, swapped=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for i, row in enumerate(rows):
        is_false = "no_evidence" in str(row["statements"])
        row["risk"] = f"{10 + 70 * is_false + i % 7} %"
    asks = {"lm": "openai/tiny", "api_base": server.base, "variants": "sentence"}
    options = Options(**asks, scores="!risk", out=tmp_path / "j")
    view = Quiet()
    result = run(write_lines(path, rows), options, view, tracker=Record)
    assert "Column: a higher 'risk' is read as less faithful." in view.lines
    names = {c.name for c in result.candidates}
    assert {"column risk", "lexical, with risk", "sentence, with risk"} < names
    assert result.chosen.columns == ("risk",)
    assert result.cv.judge(COLUMN).agreement.n == 36
    assert "use it on answers that have 'risk'" in of_study(result).notes[2]
    judge = load_judge(tmp_path / "j", api_base=server.base)
    asked = len(server.requests)
    row = {name: rows[0][name] for name in ("question", "context", "answer")}
    risky = [row | {"risk": risk} for risk in (0.1, 0.8, "101 %")]
    good, bad, strange = judge.batch(risky)
    assert (good.faithful, bad.faithful) == (True, False)
    assert strange.unscored == "parse_failed"
    assert len(server.requests) == asked
    with pytest.raises(InputError, match="'risk', which was not recorded"):
        stress(judge, read_labels(path))


def test_few_labels_give_a_judge(tmp_path, monkeypatch, chat_server):
    """Ten answers, three sources of the rarer label: each is in the figures once, by what was fitted without it.

    A labels file whose name is dots gives the judge a folder of its own, never the one that holds it.
    """
    monkeypatch.chdir(tmp_path)
    rows = blue_kettles(7)
    path = write_lines(tmp_path / "...jsonl", [*rows[::2], *rows[1:6:2]])
    server = chat_server()
    server.says = lambda asked: "Yes" if "blue" in server.statement(asked) else "No"
    names = ("sentence", "sentence-few-shot")
    options = Options(lm="openai/tiny", api_base=server.base, variants=names)
    result = run(path, options, Quiet(), tracker=Record)
    for judge in result.cv.judges:
        assert len({r.id for r in judge.rows}) == len(judge.rows) == 10
    assert load_judge("judges/judge")


def test_an_endpoint_that_is_down_is_found_before_any_work(tmp_path, chat_server):
    """The judge's, or that of the LM that proposes instructions, which has an address of its own."""
    server, dead = chat_server(says=knowing), chat_server()
    dead.close()
    with pytest.raises(LMUnavailableError, match=r"does not answer"):
        quick_study(tmp_path, dead, "sentence")
    proposer = {"reflection_lm": "openai/big", "reflection_api_base": dead.base}
    with pytest.raises(LMUnavailableError, match=r"openai/big .*does not answer"):
        quick_study(tmp_path, server, "sentence", "sentence-gepa", **proposer)
    assert server.requests == []


def test_a_recall_that_the_labels_cannot_carry_is_refused(tmp_path):
    """Nothing is exported."""
    rows = blue_kettles(20)
    options = Options(lm="none", operating_point="recall=0.99", out=tmp_path / "j")
    said = (
        r"^.*recall=0\.99: got 20 unfaithful answers to fit on, expected at least 99.*$"
    )
    with pytest.raises(InputError, match=said):
        run(rows, options, Quiet(), tracker=Record)
    assert not (tmp_path / "j").exists()


def test_a_limit_stops_the_study_and_a_higher_one_goes_on_where_it_stopped(
    tmp_path, chat_server
):
    """Of 40 calls the first variant takes 48; the next run pays for the rest alone."""
    server = chat_server(says=knowing)
    with pytest.raises(
        LimitReachedError,
        match=r"limit of 40 calls is reached, after 0 variants of 1\. .*higher limit",
    ):
        quick_study(tmp_path, server, "sentence", swapped=True, calls=40)
    assert not (tmp_path / "judge" / "judge.json").exists()
    assert len(server.requests) <= 40
    result = quick_study(tmp_path, server, "sentence", swapped=True, calls=200)
    assert result.replayed >= 35


def test_a_champion_that_injections_flip_is_held_back(
    tmp_path, chat_server, monkeypatch
):
    """It is put under stress on the pool alone, and exported all the same; a run not finished fails, too. Judges are
    compared at the operating point."""

    def stress(judge, examples, **_):
        assert {e.split for e in examples} == {"train", "dev"}
        return SimpleNamespace(flip_rate=0.5, flipped=lambda most: [f"over {most}."])

    def cut_short(*_, **__):
        raise LimitReachedError("the limit of 60 calls is reached")

    server = chat_server(says=knowing)
    options = {"max_flips": 0.25, "operating_point": "cost=3"}
    monkeypatch.setattr("faith_dspy.optimize.study.stress", stress)
    result = quick_study(tmp_path, server, "answer", **options)
    assert (result.held_back, result.flip_rate) == (("over 0.25.",), 0.5)
    assert result.notes[-1] == "Held back: over 0.25."
    assert all("cost=3" in c.sentence for c in result.cv.comparisons.values())
    assert (tmp_path / "judge" / "judge.json").is_file()
    monkeypatch.setattr("faith_dspy.optimize.study.stress", cut_short)
    result = quick_study(tmp_path, server, "answer", max_flips=1.0)
    unfinished = "the stress run on the pool was not finished: the limit of 60 calls"
    assert result.held_back == (f"{unfinished} is reached.",)
    assert result.flip_rate is None


def test_a_recall_is_caught_by_every_candidate(tmp_path, chat_server):
    """Nine of ten: a cascade has one threshold, fitted for it, as all others have."""
    server = chat_server(says=knowing)
    point = {"operating_point": "recall=0.9", "swapped": True}
    result = quick_study(tmp_path, server, "sentence", **point)
    for candidate in result.candidates:
        # The (12 + 1) · .9 = twelfth lowest of 12.
        assert candidate.agreement.recall_unfaithful.value == 1


def test_variants_of_a_file_may_have_their_own_lm(tmp_path, chat_server):
    """The second LM judges."""
    first, second = chat_server(says="Yes"), chat_server(says=knowing)
    plan = tmp_path / "plan.toml"
    at = f"lm = 'openai/tiny'\napi_base = '{second.base}'"
    plan.write_text(f"[[variants]]\nname = 'answer'\n{at}")
    quick_study(tmp_path, first, variants=plan)
    assert first.requests == []
    assert len(second.requests) >= 24


def test_whatever_changes_the_outcome_changes_the_id():
    """A label, the parts, the LM's file, budget, variants with their options and order, seed, operating point.

    The order of the lines and what may be spent do not: the study goes on in its run.
    """
    made = {"context": ["c"], "answer": "a", "faithful": True}
    pool = [parse_example(made | {"id": f"{i}", "faithful": i > 4}) for i in range(10)]
    lm = {"model": "openai/tiny", "sha256": "ab", "api_base_hash": "cd"}
    quick, answer, sentence = BUDGETS["quick"], VARIANTS["answer"], VARIANTS["sentence"]

    def identity(pool=pool, test=(), lm=lm, budget=quick, variants=(answer,), **more):
        partition = Partition(pool, {}, test, [], [])
        study = Study(Options(**more), budget, [*variants], partition, Quiet())
        return study_id(study, lm)

    turned = pool[0].model_copy(update={"faithful": True})
    strict = Variant(name="mine", granularity="answer", criteria="Dates count.")
    several = [answer, sentence], [sentence, answer], [strict]
    ids = {
        identity(),
        identity([turned, *pool[1:]]),
        identity(pool[:9], pool[9:]),
        identity(lm=lm | {"sha256": "other"}),
        identity(budget=BUDGETS["standard"]),
        *(identity(variants=variants) for variants in several),
        identity(seed=1),
        identity(operating_point="cost=2"),
    }
    assert len(ids) == 10
    longer = quick.model_copy(update={"minutes": 99})
    assert identity(pool[::-1], budget=longer, calls=9) in ids


def test_an_lm_that_can_be_taught_is_taught(own_store, monkeypatch, cli):
    """With nothing but an LM: annotators accept rounded figures and reject what drops a condition, the LM does neither.
    Half of its verdicts are wrong before, and on other sources at most a tenth of the exported judge's."""
    log_little(monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    write_lines("labels.jsonl", annotated())
    write_lines("others.jsonl", annotated(sources=40, first=1000))
    with closing(TeachableLM()) as lm:
        at = ("--api-base", lm.base)
        code, out, err = cli("tune", "labels.jsonl", "--lm", "openai/tiny", *at)
        assert code == 0, err
        told = cli("agree", "others.jsonl", "--judge", "judges/labels", *at, "--json")
    found = json.loads(told[1])
    assert found["balanced_accuracy"]["value"] >= 0.9
    over_words = found["against_lexical_baseline"]
    assert (over_words["n"], over_words["verdict"]) == (120, "better")
    assert (
        "over the lexical baseline (no LM). In its study" in found["in_three_lines"][1]
    )
    study = read_study("judges/labels")
    assert study.cv.judge(UNTUNED).agreement.balanced_accuracy.value == 0.5
    assert study.cv.champion.agreement.n == 96
    assert "cross-validated" in out
    assert "Compiled prompts against" in Path("judges/labels/CARD.md").read_text()


def tuning(tmp_path, server):
    """`faith-dspy tune` in a process of its own, with a cache of its own."""
    cache = {"DSPY_CACHEDIR": str(tmp_path / "cache")}
    env = os.environ | cache | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    told = f"tune l.jsonl --lm openai/tiny --api-base {server.base} --variants sentence --budget quick"
    return subprocess.Popen(
        [*MAIN, *told.split()],
        cwd=tmp_path, env=env, text=True, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in the background
    )  # fmt: skip


def wait_for(server, n):
    """Wait until that many requests have come, for five minutes at most."""
    for _ in range(6000):
        if len(server.requests) >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"only {len(server.requests)} requests came")


@pytest.mark.all
@pytest.mark.timeout(900)
def test_nothing_paid_for_is_lost_by_kill_9(tmp_path, chat_server):
    """A study killed in the middle goes on where it was: no request but those cut off is made twice."""
    server = chat_server(says=knowing)
    server.delay = 0.05
    labels(tmp_path / "l.jsonl")
    killed = tuning(tmp_path, server)
    wait_for(server, 30)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    server.delay = 0.0
    second = tuning(tmp_path, server)
    _, err = second.communicate(timeout=400)
    assert second.returncode == 0, err
    bodies = [json.dumps(r["messages"]) for r in server.requests]
    # one a thread was in flight when it was killed, and as many replies at most were on their way to the cache
    assert len(bodies) - len(set(bodies)) <= 20
    assert (tmp_path / "judges" / "l" / "judge.json").is_file()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (signal.SIGINT, 130, "to continue"),
        pytest.param(signal.SIGTERM, 143, "", marks=pytest.mark.all),
    ],
)
def test_a_study_that_is_stopped_ends_without_a_traceback(
    tmp_path, chat_server, sent, code, told
):
    """Before the untuned judge is finished there is nothing to export; its run in MLflow ends, too."""
    server = chat_server(says=knowing)
    server.delay = 0.3
    labels(tmp_path / "l.jsonl")
    process = tuning(tmp_path, server)
    wait_for(server, 5)
    os.killpg(process.pid, sent)
    _, err = process.communicate(timeout=400)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert told in err
    store = connect(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    studies = "tags.`faith_dspy.kind` = 'study'"
    (kept,) = store.client.search_runs([store.experiment_id], studies)
    assert kept.info.status == "KILLED"


@pytest.mark.all
@pytest.mark.lm
def test_the_embedded_model_is_tuned_end_to_end(tmp_path):
    """The main job on the real model, with six contexts: labels in, champion out, loaded and judging."""
    examples = load("quickstart")
    groups = sorted({e.group for e in examples})[:6]
    options = Options(budget="quick", out=tmp_path / "judge", variants=("sentence",))
    chosen = [e for e in examples if e.group in groups]
    result = run(chosen, options, Quiet(), tracker=Record)
    assert result.cv.champion.agreement.coverage >= 0.75
    judge = load_judge(tmp_path / "judge")
    context = ["The pool opens at 7:00 on weekdays.", "On Sundays it is closed."]
    supported, invented = (
        judge(context=context, answer=said) for said in (context[0], "It is old.")
    )
    assert supported.probability > invented.probability
