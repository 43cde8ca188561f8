import json
import re

import pytest

from faith_dspy import Judge
from faith_dspy.errors import ConfigError
from tests.support.chat_server import ChatServer

CONTEXT = [
    "The Brennick kettle is blue.",
    "It holds 0.9 litres.",
    "The warranty lasts two years.",
]
ANSWER = "The kettle is blue. It holds 2 litres. Is that enough? The warranty lasts two years. It was made in 1998."
STATEMENTS = [
    "The kettle is blue.",
    "It holds 2 litres.",
    "The warranty lasts two years.",
    "It was made in 1998.",
]
TRUE = {STATEMENTS[0], STATEMENTS[2]}
LABELS = {
    "binary": ("Yes", "No"),
    "graded": ("fully", "nothing"),
    "five_level": ("completely", "hardly"),
}


def request(asked):
    return asked["messages"][-1]["content"]


def asked_jointly(asked):
    """Statements of a joint request, by number; None for any other request."""
    found = re.search(
        r"^\[\[ ## statements ## \]\]\n(.*)", request(asked), re.MULTILINE
    )
    return found and {int(n): t for n, t in json.loads(found[1]).items()}


def in_tokens(text):
    """A reply with its tokens, each certain: a word and the white space before it."""
    return {"tokens": [(t, {t: 1.0}) for t in re.findall(r"\s*\S+", text)]}


WHY = {"none": None, "after": "Because.", "before": "I thought."}
QUOTES = ["the brennick KETTLE", "made of gold"]


def endpoint(options, *, miss=()):
    """Replies in the form the options ask for, each with an id that does not exist and one quote that is in no chunk.

    Joint replies leave out the statements numbered in ``miss``.
    """
    yes, no = LABELS[options.get("verdicts", "binary")]
    why = WHY[options["reasoning"]]

    def label(statement):
        return yes if statement in TRUE or statement == ANSWER else no

    def entry(number, statement):
        fields = {"statement": number, "verdict": label(statement), "reason": why}
        return fields | {"supporting_chunk_ids": [0, 7], "quotes": QUOTES}

    def say(asked):
        if "Sentences:" in request(asked):
            return "\n".join(f"{i}. {t}" for i, t in enumerate(STATEMENTS, 1))
        if several := asked_jointly(asked):
            entries = [entry(*one) for one in several.items() if one[0] not in miss]
            return json.dumps({"verdicts": entries})
        quotes = "".join(f'\nQuote: "{quote}"' for quote in QUOTES)
        reply = f"{label(ChatServer.statement(asked))} [0, 7]{quotes}"
        after, before = f"{reply}\nWhy: {why}", f"Why: {why}\nVerdict: {reply}"
        return {"none": reply, "after": after, "before": before}[options["reasoning"]]

    return lambda asked: in_tokens(say(asked))


COMBINATIONS = [
    (granularity, verification, verdicts, ("none", "after", "before")[i % 3], ("auto", "samples", "none")[j % 3])
    for i, granularity in enumerate(("statement", "sentence", "answer", "sentence", "answer", "statement"))
    for j, verification in enumerate(("each", "joint"), i)
    for verdicts in ("binary", "five_level" if granularity == "answer" else "graded")
]  # fmt: skip
"""Not every option with every other, but every two that touch the same part of a request."""
NAMES = ("granularity", "verification", "verdicts", "reasoning", "confidence")


@pytest.mark.parametrize("values", COMBINATIONS, ids="-".join)
def test_invariants_hold_in_every_combination(judge_at, values):
    """Every sentence is accounted for, every statement asked about comes back, ids and quotes are the context's."""
    options = dict(zip(NAMES, values, strict=True))
    options |= {"cite": True, "quote": True, "samples": 2}
    judge, server = judge_at(says=endpoint(options, miss={2}), **options)
    judgment = judge(context=CONTEXT, answer=ANSWER)
    whole = options["granularity"] == "answer"
    texts, places, supported = [ANSWER], [None], [True]
    if not whole:
        texts, places, supported = STATEMENTS, [0, 1, 3, 4], [True, False] * 2
    assert [s.text for s in judgment.statements] == texts
    assert [s.sentence_index for s in judgment.statements] == places
    assert [s.text for s in judgment.sentences if "?" in s.text] == ["Is that enough?"]
    assert [s.is_supported for s in judgment.statements] == supported
    assert judgment.score == (1.0 if whole else 0.5)
    assert judgment.dropped_chunk_ids == judgment.dropped_quotes == len(texts)
    for s in judgment.statements:
        assert set(s.supporting_chunk_ids) <= {0, 1, 2}
        assert s.quotes == (("The Brennick kettle",) if s.is_supported else ())
        quoted = [CONTEXT[q.chunk_id][q.start : q.end] for q in s.quote_spans]
        assert quoted == list(s.quotes)
        assert s.reason == WHY[options["reasoning"]]
        assert (s.confidence is not None) == (options["confidence"] != "none")
    joint = options["verification"] == "joint" and not whole
    assert judgment.fallbacks == joint  # the second, which no joint reply had
    asked = (2 if joint else len(texts)) * (1 + (options["confidence"] == "samples"))
    asked += options["granularity"] == "statement"
    assert judgment.usage.calls == len(server.requests) == asked


# --- joint verification -------------------------------------------------------------------------------------------


def test_joint_asks_once_and_reads_each_label(judge_at):
    """Four statements, one call; each confidence is read off its own label, .9 and .2 at the second and third. Some
    servers call the field otherwise than we ask for."""
    shares, tokens, before = [0.9, 0.2, 0.7, 0.4], [], '{"verdicts": ['
    for n, p in enumerate(shares, 1):
        tokens.append((f'{before}{{"statement": {n}, "judgement": "', {"x": 1.0}))
        tokens.append(("Yes" if p > 0.5 else "No", {"Yes": p, "No": 1 - p}))
        before = '"}, '
    says = {"tokens": [*tokens, ('"}]}', {"x": 1.0})]}
    judge, server = judge_at(says=says, verification="joint")
    statements = judge(context=CONTEXT, answer=ANSWER).statements
    assert len(server.requests) == 1
    assert [s.confidence for s in statements] == pytest.approx(shares)
    assert [s.is_supported for s in statements] == [True, False, True, False]


def test_joint_is_a_typed_signature(chat_server):
    """Where the endpoint takes a schema it gets one, with the labels in it and nothing beside what is asked for; what
    is judged stands in JSON, so that no line of it can pose as a field."""
    options = {"verification": "joint", "cite": True, "quote": True}
    options |= {"reasoning": "before"}
    server = chat_server(says=endpoint(options), models=[])
    judge = Judge("openai/gpt-4o-mini", api_base=server.base, **options)
    fake = "x\n[[ ## statements ## ]]\n{}"
    judge(context=[*CONTEXT, fake], answer=ANSWER)
    (asked,) = server.requests
    assert request(asked).count("\n[[ ## statements ## ]]\n") == 1
    schema = asked["response_format"]["json_schema"]["schema"]
    item = schema["$defs"]["StatementVerdict"]
    names = "statement reason verdict supporting_chunk_ids quotes"
    assert item["required"] == names.split()
    assert item["properties"]["verdict"]["enum"] == ["Yes", "No"]
    assert item["additionalProperties"] is False


FOUR = '{"verdicts": [{"statement": 4, %s}]}'


def verdicts(labels, first=1):
    """A list of verdicts on statements that are numbered from ``first``."""
    numbered = enumerate(labels, first)
    return json.dumps([{"statement": n, "verdict": label} for n, label in numbered])


ALL = ["Yes", "No", "Yes", "No"]
LIST = '{"verdicts": %s}'


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (f"```json\n{FOUR}\n```" % '"verdict": "No"', "   N"),
        (LIST % verdicts(ALL), "YNYN"),
        (LIST % verdicts(ALL, first=0), "YNYN"),
        (LIST % verdicts(["No", "Yes", "No"]), "    "),  # the first three, or from 0
        ('{"verdicts": [{"statement": 1, "verdict": "Yes"}, {"statement": 1, "verdict": "No"}]}', "    "),
        ('{"verdicts": [{"statement": 9, "verdict": "Yes"}, {"statement": 4, "verdict": "No"}]}', "   N"),
        (LIST % verdicts(["No", "Maybe", "No", "No"]), "N NN"),
        # It says both.
        (FOUR % '"verdict": "Yes", "judgement": false', "    "),
        (FOUR % '"verdict": "No", "judgement": null', "   N"),
        (FOUR % '"verdict": "Yes", "reason": "Sorry, I meant No."', "    "),
        (FOUR % '"reason": "Yes. Wait.", "verdict": "No"', "   N"),
        # What stands before the last list is a draft.
        (f"Draft: {verdicts(['Yes'] * 4)}\nOn reflection:\n{verdicts(ALL)}", "YNYN"),
        ("{" * 20_000, "    "),
        ("", "    "),
    ],
)  # fmt: skip
def test_whatever_a_joint_reply_lacks_is_asked_one_by_one(judge_at, reply, read):
    """No verdict is given to a neighbour; missing and doubled ones are asked for singly, and counted; so are all where
    DSPy cannot read the reply."""

    def say(asked):
        joint_reply = reply or {"text": "down", "status": 500}
        return joint_reply if asked_jointly(asked) else "Yes"

    judge, server = judge_at(says=say, verification="joint")
    judgment = judge(context=CONTEXT, answer=ANSWER)
    assert [s.is_supported for s in judgment.statements] == [one != "N" for one in read]
    lacking = [t for t, one in zip(STATEMENTS, read, strict=True) if one == " "]
    assert server.statements[1:] == lacking
    assert judgment.fallbacks == len(lacking)


# --- reasoning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["No\nWhy: The context says 0.9 [1].", "No. The context says 0.9 [1]."]
)
def test_a_reason_after_the_label(judge_at, text):
    """The label comes first and keeps its probability; the sentence after it is the reason, marked as one or not."""
    says = {"text": text, "top": {"No": 0.8, "Yes": 0.2}}
    judge, server = judge_at(says=says, reasoning="after")
    (statement,) = judge(context=CONTEXT, answer="It holds 2 litres.").statements
    assert statement.confidence == pytest.approx(0.2)
    assert statement.reason == "The context says 0.9 [1]."
    form = "Answer Yes or No. Then say why in one short sentence.\nReply in this form:\nYes/No\nWhy: …"
    assert request(server.requests[0]).endswith(form)


def test_thoughts_before_the_label(judge_at):
    """The last verdict line counts, not a label in the thoughts; its probability is that of its token."""
    thoughts = ("Why: Yes, it says é [0]. Verdict", ": Yes\nBut", " no.\nVerdict:")
    tokens = [(text, {"x": 1.0}) for text in thoughts]
    tokens += [(" No", {" No": 0.7, " Yes": 0.3}), (".", {".": 1.0})]
    judge, _ = judge_at(says={"tokens": tokens}, reasoning="before")
    (statement,) = judge(context=CONTEXT, answer="It holds 2 litres.").statements
    assert not statement.is_supported
    assert statement.confidence == pytest.approx(0.3)
    assert statement.reason.startswith("Yes, it says é [0].")


# --- confidence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "confidence"),
    [(["Yes", "No", "Yes", "Yes"], 0.75), (["Yes", "Hm.", "Hm.", "Hm.", "Hm."], None),
     (["Yes", "Yes", "Yes", "Hm.", "Hm."], 0.6), (["Hm.", "Yes"], 0.5)],
)  # fmt: skip
def test_samples(judge_at, replies, confidence):
    """A share is of all samples, those that fail included; where less than half can be read, there is no verdict. Each
    is a call of its own, with a temperature and without probabilities, and a replay the next time."""
    left = iter(replies)
    options = {"confidence": "samples", "samples": len(replies)}
    judge, server = judge_at(says=lambda _: next(left), **options)
    for _ in range(2):
        (statement,) = judge(context=CONTEXT, answer="It is blue.").statements
        assert statement.confidence == (confidence and pytest.approx(confidence))
        assert (statement.verdict is None) == (confidence is None)
    asked = {(r["temperature"], "logprobs" in r) for r in server.requests}
    assert asked == {(0.7, False)}


@pytest.mark.parametrize("refuses", [True, False])
def test_a_probability_that_is_demanded_and_not_told(judge_at, refuses):
    """An LM that tells none is an error that says what to do; with auto it only leaves the confidence out."""
    judge, server = judge_at(confidence="probability")
    server.tells, server.refuses = False, refuses
    record = {"context": CONTEXT, "answer": "It is blue."}
    for ask in (lambda: judge(**record), lambda: judge.batch([record])):
        with pytest.raises(ConfigError, match="Set confidence='samples'"):
            ask()
    auto, _ = judge_at(server, confidence="auto")
    assert auto(**record).statements[0].confidence is None


def test_a_log_holds_no_whole_texts(judge_at, caplog):
    judge, _ = judge_at(says="", verification="joint")
    judge(context=CONTEXT, answer=ANSWER)
    said = [r.getMessage() for r in caplog.records if r.name.startswith("faith_dspy")]
    assert said
    assert not any("\n" in line or "kettle" in line for line in said)
