"""What people read comes from judges that have seen nothing of the answers they are measured on."""

import pytest

from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import (
    BASELINES,
    CALIBRATED,
    CHAMPION,
    COLUMN,
    FUNCTION,
    LEXICAL,
    JudgedAnswer,
)
from faith_dspy.optimize.select.ask import Asked, without_lm
from faith_dspy.optimize.select.candidates import candidates
from faith_dspy.optimize.select.champion import choose
from faith_dspy.optimize.select.validation import (
    by_length,
    compare_with_words,
    cross_validate,
    measure,
    rivals_of,
)
from tests.support.replies import examples, replies

POOL = examples(60)
FOLD_OF = assign_folds(POOL, 0)
WEAK, STRONG = (
    replies(POOL, name, separation=d, seed=d)
    for name, d in (("weak", 1), ("strong", 4))
)
ASKED = Asked(without_lm(POOL), [WEAK, STRONG], [], finished=True)


def fit_and_choose(asked, point=BALANCED):
    """The rivals that a study of these replies exports and compares."""
    tried = candidates(asked.lexical, asked.replies, FOLD_OF, point)
    return rivals_of(choose(tried, point).champion, tried, asked.untuned)


def test_every_label_is_in_the_figures_exactly_once():
    """Of the champion and of each baseline; the first variant as it was asked is the untuned judge."""
    validated = cross_validate(ASKED, FOLD_OF, BALANCED)
    everyone = sorted(e.id for e in POOL)
    assert set(validated) == {CHAMPION, *BASELINES} - {FUNCTION, COLUMN}
    for answers in validated.values():
        assert sorted(a.id for a in answers) == everyone
    measured = measure(validated, fit_and_choose(ASKED), BALANCED)
    assert {judge.agreement.n for judge in measured.judges} == {60}
    assert measured.champion.agreement.balanced_accuracy.value > 0.85


def relabelled(replies, fold):
    """The same replies, where people say the opposite of the answers of a fold."""
    answers = []
    for a in replies.answers:
        turned = FOLD_OF[a.source] == fold
        e = a.example.model_copy(update={"faithful": a.label ^ turned})
        answers.append(JudgedAnswer.judged(e, a.raw, a.judgment))
    return replies._replace(answers=answers)


def test_no_fold_is_judged_by_what_its_own_labels_taught():
    """With the labels of one fold turned round, every judge says of its answers what it said; of others it does not."""
    replies = [relabelled(one, 0) for one in ASKED.replies]
    turned = Asked(relabelled(ASKED.lexical, 0), replies, [], finished=True)
    changed = set()
    before = cross_validate(ASKED, FOLD_OF, BALANCED)
    after = cross_validate(turned, FOLD_OF, BALANCED)
    for name, answers in before.items():
        again = {a.id: (a.predicted, a.probability) for a in after[name]}
        own = {a.id: (a.predicted, a.probability) for a in answers}
        folds = {FOLD_OF[a.source] for a in answers if own[a.id] != again[a.id]}
        changed |= {(name, fold) for fold in folds}
    assert {fold for _, fold in changed} == {1, 2, 3, 4}
    names = {CHAMPION, CALIBRATED, LEXICAL, "length-baseline"}
    assert {name for name, _ in changed} == names


def test_what_is_compared_with_the_champion_covers_its_answers():
    """The best LM calibrated, not the first; nor one that was calibrated on half of the answers, however well."""
    tried = candidates(ASKED.lexical, ASKED.replies, FOLD_OF, BALANCED)
    by_name = {c.name: c for c in tried}
    weak = by_name["weak, LM calibrated"]
    right = [a for a in weak.answers if a.predicted is a.label][:30]
    half = weak._replace(name="half, LM calibrated", answers=right)
    rivals = rivals_of(by_name["strong"], [*tried, half], None)
    assert rivals[CALIBRATED].name == "strong, LM calibrated"


def test_length_is_not_smuggled_in():
    """Where all statements are alike and only long answers unfaithful, the length baseline tells them, by what it
    learned from others."""
    sizes = [1 + i % 12 for i in range(60)]
    made = []
    for e, n in zip(POOL, sizes, strict=True):
        update = {"answer": "It is so. " * n, "faithful": n < 7}
        made.append(e.model_copy(update=update))
    answers = without_lm(made).answers
    judged = by_length(answers[:30], answers[30:])
    assert [a.predicted for a in judged] == [a.label for a in answers[30:]]


def test_a_tuned_judge_is_compared_with_words_on_new_answers():
    """By the lexical baseline that its study fitted; not where it asks no LM, or where the export has none."""
    classifier = fit_and_choose(ASKED)[LEXICAL].judge.classifier
    manifest = {"lexical_baseline": classifier.model_dump(mode="json")}
    new = examples(40, prefix="n")
    words = Judge(NO_LM, classifier=classifier)
    said = [a.judgment for a in replies(new, separation=4).answers]
    judge = Judge("openai/known", classifier=None)
    compared = compare_with_words(judge.copy(manifest=manifest), new, said)
    by_words = words.agreement(new).answers.balanced_accuracy.value
    own = sum(j.faithful is e.label for e, j in zip(new, said, strict=True)) / 40
    assert compared.balanced_accuracy.value == pytest.approx(own - by_words)
    assert compare_with_words(judge, new, said) is None
    assert compare_with_words(words.copy(manifest=manifest), new, said) is None
