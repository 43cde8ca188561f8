"""The programs of tests/benchmarks: what their figures are made of, without a language model."""

import json

import numpy as np
import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.eval_sets.catalog import load
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.ask import without_lm
from faith_dspy.schema import Judgment, RawJudgment, RawVerdict
from faith_dspy.scoring.statistics import Estimate
from faith_dspy.text.features import CLASSIFIER_FEATURES
from tests.benchmarks import agreement, compare, public_labels, report
from tests.benchmarks.answers import AnswerSet, choose
from tests.benchmarks.default_classifier import ENOUGH, Default
from tests.benchmarks.log import Log
from tests.benchmarks.proxy import MeteringProxy
from tests.benchmarks.systems import SYSTEMS, Endpoint

ANSWERS = {
    "The kettle is red. It holds two litres.": True,
    "The kettle is blue.": False,
    "I don't know.": False,
}
EXAMPLES = [
    parse_example(
        {
            "id": f"{i}",
            "context": ["A red kettle.", "It holds two litres."],
            "answer": a,
            "faithful": label,
        }
    )
    for i, (a, label) in enumerate(ANSWERS.items())
]


def test_what_the_lm_says_is_kept_without_text(chat_server, tmp_path):
    """The file has ids and numbers; with the labelled answers it is what was said. Nothing is asked twice, but what the
    LM failed on."""
    says = {"The kettle is red.": 0.9, "It holds two litres.": 0.8}
    server, path = (
        chat_server(yes=says | dict.fromkeys(ANSWERS, 0.3)),
        tmp_path / "kept",
    )
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    server.status = 400
    public_labels.ask_lm({"kettles": EXAMPLES[:1]}, lm, path)
    assert not path.exists()
    server.status = 200
    server.requests.clear()
    public_labels.ask_lm({"kettles": EXAMPLES[:1]}, lm, path)
    assert len(server.requests) == 3
    public_labels.ask_lm({"kettles": EXAMPLES}, lm, path)
    # One sentence is the whole answer, mostly the same call; none for declining.
    assert len(server.requests) <= 5
    text = path.read_text(encoding="utf-8")
    assert not any(word in text for word in ("kettle", "litres", "know"))
    assert {json.loads(line)["id"] for line in text.splitlines()} == {"0", "1", "2"}
    for granularity in ("answer", "sentence"):
        judge = Judge(lm, granularity=granularity, classifier=None)
        kept = public_labels.read_replies(path, EXAMPLES, granularity)
        for e, (said, _) in zip(EXAMPLES, judge.stream_raw(EXAMPLES), strict=True):
            both = (kept[e.id].raw.without_usage(), said.without_usage())
            assert both[0].model_dump() == both[1].model_dump()


def test_an_answer_in_two_files_counts_once(tmp_path):
    """Families are told by the source that the labels name; files may share answers."""
    row = (
        '{"context": ["The kettle is red."], "answer": "It is red.", '
        '"faithful": true, "source": "expertqa_answers"}\n'
    )
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(row, encoding="utf-8")
    found = public_labels.read(sorted(tmp_path.iterdir()))
    assert {name: len(examples) for name, examples in found.items()} == {
        "expertqa_claims": 1
    }


def test_families_weigh_alike():
    """A family of twice as many answers of the same kinds weighs what it did; without it the numbers are others."""

    def family(invented):
        examples = []
        for i in range(ENOUGH):
            faithful = i % 2 == 0
            row = {"id": f"{i}", "faithful": faithful, "answer": f"{invented} {i}."}
            row["context"] = [f"Kettle {i} is red and holds two litres."]
            if faithful:
                row["answer"] = f"Kettle {i} holds two litres."
            examples.append(parse_example(row))
        return without_lm(examples).answers

    one = family("Captain Morris paid 900 dollars.")
    other = family("The kettle weighs 30 pounds")
    fitted = Default({"a": one, "b": other}, CLASSIFIER_FEATURES).fit()
    twice = Default({"a": [*one, *one], "b": other}, CLASSIFIER_FEATURES)
    intercept = twice.fit().answer.intercept
    assert intercept == pytest.approx(fitted.answer.intercept, abs=0.2)
    assert twice.fit("a") == Default({"b": other}, CLASSIFIER_FEATURES).fit() != fitted


def test_the_mean_of_sets_has_the_interval_of_independent_figures():
    """.6 ± .1 and .8 ± .2: .7 ± √(.01 + .04) / 2; what could not be measured is left out."""
    found = agreement.macro(
        [
            Estimate(value=0.6, low=0.5, high=0.7),
            None,
            Estimate(value=0.8, low=0.6, high=1.0),
        ]
    )
    assert found.value == pytest.approx(0.7)
    assert (found.low, found.high) == pytest.approx(
        (0.7 - 0.1118, 0.7 + 0.1118), abs=1e-4
    )


def test_the_champion_is_compared_with_its_best_part():
    """The part with the best sum of both figures; differences are draw by draw; a set of few answers is in no mean."""

    def draws(balanced_accuracy, auroc, sign=1):
        around = sign * np.concatenate([[0.0], np.linspace(-0.1, 0.1, 1001)])
        return {
            "balanced_accuracy": balanced_accuracy + around,
            "auroc": auroc + around,
        }

    parts = (draws(0.7, 0.9), draws(0.8, 0.7), draws(0.6, 0.6))
    found = dict(zip(agreement.PARTS, parts, strict=True)) | {
        "champion": draws(0.75, 0.8, -1)
    }
    text = agreement.parts_table(
        {"kettles": found, "few": found}, {"kettles": 20, "few": 19}
    )
    assert (
        "| kettles | LM calibrated | +5.0 [-14.0, +24.0] | -10.0 [-29.0, +9.0] |"
        in text
    )
    assert "mean of 1" in text


def test_auroc_is_of_answers_of_one_fold():
    """.4 above .2, .8 above .6, each in a fold of its own: 1, though .4, of a faithful answer, is below .6."""
    judged = []
    for i, p in enumerate((0.4, 0.2, 0.8, 0.6)):
        row = {
            "id": f"{i}",
            "context": [f"Kettle {i}."],
            "answer": "It is red.",
            "faithful": i % 2 == 0,
        }
        said = RawVerdict(text="It is red.", verdict="fully_supported", probability=p)
        bare = JudgedAnswer.judged(
            parse_example(row), RawJudgment(raw_verdicts=(said,)), Judgment(score=0.0)
        )
        judged.append(bare.by(Judge("openai/kept", classifier=None)))
    found = agreement.answer_draws(judged, {"0": 0, "1": 0, "2": 1, "3": 1})
    assert (found["balanced_accuracy"][0], found["auroc"][0]) == (0.5, 1.0)
    assert agreement.answer_draws(judged, dict.fromkeys("0123", 0))["auroc"][0] == 0.75


def say(asked):
    """What each system is told: everything is supported, in its own format."""
    said = "\n".join(str(m["content"]) for m in asked["messages"])
    if "truths" in said or "claims" in said or "contradictions" in said:
        verdict = {"verdict": "yes", "reason": "it is there"}
        return json.dumps(
            {
                "truths": ["a"],
                "claims": ["a"],
                "verdicts": [verdict],
                "reason": "all of it",
            }
        )
    if (
        "natural language inference" in said.lower()
        or "faithfulness of a series of statements" in said
    ):
        return json.dumps(
            {"statements": [{"statement": "a", "reason": "b", "verdict": 1}]}
        )
    if "Break down each sentence" in said:
        return json.dumps({"statements": ["a"]})
    if "Is the answer faithful" in said:
        return json.dumps({"result": True, "rationale": "it is there"})
    return {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}}


@pytest.fixture
def compared(chat_server, tmp_path):
    """Compares systems on answers of the shipped set: (rows, endpoint)."""
    server = chat_server(says=say)
    served = Endpoint(server.base.removesuffix("/v1"), "tiny", 8192, "0" * 64)
    proxy = MeteringProxy(
        served.base, {name: s.mark for name, s in SYSTEMS.items()}, 30
    )

    def run(*systems, answers=3):
        tested = [e for e in load("hard_cases") if e.split == "test"]
        one = AnswerSet("hard_cases", "", choose(tested, answers))
        log = tmp_path / "rows.jsonl"
        compare.run_set(one, None, served, proxy, Log(log), systems)
        return Log(log).rows, server

    yield run
    proxy.close()


def test_each_system_has_its_turn_on_each_answer(compared):
    """Each row has the tokens the proxy counted (100 a call, 60 of them cached); the next run asks only the rest.

    Both ask with the same words; their first messages begin differently, so that neither finds the other's prefix. One
    that cannot be set up takes no part.
    """
    rows, server = compared("sentence", "answer", "champion")
    assert [(r["system"], r["calls"]) for r in rows if r["system"] == "answer"] == [
        ("answer", 1)
    ] * 3
    assert {r["system"] for r in rows} == {"sentence", "answer"}
    assert all(
        (r["computed"], r["cached"]) == (40 * r["calls"], 60 * r["calls"]) for r in rows
    )
    assert len({asked["messages"][0]["content"][:2] for asked in server.requests}) == 2
    again, _ = compared("sentence", "answer", answers=4)
    assert again[:6] == rows
    assert len(again) == 8
    (found,) = report.summarise(again)
    assert [(s.system, s.costs["calls"]) for s in found.systems][1] == ("answer", 1)
    assert "| faith_dspy, untuned, by sentence |" in report.markdown([found])


@pytest.mark.all
@pytest.mark.parametrize("system", ["ragas", "deepeval", "make_judge"])
def test_peers(compared, system):
    """Each peer, as its users set it up, passes an answer of which the model says that all is supported."""
    ((row,), _) = compared(system, answers=1)
    assert (row["passes"], row["score"], row["why"]) == (True, 1.0, None)
    assert row["calls"] >= 1


def test_shipped_judges_stand_for_their_own_labels_and_hold_none_of_their_texts():
    """Numbers and prompts only: the labels are not ours to pass on."""
    for folder in compare.CHAMPIONS.iterdir():
        judge = load_judge(folder)
        assert compare.champion(
            AnswerSet(folder.name, judge.manifest["label_set_hash"], [])
        ) == str(folder)
        assert compare.champion(AnswerSet(folder.name, "0", [])) is None
        assert not judge.manifest.get("reference")
        assert not any(
            p.demos for j in judge.cascade if j.asks_lm for p in j.program.predictors()
        )
