import subprocess
import sys

import pytest


def python(code):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("ragas", "ragas", "ragas"),
        ("deepeval", "deepeval", "deepeval"),
        ("strands", "strands_evals", "strands"),
        ("mlflow", "mlflow", "tune"),
    ],
)
def test_library_that_is_not_installed(module, package, extra):
    """Importing an adapter without its library is an error that names the extra to install."""
    code = f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name={package!r})
sys.meta_path.insert(0, Gone())
from faith_dspy.errors import MissingExtraError
try:
    import faith_dspy.integrations.{module}
except MissingExtraError as exc:
    print(exc)"""
    assert f"pip install 'faith_dspy[{extra}]'" in python(code)


def test_what_needs_no_library():
    """Reading spans, data and grading load none of the libraries, nor MLflow."""
    code = """
import sys
import faith_dspy.integrations.otel, faith_dspy.integrations.axion, faith_dspy.integrations.continuous_eval
import faith_dspy.integrations.rag_evals
heavy = ("ragas", "deepeval", "strands", "strands_evals", "opentelemetry", "openinference", "mlflow", "dspy")
print([m for m in heavy if m in sys.modules])"""
    assert python(code) == "[]"
