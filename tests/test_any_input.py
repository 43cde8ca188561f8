"""Any input: whatever is given, what comes back is a judgment that holds, or an error of ours.

``CASES=2000`` in the environment tries more of each.
"""

import json
import math
import os
from io import BytesIO

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faith_dspy import Judge, JudgeConfig
from faith_dspy.errors import ConfigError, LabelsError
from faith_dspy.io.inputs import as_chunks, plain_text
from faith_dspy.io.labels import parse_example
from faith_dspy.io.readers import read_records
from faith_dspy.schema import RawJudgment, RawVerdict, Verdict, digest
from faith_dspy.scoring.measure import measure_features
from faith_dspy.scoring.score import judgment_of
from faith_dspy.text.features import Comparison, IndexedContext
from faith_dspy.text.sentences import split_answer
from faith_dspy.text.words import citations_in

CASES = int(os.environ.get("CASES", "60"))
slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("any", max_examples=CASES, **slow)
settings.load_profile("any")

WITHOUT_LM = Judge("none")
# Words, and what has broken parsers: line ends of all kinds, what is not seen, numbers, marks, other scripts, halves.
BITS = st.sampled_from([
    "Yes.", "No!", "It is", "3.5", "km,", "not", "40%.", "Dr.", "J.", "Smith", "said", "“so”.", "|", "---", "#",
    "<think>", "茶は青い。", "「青い」と言った。", "¿Qué?", "वह बोला: “हाँ”।", "\x85", "القدر", "أزرق.", "पानी", "नीला",
    "है।", "😀", "Head\n-", "item\n1.", "one\r\n", "\u2028", "\u200b", "\x00", "\ufeff", "\U000e0041", "\ud800",
])  # fmt: skip
WORDS = st.lists(BITS, max_size=12)
TEXT = st.one_of(st.text(max_size=60), WORDS.map(" ".join), WORDS.map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**4000) | st.floats() | TEXT,
    lambda inside: (
        st.lists(inside, max_size=4) | st.dictionaries(TEXT, inside, max_size=4)
    ),
    max_leaves=12,
)
CHUNK = TEXT | st.fixed_dictionaries(
    {"text": TEXT | JSON}, optional={"source": JSON, "id": JSON}
)
CONTEXT = st.lists(CHUNK, max_size=4) | TEXT | JSON
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool", "system", "x"]) | JSON,
                                 "content": TEXT | st.lists(CHUNK, max_size=3) | JSON},
                                optional={"tool_calls": JSON, "name": JSON, "tool_call_id": JSON})  # fmt: skip
RECORD = JSON | st.fixed_dictionaries(
    {}, optional={"question": TEXT | JSON, "context": CONTEXT, "answer": TEXT | JSON, "id": JSON,
                  "conversation": st.lists(MESSAGE, max_size=4) | JSON},
)  # fmt: skip
SMALL = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
STATEMENT = JSON | st.fixed_dictionaries(
    {"text": TEXT},
    optional={"verdict": st.sampled_from([*Verdict, "x", None]), "reason": JSON,
              "supporting_chunk_ids": JSON | st.lists(st.integers(-1, 5))},
)  # fmt: skip
LABEL = st.fixed_dictionaries(
    {"context": CONTEXT, "answer": TEXT},
    optional={"statements": st.lists(STATEMENT, max_size=3) | JSON, "faithful": st.booleans() | JSON, "score": JSON,
              "annotators": JSON, "meta": JSON, "id": JSON, "group": JSON, "split": JSON, "question": JSON},
)  # fmt: skip
OPTION = {
    name: st.sampled_from([*getattr(field.annotation, "__args__", ()), "graded"])
    | SMALL
    for name, field in JudgeConfig.model_fields.items()
}


def holds(judgment, answer=None):
    """Whether a judgment keeps what is promised: a score in [0, 1] or a reason, no NaN, offsets that give the text."""
    json.dumps(judgment.model_dump(mode="json"), allow_nan=False).encode()
    assert (judgment.score is None) != (judgment.unscored is None)
    numbers = [judgment.score, judgment.probability]
    numbers += [s.confidence for s in judgment.statements]
    assert all(n is None or (math.isfinite(n) and 0 <= n <= 1) for n in numbers)
    if answer is not None:
        assert all(answer[s.start : s.end] == s.text for s in judgment.sentences)


@given(record=RECORD)
def test_any_record(record):
    """A record of any shape is judged, or is unscored with the reason."""
    (judgment,) = WITHOUT_LM.batch([record], num_threads=1)
    answer = None
    if isinstance(record, dict) and "conversation" not in record:
        answer = record.get("answer")
    holds(judgment, plain_text(answer) if isinstance(answer, str) else None)
    assert judgment.unscored != "lm_failed", judgment.detail


CONTENT = ("guarantee", "kettle", "lamp", "void", "ends", "Manual", "Paris")
LAYOUT = (
    "(source: ", ")", "[", "]", "[^1]: ", "[^1]", "[1]", "(doc ", "【1†", "】", "](https://x.org)", "<b ", "<sup>",
    "</sup>", ">", "\n", "\nSources: ", "\n1. ", "\n- ", ". ", "? ", "! ", ": ", "the ", "is ", "Did you know that ",
    ".pdf", "|", "**", "# ",
)  # fmt: skip


@given(pieces=st.lists(st.sampled_from(CONTENT + LAYOUT), max_size=20))
def test_each_content_word_is_asked_about_or_listed(pieces):
    """It is compared as part of a statement, or stands in a citation, or in a sentence that is listed as stating
    nothing."""
    answer = " ".join(pieces)
    context = IndexedContext(as_chunks(["It is red."]))
    _, parts, stating, _ = split_answer(answer)
    words = []
    for sentence in stating:
        compared = Comparison(sentence.text, context)
        words += [token.raw for token in compared.tokens]
        words += " ".join(match[0] for match in citations_in(sentence.text)).split()
    unstated = [sentence.text for sentence in parts if sentence not in stating]
    rest = " ".join([*words, *unstated])
    for word in CONTENT:
        assert rest.count(word) >= answer.count(word)


@given(row=LABEL)
def test_any_label(row):
    """A labels object is an example that can be hashed and written, or is refused in our words, with its place."""
    try:
        line = json.dumps(row)
    except ValueError:  # a number that Python itself does not write
        return
    (record,) = read_records(BytesIO(line.encode()))
    if record.problem is not None:
        return
    try:
        example = parse_example(record.row, where="here:1")
    except LabelsError:
        return
    digest(example.model_dump(mode="json"))
    assert example.context_key
    assert example.label in (True, False, None)


@given(options=st.fixed_dictionaries({}, optional=OPTION))
def test_any_options(options):
    """Options give a judge that can be told from others, or are refused in our words."""
    try:
        config = JudgeConfig.make(**options)
        assert Judge("openai/tiny", config=config).fingerprint
    except ConfigError:
        return
    assert JudgeConfig.model_validate_json(config.model_dump_json()) == config


RAW = st.builds(
    RawVerdict,
    text=TEXT.filter(lambda t: "\ud800" not in t),
    sentence_index=st.none() | st.integers(0, 3),
    verdict=st.none() | st.sampled_from(list(Verdict)),
    probability=st.none() | st.floats(0, 1),
    logit=st.none() | st.floats(-6, 6),
    chunk_ids=st.lists(st.integers(-2, 9), max_size=4).map(tuple),
    quotes=st.lists(st.text(max_size=20), max_size=3).map(tuple),
    error=st.none() | st.text(max_size=9),
    lm_failed=st.booleans(),
)


@given(
    raw=st.lists(RAW, max_size=6),
    chunks=st.lists(st.text(max_size=40), max_size=3),
    tuned=st.booleans(),
)
def test_anything_an_lm_may_say(raw, chunks, tuned):
    """Whatever verdicts, probabilities, ids and quotes the LM gives, the judgment holds, and its evidence exists."""
    said = RawJudgment(raw_verdicts=tuple(raw))
    features = measure_features(said, as_chunks(chunks), None)
    classifier = WITHOUT_LM.classifier if tuned else None
    judgment = judgment_of(said, features, JudgeConfig(), classifier)
    holds(judgment)
    for s in judgment.statements:
        assert all(0 <= i < len(chunks) for i in s.supporting_chunk_ids)
        assert all(chunks[q.chunk_id][q.start : q.end] for q in s.quote_spans)
