from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import ConfigError, InputError, LMUnavailableError
from faith_dspy.eval_sets.catalog import load, path_of
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.lm import Limits
from faith_dspy.optimize.classifier.operating_point import OperatingPoint
from faith_dspy.optimize.data.parts import read_parts, sample
from faith_dspy.optimize.study import Options, run
from faith_dspy.schema import Chunk, LabelledExample

if TYPE_CHECKING:
    from pathlib import Path

CITIES = ("Arlen", "Brome", "Corvin", "Dunmore", "Eskel", "Farrow", "Galt", "Hesper", "Ilmen", "Jarrow", "Kelm", "Lund")


def labels(path: Path, *, parts: bool = True) -> Path:
    """36 answers over 12 contexts, half of them unfaithful; three answers a context, two sentences an answer."""
    rows = []
    for i, city in enumerate(CITIES):
        context = [f"{city} has {i + 20} bridges and a harbour.", f"The mayor of {city} resigned in {1950 + i}."]
        for j in range(3):
            false = (i + j) % 2 == 0
            second = f"The mayor of {city} won a medal in Paris." if false else f"Its mayor resigned in {1950 + i}."
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
    """An LM that mostly sees through medals in Paris; the rest is chance, the same for the same request."""
    text = asked["messages"][-1]["content"]
    noise = zlib.crc32(text.encode()) % 100 / 250
    p = 0.25 + noise if "medal" in text.partition("Statement:")[2] else 0.5 + noise
    return {"text": "Yes" if p > 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}


class Quiet:
    """A view that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def task(self, what: str, total: int) -> Any:
        from contextlib import nullcontext

        self.tasks.append(what)
        return nullcontext(lambda n: None)


class Record:
    """A tracker that keeps what it was given."""

    def __init__(self, result: Any) -> None:
        self.variants: list[str] = []

    def variant(self, result: Any) -> None:
        self.variants.append(result.name)

    def finish(self, result: Any) -> str:
        return ""


def options(server: Any, out: Path, **more: Any) -> Options:
    """A quick study at that endpoint."""
    return Options(lm="openai/tiny", api_base=server.base, budget="quick", out=out, **more)


def test_a_study_ends_in_a_champion_that_loads_and_judges_as_it_did(tmp_path, chat_server):
    """Labels go in; a judge comes out that another process can load, with its agreement beside the others."""
    server = chat_server(says=knowing)
    result = run(
        labels(tmp_path / "l.jsonl"),
        options(server, tmp_path / "judge", variants=("sentence", "sentence-few-shot")),
        Quiet(),
        tracker=Record,
    )
    assert [v.name for v in result.variants] == [
        "lexical-baseline", "length-baseline", "majority-baseline", "answer", "sentence", "sentence-few-shot",
    ]  # fmt: skip
    assert [t.name for t in result.test] == [
        "champion",
        "untuned",
        "lexical-baseline",
        "length-baseline",
        "majority-baseline",
    ]
    majority = result.tested("majority-baseline").agreement
    assert majority.balanced_accuracy.value == 0.5
    assert all(t.agreement.n == 12 for t in result.test)
    judge = load_judge(tmp_path / "judge", api_base=server.base)
    row = result.tested("champion").predictions[0]
    example = next(e for e in load(tmp_path / "l.jsonl") if e.id == row.id)
    r = judge(example.question, list(example.context), example.answer)
    assert (r.faithful, r.probability) == (row.predicted, pytest.approx(row.probability))


def test_the_test_part_is_not_asked_about_before_the_champion_is_chosen(tmp_path, chat_server):
    """No test context reaches the LM before promotion, and only champion and untuned ever see them."""
    server = chat_server(says=knowing)
    test_cities = [c for i, c in enumerate(CITIES) if i % 3 == 2]
    view = Quiet()
    asked_when: list[tuple[str, int]] = []
    real = view.task

    def task(what: str, total: int) -> Any:
        asked_when.append((what, len(server.requests)))
        return real(what, total)

    view.task = task  # type: ignore[method-assign]
    tried = options(server, tmp_path / "j", variants=("sentence",))
    result = run(labels(tmp_path / "l.jsonl"), tried, view, tracker=Record)
    opened = min(n for what, n in asked_when if what.endswith(": test"))
    about_test = [
        i for i, r in enumerate(server.requests) if any(f"of {c}" in r["messages"][-1]["content"] for c in test_cities)
    ]
    assert about_test
    assert min(about_test) >= opened
    opened_for = {what.removesuffix(": test") for what, _ in asked_when if what.endswith(": test")}
    assert opened_for == {result.champion, "answer"}


def test_labels_without_parts_are_split_by_context(tmp_path, chat_server):
    """A plain labels file gets its parts from its contexts."""
    server = chat_server(says=knowing)
    result = run(
        labels(tmp_path / "l.jsonl", parts=False),
        options(server, tmp_path / "j", variants=("answer",)),
        Quiet(),
        tracker=Record,
    )
    assert result.split["fixed"] is False
    assert sum(result.split["used"].values()) == 36


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


def test_the_judge_knows_the_labels_it_was_tuned_on(tmp_path, chat_server):
    """`agree` on the very labels file is told apart from agreement with people."""
    server = chat_server(says=knowing)
    path = labels(tmp_path / "l.jsonl")
    run(path, options(server, tmp_path / "j", variants=("answer",)), Quiet(), tracker=Record)
    assert load_judge(tmp_path / "j").manifest["label_set_hash"] == label_set_hash(read_labels(path))


def test_another_label_is_another_study(tmp_path, chat_server):
    """The study's id changes with the labels, so that no old result is taken for a new one."""
    server = chat_server(says=knowing)
    path = labels(tmp_path / "l.jsonl")
    ids = []
    for _ in range(2):
        found = run(path, options(server, tmp_path / "j", variants=("answer",)), Quiet(), tracker=Record)
        ids.append(found.study_id)
        rows = path.read_text().splitlines()
        changed = json.loads(rows[0])
        changed["statements"][0]["verdict"] = "contradictory"
        path.write_text("\n".join([json.dumps(changed), *rows[1:]]) + "\n")
    assert ids[0] != ids[1]


def test_an_endpoint_that_is_down_is_found_before_any_work(tmp_path, chat_server):
    """Nothing is asked, and the message says what to do."""
    server = chat_server()
    server.close()
    with pytest.raises(LMUnavailableError, match="running"):
        run(labels(tmp_path / "l.jsonl"), options(server, tmp_path / "j"), Quiet(), tracker=Record)


def test_a_test_file_that_shares_contexts_is_refused(tmp_path, chat_server):
    """A judge is never tested on contexts it was tuned on."""
    path = labels(tmp_path / "l.jsonl")
    with pytest.raises(InputError, match="same context"):
        run(path, options(chat_server(), tmp_path / "j"), Quiet(), test=path, tracker=Record)


def test_unknown_variants_and_budgets_are_named(tmp_path, chat_server):
    """The message lists what there is."""
    path = labels(tmp_path / "l.jsonl")
    with pytest.raises(ConfigError, match="sentence-few-shot"):
        run(path, options(chat_server(), tmp_path / "j", variants=("nope",)), Quiet(), tracker=Record)
    with pytest.raises(ConfigError, match="thorough"):
        run(path, Options(budget="nope"), Quiet(), tracker=Record)


def test_a_limit_ends_the_study_with_the_best_so_far_and_is_not_exceeded(tmp_path, chat_server):
    """Answer and sentence on dev are 12 + 24 calls, the champion's test 12 or 36: few-shot's 24 do not fit in 70."""
    server = chat_server(says=knowing)
    names = ("sentence", "sentence-few-shot")
    limited = options(server, tmp_path / "j", variants=names, limits=Limits(calls=70))
    result = run(labels(tmp_path / "l.jsonl"), limited, Quiet(), tracker=Record)
    assert len(server.requests) <= 70, result.champion
    left_out = result.variant("sentence-few-shot")
    assert (left_out.status, "70 calls" in (left_out.note or "")) == ("skipped", True)
    assert result.champion in ("answer", "sentence")
    assert [t.agreement.n for t in result.test[:2]] == [12, 12]


def test_a_limit_leaves_train_out_before_it_cuts_the_test(tmp_path, chat_server):
    """Both variants cost 36 calls on dev, the test of sentence and untuned 36: of 80 few are left for train."""
    server = chat_server(says=knowing)
    limited = options(server, tmp_path / "j", variants=("sentence",), limits=Limits(calls=80))
    result = run(labels(tmp_path / "l.jsonl"), limited, Quiet(), tracker=Record)
    assert len(server.requests) <= 80
    if result.champion == "sentence":
        assert result.test[0].agreement.n == 12
        assert "of train" in result.notes[0]


def test_a_limit_too_small_for_the_baseline_says_so(tmp_path, chat_server):
    """There is nothing to export, and the message says what to raise."""
    few = options(chat_server(says=knowing), tmp_path / "j", limits=Limits(calls=3))
    with pytest.raises(InputError, match="raise the limit"):
        run(labels(tmp_path / "l.jsonl"), few, Quiet(), tracker=Record)


def test_why_a_variant_was_skipped_is_one_line(tmp_path, chat_server):
    """A proposer that answers nonsense: DSPy's error of many lines would break the table on the run's page."""
    tried = options(chat_server(says=knowing), tmp_path / "j", variants=("sentence-gepa",))
    result = run(labels(tmp_path / "l.jsonl"), tried, Quiet(), tracker=Record)
    skipped = result.variant("sentence-gepa")
    assert skipped.status == "skipped"
    assert "cannot run here" in skipped.note
    assert "\n" not in skipped.note
    assert not skipped.note.endswith(".")


def test_an_operating_point_that_is_not_balanced_accuracy_says_what_it_reaches_on_test(tmp_path, chat_server):
    """The verdict compares balanced accuracy, which such a threshold is not for."""
    tried = options(
        chat_server(says=knowing), tmp_path / "j", variants=("answer",), operating_point=OperatingPoint.parse("cost=3")
    )
    result = run(labels(tmp_path / "l.jsonl"), tried, Quiet(), tracker=Record)
    told = next(note for note in result.notes if "cost=3" in note)
    found = result.tested("champion").agreement
    each = (3 * found.confusion["unfaithful_passed"] + found.confusion["faithful_failed"]) / 12
    assert f"stops {found.recall_unfaithful.value:.0%}" in told
    assert f"in faithful answers stopped, is {each:.2f}" in told


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
    result = run(labels(tmp_path / "l.jsonl"), options(first, tmp_path / "j", variants=plan), Quiet(), tracker=Record)
    other = result.variant("other")
    assert (other.params["lm"], other.params["seed"]) == ("openai/tiny", 5)
    assert len(second.requests) > 12


def tune(tmp_path: Path, server: Any, *more: str) -> subprocess.Popen[str]:
    """`faith-dspy tune` in a process of its own, with a cache of its own."""
    env = {**os.environ, "DSPY_CACHEDIR": str(tmp_path / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "faith_dspy", "tune", "l.jsonl", "--lm", "openai/tiny", "--api-base", server.base]
    return subprocess.Popen(
        [*command, "--variants", "sentence", "--budget", "quick", *more],
        cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def wait_for(server: Any, n: int) -> None:
    """Wait until that many requests have come, for a minute at most."""
    for _ in range(1200):
        if len(server.requests) >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"only {len(server.requests)} requests came")


@pytest.mark.timeout(240)
def test_nothing_paid_for_is_lost_by_kill_9(tmp_path, chat_server):
    """A study killed in the middle goes on where it was: no request but those cut off is made twice."""
    server = chat_server(says=knowing)
    server.delay = 0.05
    labels(tmp_path / "l.jsonl")
    first = tune(tmp_path, server)
    wait_for(server, 30)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    server.delay = 0.0
    second = tune(tmp_path, server)
    _, err = second.communicate(timeout=200)
    assert second.returncode == 0, err
    bodies = [json.dumps(r["messages"]) for r in server.requests if "Statement:" in r["messages"][-1]["content"]]
    assert len(bodies) - len(set(bodies)) <= 8  # those in flight when it was killed: one a thread
    assert (tmp_path / "judges" / "l" / "judge.json").is_file()


@pytest.mark.timeout(240)
def test_ctrl_c_ends_with_a_message_and_no_traceback(tmp_path, chat_server):
    """Before the untuned judge is finished there is nothing to export: exit code 130, and how to go on."""
    server = chat_server(says=knowing)
    server.delay = 0.3
    labels(tmp_path / "l.jsonl")
    process = tune(tmp_path, server)
    wait_for(server, 5)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "to continue" in err


def test_a_study_searches_the_bank_and_exports_what_it_chose(tmp_path, chat_server):
    """The judge's config names the instruction that is asked; what was found is said."""
    server = chat_server(says=knowing)
    view = Quiet()
    result = run(
        labels(tmp_path / "l.jsonl"),
        options(server, tmp_path / "j", variants=("sentence-search", "statement-few-shot")),
        view,
        tracker=Record,
    )
    assert any("instructions tried" in line for line in view.lines)
    assert {v.status for v in result.variants} == {"done"}
    judge = load_judge(tmp_path / "j", api_base=server.base)
    assert judge.program.verify.instruction == judge.config.instruction


def test_a_reflection_lm_that_is_not_there_ends_the_study(tmp_path, chat_server, monkeypatch):
    """Where it is: the judged LM is there."""
    server, dead = chat_server(says=knowing), chat_server()
    dead.close()
    monkeypatch.setenv("OPENAI_API_BASE", dead.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(LMUnavailableError, match="connection refused"):
        run(
            labels(tmp_path / "l.jsonl"),
            options(server, tmp_path / "j", variants=("sentence", "sentence-gepa"), reflection_lm="openai/big"),
            Quiet(),
            tracker=Record,
        )


@pytest.mark.lm
@pytest.mark.timeout(600)
def test_the_embedded_model_is_tuned_end_to_end(tmp_path):
    """Labels in, champion out, loaded and judging: the main job on the real model, with nine quickstart contexts."""
    rows = [json.loads(line) for line in path_of("quickstart").read_text(encoding="utf-8").splitlines()]
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
