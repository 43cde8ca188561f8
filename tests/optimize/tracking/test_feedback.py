import mlflow
import pytest
from mlflow.entities import Document, Feedback, SpanType
from mlflow.entities.assessment_source import AssessmentSource

from faith_dspy.errors import InputError
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.data.imports import majority, meaning, parse_words
from faith_dspy.optimize.tracking.feedback import labels_of


def say(trace_id, who, value, name="faithful", why=None, kind="HUMAN"):
    mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=AssessmentSource(kind, who), rationale=why)


def traced(answer, context="A kettle."):
    """The trace of an agent that retrieves and answers."""

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def search(question):
        return [Document(page_content=context)]

    @mlflow.trace(span_type=SpanType.AGENT)
    def ask(question):
        search(question)
        return answer

    ask("What is it like?")
    return mlflow.get_last_active_trace_id()


def labels(**options):
    return labels_of(list(mlflow.search_traces(return_type="list")), **options)


def test_people_on_traces_of_an_agent(own_store):
    """The majority is the label, everybody is kept; machines, other names, errors and older words do not count.

    Rows that `mlflow.genai.evaluate` made traces of count, too: the context is in the inputs.
    """
    trace_id = traced("It is blue. It is new.")
    for who, value in (("ann", "yes"), ("bob", "no"), ("cy", "no")):
        say(trace_id, who, value)
    say(trace_id, "ann", "no")  # she has changed her mind
    say(trace_id, "gpt", "yes", kind="LLM_JUDGE")
    say(trace_id, "dee", "yes", name="fluent")
    failed = Feedback(name="faithful", error="the page did not load", source=AssessmentSource("HUMAN", "eve"))
    mlflow.log_assessment(traced("Nobody said anything of this."), failed)
    with mlflow.start_span(name="root_span") as span:
        span.set_inputs({"question": "?", "context": ["A kettle."]})
        span.set_outputs("It is a kettle.")
    say(span.trace_id, "ann", True)
    rows = {row["id"]: row for row in labels().rows}
    assert rows.keys() == {trace_id, span.trace_id}
    row, evaluated = rows[trace_id], rows[span.trace_id]
    assert (row["answer"], row["faithful"]) == ("It is blue. It is new.", False)
    assert row["annotators"] == {"ann": "no", "bob": "no", "cy": "no"}
    assert [c["text"] for c in row["context"]] == ["A kettle."]
    assert "statements" not in row
    found = (evaluated["context"], evaluated["answer"], evaluated["question"])
    assert found == (["A kettle."], "It is a kettle.", "?")


def test_what_does_not_become_a_label(own_store):
    """Traces on which people are split, words nobody explained, and traces without a context are counted and named."""
    split, unknown, bare, told = (traced(a, c) for a, c in (("A.", "x"), ("B.", "x"), ("C.", ""), ("D.", "x")))
    say(split, "ann", True)
    say(split, "bob", False)
    say(unknown, "ann", "plausible")
    say(bare, "ann", True)
    say(told, "ann", False)
    found = labels()
    assert [r["id"] for r in found.rows] == [told]
    assert (found.split, found.unknown) == ([split], {"plausible": 1})
    assert found.unreadable == {
        f"trace {bare}": f"trace {bare}: it has no context",
        f"trace {unknown}": f"trace {unknown}: the label is 'plausible'. Say what it means: --value 'plausible=true'",
    }
    assert found.sentence.startswith(
        "1 labelled answer, 0 faithful; 1 without one because people are split; 2 could not be read"
    )
    assert "of unknown meaning: 'plausible' (1) – say it with --value" in found.sentence
    rows = labels(words=parse_words(["plausible=true"])).rows
    assert {r["id"]: r["faithful"] for r in rows} == {unknown: True, told: False}


def test_ratings():
    """Of ratings the highest that is given means faithful; of words the user's meaning comes first."""
    assert [meaning(v, {}, 5.0) for v in (5, "5", 4, True, "No", "perhaps")] == [True, True, False, True, False, None]
    assert meaning("FAIL", parse_words(["fail=false"])) is False
    assert [majority(v) for v in ([True, False], [True, None], [], [True, False, False])] == [None, True, None, False]
    with pytest.raises(InputError, match="'FAIL' says no label's meaning; expected WORD=true"):
        parse_words(["FAIL"])


def test_on_the_command_line(own_store, cli):
    """`labels pull` writes a file of the feedback; an experiment or assessments that are not there are an error."""
    say(traced("It is blue."), "ann", "yes")
    for words, code, said in (
        ("--experiment Default --out pulled.jsonl", 0, "pulled.jsonl: 1 labelled answer, 1 faithful.\n"),
        ("--experiment reviews", 2, "there is no experiment 'reviews'"),
        ("--experiment Default --name fluent", 2, "usable human assessment called 'fluent'"),
    ):
        done, _, err = cli("labels", "pull", *words.split())
        assert (done, said in err) == (code, True)
    (example,) = read_labels("pulled.jsonl")
    assert (example.answer, example.faithful, example.annotators) == ("It is blue.", True, {"ann": "yes"})
