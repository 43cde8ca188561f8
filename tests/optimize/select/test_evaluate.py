from faith_dspy.io.labels import parse_example
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.select.evaluate import (
    DRAWS,
    ENOUGH,
    cross_fitted,
    fit,
    held_out_folds,
    learning_curve,
    measure,
    usable,
    verify,
    without_lm,
)
from faith_dspy.schema import Unscored


def answers(n, prefix):
    """Two answers a context, one with a word that it lacks; of the labels one in five is wrong."""
    colours = ["blue", "green", "red", "white", "black"]
    rows = []
    for i in range(n):
        text, wrong = f"The {prefix}{i // 2} kettle is {colours[i % 5]}.", i % 2 == 1
        said = text.replace(colours[i % 5], "made of porcelain") if wrong else text
        faithful = wrong == (i % 10 in (3, 4))
        rows.append(
            {"id": f"{prefix}{i}", "context": [text, "It holds a litre."], "answer": said, "faithful": faithful}
        )
    return without_lm(map(parse_example, rows))


def test_answers_that_the_lm_failed_on_are_not_fitted(judge_at):
    """Only an answer with all of its statements judged shows what a classifier has to learn; the others stay unscored,
    and are held out once as all are."""
    judge, _ = judge_at(yes={"It is blue.": 0.9, "It is red.": 0.1})
    said = ["It is blue. It is red.", "It is blue. It is lost.", "It is lost.", "Hello!"]
    rows = [{"id": str(i), "context": ["A kettle."], "answer": a, "faithful": False} for i, a in enumerate(said)]
    seen = verify(judge, map(parse_example, rows))
    assert [a.id for a in usable(seen)] == ["0"]

    known = answers(12, "k")
    found = cross_fitted([*known, seen[2]], fit(Judge(NO_LM), known, 0))
    assert found[-1].judgment.unscored is Unscored.LM_FAILED
    held = [a.id for _, fold in held_out_folds([*known, seen[2]], 0) for a in fold]
    assert sorted(held) == sorted([*(a.id for a in known), "2"])


def test_a_curve_has_a_quarter_half_and_all_of_the_labels():
    """Of 60: 15, 30 and all, the last as it was measured, without draws; with few labels there is none."""
    given = []

    def build(known):
        given.append(len(known))
        return Judge(NO_LM, classifier=fit(Judge(NO_LM), known, 0).classifier)

    known, advanced = answers(60, "k"), []
    champion = measure("champion", "lm", [a.by(build(known)) for a in answers(40, "t")])
    curve = learning_curve(known, build, champion, 0, advanced.append)
    assert [p.labels for p in curve] == [15, 30, 60]
    assert (given[-2 * DRAWS :], len(advanced)) == ([15] * DRAWS + [30] * DRAWS, 2 * DRAWS)
    assert (curve[-1].draws, curve[-1].auroc.value) == (1, champion.agreement.auroc.value)
    assert all(0 < p.draws <= DRAWS and p.auroc.value > 0.6 for p in curve[:-1])
    assert learning_curve(known[: ENOUGH - 1], build, champion, 0) == ()
