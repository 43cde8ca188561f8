from pathlib import Path

import pytest

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize import plan as planning
from faith_dspy.optimize.plan import BUDGETS, Options


@pytest.fixture
def plan(tmp_path):
    """The plan of these options; ``declared``: the text of a plan file."""

    def make(declared=None, **options):
        if declared is not None:
            options["variants"] = tmp_path / "plan.toml"
            options["variants"].write_text(declared, encoding="utf-8")
        return planning.plan(Options(**{"budget": "quick"} | options))

    return make


def test_a_budget_tries_its_own_variants_the_untuned_judge_first(plan):
    """Whatever is asked for, the untuned judge is among them; nothing is limited that nobody limited."""
    made = plan(budget="standard")
    assert tuple(v.name for v in made.variants) == BUDGETS["standard"].variants
    assert made.variants[0].name == "answer"
    assert made.limits == Limits()
    assert [v.name for v in plan(variants=["sentence", "answer"]).variants] == ["answer", "sentence"]


def test_a_file_declares_options_optimizer_sizes_effort_and_limits(plan):
    """What it does not say comes from its budget; limits given on the command line go before the file's."""
    text = """budget = "standard"
        sizes.dev = 33
        effort.demos = 3
        limits = {calls = 500, minutes = 2}
        variants = [{name = "careful", granularity = "answer", instruction = "every_detail", optimizer = "bootstrap"}]
        """
    made = plan(text, calls=7)
    careful = made.variants[1]
    assert (careful.config.granularity, careful.config.instruction) == (Granularity.ANSWER, "every_detail")
    assert careful.optimizer == "bootstrap"
    assert (made.budget.dev, made.budget.train) == (33, BUDGETS["standard"].train)
    assert (made.budget.effort.demos, made.budget.effort.compare_on) == (3, BUDGETS["standard"].effort.compare_on)
    assert made.limits == Limits(calls=7, seconds=120)


def test_a_variant_is_tried_with_each_of_its_lms_and_seeds(plan):
    """Two LMs and the file's two seeds are four variants, each with a name of its own."""
    made = plan('seeds = [0, 7]\n[[variants]]\nname = "sentence-few-shot"\nlm = ["openai/a", "openai/b"]\n')
    assert [(v.name, v.lm, v.seed) for v in made.variants[1:]] == [
        (f"sentence-few-shot@openai/{lm}#{seed}", f"openai/{lm}", seed) for lm in "ab" for seed in (0, 7)
    ]


ONE = "\n[[variants]]\nname = 'sentence'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants = 3 4", "expected a TOML file"),
        ("budget = 'quick'", "variants"),
        ("[[variants]]\nname = 'nope'", "one of answer"),
        ("[[variants]]\nname = 'x'\ngranularity = 'word'", "granularity"),
        ("[[variants]]\nname = 'x'\noptimizer = 'magic'", "bootstrap"),
        ("[[variants]]\ngranularity = 'answer'", "variants.0.name: is missing"),
        (f"{ONE}\ngranularity = 'answer'", "another name"),
        (f"{ONE}{ONE}", "two variants"),
        (f"{ONE}\nseed = 'one'", "variants.0.seed.0: expected a valid integer"),
        (f"budget = 'nope'{ONE}", "'quick', 'standard' or 'thorough'"),
        (f"[sizes]\ndev = 0{ONE}", "sizes.dev"),
        (f"[limit]\ncalls = 1{ONE}", "Sections are"),
    ],
)
def test_a_fault_in_the_file_is_named(plan, text, said):
    with pytest.raises(InputError, match=said) as raised:
        plan(text)
    assert "plan.toml" in str(raised.value)


def test_what_is_not_there_is_named(plan, tmp_path):
    """A file; a variant, with the way to declare others."""
    with pytest.raises(InputError, match=r"no\.toml"):
        plan(variants=tmp_path / "no.toml")
    with pytest.raises(ConfigError, match=r"'nope'; .*sentence-few-shot.*NAME\.toml"):
        plan(variants=["nope"])


def test_variants_are_a_list_a_text_or_a_file():
    """As on the command line, so in code: a text is not taken for a list of its letters."""
    names = ("sentence", "answer")
    assert [Options(variants=v).variants for v in (list(names), "sentence, answer", ())] == [names, names, ()]
    assert Options(variants="plan.toml").variants == Path("plan.toml")
