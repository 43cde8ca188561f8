import numpy as np
import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import BALANCED, assign_folds
from faith_dspy.optimize.results import JudgedAnswer, JudgeResult, Row
from faith_dspy.optimize.select.ask import Replies, usable, verify, without_lm
from faith_dspy.optimize.select.candidates import (
    FittedJudge,
    as_asked,
    candidates,
    cascade,
    fit_judge,
)
from faith_dspy.schema import (
    Judgment,
    RawJudgment,
    RawVerdict,
    Unscored,
    Usage,
    Verdict,
)
from tests.support.classifiers import CLEAR, OPEN, WORDS

KNOWN, NOTHING = Judge("openai/known", classifier=None), Usage()
COLOURS = ("blue", "green", "red", "white", "black")


def examples(n, *, known_words=0.8, prefix="k", seed=0):
    """One answer a context, half of them unfaithful; of those ``known_words`` have a word that the context lacks, and
    of the faithful ones the rest."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        text, faithful = f"The {prefix}{i} kettle is {COLOURS[i % 5]}.", i % 2 == 0
        novel = (rng.random() < known_words) != faithful
        said = text.replace(COLOURS[i % 5], "made of porcelain") if novel else text
        row = {
            "id": f"{prefix}{i}",
            "context": [text, "It holds a litre."],
            "answer": said,
            "faithful": faithful,
        }
        rows.append(parse_example(row))
    return rows


def replies(
    labelled,
    *,
    separation,
    shift=0.0,
    tells=True,
    seed=1,
    judge=KNOWN,
    usage=NOTHING,
    **variant,
):
    """What an LM says that tells faithful answers from others by so many standard deviations of its log-odds."""
    rng = np.random.default_rng(seed)
    answers = []
    for e in labelled:
        logit = float(
            np.clip(1.5 * (separation * (e.label - 0.5) + rng.normal()) + shift, -6, 6)
        )
        verdict = Verdict.FULLY_SUPPORTED if logit >= 0 else Verdict.NOT_SUPPORTED
        said = {"logit": 2.0 if logit >= 0 else -2.0}
        if tells:
            said = {"logit": logit, "probability": 1 / (1 + np.exp(-logit))}
        said = RawVerdict(text=e.answer, sentence_index=0, verdict=verdict, **said)
        raw = RawJudgment(raw_verdicts=(said,), usage=usage)
        answers.append(
            JudgedAnswer.judged(e, raw, Judgment(score=1.0, faithful=logit >= 0))
        )
    fields = {"name": "sentence", "kind": "lm", "description": "by sentence"}
    return Replies(judge, answers, JudgeResult(**fields | variant))


def test_all_candidates_are_judges_with_thresholds_of_these_labels():
    """Lexical and default without an LM; the LM calibrated, with features, and the cascade. Nothing is exported with a
    threshold made for other traffic."""
    pool = examples(40)
    hosted = Judge("openai/gpt-4o-mini", classifier=None)
    read = Usage(calls=1, prompt_tokens=2000)
    asked = replies(pool, separation=1.7, judge=hosted, usage=read)
    made = candidates({"sentence": asked}, pool, 0, BALANCED)
    assert [c.result.name for c in made] == [
        "lexical-baseline", "lexical, default", "sentence, LM calibrated", "sentence", "lexical, then sentence",
    ]  # fmt: skip
    # A million prompt tokens cost $0.15; the cascade asks about 22 of 40 answers.
    prices = [c.result.price for c in made]
    assert prices[:2] == [None, None]
    assert prices[2:] == pytest.approx([0.0003, 0.0003, 0.0003 * 22 / 40])
    for c in made:
        assert {judge.classifier.fitted_to for judge in c.judge.cascade} == {"labels"}
        assert {judge.classifier.threshold for judge in c.judge.cascade} == {0.5}
    (lm,) = [c for c in made if c.method == "lm"]
    assert lm.judge.classifier.statement.names == ("lm",)


@pytest.mark.parametrize(
    ("seed_prompts", "offered"),
    [({}, True), ({"verify.predict": {"instructions": "?", "demos": []}}, False)],
)
def test_the_default_classifier_is_of_the_prompts_it_was_fitted_to(
    seed_prompts, offered
):
    """Of the embedded model as shipped; not of compiled prompts."""
    judge = Judge("local", classifier=None)
    pool = examples(24)
    asked = replies(pool, separation=1.7, judge=judge, seed_prompts=seed_prompts)
    made = candidates({"sentence": asked}, pool, 0, BALANCED)
    assert ("sentence, default" in [c.result.name for c in made]) is offered


def test_answers_that_the_lm_failed_on_are_not_fitted(judge_at):
    """Only an answer with all of its statements judged shows what a classifier has to learn; the others stay
    unscored."""
    judge, _ = judge_at(yes={"It is blue.": 0.9, "It is red.": 0.1})
    said = [
        "It is blue. It is red.",
        "It is blue. It is lost.",
        "It is lost.",
        "Hello!",
    ]
    rows = [
        {"id": str(i), "context": ["A kettle."], "answer": a, "faithful": False}
        for i, a in enumerate(said)
    ]
    seen = verify(judge, map(parse_example, rows))
    assert [a.id for a in usable(seen)] == ["0"]
    known = without_lm(examples(12))
    fold_of = {**assign_folds([a.example for a in known], 0), seen[2].source: 0}
    fitted = fit_judge(Judge(NO_LM), [*known, seen[2]], "features", fold_of)
    assert fitted.answers[-1].judgment.unscored is Unscored.LM_FAILED


def test_a_cascade_judges_as_it_was_measured(judge_at):
    """What it would have seen, from replies already paid for, is what it then sees; the options of policy are kept."""
    row = {"context": ["The kettle is blue."], "faithful": True}
    labelled = [parse_example(row | {"id": a, "answer": a}) for a in (CLEAR, OPEN)]
    judge, server = judge_at(yes={CLEAR: 0.9, OPEN: 0.9}, abstention=0.0)
    seen = verify(judge, labelled)
    lexical = []
    for a, probability in zip(without_lm(labelled), (0.9, 0.5), strict=True):
        judgment = a.judgment.model_copy(update={"probability": probability})
        lexical.append(a.model_copy(update={"judgment": judgment}))
    words = FittedJudge(Judge(NO_LM, classifier=WORDS), lexical)
    fitted = cascade(words, FittedJudge(judge.copy(classifier=WORDS), seen))
    by_lm = {CLEAR: 0, OPEN: 1}
    assert {a.id: a.raw.usage.calls for a in fitted.answers} == by_lm
    first = fitted.judge
    assert first.config.abstention == 0.0
    low, high = first.classifier.review_range
    assert low < 0.5 < high < 0.9
    asked = len(server.requests)
    expected = {a.id: as_asked(first, a) for a in seen}
    assert len(server.requests) == asked
    assert {i: a.raw.usage.calls for i, a in expected.items()} == by_lm
    for again in verify(first, labelled):
        before = expected[again.id]
        assert Row.of(again.example, again.judgment) == Row.of(
            before.example, before.judgment
        )
        assert again.features == before.features


def test_a_judge_is_fitted_on_labels():
    """`Judge.fit` gives a judge with thresholds of these labels and leaves the first one as it is; what it cannot fit
    it says."""
    judge, labelled = Judge(NO_LM), examples(40, known_words=1.0)
    fitted = judge.fit(labelled)
    assert judge.classifier.fitted_to == "default"
    assert (fitted.classifier.fitted_to, fitted.classifier.threshold) == ("labels", 0.5)
    assert (
        fitted.agreement(
            examples(20, known_words=1.0, prefix="t")
        ).answers.balanced_accuracy.value
        == 1.0
    )
    assert (
        judge.fit(labelled, "default").classifier.statement
        == judge.classifier.statement
    )
    with pytest.raises(InputError, match="unfaithful ones in 0"):
        judge.fit([e for e in labelled if e.label])
    with pytest.raises(ConfigError, match="asks no LM"):
        judge.fit(labelled, "lm")
    with pytest.raises(ConfigError, match="no default classifier"):
        Judge("openai/x").fit(labelled, "default")
