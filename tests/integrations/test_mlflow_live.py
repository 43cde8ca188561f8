"""Live traces on an MLflow server, scored by the recipe of the documentation; and what MLflow says of scheduling."""

import re
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.genai.scorers import ScorerSamplingConfig, get_scorer

import faith_dspy.integrations
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow import FaithfulnessScorer
from tests.support.studies import mlflow_server

pytestmark = pytest.mark.all
ADDRESS = "models:/faithfulness@champion"
INPUTS = {"context": ["The kettle is blue."]}
LABELS = {"The kettle is blue.": "Yes", "It is red.": "No"}


@pytest.fixture(scope="module")
def live(registry, tmp_path_factory):
    """A server over a store with a champion, and sixteen traces of an application, half of them unfaithful."""
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "true")
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        with mlflow_server(folder, registry) as address:
            patch.setenv("MLFLOW_TRACKING_URI", address)
            mlflow.tracing.reset()
            mlflow.set_experiment("shop")
            for answer in [*LABELS] * 8:
                with mlflow.start_span("shop") as span:
                    span.set_inputs(INPUTS)
                    span.set_outputs(answer)
            yield
        mlflow.tracing.reset()


def scored():
    """What the recipe said of each trace that it scored, by the trace."""
    traces = mlflow.search_traces(return_type="list")
    values = {t.info.trace_id: t.search_assessments("faithfulness") for t in traces}
    return {name: [a.value for a in found] for name, found in values.items() if found}


def test_live_traces_are_scored_once_by_a_sample(live, endpoint):
    """The recipe scores the share that it says, the same traces whenever it runs; a larger share adds to them."""
    endpoint.labels = LABELS
    page = Path(faith_dspy.integrations.__file__).with_name("README.md")
    blocks = re.findall("```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (recipe,) = [block for block in blocks if "RATE = 0.2" in block]
    names = [t.info.trace_id for t in mlflow.search_traces(return_type="list")]
    for rate in ("0.5", "0.5", "1.0"):
        exec(recipe.replace("RATE = 0.2", f"RATE = {rate}"), {})
        sample = {n for n in names if int(n[-4:], 16) / 16**4 < float(rate)}
        assert set(scored()) == sample
        assert all(len(values) == 1 for values in scored().values())
    assert sorted(value for (value,) in scored().values()) == [0.0] * 8 + [1.0] * 8


def test_a_registered_scorer_is_loaded_and_not_scheduled(live, endpoint):
    """It is a function with the judge's address, which another process loads and calls; to schedule it is refused."""
    endpoint.labels = LABELS
    scorer = FaithfulnessScorer(ADDRESS, statements="none")
    registered = scorer.register(name="grounded")
    feedback = get_scorer(name="grounded").run(inputs=INPUTS, outputs="It is red.")
    assert [(f.name, f.value) for f in feedback] == [
        ("grounded", 0.0),
        ("grounded/faithful", False),
        ("grounded/scored", True),
    ]
    assert feedback[0].source.source_id == ADDRESS
    with pytest.raises(MlflowException, match="does not use a gateway model"):
        registered.start(sampling_config=ScorerSamplingConfig(sample_rate=0.5))


def test_a_judge_without_an_address_is_not_registered():
    """The registry keeps text: a judge in memory is refused before MLflow is asked."""
    with pytest.raises(InputError, match="expected the judge's address"):
        FaithfulnessScorer(FaithfulnessScorer("none").judge).register()
