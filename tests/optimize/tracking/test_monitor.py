import json

from faith_dspy.optimize.tracking.store import connect
from tests.support.files import blue_kettles, write_lines


def test_each_time_is_a_step_of_one_run(own_store, chat_server, cli):
    """`agree --track` asks a hosted LM again: of twelve answers of each label it gets all right, then, when another
    model answers to its name, half, and --min fails. Other labels are another run."""
    write_lines("labels.jsonl", blue_kettles(12))
    server = chat_server(
        says=lambda asked: "Yes" if "blue" in server.statement(asked) else "No"
    )

    def agree(file, *more):
        at = "--lm", "openai/tiny", "--api-base", server.base, "--track", "--json"
        code, out, err = cli("agree", file, *at, *more)
        return code, json.loads(out)["tracked"], err

    code, first, _ = agree("labels.jsonl", "--min", "0.9")
    assert (code, first["step"]) == (0, 0)
    server.says = "No"
    code, second, err = agree("labels.jsonl", "--min", "0.9")
    assert (code, second) == (1, {**first, "step": 1})
    assert "balanced accuracy is 0.500, below the minimum of 0.9." in err
    client = connect().client
    history = client.get_metric_history(first["run_id"], "labelled/balanced_accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (1, 0.5)]
    run = client.get_run(first["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["cost/computed_tokens"] > 0
    write_lines("fewer.jsonl", blue_kettles(11))
    assert agree("fewer.jsonl")[1]["run_id"] != first["run_id"]
