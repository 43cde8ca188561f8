import json
import os
import signal
import subprocess
import time

import pytest

from faith_dspy import load_judge, tune
from faith_dspy.errors import (
    ConfigError,
    InputError,
    LimitReachedError,
    LMUnavailableError,
)
from faith_dspy.eval_sets.catalog import load
from faith_dspy.io.labels import label_set_hash, parse_example, read_labels
from faith_dspy.lm.make import LMIdentity
from faith_dspy.optimize.plan import BUDGETS, VARIANTS, Options, Plan
from faith_dspy.optimize.stress import StressReport
from faith_dspy.optimize.study import run, study_id
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.scoring.statistics import wilson
from tests.support.files import MAIN
from tests.support.studies import CITIES, Quiet, Record, knowing, labels, quick_study


def test_a_study_ends_in_a_champion_that_loads_and_judges_as_it_did(recorded):
    """It knows the labels it was tuned on, so that `agree` on them is told apart from agreement with people."""
    result, _, server, folder = recorded
    names = {v.name for v in result.variants}
    assert {"lexical-baseline", "lexical, default"} <= names
    for variant in ("answer", "sentence", "sentence-few-shot"):
        calibrated, cascade = f"{variant}, LM calibrated", f"lexical, then {variant}"
        assert {variant, calibrated, cascade} <= names
    others = ["lm-calibrated", "lexical-baseline", "untuned", "length-baseline"]
    assert [t.name for t in result.test] == ["champion", *others]
    assert {t.agreement.n for t in result.test} == {12}
    assert result.opened == 1
    assert result.notes[0].startswith("Chosen on 24 answers over 8 sources: ")
    note = result.variant("sentence-gepa").note
    assert "label more" in note
    assert "\n" not in note  # one line, for the tables: DSPy's error has many
    judge = load_judge(folder / "judge", api_base=server.base)
    examples = read_labels(folder / "cities.jsonl")
    assert judge.manifest["label_set_hash"] == label_set_hash(examples)
    by_id = {e.id: e for e in examples}
    for row in result.tested("champion").rows:
        e = by_id[row.id]
        judgment = judge(e.question, list(e.context), e.answer)
        assert judgment.faithful == row.predicted
        assert judgment.probability == pytest.approx(row.probability)


def test_the_test_part_is_not_asked_about_before_the_champion_is_chosen(recorded):
    """No test context reaches the LM before the choice, and only the champion and its baselines ever see them."""
    opened = {
        what: n for what, n in recorded.view.tasks.items() if what.endswith(": test")
    }
    assert 1 <= len(opened) <= 3
    first = min(opened.values())
    asked = [r["messages"][-1]["content"] for r in recorded.server.requests]
    assert not any(
        f"of {city}" in text for text in asked[:first] for city in CITIES[2::3]
    )
    assert any(f"of {city}" in text for text in asked[first:] for city in CITIES[2::3])


def test_a_study_says_what_it_will_take_before_it_goes_on(recorded):
    """After five answers: 24 of the pool take one, two and two calls, 12 of the test three at most, at 40 tokens read
    and 5 written."""
    (said,) = [
        line for line in recorded.view.lines if line.startswith("The study will take")
    ]
    calls = 24 * (1 + 2 + 2 + 2) + 12 * 3
    assert f"about {calls} LM calls, {45 * calls:,} tokens" in said


def test_what_a_prompt_has_learned_from_is_left_out_where_it_is_measured(recorded):
    """No answer over the context of a demo is among the variant's; the others are measured on all of the pool."""
    few_shot, plain = (
        recorded.result.variant(name) for name in ("sentence-few-shot", "sentence")
    )
    (demos,) = (prompt["demos"] for prompt in few_shot.prompts.values())
    contexts = {tuple(d["context"]) for d in demos}
    assert demos
    assert not contexts & {
        tuple(c.text for c in a.example.context) for a in few_shot.answers
    }
    assert len(plain.rows) == 24 > len(few_shot.rows)


def test_a_study_of_an_lm_without_log_probabilities(tmp_path, chat_server):
    """An ordinary case: verdicts alone are calibrated, chosen by, exported and loaded."""
    server = chat_server(says=knowing)
    server.tells = False
    result = quick_study(tmp_path, server, "sentence", swapped=True)
    assert result.tested("lm-calibrated").agreement.coverage == 1.0
    assert result.tested("champion").agreement.balanced_accuracy.value > 0.6
    assert (
        load_judge(tmp_path / "judge", api_base=server.base).classifier.fitted_to
        == "labels"
    )


def test_an_lm_that_dies_halfway_ends_the_study_in_one_sentence(tmp_path, chat_server):
    """What was answered is kept."""
    server = chat_server(
        says=lambda asked: (
            knowing(asked)
            if len(server.requests) < 20
            else {"status": 500, "text": "x"}
        )
    )
    with pytest.raises(
        LMUnavailableError, match=r"calls in a row failed.*what was answered is kept\."
    ) as raised:
        quick_study(tmp_path, server, "sentence")
    assert "\n" not in str(raised.value)


def test_ten_labels_give_a_judge_and_a_first_impression(
    tmp_path, monkeypatch, chat_server
):
    """No answer is held out: each is judged by a classifier fitted without its context, from replies of dev alone.

    A labels file whose name is dots gives the judge a folder of its own, never the one that holds it.
    """
    monkeypatch.chdir(tmp_path)
    rows = labels(tmp_path / "all.jsonl", parts=False).read_text().splitlines()
    (tmp_path / "...jsonl").write_text("\n".join(rows[::3]))
    view, names = Quiet(), ("sentence", "sentence-few-shot")
    server = chat_server(says=knowing)
    options = Options(lm="openai/tiny", api_base=server.base, variants=names)
    result = run(tmp_path / "...jsonl", options, view, tracker=Record)
    assert "Too few for a test part: agreement will be cross-fitted" in view.lines[0]
    assert result.variant("sentence-few-shot").status == "failed"
    assert result.split["used"] == {"pool": 12, "test": 0}
    (ids,) = {tuple(r.id for r in t.rows) for t in result.test}
    assert sorted(ids) == sorted(f"{i}-0" for i in range(12))
    assert "A first impression, not a test: 12 labels" in " ".join(result.notes)
    assert {c.verdict for c in result.comparisons.values()} == {"inconclusive"}
    assert result.opened is None
    statements = result.tested("lexical-baseline").levels.statements
    assert (statements.n, statements.coverage) == (24, 1.0)
    assert load_judge("judges/judge").manifest["split"]["cross_fitted"] is True


def test_an_endpoint_that_is_down_is_found_before_any_work(tmp_path, chat_server):
    """The judge's, or that of the LM that proposes instructions, which has an address of its own."""
    server, dead = chat_server(says=knowing), chat_server()
    dead.close()
    with pytest.raises(LMUnavailableError, match=r"does not answer"):
        quick_study(tmp_path, dead, "sentence")
    with pytest.raises(LMUnavailableError, match=r"openai/big .*does not answer"):
        quick_study(
            tmp_path,
            server,
            "sentence",
            "sentence-gepa",
            reflection_lm="openai/big",
            reflection_api_base=dead.base,
        )
    assert server.requests == []


def test_what_cannot_be_a_study_is_refused(tmp_path, chat_server):
    """A test on contexts that the judge is tuned on; an unknown budget; limits that leave nothing to export."""
    path = labels(tmp_path / "l.jsonl")
    with pytest.raises(InputError, match="same context"):
        run(path, Options(out=tmp_path / "j"), Quiet(), test=path, tracker=Record)
    with pytest.raises(
        ConfigError,
        match=r"budget: expected 'quick', 'standard' or 'thorough' \(got 'nope'\)",
    ):
        tune(path, budget="nope")
    one_label = [
        {"context": [f"c{i}"], "answer": "a", "faithful": True} for i in range(40)
    ]
    with pytest.raises(
        InputError, match="40 faithful answers over 40 sources and 0 unfaithful over 0"
    ):
        run(one_label, Options(out=tmp_path / "j"), Quiet(), tracker=Record)
    with pytest.raises(
        InputError,
        match=r"recall=0\.99: got 12 unfaithful answers to fit on, expected at least 99",
    ):
        quick_study(tmp_path, chat_server(says=knowing), operating_point="recall=0.99")


def test_a_limit_stops_the_study_and_a_higher_one_goes_on_where_it_stopped(
    tmp_path, chat_server
):
    """Of 60 calls the first variant takes 24; the next run pays for the rest alone."""
    server = chat_server(says=knowing)
    with pytest.raises(
        LimitReachedError,
        match=r"limit of 60 calls is reached, after 1 variant of 2\. .*higher limit",
    ):
        quick_study(tmp_path, server, "sentence", swapped=True, calls=60)
    assert not (tmp_path / "judge" / "judge.json").exists()
    assert len(server.requests) <= 60
    result = quick_study(tmp_path, server, "sentence", swapped=True, calls=200)
    assert result.replayed >= 50


def test_a_champion_that_injections_flip_is_held_back(
    tmp_path, chat_server, monkeypatch
):
    """It is put under stress on the pool alone, tested and exported all the same; a run not finished fails, too.

    What its threshold, which is not for balanced accuracy, reaches on test is said.
    """
    asked = []
    orders = {"kind": "orders", "n": 4, "flipped": 2, "flips": []}
    orders["share"] = wilson(2, 4)
    report = {"judge": "", "answers": 4, "seed": 0, "injections": [orders]}

    def stress(judge, examples, **_):
        asked.append({e.split for e in examples})
        return StressReport(**report, usage={})

    monkeypatch.setattr("faith_dspy.optimize.study.stress", stress)
    server = chat_server(says=knowing)
    options = {"max_flips": 0.25, "operating_point": "cost=3"}
    result = quick_study(tmp_path, server, "answer", **options)
    assert asked == [{"train", "dev"}]
    (why,) = result.held_back
    flips = "flipped 0.50 of 4 verdicts, more than the 0.25 that is allowed."
    assert why == f"injection, orders: {flips}"
    assert (result.flip_rate, result.notes[-1]) == (0.5, f"Held back: {why}")
    recall = result.tested("champion").agreement.recall_unfaithful
    (note,) = (note for note in result.notes if "cost=3" in note)
    assert f"catches {recall.value:.2f}".replace(" 0.", " .") in note
    assert (tmp_path / "judge" / "judge.json").is_file()

    def cut_short(*_, **__):
        raise LimitReachedError("the limit of 60 calls is reached")

    monkeypatch.setattr("faith_dspy.optimize.study.stress", cut_short)
    result = quick_study(tmp_path, server, "answer", max_flips=1.0)
    (why,) = result.held_back
    unfinished = "the stress run on the pool was not finished"
    assert why == f"{unfinished}: the limit of 60 calls is reached."
    assert result.flip_rate is None


def test_variants_of_a_file_may_have_their_own_lm(tmp_path, chat_server):
    """The second LM judges; its name stands with the variant."""
    first, second = chat_server(says="Yes"), chat_server(says=knowing)
    plan = tmp_path / "plan.toml"
    kind = "granularity = 'sentence'\noptimizer = 'labelled'"
    at = f"lm = 'openai/tiny'\napi_base = '{second.base}'"
    plan.write_text(f"[[variants]]\nname = 'other'\n{kind}\n{at}")
    other = quick_study(tmp_path, first, variants=plan).variant("other")
    assert other.params["lm"] == "openai/tiny"
    assert len(second.requests) > 12


def test_whatever_changes_the_outcome_changes_the_id():
    """A label, the split, the LM's name, file or endpoint, budget, variants, an option, an optimizer, the seed.

    The order of the lines and what may be spent do not: the study goes on in its run.
    """
    rows = [
        {"id": f"{i}", "context": [f"c{i}"], "answer": "a", "faithful": i % 2 == 0}
        for i in range(14)
    ]
    examples = [parse_example(row) for row in rows]
    pool, test = examples[:10], examples[10:]
    lm = LMIdentity(model="openai/tiny", sha256="ab", api_base_hash="cd")
    quick, answer, sentence = (
        BUDGETS["quick"],
        *map(VARIANTS.get, ("answer", "sentence")),
    )

    def identity(
        parts=(pool, test), lm=lm, budget=quick, variants=(answer, sentence), **options
    ):
        asked = Options(**options)
        return study_id(parts, lm, Plan(budget, [*variants]), asked)

    relabelled = [parse_example(rows[0] | {"faithful": False}), *pool[1:]]
    config = sentence.config.model_copy(update={"criteria": "Dates count."})
    ids = {
        identity(),
        identity(parts=(relabelled, test)),
        identity(parts=(pool[:9], [*test, pool[9]])),
        identity(lm=lm.model_copy(update={"model": "other"})),
        identity(lm=lm.model_copy(update={"sha256": "other"})),
        identity(lm=lm.model_copy(update={"api_base_hash": "other"})),
        identity(budget=BUDGETS["standard"]),
        identity(variants=[answer]),
        identity(variants=[sentence, answer]),
        identity(variants=[answer, sentence.model_copy(update={"config": config})]),
        identity(
            variants=[answer, sentence.model_copy(update={"optimizer": "mistakes"})]
        ),
        identity(seed=1),
        identity(operating_point="cost=2"),
    }
    assert len(ids) == 13
    longer = quick.model_copy(update={"minutes": 99})
    assert identity(parts=(pool[::-1], test[::-1]), budget=longer, calls=9) in ids


def tuning(tmp_path, server):
    """`faith-dspy tune` in a process of its own, with a cache of its own."""
    env = {
        **os.environ,
        "DSPY_CACHEDIR": str(tmp_path / "cache"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    told = f"tune l.jsonl --lm openai/tiny --api-base {server.base} --variants sentence --budget quick"
    return subprocess.Popen(
        [*MAIN, *told.split()],
        cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
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
    bodies = [
        json.dumps(r["messages"])
        for r in server.requests
        if "Statement:" in r["messages"][-1]["content"]
    ]
    # one a thread was in flight when it was killed, and as many replies at most were on their way to the cache
    assert len(bodies) - len(set(bodies)) <= 16
    assert (tmp_path / "judges" / "l" / "judge.json").is_file()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [(signal.SIGINT, 130, "to continue"), (signal.SIGTERM, 143, "")],
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
    (kept,) = store.client.search_runs(
        [store.experiment_id], "tags.`faith_dspy.kind` = 'study'"
    )
    assert kept.info.status == "KILLED"


@pytest.mark.all
@pytest.mark.lm
def test_the_embedded_model_is_tuned_end_to_end(tmp_path):
    """The main job on the real model, with six contexts of hard cases: labels in, champion out, loaded and judging."""
    examples = load("hard_cases")
    groups = set()
    for part in ("train", "dev", "test"):
        groups |= set(sorted({e.group for e in examples if e.split == part})[:2])
    options = Options(budget="quick", out=tmp_path / "judge", variants=("sentence",))
    chosen = [e for e in examples if e.group in groups]
    result = run(chosen, options, Quiet(), tracker=Record)
    assert result.lm["sha256"]
    assert result.usage.cached_tokens > 0
    assert all(tested.agreement.coverage >= 0.75 for tested in result.test[:2])
    judge = load_judge(tmp_path / "judge")
    opens = "The pool opens at 7:00 on weekdays."
    context = [opens, "On Sundays it is closed."]
    built = "It was built by a famous architect from Lisbon in 1931."
    supported = judge("When does the pool open?", context, opens)
    unsupported = judge("When does the pool open?", context, built)
    assert supported.probability > unsupported.probability
