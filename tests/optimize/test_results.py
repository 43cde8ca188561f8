from __future__ import annotations

from faith_dspy.lm.make import LMIdentity
from faith_dspy.optimize.select.variants import BUDGETS, VARIANTS
from faith_dspy.optimize.study import study_id
from faith_dspy.schema import Chunk, LabelledExample


def examples(n: int, faithful: bool = True) -> list[LabelledExample]:
    """Labels."""
    return [
        LabelledExample(id=str(i), context=(Chunk(id=0, text=f"c{i}"),), answer="a", faithful=faithful or i > 0)
        for i in range(n)
    ]


def test_whatever_changes_the_outcome_changes_the_id():
    """A label, the split, the LM's name, file or endpoint, budget, variants, an option, an optimizer, the seed."""
    parts = (examples(6), examples(4), examples(4))
    lm, plan = LMIdentity(name="openai/tiny", sha256="ab", api_base_hash="cd"), BUDGETS["quick"]
    variants = [VARIANTS["answer"], VARIANTS["sentence"]]
    first = study_id(parts, lm, plan, variants, 0)
    option = variants[1]._replace(config=variants[1].config.model_copy(update={"criteria": "Dates count."}))
    others = [
        study_id((examples(6, False), *parts[1:]), lm, plan, variants, 0),
        study_id((parts[0][:5], [*parts[1], parts[0][5]], parts[2]), lm, plan, variants, 0),
        *(
            study_id(parts, lm.model_copy(update={field: "other"}), plan, variants, 0)
            for field in ("name", "sha256", "api_base_hash")
        ),
        study_id(parts, lm, BUDGETS["standard"], variants, 0),
        study_id(parts, lm, plan, variants[:1], 0),
        study_id(parts, lm, plan, variants[::-1], 0),
        study_id(parts, lm, plan, [variants[0], option], 0),
        study_id(parts, lm, plan, [variants[0], variants[1]._replace(optimizer="labelled")], 0),
        study_id(parts, lm, plan, variants, 1),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_the_same_study_has_the_same_id():
    """The order of the lines and the minutes allowed are not the study's: it goes on in its run."""
    parts = (examples(6), examples(4), examples(4))
    lm, plan = LMIdentity(name="openai/tiny"), BUDGETS["quick"]
    again = study_id([p[::-1] for p in parts], lm, plan._replace(minutes=99), [VARIANTS["answer"]], 0)
    assert again == study_id(parts, lm, plan, [VARIANTS["answer"]], 0)
