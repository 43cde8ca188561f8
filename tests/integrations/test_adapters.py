import pytest

from faith_dspy.integrations.adapters import judge_of
from faith_dspy.integrations.continuous_eval import LLMFactory


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (LLMFactory("gpt-4-1106-preview"), "openai/gpt-4-1106-preview"),
        ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("openai:/gpt-4o-mini", "openai/gpt-4o-mini"),  # MLflow
        (
            "us.anthropic.claude-sonnet-4-20250514-v1:0",
            "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0",
        ),
    ],
)
def test_names_of_models(name, wanted):
    """A bare name gets the provider it is known by, one that ends in a number, too."""
    assert judge_of({}, name).lm_name == wanted
