"""What people read comes from judges that have seen nothing of the answers they are measured on."""

from collections import defaultdict

from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import BALANCED
from faith_dspy.optimize.data.pool import assign_folds
from faith_dspy.optimize.results import (
    CALIBRATED,
    CHAMPION,
    LENGTH,
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
    lexical, *replies = (relabelled(r, 0) for r in (ASKED.lexical, *ASKED.replies))
    turned = Asked(lexical, replies, [], finished=True)
    before, after = (
        cross_validate(asked, FOLD_OF, BALANCED) for asked in (ASKED, turned)
    )
    changed = defaultdict(set)
    for name, answers in before.items():
        probability_of = {a.id: a.probability for a in after[name]}
        for a in answers:
            if a.probability != probability_of[a.id]:
                changed[name].add(FOLD_OF[a.source])
    assert changed.keys() == {CHAMPION, CALIBRATED, LEXICAL, LENGTH}
    assert set.union(*changed.values()) == {1, 2, 3, 4}


def test_what_is_compared_with_the_champion_covers_its_answers():
    """The best LM calibrated, not the first; nor one that was calibrated on half of the answers, however well."""
    tried = candidates(ASKED.lexical, ASKED.replies, FOLD_OF, BALANCED)
    by_name = {c.name: c for c in tried}
    strong = by_name["strong, LM calibrated"]
    surest = sorted(strong.answers, key=lambda a: abs(a.label - a.probability))[:30]
    half = strong._replace(name="half, LM calibrated", answers=surest)
    rivals = rivals_of(by_name["strong"], [*tried, half], None)
    assert rivals[CALIBRATED].name == "strong, LM calibrated"


def test_length_is_not_smuggled_in():
    """Where all statements are alike and only long answers unfaithful, the length baseline tells them, by what it
    learned from others."""
    pool = []
    for i, e in enumerate(POOL):
        n = 1 + i % 12
        update = {"answer": "It is so. " * n, "faithful": n < 7}
        pool.append(e.model_copy(update=update))
    answers = without_lm(pool).answers
    judged = by_length(answers[:30], answers[30:])
    assert [a.predicted for a in judged] == [a.label for a in answers[30:]]


def test_a_tuned_judge_is_compared_with_words_on_new_answers():
    """By the lexical baseline that its study fitted; not where it asks no LM, or where the export has none."""
    classifier = fit_and_choose(ASKED)[LEXICAL].judge.classifier
    manifest = {"lexical_baseline": classifier.model_dump(mode="json")}
    said = [a.judgment for a in STRONG.answers]
    judge = Judge("openai/known", classifier=None)
    assert compare_with_words(judge.copy(manifest=manifest), POOL, said).n == 60
    assert compare_with_words(judge, POOL, said) is None
    words = Judge(NO_LM, classifier=classifier, manifest=manifest)
    assert compare_with_words(words, POOL, said) is None
