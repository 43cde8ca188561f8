from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import ConfigError, InputError, LimitReachedError, LMUnavailableError
from faith_dspy.eval_sets.catalog import load, path_of
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.optimize import study
from faith_dspy.optimize.data.splits import read_parts, sample
from faith_dspy.optimize.plan import Options
from faith_dspy.optimize.stress import StressReport
from faith_dspy.optimize.study import run
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.schema import Chunk, LabelledExample
from faith_dspy.scoring.statistics import wilson

if TYPE_CHECKING:
    from pathlib import Path

RUN = "from faith_dspy.cli import main; main()"
CITIES = ("Arlen", "Brome", "Corvin", "Dunmore", "Eskel", "Farrow", "Galt", "Hesper", "Ilmen", "Jarrow", "Kelm", "Lund")


def labels(path: Path, *, parts: bool = True, swapped: bool = False) -> Path:
    """36 answers over 12 contexts, half of them unfaithful; three answers a context, two sentences an answer.

    ``swapped``: what is false is said in the context's own words, so that no words tell it.
    """
    rows = []
    for i, city in enumerate(CITIES):
        context = [f"{city} has {i + 20} bridges and a harbour.", f"The mayor of {city} resigned in {1950 + i}."]
        if swapped:
            context.append(f"Its bishop died in {1950 + i}.")
        for j in range(3):
            false = (i + j) % 2 == 0
            second = f"Its mayor resigned in {1950 + i}."
            if false:
                second = f"Its mayor died in {1950 + i}." if swapped else f"The mayor of {city} won a medal in Paris."
            first = (
                f"There are {i + 20} bridges in {city}{'' if j == 0 else ', it is said' if j == 1 else ', we read'}."
            )
            rows.append(
                {
                    "id": f"{i}-{j}",
                    "question": f"What is known of {city}?",
                    "context": context,
                    "answer": f"{first} {second}",
                    "statements": [
                        {"text": first, "verdict": "fully_supported"},
                        {"text": second, "verdict": "no_evidence" if false else "fully_supported"},
                    ],
                    **({"split": ("train", "dev", "test")[i % 3]} if parts else {}),
                }
            )
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def knowing(asked: dict[str, Any]) -> dict[str, Any]:
    """An LM that mostly sees through false mayors; the rest is chance, the same for the same request."""
    text = asked["messages"][-1]["content"]
    noise = zlib.crc32(text.encode()) % 100 / 250
    false = any(told in text.partition("Statement:")[2] for told in ("medal", "mayor died"))
    p = 0.25 + noise if false else 0.5 + noise
    return {"text": "Yes" if p > 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}


class Quiet:
    """A view that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def task(self, what: str, total: int | None) -> Any:
        from contextlib import nullcontext

        self.tasks.append(what)
        return nullcontext(lambda n: None)


class Record(AbstractContextManager["Record"]):
    """A tracker that keeps what it was given."""

    page = ""

    def __exit__(self, *_: object) -> None: ...

    def __init__(self, result: Any) -> None:
        self.variants: list[str] = []

    def variant(self, result: Any) -> None:
        self.variants.append(result.name)

    def finish(self, result: Any) -> str:
        return ""


def studied(tmp_path: Path, server: Any, *names: str, view: Any = None, **more: Any) -> Any:
    """A quick study of these variants at that endpoint, or of those of ``variants``."""
    given = {"lm": "openai/tiny", "api_base": server.base, "out": tmp_path / "judge", "variants": names, **more}
    return run(labels(tmp_path / "l.jsonl"), Options(**given), view or Quiet(), tracker=Record)


def test_a_study_ends_in_a_champion_that_loads_and_judges_as_it_did(tmp_path, chat_server):
    """Labels go in; a judge comes out that another process can load, with its agreement beside the others.

    It knows the labels it was tuned on, so that `agree` on them is told apart from agreement with people.
    """
    server = chat_server(says=knowing)
    result = studied(tmp_path, server, "sentence", "sentence-few-shot")
    tried = ["lexical-baseline", "answer", "sentence", "sentence-few-shot", "untuned", "default-judge"]
    assert [v.name for v in result.variants][:6] == tried
    assert result.variants[6].name.startswith("lexical, then ")
    others = ["untuned", "default-judge", "lexical-baseline", "length-baseline"]
    assert [t.name for t in result.test] == ["champion", *others]
    assert all(t.agreement.n == 12 for t in result.test)
    judge = load_judge(tmp_path / "judge", api_base=server.base)
    assert judge.manifest["label_set_hash"] == label_set_hash(read_labels(tmp_path / "l.jsonl"))
    row = result.tested("champion").rows[0]
    example = next(e for e in load(tmp_path / "l.jsonl") if e.id == row.id)
    r = judge(example.question, list(example.context), example.answer)
    assert (r.faithful, r.probability) == (row.predicted, pytest.approx(row.probability))


def test_the_test_part_is_not_asked_about_before_the_champion_is_chosen(tmp_path, chat_server):
    """No test context reaches the LM before promotion, and only champion and untuned ever see them."""
    server = chat_server(says=knowing)
    opened: dict[str, int] = {}

    class Watching(Quiet):
        def task(self, what: str, total: int | None) -> Any:
            name, _, stage = what.rpartition(": ")
            if stage == "test":
                opened[name] = len(server.requests)
            return super().task(what, total)

    result = studied(tmp_path, server, "sentence", view=Watching())
    about_test = [
        i
        for i, r in enumerate(server.requests)
        if any(f"of {city}" in r["messages"][-1]["content"] for city in CITIES[2::3])
    ]
    assert min(about_test) >= min(opened.values())
    assert set(opened) == {result.champion, "answer"}


def test_labels_without_parts_are_split_by_context(tmp_path):
    """A plain labels file gets its parts from its contexts."""
    report = read_parts(labels(tmp_path / "l.jsonl", parts=False), None, [99, 99, 99], 9999, 0).report
    assert report["fixed"] is False
    assert sum(report["used"].values()) == 36


def test_parts_of_the_file_that_are_not_used_are_named(tmp_path):
    """With train alone there is nothing to keep: the study begins by saying that it splits anew."""
    path = labels(tmp_path / "l.jsonl", parts=False)
    rows = [json.loads(line) | {"split": "train"} for line in path.read_text().splitlines()]
    assert "own split" not in read_parts(path, None, [99, 99, 99], 9999, 0).sentence
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert (
        "the file's own split (train) is not train, dev and test"
        in read_parts(path, None, [99, 99, 99], 9999, 0).sentence
    )


def test_a_small_sample_holds_both_labels_in_three_groups():
    """Twelve answers over two contexts of one label each cannot be cross-fitted: the limit gives way."""
    part = [
        LabelledExample(id=f"{i}-{j}", context=(Chunk(id=0, text=f"c{i}"),), answer="a b", faithful=i % 4 != 0)
        for i in range(40)
        for j in range(6)
    ]
    for seed in range(5):
        drawn = sample(part, 12, 10**6, seed)
        groups = {label: {e.group_key for e in drawn if e.label is label} for label in (True, False)}
        assert min(map(len, groups.values())) >= 3
        assert len(drawn) < len(part)
    assert len(sample(part[:18], 12, 10**6, 0)) == 18  # there is no more to take


def test_ten_labels_give_a_judge_and_a_first_impression(tmp_path, chat_server):
    """No answer is held out: each is judged by a classifier fitted without its context, from replies of dev alone.

    The study says that this is no test; what needs a train part is skipped.
    """
    rows = labels(tmp_path / "all.jsonl", parts=False).read_text().splitlines()
    few = tmp_path / "few.jsonl"
    few.write_text("".join(line + "\n" for i, line in enumerate(rows) if i % 3 == 0)[:-1])
    server = chat_server(says=knowing)
    given = {"lm": "openai/tiny", "api_base": server.base, "out": tmp_path / "judge"}
    view = Quiet()
    result = run(few, Options(**given, variants=("sentence", "sentence-few-shot")), view, tracker=Record)
    assert "Too few for a test part: agreement will be cross-fitted" in view.lines[0]
    assert result.variant("sentence-few-shot").status == "skipped"
    assert result.split["used"] == {"train": 0, "dev": 12, "test": 0}
    ids = [sorted(r.id for r in t.rows) for t in result.test]
    assert ids == [sorted(f"{i}-0" for i in range(12))] * 5
    assert len({tuple(r.id for r in t.rows) for t in result.test}) == 1
    assert result.notes[-1].startswith("A first impression, not a test: 12 labels are too few")
    assert result.learning_curve == ()
    statements = result.tested("lexical-baseline").levels.statements
    assert statements is not None
    assert (statements.n, statements.coverage) == (24, 1.0)
    assert load_judge(tmp_path / "judge").manifest["split"]["cross_fitted"] is True


def test_an_endpoint_that_is_down_is_found_before_any_work(tmp_path, chat_server, monkeypatch):
    """The judge's or the one that proposes instructions: nothing is asked, and the message says what to do."""
    server, dead = chat_server(says=knowing), chat_server()
    dead.close()
    with pytest.raises(LMUnavailableError, match=r"does not answer"):
        studied(tmp_path, dead, "sentence")
    monkeypatch.setenv("OPENAI_API_BASE", dead.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(LMUnavailableError, match=r"openai/big .*does not answer"):
        studied(tmp_path, server, "sentence", "sentence-gepa", reflection_lm="openai/big")


def test_a_test_file_that_shares_contexts_is_refused(tmp_path):
    """A judge is never tested on contexts it was tuned on."""
    path = labels(tmp_path / "l.jsonl")
    with pytest.raises(InputError, match="same context"):
        run(path, Options(out=tmp_path / "j"), Quiet(), test=path, tracker=Record)


def test_unknown_variants_and_budgets_are_named(tmp_path, chat_server):
    """The message lists what there is."""
    with pytest.raises(ConfigError, match="sentence-few-shot"):
        studied(tmp_path, chat_server(), "nope")
    with pytest.raises(ConfigError, match=r"budget: expected 'quick', 'standard' or 'thorough' \(got 'nope'\)"):
        study.tune(labels(tmp_path / "l.jsonl"), budget="nope")


def test_a_limit_ends_the_study_with_the_best_so_far_and_is_not_exceeded(tmp_path, chat_server):
    """Answer and sentence on dev are 12 + 24 calls, the champion's test 12 or 36: few-shot's do not fit in 60."""
    # Four of few-shot's 24 ask what others of them ask: paid for, or replayed, as it happens.
    server = chat_server(says=knowing)
    result = studied(tmp_path, server, "sentence", "sentence-few-shot", calls=60)
    assert len(server.requests) <= 60, result.champion
    left_out = result.variant("sentence-few-shot")
    assert (left_out.status, "60 calls" in (left_out.note or "")) == ("skipped", True)
    assert result.champion in ("lexical-baseline", "answer", "sentence")
    assert [t.agreement.n for t in result.test[:2]] == [12, 12]


def test_a_limit_leaves_train_out_before_it_cuts_the_test(tmp_path, chat_server):
    """Both variants cost 36 calls on dev, the test of sentence and untuned 36: of 80 few are left for train."""
    server = chat_server(says=knowing)
    result = studied(tmp_path, server, "sentence", calls=80)
    assert len(server.requests) <= 80
    if result.champion == "sentence":
        assert result.test[0].agreement.n == 12
        assert "of train" in result.notes[0]


def test_a_limit_too_small_for_the_untuned_judge_says_so(tmp_path, chat_server):
    """There is nothing to export, and the message says what to raise."""
    with pytest.raises(InputError, match="raise the limit"):
        studied(tmp_path, chat_server(says=knowing), calls=3)


def test_why_a_variant_was_skipped_is_one_line(tmp_path, chat_server):
    """A proposer that answers nonsense: DSPy's error of many lines would break the table on the run's page."""
    skipped = studied(tmp_path, chat_server(says=knowing), "sentence-gepa").variant("sentence-gepa")
    assert skipped.status == "skipped"
    assert "cannot run here" in skipped.note
    assert "\n" not in skipped.note
    assert not skipped.note.endswith(".")


def test_an_operating_point_that_is_not_balanced_accuracy_says_what_it_reaches_on_test(tmp_path, chat_server):
    """The verdict compares balanced accuracy, which such a threshold is not for."""
    result = studied(tmp_path, chat_server(says=knowing), "answer", operating_point="cost=3")
    told = next(note for note in result.notes if "cost=3" in note)
    found = result.tested("champion").agreement
    assert f"stops {found.recall_unfaithful.value:.0%}" in told


def test_a_champion_that_injections_flip_is_held_back(tmp_path, chat_server, monkeypatch):
    """It is put under stress on dev alone, tested and exported all the same; a run that was not finished fails, too."""
    asked: list[Any] = []
    kind = {"what": "an order", "must": "unchanged", "misses": [], "injection": True}
    perturbed = [{"name": "injection: orders", "n": 4, "share": wilson(2, 4), **kind}]
    perturbed += [{"name": "injection: languages", "n": 4, "share": wilson(4, 4), **kind}]
    report = {"judge": "", "answers": 4, "seed": 0, "perturbed": perturbed, "worst": None, "usage": {}}

    def stress(judge: Any, examples: Any, **_: Any) -> StressReport:
        asked.append((judge.lm_name, {e.split for e in examples}))
        return StressReport.model_validate(report)

    monkeypatch.setattr("faith_dspy.optimize.study.stress", stress)
    result = studied(tmp_path, chat_server(says=knowing), "answer", max_flips=0.25)
    assert asked == [(load_judge(tmp_path / "judge").lm_name, {"dev"})]
    (why,) = result.held_back
    assert why == "injection: orders: flipped 0.50 of 4 verdicts, more than the 0.25 that is allowed."
    assert (result.flip_rate, result.notes[-1]) == (0.25, f"Held back: {why}")
    assert result.tested("champion").agreement.n == 12
    assert (tmp_path / "judge" / "judge.json").is_file()

    def cut_short(*_: Any, **__: Any) -> StressReport:
        raise LimitReachedError("the limit of 60 calls is reached")

    monkeypatch.setattr("faith_dspy.optimize.study.stress", cut_short)
    promotion, parts = SimpleNamespace(name="answer", judge=None), SimpleNamespace(dev=[])
    told = "the stress run on dev was not finished: the limit of 60 calls is reached."
    assert study._flips(promotion, parts, Options(max_flips=1.0), Quiet()) == (None, (told,))
    assert study._flips(promotion, parts, Options(), Quiet()) == (None, ())


def test_variants_of_a_file_may_have_their_own_lm_and_seed(tmp_path, chat_server):
    """The second LM judges; its name and the seed stand with the variant, and the exported judge is asked of it."""
    first, second = chat_server(says="Yes"), chat_server(says=knowing)
    plan = tmp_path / "plan.toml"
    plan.write_text(f"""
        [[variants]]
        name = "other"
        granularity = "sentence"
        optimizer = "labelled"
        lm = "openai/tiny"
        api_base = "{second.base}"
        seed = 5
    """)
    other = studied(tmp_path, first, variants=plan).variant("other")
    assert (other.params["lm"], other.params["seed"]) == ("openai/tiny", 5)
    assert len(second.requests) > 12


def tune(tmp_path: Path, server: Any, *more: str) -> subprocess.Popen[str]:
    """`faith-dspy tune` in a process of its own, with a cache of its own."""
    env = {**os.environ, "DSPY_CACHEDIR": str(tmp_path / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-c", RUN, "tune", "l.jsonl", "--lm", "openai/tiny", "--api-base", server.base]
    return subprocess.Popen(
        [*command, "--variants", "sentence", "--budget", "quick", *more],
        cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in the background
    )  # fmt: skip


def wait_for(server: Any, n: int) -> None:
    """Wait until that many requests have come, for five minutes at most."""
    for _ in range(6000):
        if len(server.requests) >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"only {len(server.requests)} requests came")


@pytest.mark.timeout(900)
def test_nothing_paid_for_is_lost_by_kill_9(tmp_path, chat_server):
    """A study killed in the middle goes on where it was: no request but those cut off is made twice."""
    server, kills = chat_server(says=knowing), int(os.environ.get("KILLS", "1"))
    server.delay = 0.05
    labels(tmp_path / "l.jsonl")
    for _ in range(kills):
        killed, before = tune(tmp_path, server), len(server.requests)
        wait_for(server, before + (30 if kills == 1 else random.randint(1, 60 // kills)))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    server.delay = 0.0
    second = tune(tmp_path, server)
    _, err = second.communicate(timeout=400)
    assert second.returncode == 0, err
    bodies = [json.dumps(r["messages"]) for r in server.requests if "Statement:" in r["messages"][-1]["content"]]
    # one a thread was in flight when it was killed, and as many replies at most were on their way to the cache
    assert len(bodies) - len(set(bodies)) <= 16 * kills
    assert (tmp_path / "judges" / "l" / "judge.json").is_file()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("sent", "code", "told"), [(signal.SIGINT, 130, "to continue"), (signal.SIGTERM, 143, "")])
def test_a_study_that_is_stopped_ends_without_a_traceback(tmp_path, chat_server, sent, code, told):
    """Before the untuned judge is finished there is nothing to export; its run in MLflow ends, too."""
    server = chat_server(says=knowing)
    server.delay = 0.3
    labels(tmp_path / "l.jsonl")
    process = tune(tmp_path, server)
    wait_for(server, 5)
    os.killpg(process.pid, sent)
    _, err = process.communicate(timeout=400)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert told in err
    store = connect(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    (kept,) = store.client.search_runs([store.experiment_id], "tags.`faith_dspy.kind` = 'study'")
    assert kept.info.status == "KILLED"


@pytest.mark.all
@pytest.mark.lm
@pytest.mark.timeout(600)
def test_the_embedded_model_is_tuned_end_to_end(tmp_path):
    """Labels in, champion out, loaded and judging: the main job on the real model, with nine contexts of hard cases."""
    rows = [json.loads(line) for line in path_of("hard_cases").read_text(encoding="utf-8").splitlines()]
    by_part = {part: sorted({r["group"] for r in rows if r["split"] == part})[:3] for part in ("train", "dev", "test")}
    kept = {group for groups in by_part.values() for group in groups}
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows if r["group"] in kept), encoding="utf-8")
    view = Quiet()
    result = run(
        path,
        Options(budget="quick", out=tmp_path / "judge", variants=("sentence", "sentence-few-shot")),
        view,
        tracker=Record,
    )
    assert result.lm["sha256"]
    assert result.usage.cached_tokens > 0
    assert {t.agreement.coverage for t in result.test[:2]} <= {c / 12 for c in range(9, 13)}
    judge = load_judge(tmp_path / "judge")
    r = judge(
        "When does the pool open?",
        ["The pool opens at 7:00 on weekdays.", "On Sundays it is closed."],
        "The pool opens at 7:00 on weekdays. It was built by a famous architect from Lisbon in 1931.",
    )
    assert r.probability is not None
    assert r.statements[0].confidence > r.statements[1].confidence


@pytest.mark.parametrize(("name", "folder"), [("...jsonl", "judge"), ("..jsonl", "judge"), ("cities.jsonl", "cities")])
def test_the_folder_of_labels_named_by_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str):
    """Labels whose name is dots give a judge a folder of its own, never the one that holds it or the working folder."""
    found: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("faith_dspy.optimize.study._set_up", lambda *_: None)
    monkeypatch.setattr("faith_dspy.optimize.study.check_folder", lambda out: found.append(out) or 1 / 0)
    labels(tmp_path / name)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / name, Options(lm="openai/tiny"), Quiet(), tracker=None)  # type: ignore[arg-type]
    assert [p.as_posix() for p in found] == [f"judges/{folder}"]
