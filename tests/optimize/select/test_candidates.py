import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.plan import Options
from faith_dspy.optimize.results import Prompts
from faith_dspy.optimize.select.ask import usable, verify, without_lm
from faith_dspy.optimize.select.candidates import (
    Candidate,
    as_asked,
    candidates,
    cascade,
    cost_of,
    fit_judge,
)
from faith_dspy.optimize.study import run
from faith_dspy.schema import Unscored, Usage
from faith_dspy.scoring.gate import count_tuned_on
from tests.support.classifiers import CLEAR, OPEN, WORDS, by_weakest, linear
from tests.support.judges import blue
from tests.support.replies import examples, replies
from tests.support.studies import Quiet, Record

HOSTED = Judge("openai/gpt-4o-mini", classifier=None)


def candidates_of(pool, *asked):
    """The candidates of a study of these answers."""
    return candidates(without_lm(pool), asked, assign_folds(pool, 0), BALANCED)


def costs(tried):
    return [cost_of([a.raw.usage for a in c.answers], c.judge) for c in tried]


def test_all_candidates_are_judges_with_thresholds_of_these_labels():
    """Lexical and default without an LM; the LM calibrated, with features, and the cascade. Nothing is exported with a
    threshold made for other traffic."""
    pool = examples(40)
    read = Usage(calls=1, prompt_tokens=2000)
    lm = replies(pool, separation=1.7, judge=HOSTED, usage=read)
    tried = candidates_of(pool, lm)
    assert [c.name for c in tried] == [
        "lexical-baseline", "lexical, default", "sentence, LM calibrated", "sentence", "lexical, then sentence",
    ]  # fmt: skip
    # A million prompt tokens cost $0.15; the cascade asks about half of the answers, and those that are as unsure.
    asked = sum(a.raw.usage.calls for a in tried[-1].answers)
    assert 20 <= asked <= 28
    prices = [cost.price for cost in costs(tried)]
    assert prices[:2] == [None, None]
    assert prices[2:] == pytest.approx([0.0003, 0.0003, 0.0003 * asked / 40])
    for c in tried:
        assert {judge.classifier.fitted_to for judge in c.judge.cascade} == {"labels"}
        assert {judge.classifier.threshold for judge in c.judge.cascade} == {0.5}
    assert tried[2].judge.classifier.statement.names == ("lm",)


def test_a_function_and_an_lm_make_cascades_of_one_and_the_other():
    """The second is asked about half of the answers, and what the first took is counted with it."""
    pool = examples(40)
    read, called = Usage(calls=1, prompt_tokens=9), Usage(calls=1)
    lm = replies(pool, separation=2, judge=HOSTED, usage=read)
    rule = replies(pool, "rule", separation=1, judge=Judge(blue), usage=called)
    both = candidates_of(pool, lm, rule)[-2:]
    assert [c.name for c in both] == ["sentence, then rule", "rule, then sentence"]
    one, other = costs(both)
    assert one.lm_share == 1
    assert 20 <= 40 * other.lm_share <= 28
    assert all(60 <= cost.usage.calls <= 68 for cost in (one, other))


def test_what_is_calibrated_is_called_what_it_is(tmp_path):
    """A function where a function is asked: nothing of a study without an LM speaks of one."""
    lm, out = "python:tests.support.judges:blue", tmp_path / "judge"
    options = Options(lm=lm, variants="answer", out=out)
    result = run(examples(24), options, Quiet(), tracker=Record)
    assert "answer, function calibrated" in {c.name for c in result.candidates}
    assert result.measured.judges[1].name == "function-calibrated"
    card = (out / "CARD.md").read_text(encoding="utf-8")
    assert "| function calibrated |" in card
    assert "over the function calibrated" in card
    assert "LM calibrated" not in card + result.model_dump_json()


@pytest.mark.parametrize(("seed", "offered"), [({}, True), ({"verify": {}}, False)])
def test_the_default_classifier_is_of_the_prompts_it_was_fitted_to(seed, offered):
    """Of the embedded model as shipped; not of compiled prompts."""
    pool = examples(24)
    asked = replies(pool, separation=1.7, judge=Judge("local", classifier=None))
    asked = asked._replace(prompts=Prompts(now={}, seed=seed))
    names = [c.name for c in candidates_of(pool, asked)]
    assert ("sentence, default" in names) is offered


def test_answers_that_the_lm_failed_on_are_not_fitted(judge_at):
    """Only an answer with all of its statements judged shows what a classifier has to learn; the others stay
    unscored."""
    blue, red, lost = "It is blue.", "It is red.", "It is lost."
    judge, _ = judge_at(yes={blue: 0.9, red: 0.1})
    row = {"context": ["A kettle."], "faithful": False}
    answers = f"{blue} {red}", f"{blue} {lost}", lost, "Hello!"
    labelled = [parse_example(row | {"id": said, "answer": said}) for said in answers]
    seen = verify(judge, labelled)
    assert [a.id for a in usable(seen)] == [f"{blue} {red}"]
    failed = next(a for a in seen if a.id == lost)
    known = without_lm(examples(12)).answers
    fold_of = {**assign_folds(examples(12), 0), failed.source: 0}
    fitted = fit_judge(Judge(NO_LM), [*known, failed], "features", fold_of)
    assert fitted.answers[-1].judgment.unscored is Unscored.LM_FAILED


def test_an_answer_in_another_language_is_judged_as_the_export_judges_it():
    """Words alone say nothing of it: the lexical judge leaves it unscored, and learns nothing from it; the cascade asks
    the LM about it, however sure it is elsewhere."""
    pool = examples(40)
    context = ["The kettle holds one litre of water, and it is made of steel."]
    answer = "Der Kessel ist aus Stahl und fasst einen Liter Wasser."
    row = {"id": "german", "context": context, "answer": answer, "faithful": True}
    german = parse_example(row)
    asked = replies([*pool, german], separation=3)
    words, _, _, lm, both = candidates_of([*pool, german], asked)
    of_words, of_lm, of_both = (
        next(a for a in c.answers if a.id == "german") for c in (words, lm, both)
    )
    assert of_words.judgment.unscored is Unscored.LANGUAGE
    assert (of_both.predicted, of_both.raw) == (of_lm.predicted, of_lm.raw)
    assert words.judge.classifier.threshold == 20 / 40


DENIED = "The kettle is not blue."


def test_a_cascade_judges_as_it_was_measured(judge_at):
    """What it would have seen, from replies already paid for, is what it then sees; the options of policy are kept.

    It escalates the answer that its words are unsure of, and the one that the context contradicts, though all of its
    words are there: log-odds 0 and 3.
    """
    texts = (CLEAR, OPEN, DENIED)
    row = {"context": [CLEAR], "faithful": False}
    labelled = [parse_example(row | {"id": text, "answer": text}) for text in texts]
    judge, server = judge_at(yes=dict.fromkeys(texts, 0.9), abstention=0.0)
    seen = verify(judge, labelled)
    weights = {"novel_words": -6.0, "contradictions": 0.0}
    words = Judge(NO_LM, classifier=by_weakest(linear(weights, intercept=3.0)))
    alone = without_lm(labelled)
    by_words = [a.by(words) for a in alone.answers]
    lexical = Candidate("lexical", "", alone, "features", words, by_words)
    following = judge.copy(classifier=WORDS)
    lm = Candidate("lm", "", replies((), separation=1), "features", following, seen)
    fitted = cascade(lexical, lm, BALANCED)
    by_lm = {CLEAR: 0, OPEN: 1, DENIED: 1}
    assert {a.id: a.raw.usage.calls for a in fitted.answers} == by_lm
    assert fitted.judge.config.abstention == 0.0
    low, high = fitted.judge.classifier.review_range
    assert low < 0.5 < high < 0.9
    asked = len(server.requests)
    expected = as_asked(fitted.judge, seen, alone.answers)
    assert len(server.requests) == asked
    assert {a.id: a.raw.usage.calls for a in expected} == by_lm
    for before, again in zip(expected, verify(fitted.judge, labelled), strict=True):
        for name in ("predicted", "probability", "evidence", "features"):
            assert getattr(again, name) == getattr(before, name)


def test_a_judge_is_fitted_on_labels():
    """`Judge.fit` gives a judge with thresholds of these labels and leaves the first one as it is; what it cannot fit
    it says."""
    judge, labelled = Judge(NO_LM), examples(40, known_words=1.0)
    fitted = judge.fit(labelled)
    assert judge.classifier.fitted_to == "default"
    assert (fitted.classifier.fitted_to, fitted.classifier.threshold) == ("labels", 0.5)
    assert count_tuned_on(fitted.manifest["answer_keys"], labelled) == 40
    answers = fitted.agreement(examples(20, known_words=1.0, prefix="t")).answers
    assert answers.balanced_accuracy.value == 1
    default = judge.fit(labelled, "default").classifier
    assert default.statement == judge.classifier.statement
    with pytest.raises(InputError, match="unfaithful ones in 0"):
        judge.fit([e for e in labelled if e.label])
    with pytest.raises(ConfigError, match="asks no LM"):
        judge.fit(labelled, "lm")
    with pytest.raises(ConfigError, match="no default classifier"):
        Judge("openai/x").fit(labelled, "default")
