import asyncio
import time
from functools import partial

import pytest

from faith_dspy import Judge, JudgeConfig, Unscored
from faith_dspy.errors import ConfigError, InputError
from tests.support.chat_server import yes_or_no
from tests.support.classifiers import by_weakest, linear

CONTEXT = ["The kettle is blue.", "It holds 0.9 litres."]


def record(i):
    """A record whose answer tells which it is."""
    return {"context": CONTEXT, "answer": f"Kettle number {i} is blue."}


def test_call(judge_at):
    """A judgment has score, statements with evidence, and what it cost as the endpoint reported it: two calls of 100
    prompt tokens, 60 of them cached, 5 written."""
    judge, _ = judge_at(yes={"The kettle is blue.": 0.9, "It holds 2 litres.": 0.3})
    answer = "The kettle is blue. It holds 2 litres."
    judgment = judge(question="Which?", context=CONTEXT, answer=answer)
    assert (judgment.score, judgment.faithful, judgment.unscored) == (0.5, False, None)
    assert [s.supporting_chunk_ids for s in judgment.statements] == [(0,), ()]
    usage = judgment.usage
    assert (usage.calls, usage.prompt_tokens, usage.cached_tokens) == (2, 200, 120)
    assert (usage.output_tokens, usage.computed_tokens) == (10, 80)


def test_acall(judge_at):
    """Awaited, it is the judgment, and the event loop goes on meanwhile."""
    judge, _ = judge_at(says=lambda asked: {"text": "Yes", "delay": 0.5})

    async def ask():
        asking = asyncio.ensure_future(judge.acall(**record(7)))
        await asyncio.sleep(0.1)
        assert not asking.done()
        return await asking

    assert asyncio.run(ask()).faithful


def number_in(statement):
    return int(statement.split()[2])


def test_batch_is_in_the_order_of_the_input(judge_at):
    busy, most = [], []

    def says(asked):
        busy.append(asked)
        most.append(len(busy))
        number = number_in(server.statement(asked))
        time.sleep(0.12 if number % 3 == 0 else 0.02)
        busy.pop()
        return yes_or_no(number / 100)

    judge, server = judge_at(says=says)
    numbers = range(1, 25)
    judgments = judge.batch((record(i) for i in numbers), num_threads=8)
    confidences = [j.statements[0].confidence for j in judgments]
    assert confidences == pytest.approx([i / 100 for i in numbers])
    assert 2 <= max(most) <= 8


def test_batch_judges_answers_over_one_context_after_each_other(judge_at):
    """Records over contexts A, B, A, B are asked about as A, A, B, B, and come back as they were given."""
    judge, server = judge_at()
    records = [
        {"context": [f"Kettle {c} is blue."], "answer": f"{i} is blue."}
        for i, c in enumerate("ABAB")
    ]
    judgments = judge.batch([*records[:3], "no record", records[3]], num_threads=1)
    texts = [s.text[0] for j in judgments for s in j.statements]
    assert (texts, judgments[3].statements) == ([*"0123"], ())
    assert [s[0] for s in server.statements] == [*"0213"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"context": CONTEXT}, "answer is NoneType, expected text"),
        ({"context": CONTEXT, "answer": "x", "question": 3}, "question is int, expected text"),
        ({"conversation": [], "answer": "x"}, "give either conversation, or context"),
    ],
)  # fmt: skip
def test_input_of_a_wrong_type(judge_at, call, message):
    judge, server = judge_at()
    with pytest.raises(InputError, match=message):
        judge(**call)
    assert server.requests == []


def test_turns_that_there_are_not():
    """A table has a row a record; one answer has no turns."""
    import pandas

    judge = Judge("none")
    table = pandas.DataFrame([record(0)])
    asked = partial(judge, **record(0), turns="all"), partial(judge.batch, [], turns=2)
    for ask in (*asked, partial(judge.batch, table, turns="all")):
        with pytest.raises(InputError, match="expected 'last', or 'all' with a"):
            ask()


def test_a_users_only_sentence_is_a_question():
    """Whatever it says: the answer is unscored rather than judged by a request. Of two sentences the first tells."""
    messages = [
        {"role": "user", "content": "My lamp is blue."},
        {"role": "assistant", "content": "Your lamp is blue."},
    ]
    assert Judge("none")(conversation=messages).unscored is Unscored.NO_CONTEXT
    messages[0]["content"] += " Which colour has it?"
    assert Judge("none")(conversation=messages).faithful


def test_a_judge_of_a_column_is_called_with_it():
    """By its name; without it the judgment says how. Another name is refused."""
    classifier = by_weakest(linear({"column other_score": 6.0}, means=0.5))
    judge = Judge("none", classifier=classifier, scores=("other_score",))
    for said, faithful in ((0.9, True), ("10 %", False)):
        judgment = judge(**record(0), scores={"other_score": said})
        assert judgment.faithful is faithful
    detail = judge(**record(0)).detail
    assert "number or verdict in 'other_score'" in detail
    assert "a call takes scores={'other_score': …}" in detail
    with pytest.raises(InputError, match=r"reads \['other_score'\]"):
        judge(**record(0), scores={"score": 1})
    with pytest.raises(InputError, match=r"got scores=0\.7, expected them by column"):
        judge(**record(0), scores=0.7)


BOTH = {"config": JudgeConfig(), "threshold": 0.5}


@pytest.mark.parametrize(
    ("lm", "options", "message"),
    [
        ("openai/x", {"threshold": True}, "threshold: expected a number, got True"),
        ("openai/x", {"verdicts": "five_level"}, "set granularity='answer' with it"),
        ("openai/x", BOTH, r"either config= or .*, got both \(options: thr"),
        ("none", {"classifier": None}, r"this classifier .*needs an LM"),
        ("none", {"verdicts": "graded"}, "verdicts='graded' needs an LM. Leave it out"),
        (None, {}, "lm is None; expected 'local'"),
    ],
)  # fmt: skip
def test_options_that_make_no_judge(lm, options, message):
    """A value that an option cannot have says what it may; without an LM there is none that only an LM can follow."""
    with pytest.raises(ConfigError, match=message):
        Judge(lm, **options)


def test_a_mapping_is_one_record(capsys):
    """`batch` judges it, not its keys; with `progress` it shows a bar. What is no record or number of threads is an
    error, at once: with no thread a batch would wait for ever."""
    judge = Judge("none ")
    for progress in (False, True):
        answer = {"id": 7, "context": CONTEXT, "answer": "It is blue."}
        (judgment,) = judge.batch(answer, progress=progress)
        assert (judgment.id, judgment.faithful) == (7, True)
        assert ("judging:   0%|" in capsys.readouterr().err) is progress
    for judge_all in (judge.batch, judge.stream):
        with pytest.raises(InputError, match="got NoneType, expected a file, a table"):
            list(judge_all(None))
    for threads in (0, 2.5, "4"):
        with pytest.raises(ConfigError, match="expected a whole number from 1"):
            judge.batch([record(0)], num_threads=threads)


def test_a_batch_whose_endpoint_dies_ends_with_what_is_finished(judge_at):
    def says(asked):
        is_early = number_in(server.statement(asked)) <= 5
        return "Yes" if is_early else {"status": 500, "text": "gone"}

    judge, server = judge_at(says=says)
    records = [record(i) for i in range(1, 101)]
    judgments = judge.batch(records, num_threads=1)
    assert [j.unscored for j in judgments] == [None] * 5 + ["lm_failed"] * 95
    assert [j.input.answer for j in judgments] == [r["answer"] for r in records]
    assert len(server.requests) == 25


@pytest.mark.parametrize("kind", ["frame", "data set"])
def test_a_table_comes_back_with_judgments(judge_at, kind):
    """The rows of a pandas frame or a Hugging Face data set are as they were, and have columns of their judgments, in
    which what was not scored is missing."""
    import datasets
    import pandas

    judge, _ = judge_at(yes={"It is blue.": 0.9, "It is red.": 0.1})
    answers = ["It is blue.", "It is red.", None]
    columns = {"response": answers, "contexts": [CONTEXT] * 3}
    frame = pandas.DataFrame(columns, index=[7, 8, 9])
    table = frame if kind == "frame" else datasets.Dataset.from_dict(columns)
    judged = judge.batch(table)
    if kind == "data set":
        judged = judged.to_pandas().set_index(frame.index)
    assert list(judged.index) == [7, 8, 9]
    assert judged["judge_score"].isna().tolist() == [False, False, True]
    assert judged["judge_faithful"].tolist()[:2] == [True, False]
    assert judged["judge_unscored"].tolist()[2] == "parse_failed"
    assert judged["response"].equals(frame["response"])
