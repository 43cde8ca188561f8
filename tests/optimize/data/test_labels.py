import re

import pytest

from faith_dspy.errors import InputError, LabelsError
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.io.labels import parse_example, read_labels
from faith_dspy.optimize.data.labels import (
    annotator_agreement,
    audit_labels,
    import_labels,
    parse_columns,
    parse_values,
)
from tests.support.files import write_lines

BENCH = [
    {"id": 1, "passage": "A kettle.", "answer": "A kettle.", "label": "PASS"},
    {"id": 2, "passage": "A cup.", "answer": "A mug.", "label": "FAIL"},
]
CUP = {"context": "A cup.", "answer": "A cup."}


def test_rows_without_a_label():
    """One that nobody labelled is left out and counted."""
    rows = [CUP | {"label": "PASS"}, CUP | {"answer": "A pot."}]
    labels = import_labels(rows)
    assert [row["answer"] for row in labels.rows] == ["A cup."]
    assert (
        labels.sentence == "1 labelled answer, 1 faithful; 1 left out without a label."
    )


def test_broken_rows(tmp_path, cli):
    """Each is named with its line and what is wrong; a dry run shows three of the others, and writes nothing."""
    broken = {
        ",A cup.,PASS,,": "its context is empty",
        "A cup.,,PASS,,": "its answer is empty",
        "A cup.,A cup.,PASS,,,more": "has more cells than the header",
        "[],A cup.,PASS,,": "context is empty",
    }
    two_lines = '"A cup.\nOf tea {}.",A cup of tea.,PASS,,'
    good = [two_lines.format(i) for i in range(4)]
    rows = ["context,answer,label,statements,split", *good, *[*broken] * 2]
    table, labels = tmp_path / "t.csv", tmp_path / "labels.jsonl"
    table.write_text("\n".join(rows))
    code, out, err = cli("labels", "import", table, "--dry-run", "--out", labels)
    assert (code, out.count("A cup of tea.")) == (0, 3)
    for row, wrong in enumerate([*broken.values()] * 2, 5):
        assert re.search(rf"t\.csv, row {row}\b.*{re.escape(wrong)}", err), (row, wrong)
    assert "4 labelled answers, 4 faithful; 8 could not be read" in err
    assert err.count("t.csv, row") == 8 + 1  # the first once more, in the sum
    assert not labels.exists()


def test_on_the_command_line(tmp_path, cli, monkeypatch):
    """`labels import` writes a labels file that the other commands read; what it refuses leaves the file as it was."""
    monkeypatch.chdir(tmp_path)
    write_lines("b.jsonl", BENCH)
    write_lines("bare.jsonl", [CUP | {"stars": 5}])
    for file, code, message in (
        ("b.jsonl", 0, "2 labelled answers"),
        ("labels.jsonl", 2, "is the file that is imported"),
        ("bare.jsonl", 2, "Name the label's column with --map faithful="),
    ):
        ended, _, err = cli("labels", "import", file)
        assert (ended, message in err) == (code, True)
        assert [e.label for e in read_labels("labels.jsonl")] == [True, False]


def audited(rows):
    """Of answers, each over a context of its own."""
    full = []
    for i, row in enumerate(rows):
        fields = {"context": [f"{i:x}" * 9], "answer": "A.", "faithful": i % 2 == 0}
        full.append(fields | row)
    return audit_labels(full)


def test_an_audit_counts():
    """Hard cases: 132 answers, half faithful, 33 contexts."""
    found = audit_labels(path_of("hard_cases"))
    assert (found["answers"], found["faithful"], found["contexts"]) == (132, 66, 33)
    # 1.96 · √(1/12 · (1/66 + 1/66)) = .0985
    assert found["enough"] == {
        "to tune": "yes",
        "to measure": "yes, 132 answers from 33 sources, cross-validated.",
        "to show a gain": "132 answers from 33 sources: 50 % power to detect 10 points.",
    }


def test_what_labels_are_enough_for():
    """Six of each label can be tuned on, and show no gain; two of each cannot."""
    assert audited([{}] * 12)["enough"] == {
        "to tune": "yes",
        "to measure": "yes, 12 answers from 12 sources, cross-validated; below 100 answers read the interval.",
        "to show a gain": "no: it takes 10 sources of each label, the rarer one is in 6.",
    }
    (few,) = audited([{}] * 4)["enough"].values()
    assert few.startswith("no: got 2 faithful answers over 2 sources and 2 unfaithful")


def test_labels_at_odds_are_named():
    """Faithful with an unsupported statement cannot both be right, nor two labels of one answer; to another question it
    is another answer. A file without labels says what a label is."""
    statements = [{"text": "A.", "verdict": "no_evidence"}]
    same = {"context": ["c"], "answer": "No."}
    rows = [
        {"id": "odd", "faithful": True, "statements": statements},
        same | {"id": "yes", "faithful": True},
        same | {"id": "no", "faithful": False},
        same | {"id": "other", "faithful": True, "question": "Is it old?"},
    ]
    found = audited(rows)
    assert (found["labels_at_odds"], found["first_at_odds"]) == (3, "odd, yes, no")
    with pytest.raises(LabelsError, match="usable label"):
        audited([{"faithful": None}])


def test_ties_count_in_peoples_agreement():
    """Of 16 answers two people are split on four, which have no label. Of the 16 opinions that face a yes 12 say yes,
    and of the 16 that face a no 12 say no."""
    votes = [(True, "yes", "yes")] * 6 + [(False, "no", "no")] * 6
    votes += [(None, "yes", "no")] * 4
    found = audited({"faithful": label, "annotators": two} for label, *two in votes)
    assert (found["answers"], found["without_label"]) == (16, 4)
    assert found["annotators_balanced_accuracy"] == 0.75


def agreement(*annotators):
    """Of answers with these annotators, each over a context of its own."""
    examples = []
    for i, said in enumerate(annotators):
        row = {"context": [f"c{i}"], "answer": "a", "faithful": True}
        examples.append(parse_example(row | {"annotators": said}))
    return annotator_agreement(examples)


def test_one_annotator_against_the_majority_of_the_others():
    """Each person is held against the others; where the others tie there is nothing to hold against."""
    # yes yes no: the two yes face a tie and drop out; the no faces yes, yes.
    # no no no: three times unfaithful against unfaithful. True True True: three times faithful against faithful.
    found = agreement(["yes", "yes", "no"], ["no", "no", "no"], [True, True, True])
    assert (found.n, found.confusion["unfaithful_passed"]) == (7, 0)
    assert found.balanced_accuracy.value == pytest.approx((3 / 4 + 1) / 2)
    # Observed 6/7; by chance (4*3 + 3*4) / 49 = 24/49; (42/49 - 24/49) / (25/49)
    assert found.cohen_kappa.value == pytest.approx(18 / 25)
    # Of ratings the highest is faithful. 4 4 3: the 3 faces two faithful. 1 2 4: the 4 faces two unfaithful; the others
    # face a tie. Of a mapping what nobody can read is left out.
    ratings = agreement(["4", "4", "3"], ["1", "2", "4"]).confusion
    assert ratings["faithful_failed"] == ratings["unfaithful_passed"] == 1
    named = {"ann": "fully_supported", "bo": "contradictory", "cy": "?"}
    assert agreement(named).n == 2


@pytest.mark.parametrize(
    ("parse", "settings", "message"),
    [
        (parse_values, ["FAIL"], "'FAIL' says no label's meaning; expected WORD=true,"),
        (parse_values, ["FAIL=false", "fail=true"], "got --value fail as true and as false"),
        (parse_columns, ["answer=a", "answer=b"], "got --map answer=a and --map answer=b"),
        (parse_columns, ["reply"], "'reply' maps no column; expected FIELD=COLUMN"),
        (parse_columns, ["answer=!a"], "only the label can be negated; expected answer=COLUMN"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(parse, settings, message):
    with pytest.raises(InputError, match=message):
        parse(settings)


def test_an_import_keeps_further_columns(tmp_path):
    """A topic and another judge's score stay beside the labels, for `agree --by` and `--scores`."""
    table = tmp_path / "t.csv"
    table.write_text(
        "ctx,answer,stars,topic,ragas\nTea.,Tea.,5,tea,0.9\nTea.,No.,1,x,\n"
    )
    columns = parse_columns(["context=ctx", "faithful=stars"])
    values = parse_values(["5=faithful", "1=unfaithful"])
    tea, no = import_labels(table, columns, values).rows
    assert (tea["topic"], tea["ragas"], tea["faithful"]) == ("tea", "0.9", True)
    assert (no["context"], no["faithful"]) == (["Tea."], False)
    assert not {"ragas", "stars"} & no.keys()


def test_rows_of_several_annotators_become_one():
    """Who said what stands in it once; what else the first row has is kept."""
    rows = [
        CUP | {"faithful": "yes", "annotator": who, "topic": "tea"}
        for who in ("ann", "bea")
    ]
    (row,) = import_labels(rows).rows
    people = {"ann": True, "bea": True}
    assert (row["annotators"], row["topic"]) == (people, "tea")
    assert "annotator" not in row
