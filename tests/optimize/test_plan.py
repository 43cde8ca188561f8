from pathlib import Path

import pytest

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize import plan as planning
from faith_dspy.optimize.plan import BUDGETS, Options, Variant


@pytest.fixture
def plan(tmp_path):
    """The plan of these options; ``declared``: the text of a plan file."""

    def make(declared=None, **options):
        if declared is not None:
            options["variants"] = tmp_path / "plan.toml"
            options["variants"].write_text(declared, encoding="utf-8")
        return planning.plan(Options(**{"budget": "quick"} | options))

    return make


def test_a_budget_tries_what_suits_the_lm_the_untuned_judge_first(plan):
    """The embedded LM writes slowly: no reasoning, no lists of verdicts. Whatever is asked for, the untuned judge is
    among it; nothing is limited that nobody limited."""
    made = plan(budget="standard")
    assert [v.name for v in made.variants] == [
        "answer",
        "sentence",
        "sentence-few-shot",
    ]
    assert Options().limits == Limits()
    hosted = plan(lm="openai/gpt-4o-mini").variants
    assert [v.name for v in hosted] == [
        "answer",
        "answer-reasoning",
        "joint",
        "sentence",
        "sentence-graded",
    ]
    assert [v.name for v in plan(variants=["sentence", "answer"]).variants] == [
        "answer",
        "sentence",
    ]


def test_a_file_declares_options_optimizer_sizes_and_effort(plan):
    """What it does not say comes from the budget."""
    text = """sizes.pool = 33
        effort.demos = 3
        variants = [{name = "careful", granularity = "answer", verdicts = "graded", optimizer = "bootstrap"}]
        """
    made = plan(text, budget="standard")
    careful = made.variants[1]
    assert (careful.config.granularity, careful.config.verdicts) == (
        Granularity.ANSWER,
        "graded",
    )
    assert careful.optimizer == "bootstrap"
    assert (made.budget.pool, made.budget.test) == (33, BUDGETS["standard"].test)
    assert (made.budget.effort.demos, made.budget.effort.compare_on) == (
        3,
        BUDGETS["standard"].effort.compare_on,
    )


def test_a_variant_may_have_an_lm_of_its_own(plan):
    """One that exists, and one of one's own that differs by nothing but the LM; as an object it is the same."""
    text = """[[variants]]
        name = "sentence-few-shot"
        lm = "openai/tiny"
        [[variants]]
        name = "mini"
        lm = "openai/gpt-4o-mini"
        """
    few_shot, mini = plan(text).variants[1:]
    assert (few_shot.optimizer, few_shot.lm) == ("labelled", "openai/tiny")
    assert (mini.lm, mini.config) == ("openai/gpt-4o-mini", JudgeConfig())
    (_, same) = plan(
        variants=[Variant(name="mini", config=JudgeConfig(), lm="openai/gpt-4o-mini")]
    ).variants
    assert same == mini


ONE = "\n[[variants]]\nname = 'sentence'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants = 3 4", "expected a TOML file"),
        ("sizes.pool = 9", "variants"),
        ("[[variants]]\nname = 'x'\ngranularity = 'word'", "granularity"),
        ("[[variants]]\nname = 'x'\noptimizer = 'magic'", "bootstrap"),
        ("[[variants]]\ngranularity = 'answer'", "variants.0.name: is missing"),
        ("[[variants]]\nname = ['a']", "variants.0.name: expected a valid string"),
        ("[[variants]]\nname = ''", "variants.0.name: .*at least 1 character"),
        (f"{ONE}\ngranularity = 'answer'", "with granularity, another name"),
        (f"{ONE}{ONE}", "two variants"),
        (f"{ONE}\nlm = 1", "variants.0.lm: expected a valid string"),
        (f"[sizes]\npool = 0{ONE}", "sizes.pool"),
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
    with pytest.raises(ConfigError, match="two variants are called 'sentence'"):
        plan(variants="sentence,sentence")


def test_variants_are_a_list_a_text_or_a_file():
    """As on the command line, so in code: a text is not taken for a list of its letters."""
    names = ("sentence", "answer")
    assert [
        Options(variants=v).variants for v in (list(names), "sentence, answer", ())
    ] == [names, names, ()]
    assert Options(variants="plan.toml").variants == Path("plan.toml")
