import pytest
from made import judge as measured
from made import rows
from recorded import Quiet, Record, knowing, quick_study
from test_escalation import CLEAR, OPEN, WORDS

from faith_dspy import load_judge
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.classifier.fitting import FittedClassifier
from faith_dspy.optimize.plan import Options
from faith_dspy.optimize.results import Difference, JudgeResult
from faith_dspy.optimize.select.cascade import as_asked, build_cascade
from faith_dspy.optimize.select.champion import Candidate, choose, default_of, difference
from faith_dspy.optimize.select.evaluate import verify, without_lm
from faith_dspy.optimize.select.trial import Trial, score
from faith_dspy.optimize.study import run
from faith_dspy.report.judgment import described
from faith_dspy.schema import Usage


def candidate(name, right, tokens):
    """Of 40 answers the first so many are ranked right."""
    labels = [i % 2 == 0 for i in range(40)]
    found = measured(name, rows([0.9 if label == (i < right) else 0.1 for i, label in enumerate(labels)], labels))
    result = found.model_copy(update={"usage": Usage(prompt_tokens=40 * tokens), "score": score(found)})
    return Candidate(result, None, None)


@pytest.mark.parametrize(
    ("behind", "prefer", "chosen"),
    [
        (0.02, "agreement", "lexical-baseline"),
        (0.04, "agreement", "sentence"),
        (0.04, "cheapest", "lexical-baseline"),
        (0.07, "cheapest", "sentence"),
    ],
)
def test_the_cheapest_within_one_standard_error_of_the_best(behind, prefer, chosen, monkeypatch):
    """The paired standard error is three points; whoever prefers the cheapest allows two of them."""
    found = Difference(value=-behind, low=-1, high=1, standard_error=0.03)
    monkeypatch.setattr("faith_dspy.optimize.select.champion.difference", lambda *_: found)
    names = ("lexical-baseline", 30, 0), ("sentence", 39, 100), ("statement", 38, 900)
    champion, compared = choose([candidate(*n) for n in names], prefer)
    assert champion.result.name == chosen
    assert [r.behind for r in compared] == [found, None, found]


def test_none_is_chosen_where_a_cheaper_one_is_better(monkeypatch):
    """The untuned judge is within an error of twenty points; lexical features, better and free, not within three."""
    found = [candidate(*n) for n in (("lexical-baseline", 35, 0), ("untuned", 30, 50), ("sentence", 39, 100))]
    errors = {id(c.result.rows): error for c, error in zip(found, (0.03, 0.2, 0), strict=True)}
    monkeypatch.setattr(
        "faith_dspy.optimize.select.champion.difference",
        lambda rows, best: Difference(value=-0.1, low=-1, high=1, standard_error=errors[id(rows)]),
    )
    assert choose(found, "agreement")[0].result.name == "sentence"


def test_what_costs_the_same_is_fitted_rather_than_not():
    """The untuned judge and the variant of the same replies; of two variants the better one."""
    found = [candidate(*n) for n in (("untuned", 38, 10), ("sentence", 37, 10), ("answer", 38, 10))]
    assert choose(found, "agreement")[0].result.name == "answer"


def test_what_a_judge_leaves_unscored_puts_it_behind():
    """Both rank all they score right; one leaves a quarter out: 3/4 · 1 - 1, over 40 sources."""
    labels = [i % 2 == 0 for i in range(40)]
    right = [0.9 if label else 0.1 for label in labels]
    gaps, whole = (measured("it", rows(p, labels)) for p in ([None] * 10 + right[10:], right))
    assert (score(gaps), score(whole)) == (0.75, 1.0)
    assert difference(gaps.rows, whole.rows).value == pytest.approx(-0.25)


def test_a_cascade_judges_as_it_was_measured(judge_at):
    """What it would have seen, from replies already paid for, is what it then sees; the options of policy are kept."""
    row = {"context": ["The kettle is blue."], "faithful": True}
    examples = [parse_example(row | {"id": a, "answer": a}) for a in (CLEAR, OPEN)]
    judge, server = judge_at(yes={CLEAR: 0.9, OPEN: 0.9}, abstention=0.0)
    seen = verify(judge, examples)
    first = build_cascade(judge.copy(classifier=WORDS), FittedClassifier(WORDS, [0.9, 0.5]))
    assert first.config.abstention == 0.0
    low, high = first.classifier.review_range
    assert low < 0.5 < high < 0.9
    asked = len(server.requests)
    expected = {a.id: as_asked(first, a) for a in seen}
    assert len(server.requests) == asked
    assert {i: a.raw.usage.calls for i, a in expected.items()} == {CLEAR: 0, OPEN: 1}
    for again in verify(first, examples):
        assert again.row == expected[again.id].row
        assert again.features == expected[again.id].features
    (alone,) = without_lm(examples[:1])
    assert as_asked(first.copy(escalate_to=None), alone).raw == alone.raw


@pytest.fixture
def champion_is(monkeypatch):
    """Makes studies choose the judge of this name."""

    def choose_it(name):
        def choice(found, prefer):
            return next(c for c in found if c.result.name == name), [c.result for c in found]

        monkeypatch.setattr("faith_dspy.optimize.select.champion.choose", choice)

    return choose_it


def test_an_untuned_champion_has_gained_nothing(chat_server, tmp_path, champion_is):
    """What follows from the comparison with the untuned judge follows there, too. It is not said to be tuned, no
    classifier is said to be fitted, and there is nothing to learn a curve of."""
    champion_is("untuned")
    server, view = chat_server(says=knowing), Quiet()
    result = quick_study(tmp_path, server, "answer", view=view)
    gain = result.comparisons["untuned"]
    assert (result.champion, gain.balanced_accuracy.value, gain.verdict) == ("untuned", 0, "not shown better")
    assert not any("classifier" in what or "curve" in what for what in view.tasks)
    judge = load_judge(result.judge_dir, api_base=server.base)
    assert described(judge).startswith("untuned, chosen on cities.jsonl · openai/tiny")


def test_the_untuned_judge_beside_a_cascade_judges_all_answers(chat_server, tmp_path, champion_is):
    """The cascade asks its LM about some of them only, though that LM is the untuned judge's."""
    champion_is("lexical, then answer")
    result = quick_study(tmp_path, chat_server(says=knowing), "answer", swapped=True)
    asked, untuned = (sum(a.raw.usage.calls for a in result.tested(n).answers) for n in ("champion", "untuned"))
    assert asked < untuned == 12


@pytest.mark.parametrize(
    ("optimizer", "ask_about", "classifier", "its_own"),
    [("none", "all", WORDS, True), ("gepa", "all", WORDS, False), ("none", "weakest", WORDS, False),
     ("none", "all", None, False)],
)  # fmt: skip
def test_the_default_judge_has_replies_to_its_own_prompts(
    optimizer, ask_about, classifier, its_own, judge_at, monkeypatch
):
    monkeypatch.setattr("faith_dspy.judge.default_classifier", lambda lm, config: classifier)
    result = JudgeResult(name="sentence", kind="lm", description="", params={"optimizer": optimizer})
    found = default_of(Trial(result, judge_at(ask_about=ask_about)[0], []))
    assert (found is not None and found.classifier is WORDS) == its_own


def test_answers_whose_labels_stand_in_the_prompt_are_not_learned_from(chat_server, tmp_path, champion_is):
    """The LM was shown what people say of them: its replies would teach the classifier to trust it."""
    champion_is("sentence-few-shot")
    server = chat_server(says=knowing)
    view = Quiet(server.requests)
    quick_study(tmp_path, server, "sentence-few-shot", swapped=True, view=view)
    asked = server.requests[view.tasks["sentence-few-shot: judging train for its classifier"] :]
    demos = {m["content"].partition("Statement: ")[2].partition("\n")[0] for r in asked for m in r["messages"][1:-1]}
    assert demos - {""}
    assert not demos & {server.statement(r) for r in asked}


def test_labels_that_need_no_lm_get_a_judge_without_one(many, chat_server, tmp_path):
    """Lexical features alone tell these answers apart: that judge is exported, tested without a call, and says so."""
    given = {"lm": "openai/tiny", "api_base": chat_server(says=knowing).base, "budget": "thorough"}
    result = run(many, Options(**given, variants=("sentence",), out=tmp_path / "j"), Quiet(), tracker=Record)
    assert result.champion == "lexical-baseline"
    assert result.tested("champion").usage.calls == 0
    assert "lexical-baseline" not in result.comparisons  # itself
    champion, lexical = (result.tested(name).rows for name in ("champion", "lexical-baseline"))
    assert [(r.id, r.predicted) for r in champion] == [(r.id, r.predicted) for r in lexical]
    assert [p.labels for p in result.learning_curve] == [27, 54, 108]
    assert load_judge(tmp_path / "j").lms == []
    card = (tmp_path / "j" / "CARD.md").read_text()
    assert "no LM is asked" in card
