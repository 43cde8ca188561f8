from tests.support.files import run_python

EXTRAS = {
    "ragas": "ragas",
    "deepeval": "deepeval",
    "strands": "strands",
    "mlflow": "tune",
    "pydantic_evals": "pydantic-evals",
    "spark": "spark",
}
ALONE = """
import importlib, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("ragas", "deepeval", "strands_evals", "mlflow", "pydantic_evals", "pyspark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)
sys.meta_path.insert(0, Gone())
from faith_dspy.errors import MissingExtraError
for module in %s:
    try:
        importlib.import_module(f"faith_dspy.integrations.{module}")
    except MissingExtraError as exc:
        print(exc)"""


def test_libraries_that_are_not_installed():
    """Importing an adapter without its library is an error that names the extra to install."""
    told = run_python(ALONE % [*EXTRAS]).splitlines()
    for extra, message in zip(EXTRAS.values(), told, strict=True):
        assert f"pip install '.[{extra}]', in a clone" in message


def test_what_needs_no_library():
    """Reading spans, data and grading load none of the libraries, nor MLflow."""
    code = """
import sys
import faith_dspy.integrations.otel, faith_dspy.integrations.axion, faith_dspy.integrations.continuous_eval
import faith_dspy.integrations.rag_evals, faith_dspy.integrations.promptfoo
heavy = ("ragas", "deepeval", "strands", "strands_evals", "opentelemetry", "mlflow", "dspy")
print([m for m in heavy if m in sys.modules])"""
    assert run_python(code) == "[]"
