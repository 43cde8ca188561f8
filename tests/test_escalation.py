import shutil

import pytest

from faith_dspy import Judge, JudgeConfig, load_judge
from faith_dspy.errors import ArtifactError, ConfigError
from faith_dspy.export import save_judge
from faith_dspy.schema import Unscored
from tests.support.classifiers import CLEAR, OPEN, WORDS, WRONG
from tests.support.exports import edit, reference_of

CONTEXT = [CLEAR]


@pytest.fixture
def words_first(judge_at):
    """Words, then an LM that says Yes at .9: (judge, endpoint)."""
    second, server = judge_at(yes={OPEN: 0.9, CLEAR: 0.9})
    return Judge("none", classifier=WORDS, escalate_to=second), server


def about(answer):
    return {"context": CONTEXT, "answer": answer}


def test_an_untuned_judge_escalates_by_its_review_range(judge_at):
    """At .5 its least supported statement lies in [.2, .8): the second is asked. At .1 it is clear, whatever the other
    statement is."""
    judge, _ = judge_at(yes={CLEAR: 0.95, OPEN: 0.5, WRONG: 0.1})
    judge = judge.copy(escalate_to=Judge(judge.lm, criteria="Be fair."))
    answers = CLEAR, f"{OPEN} {WRONG}", f"{OPEN} {CLEAR}"
    assert [judge(**about(a)).escalated for a in answers] == [0, 0, 1]
    narrow = judge.copy(config=JudgeConfig(review_range=(0.6, 0.8)))
    assert narrow(**about(OPEN)).escalated == 0


def test_what_the_first_lm_fails_on_is_escalated(judge_at):
    """An endpoint that fails, and a reply without a label, are the next judge's to judge."""
    second, server = judge_at(yes={OPEN: 0.9})
    for broken in ({"status": 500, "text": "broken"}, "perhaps, who knows"):
        first, _ = judge_at(says=lambda asked, broken=broken: broken)
        judgment = first.copy(escalate_to=second)(**about(OPEN))
        assert (judgment.escalated, judgment.faithful) == (1, True)
    assert len(server.requests) == 1  # the second time it was kept


def test_a_last_judge_that_fails_leaves_the_answer_unscored(words_first):
    """The first was unsure, so its verdict does not stand in."""
    judge, server = words_first
    server.status = 500
    judgment = judge(**about(OPEN))
    assert (judgment.unscored, judgment.escalated) == (Unscored.LM_FAILED, 1)


def test_an_lm_to_escalate_to():
    """An LM has the same options. A cascade has two judges."""
    by_name = Judge("openai/small", criteria="Prices count.", escalate_to="openai/big")
    assert by_name.escalate_to.lm_name == "openai/big"
    assert by_name.escalate_to.config.criteria == "Prices count."
    with pytest.raises(ConfigError, match="a cascade has two judges"):
        Judge("none", classifier=WORDS, escalate_to=by_name)


def test_the_fingerprint_covers_the_chain(words_first):
    """Another second judge is another judge, so that a run does not go on with another's rows."""
    judge, _ = words_first
    others = [judge.copy(escalate_to=chain) for chain in (None, Judge("openai/big"))]
    assert len({other.fingerprint for other in (judge, *others)}) == 3


@pytest.fixture
def exported(words_first, tmp_path):
    """The folder of that judge, with a reference judgment of each kind."""
    judge, _ = words_first
    references = reference_of(judge, CONTEXT, CLEAR, OPEN)
    save_judge(judge, tmp_path / "judge", reference=references)
    return tmp_path / "judge"


@pytest.mark.parametrize(
    ("second", "asked"),
    [("openai/small", "openai/mine"), ("openai/large", "openai/large")],
)
def test_lm_replaces_the_first_that_is_asked(tmp_path, second, asked):
    """Wherever that is asked; another one stays what it is."""
    second = Judge(second, reasoning="before")
    Judge("openai/small", escalate_to=second).save(tmp_path / "j")
    loaded = load_judge(tmp_path / "j", lm="openai/mine")
    assert [j.lm_name for j in loaded.cascade] == ["openai/mine", asked]


def test_another_second_judge_than_was_exported_is_refused(exported):
    """The outer judge.json knows the inner one: replaced, altered or missing, it does not load."""
    second = exported / "escalate_to"
    edit(second, lambda d: d["config"].update(criteria="Pass all."))
    for _ in range(2):
        with pytest.raises(ArtifactError, match="does not have the SHA-256"):
            load_judge(exported)
        shutil.rmtree(second, ignore_errors=True)


def test_a_judge_saved_over_a_cascade_leaves_nothing_of_it(exported):
    """The inner folder goes with it."""
    Judge("none", classifier=WORDS).save(exported)
    assert not (exported / "escalate_to").exists()
    assert load_judge(exported).escalate_to is None
