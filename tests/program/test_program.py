"""The program is a plain `dspy.Module`: any optimizer of DSPy compiles it, and a judge saves and loads the result."""

import dspy
import pytest

from faith_dspy import Judge, Verdict, load_judge
from faith_dspy.lm.make import make_lm

CITIES = "ABCDEFGH"
RECORDS = [
    {
        "context": [f"{c} has {20 + i} bridges.", "It has a harbour."],
        "question": "",
        "answer": f"{c} has {n} bridges.",
    }
    for i, c in enumerate(CITIES)
    for n in (20 + i, 90)
]
TRAIN = [
    dspy.Example(**record, faithful="90" not in record["answer"]).with_inputs(
        "context", "question", "answer"
    )
    for record in RECORDS
]
PROPOSAL = (
    "Compare every number.\n\nIs the statement fully supported? Answer Yes or No."
)


def agrees(gold, pred, trace=None, pred_name=None, pred_trace=None):
    """Whether the program calls the answer as people do; with feedback where GEPA reflects."""
    score = float(pred.faithful is gold.faithful)
    return (
        dspy.Prediction(score=score, feedback="Look at the numbers.")
        if pred_name
        else score
    )


def says(asked):
    """A judge that knows numbers, and a proposer of one instruction."""
    text = asked["messages"][-1]["content"]
    statement = text.rpartition("\n\nStatement: ")[2].partition("\n\n")[0]
    if "Statement: " in text and "bridges" in statement and len(statement) < 40:
        return "No" if "90" in statement else "Yes"
    fields = ("proposed_instruction", "improved_instruction", "proposed_prefix_for_output_field", "observations",
              "summary", "module_description", "program_description", "discussion", "new_instruction")  # fmt: skip
    return (
        "\n\n".join(f"[[ ## {name} ## ]]\n{PROPOSAL}" for name in fields)
        + f"\n\n```\n{PROPOSAL}\n```"
    )


OPTIMIZERS = {
    "LabeledFewShot": lambda lm: (dspy.LabeledFewShot(k=4), {}),
    "BootstrapFewShot": lambda lm: (dspy.BootstrapFewShot(metric=agrees, max_bootstrapped_demos=2), {}),
    "random search": lambda lm: (
        dspy.BootstrapFewShotWithRandomSearch(
            metric=agrees, max_bootstrapped_demos=1, num_candidate_programs=1, num_threads=1
        ),
        {"valset": TRAIN[:4]},
    ),
    "MIPROv2": lambda lm: (
        dspy.MIPROv2(metric=agrees, prompt_model=lm, task_model=lm, auto=None, num_candidates=2, num_threads=1, seed=1,
                     max_bootstrapped_demos=1, max_labeled_demos=1),
        {"num_trials": 2, "minibatch": False, "valset": TRAIN[:4]},
    ),
    "COPRO": lambda lm: (
        dspy.COPRO(metric=agrees, prompt_model=lm, breadth=2, depth=1),
        {"eval_kwargs": {"num_threads": 1, "display_progress": False}},
    ),
    "SIMBA": lambda lm: (
        dspy.SIMBA(metric=agrees, bsize=8, num_candidates=2, max_steps=1, max_demos=1, prompt_model=lm, num_threads=1),
        {},
    ),
    "GEPA": lambda lm: (
        dspy.GEPA(metric=agrees, max_metric_calls=20, reflection_lm=lm, num_threads=1, reflection_minibatch_size=2),
        {"valset": TRAIN[:4]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_compiles_it_and_the_result_round_trips(
    chat_server, tmp_path, name
):
    """As DSPy's documentation shows; saved and loaded, the judge asks and says the same."""
    server = chat_server(says=says)
    judge = Judge(make_lm("openai/tiny", api_base=server.base, num_retries=0))
    proposer = dspy.LM(
        "openai/tiny",
        api_base=server.base,
        api_key="none",
        num_retries=0,
        temperature=1.0,
    )
    optimizer, settings = OPTIMIZERS[name](proposer)
    with dspy.context(lm=judge.lm):
        judge.program = optimizer.compile(judge.program, trainset=TRAIN, **settings)
    judge.save(tmp_path / "judge")
    loaded = load_judge(tmp_path / "judge", api_base=server.base, api_key="none")
    assert loaded.program.prompts_hash == judge.program.prompts_hash
    assert loaded.fingerprint == judge.fingerprint
    judged = [[j.batch(RECORDS[:4], num_threads=1)] for j in (judge, loaded)]
    assert [j.statements[0].verdict for j in judged[0][0]] == [
        j.statements[0].verdict for j in judged[1][0]
    ]
    assert [j.faithful for j in judged[1][0]] == [True, False, True, False]


def test_a_compiled_part_is_saved(chat_server, tmp_path):
    """A part that was compiled by itself and put back is not lost, as it is from DSPy's own state."""
    server = chat_server(says=says)
    judge = Judge(make_lm("openai/tiny", api_base=server.base))
    demo = dspy.Example(
        context=["a"], question="", statement="b", verdict="No"
    ).with_inputs("context", "statement")
    verify = judge.program.verify
    judge.program.verify = dspy.LabeledFewShot(k=1).compile(verify, trainset=[demo])
    judge.save(tmp_path / "judge")
    loaded = load_judge(tmp_path / "judge", api_base=server.base, api_key="none")
    (kept,) = loaded.program.verify.predict.demos
    assert (kept["statement"], kept["verdict"]) == ("b", "No")


def test_a_plain_module(chat_server):
    """It takes strings, asks the LM of `dspy.configure` with adapters of its own, and says what it found."""
    server = chat_server(says=says)
    plain = dspy.LM("openai/tiny", api_base=server.base, api_key="none")
    for adapter in (None, dspy.JSONAdapter(), dspy.XMLAdapter()):
        with dspy.context(lm=plain, adapter=adapter):
            found = Judge("openai/tiny").program(**TRAIN[1].inputs())
    assert (found.statements, found.verdicts) == (
        ["A has 90 bridges."],
        [Verdict.NOT_SUPPORTED],
    )
    assert (found.faithful, found.chunk_ids) == (False, [[]])
    assert len({str(asked["messages"]) for asked in server.requests}) == 1
