from __future__ import annotations

from faith_dspy.lm.make import LMIdentity
from faith_dspy.optimize.plan import BUDGETS, VARIANTS, Options, Plan
from faith_dspy.optimize.study import study_id
from faith_dspy.schema import Chunk, LabelledExample


def examples(n: int, faithful: bool = True) -> list[LabelledExample]:
    """Labels."""
    return [
        LabelledExample(id=str(i), context=(Chunk(id=0, text=f"c{i}"),), answer="a", faithful=faithful or i > 0)
        for i in range(n)
    ]


def identity(parts, lm, budget, variants, **options):
    """The study's id."""
    return study_id(parts, lm, Plan(budget, variants, Options(**options).limits), Options(**options))


def test_whatever_changes_the_outcome_changes_the_id():
    """A label, the split, the LM's name, file or endpoint, budget, variants, an option, an optimizer, the seed."""
    parts = (examples(6), examples(4), examples(4))
    lm, plan = LMIdentity(name="openai/tiny", sha256="ab", api_base_hash="cd"), BUDGETS["quick"]
    variants = [VARIANTS["answer"], VARIANTS["sentence"]]
    first = identity(parts, lm, plan, variants)
    config = variants[1].config.model_copy(update={"criteria": "Dates count."})
    others = [
        identity((examples(6, False), *parts[1:]), lm, plan, variants),
        identity((parts[0][:5], [*parts[1], parts[0][5]], parts[2]), lm, plan, variants),
        *(
            identity(parts, lm.model_copy(update={field: "other"}), plan, variants)
            for field in ("name", "sha256", "api_base_hash")
        ),
        identity(parts, lm, BUDGETS["standard"], variants),
        identity(parts, lm, plan, variants[:1]),
        identity(parts, lm, plan, variants[::-1]),
        identity(parts, lm, plan, [variants[0], variants[1].model_copy(update={"config": config})]),
        identity(parts, lm, plan, [variants[0], variants[1].model_copy(update={"optimizer": "labelled"})]),
        identity(parts, lm, plan, variants, seed=1),
        identity(parts, lm, plan, variants, operating_point="cost=2"),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_the_same_study_has_the_same_id():
    """The order of the lines and what may be spent are not the study's: it goes on in its run."""
    parts = (examples(6), examples(4), examples(4))
    lm, plan, variants = LMIdentity(name="openai/tiny"), BUDGETS["quick"], [VARIANTS["answer"]]
    longer = plan.model_copy(update={"minutes": 99})
    assert identity([p[::-1] for p in parts], lm, longer, variants, calls=9) == identity(parts, lm, plan, variants)
