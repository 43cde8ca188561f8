from pathlib import Path

import pytest

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.optimize import plan as planning
from faith_dspy.optimize.plan import VARIANTS, Options, Variant


@pytest.fixture
def plan(tmp_path):
    """The variants of these options; ``declared``: the text of a plan file."""

    def make(declared=None, **options):
        if declared is not None:
            options["variants"] = tmp_path / "plan.toml"
            options["variants"].write_text(declared, encoding="utf-8")
        return planning.plan(Options(**options))[1]

    return make


EMBEDDED = "sentence sentence-few-shot"
QUICK = f"{EMBEDDED} answer sentence-guidelines"
MORE = "joint answer-reasoning statement statement-gepa"


@pytest.mark.parametrize(
    ("lm", "budget", "names"),
    [
        ("openai/gpt-4o-mini", "quick", QUICK),
        ("openai/gpt-4o-mini", "standard", f"{QUICK} {MORE}"),
        ("openai/gpt-4o-mini", "thorough", " ".join(VARIANTS)),
        ("local", "quick", EMBEDDED),
        ("local", "standard", f"{EMBEDDED} sentence-guidelines"),
    ],
)
def test_a_budget_compiles_prompts_and_tries_what_suits_the_lm(plan, lm, budget, names):
    """The embedded LM writes slowly: no reasoning, no lists of verdicts. What is not compiled comes first."""
    variants = plan(lm=lm, budget=budget)
    assert {v.name for v in variants} == {*names.split()}
    compiled = [v.optimizer is not None for v in variants]
    assert compiled == sorted(compiled)
    assert any(compiled)


def test_without_variants_no_lm_is_asked(plan):
    """`--variants lexical` and `--lm none` are studies like any other; a variant then needs an LM of its own."""
    assert plan(variants="lexical") == plan(lm="none") == []
    assert [v.name for v in plan(variants="lexical,answer")] == ["answer"]
    with pytest.raises(ConfigError, match="'answer' asks an LM, and --lm is none"):
        plan(lm="none", variants="answer")
    own = Variant(name="answer", lm="openai/tiny")
    assert plan(lm="none", variants=[own]) == [own]


def test_a_variant_may_have_an_lm_of_its_own(plan):
    """One that exists, and one of one's own that differs by nothing but the LM; as an object it is the same."""
    text = """[[variants]]
        name = "mini"
        lm = "openai/gpt-4o-mini"
        [[variants]]
        name = "answer"
        lm = "openai/tiny"
        api_base = "http://127.0.0.1:9/v1"
        [[variants]]
        name = "sentence-few-shot"
        lm = "openai/tiny"
        [[variants]]
        name = "careful"
        granularity = "answer"
        verdicts = "graded"
        optimizer = "mistakes"
        """
    mini, answer, few_shot, careful = plan(text)
    assert (careful.config.granularity, careful.config.verdicts) == ("answer", "graded")
    assert careful.optimizer == "mistakes"
    assert (few_shot.optimizer, few_shot.lm) == ("labelled", "openai/tiny")
    assert (answer.config, answer.lm) == (VARIANTS["answer"].config, "openai/tiny")
    own = Variant(name="mini", config=JudgeConfig(), lm="openai/gpt-4o-mini")
    assert plan(variants=[own]) == [mini]


ONE = "\n[[variants]]\nname = 'sentence'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants = 3 4", "expected a TOML file"),
        ("[[variants]]\nname = 'x'\ngranularity = 'word'", "granularity"),
        ("[[variants]]\nname = 'x'\noptimizer = 'magic'", "guidelines"),
        ("[[variants]]\ngranularity = 'answer'", "variants.0.name: is missing"),
        (f"{ONE}\ngranularity = 'answer'", "with granularity, another name"),
        (f"{ONE}\napi_base = 'http://x/v1'", "api_base is the address of a variant's own lm"),
        (f"[sizes]\npool = 9{ONE}", "sizes: there is no such field"),
        ("[[variants]]\nname = 'untuned'", "is the name of a baseline"),
    ],
)  # fmt: skip
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


def test_variants_are_a_text_or_a_file():
    """As on the command line, so in code: a text is not taken for a list of its letters."""
    assert Options(variants="sentence, answer").variants == ("sentence", "answer")
    assert Options(variants="plan.toml").variants == Path("plan.toml")
