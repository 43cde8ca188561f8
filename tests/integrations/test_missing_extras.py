from tests.support.files import run_python

ALONE = """
import importlib, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if (package := name.partition(".")[0]) in ("ragas", "deepeval", "strands_evals", "mlflow", "pydantic_evals"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)
sys.meta_path.insert(0, Gone())
from faith_dspy.errors import MissingExtraError
for module in ("ragas", "deepeval", "strands", "mlflow", "pydantic_evals"):
    try:
        importlib.import_module(f"faith_dspy.integrations.{module}")
    except MissingExtraError as exc:
        print(exc)"""


def test_libraries_that_are_not_installed():
    """Importing an adapter without its library is an error that names the extra to install."""
    extras = ("ragas", "deepeval", "strands", "tune", "pydantic-evals")
    for extra, told in zip(extras, run_python(ALONE).splitlines(), strict=True):
        assert f"pip install '.[{extra}]', in a clone" in told


def test_what_needs_no_library():
    """Reading spans, data and grading load none of the libraries, nor MLflow."""
    code = """
import sys
import faith_dspy.integrations.otel, faith_dspy.integrations.axion, faith_dspy.integrations.continuous_eval
import faith_dspy.integrations.rag_evals, faith_dspy.integrations.promptfoo
heavy = ("ragas", "deepeval", "strands", "strands_evals", "opentelemetry", "openinference", "mlflow", "dspy")
print([m for m in heavy if m in sys.modules])"""
    assert run_python(code) == "[]"
