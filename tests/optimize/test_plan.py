from __future__ import annotations

from pathlib import Path

import pytest

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize import plan as planning
from faith_dspy.optimize.plan import BUDGETS, Options


def plan(budget="quick", variants=(), **limits):
    """The plan of such options."""
    return planning.plan(Options(budget=budget, variants=variants, **limits))


def declared(tmp_path, text: str):
    """A plan file."""
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_budget_tries_its_own_variants_the_untuned_judge_first():
    """Whatever is asked for, the untuned judge is among them; nothing is limited that nobody limited."""
    made = plan("standard")
    assert tuple(v.name for v in made.variants) == BUDGETS["standard"].variants
    assert made.variants[0].name == "answer"
    assert made.limits == Limits()
    assert [v.name for v in plan("quick", ["sentence", "answer"]).variants] == ["answer", "sentence"]


def test_a_file_declares_options_optimizer_sizes_effort_and_limits(tmp_path):
    """What it does not say comes from its budget."""
    made = plan(
        "quick",
        declared(
            tmp_path,
            """
            budget = "standard"
            [sizes]
            dev = 33
            [effort]
            demos = 3
            [limits]
            calls = 500
            minutes = 2
            [[variants]]
            name = "careful"
            granularity = "answer"
            instruction = "every_detail"
            optimizer = "bootstrap"
            """,
        ),
    )
    careful = made.variants[1]
    assert (careful.config.granularity, careful.config.instruction) == (Granularity.ANSWER, "every_detail")
    assert careful.optimizer == "bootstrap"
    assert (made.budget.dev, made.budget.train) == (33, BUDGETS["standard"].train)
    assert (made.budget.effort.demos, made.budget.effort.compare_on) == (3, BUDGETS["standard"].effort.compare_on)
    assert made.limits == Limits(calls=500, seconds=120)


def test_a_variant_is_tried_with_each_of_its_lms_and_seeds(tmp_path):
    """Two LMs and the file's two seeds are four variants, each with a name of its own."""
    made = plan(
        "quick",
        declared(tmp_path, 'seeds = [0, 7]\n[[variants]]\nname = "sentence-few-shot"\nlm = ["openai/a", "openai/b"]\n'),
    )
    assert [(v.name, v.lm, v.seed) for v in made.variants[1:]] == [
        ("sentence-few-shot@openai/a#0", "openai/a", 0),
        ("sentence-few-shot@openai/a#7", "openai/a", 7),
        ("sentence-few-shot@openai/b#0", "openai/b", 0),
        ("sentence-few-shot@openai/b#7", "openai/b", 7),
    ]


def test_limits_given_on_the_command_line_go_before_the_files(tmp_path):
    """The others stay."""
    path = declared(tmp_path, '[limits]\ncalls = 5\ntokens = 9\n[[variants]]\nname = "sentence"\n')
    assert plan("quick", path, calls=7).limits == Limits(calls=7, tokens=9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants = 3 4", "expected a TOML file"),
        ("budget = 'quick'", "variants"),
        ("[[variants]]\nname = 'nope'", "one of answer"),
        ("[[variants]]\nname = 'x'\ngranularity = 'word'", "granularity"),
        ("[[variants]]\nname = 'x'\noptimizer = 'magic'\ngranularity = 'answer'", "bootstrap"),
        ("[[variants]]\nname = 'sentence'\ngranularity = 'answer'", "another name"),
        ("[[variants]]\nname = 'sentence'\n[[variants]]\nname = 'sentence'", "two variants"),
        ("budget = 'nope'\n[[variants]]\nname = 'sentence'", "'quick', 'standard' or 'thorough'"),
        ("[[variants]]\nname = 'sentence'\nseed = 'one'", "variants.0.seed.0: expected a valid integer"),
        ("[sizes]\ndev = 0\n[[variants]]\nname = 'sentence'", "sizes.dev"),
        ("[limit]\ncalls = 1\n[[variants]]\nname = 'sentence'", "Sections are"),
        ("[[variants]]\ngranularity = 'answer'", "variants.0.name: is missing"),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path, text, said):
    """With the file, what was got, and what there is."""
    path = declared(tmp_path, text)
    with pytest.raises(InputError, match=said) as raised:
        plan("quick", path)
    assert "plan.toml" in str(raised.value)


def test_what_is_not_there_is_named(tmp_path):
    """A file; a variant, with the way to declare others."""
    with pytest.raises(InputError, match=r"no\.toml"):
        plan("quick", tmp_path / "no.toml")
    with pytest.raises(ConfigError, match=r"'nope'; .*NAME\.toml"):
        plan("quick", ["nope"])


def test_variants_are_a_list_a_text_or_a_file():
    """As on the command line, so in code: a text is not taken for a list of its letters."""
    assert Options(variants=["sentence", "answer"]).variants == ("sentence", "answer")
    assert Options(variants="sentence, answer").variants == ("sentence", "answer")
    assert Options(variants="plan.toml").variants == Path("plan.toml")
    assert Options(variants=()).variants == ()
