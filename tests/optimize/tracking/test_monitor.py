import json

from faith_dspy.optimize.tracking.store import connect
from tests.support.files import blue_kettles, write_lines


def test_each_time_is_a_step_of_one_run(own_store, chat_server, cli):
    """`agree --track` asks a hosted LM again: of two answers of each label it gets all right, then, when another model
    answers to its name, half. Other labels are another run."""
    server = chat_server()
    server.says = lambda asked: "Yes" if "blue" in server.statement(asked) else "No"

    def agree(n):
        file = write_lines(f"{n}.jsonl", blue_kettles(n))
        at = "--lm", "openai/tiny", "--api-base", server.base, "--track", "--json"
        return json.loads(cli("agree", file, *at)[1])["tracked"]

    first = agree(2)
    server.says = "No"
    assert agree(2) == {**first, "step": 1}
    client = connect().client
    history = client.get_metric_history(first["run_id"], "labelled/balanced_accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (1, 0.5)]
    run = client.get_run(first["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["cost/computed_tokens"] > 0
    assert agree(3)["run_id"] != first["run_id"]
