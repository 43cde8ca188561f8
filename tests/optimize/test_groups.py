"""Agreement per group."""

from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.groups import (
    agreement_by_group,
    group_columns,
    groups_table,
)
from faith_dspy.optimize.results import Row
from tests.support.results import rows, study


def row(i, right, source=None):
    label = i % 2 == 0
    said = {"predicted": label is right, "probability": None}
    return Row(id=str(i), source=source or f"s{i}", label=label, **said)


def test_the_worst_group_is_named_with_its_chance():
    """A judge that is right about 28 of 30 answers on tea and 12 of 30 on milk is worse on milk; one that is right
    about 20 and 19 of them may be so by chance, and one that is right about all is worse on neither."""

    def by_topic(tea, milk):
        judged = [row(i, i < tea or 30 <= i < 30 + milk) for i in range(60)]
        group_of = {str(i): "tea" if i < 30 else "milk" for i in range(60)}
        return agreement_by_group(judged, group_of, "topic")

    groups = by_topic(28, 12)
    assert [(g.name, g.right) for g in groups.groups] == [("milk", 12), ("tea", 28)]
    assert groups.p < 0.001
    (note,) = groups_table(groups).notes
    worst = "The worst is milk: judge and label agree on 12 of 30 answers. Significant"
    assert note.startswith(worst)
    groups = by_topic(20, 19)
    assert groups.p > 0.3
    (note,) = groups_table(groups.model_copy(update={"p": 1.0})).notes
    assert "comes about in 100 % of the cases" in note
    (note,) = groups_table(by_topic(30, 30)).notes
    assert note.startswith("No group differs")


def test_groups_inside_sources_are_shuffled_inside():
    """Two models answer each question: the one that is judged worse throughout is significant, though sources
    differ."""
    judged = [row(i, i % 2 == 0 or i % 8 == 1, f"q{i // 2}") for i in range(60)]
    group_of = {str(i): "ab"[i % 2] for i in range(60)}
    groups = agreement_by_group(judged, group_of, "model")
    assert groups.groups[0].name == "b"
    assert groups.p < 0.01


def test_groups_of_few_sources_count_together():
    """Groups below ten sources are one; answers without a value are a group, too."""
    group_of = {str(i): "large" if i < 20 else f"small {i // 5}" for i in range(30)}
    judged = [row(i, True) for i in range(42)]
    groups = agreement_by_group(judged, group_of, "t").groups
    sizes = {g.name: g.agreement.n for g in groups}
    assert sizes == {"large": 20, "2 small groups together": 10, "no t": 12}


def test_a_study_shows_its_groups(cli, tmp_path):
    """`study show --by` groups the champion's answers by a column that the labels had."""
    found = rows([0.9, 0.1] * 20)
    topics = {r.id: "ab"[i % 2] for i, r in enumerate(found)}
    path = tmp_path / "study.json"
    path.write_text(study(found, columns={"topic": topics}).model_dump_json())
    code, out, _ = cli("study", "show", path, "--by", "topic")
    assert (code, "20 of 20" in out) == (0, True)
    code, _, err = cli("study", "show", path, "--by", "colour")
    assert (code, "these answers have: topic" in err) == (2, True)


def test_columns_that_may_hold_groups():
    """Those with at least two values, and two answers a value; ids and constants are none."""
    table = []
    for i in range(9):
        row = {"id": i, "group": i, "topic": i % 3, "mail": f"{i}@x", "one": 1}
        table.append(row | {"context": ["a"], "answer": "b", "faithful": True})
    columns = group_columns(read_labels(table))
    assert (list(columns), columns["topic"]["4"]) == (["topic"], "1")
