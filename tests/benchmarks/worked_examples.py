"""The worked examples of Strands' and axion's pages, in our own words: what their pages say, and what an LM gives.

python -m tests.benchmarks.worked_examples [LM]

Twelve results: three scores of Strands, five of axion, and the claims of axion's four answers with their verdicts.
`tests/integrations/test_worked_examples.py` has an LM say what the pages say: what differs here is the LM's doing.
"""

import asyncio
import sys
from typing import Any, NamedTuple


class Example(NamedTuple):
    """An answer, and what the page says of it."""

    question: str
    context: list[str]
    answer: str
    replies: dict[str, str]
    """The label of each claim, after the number of its sentence; of Strands' the level of the whole answer."""
    scores: dict[str, float]
    """By the options in words."""


_SEARCH = ["Python is a high-level programming language."]
_ASKED = "What did the search for Python give?"
STRANDS = {
    "faithful": Example(
        _ASKED,
        _SEARCH,
        "According to the search, Python is a high-level programming language.",
        {"": "completely"},
        {"": 1.0},
    ),
    "unfaithful": Example(
        _ASKED,
        _SEARCH,
        "Guido van Rossum made Python in 1991, and it has more users than any other language.",
        {"": "hardly"},
        {"": 0.25},
    ),
    "mixed": Example(
        _ASKED,
        _SEARCH,
        "The search says that Python is a programming language. It is also faster than all others.",
        {"": "mixed"},
        {"": 0.5},
    ),
}
AXION = {
    "Apollo 11": Example(
        "When did Apollo 11 fly?",
        [
            "Apollo 11 lifted off on 16 July 1969. Neil Armstrong commanded it. Its lunar module bore the name Eagle."
        ],
        "Apollo 11 lifted off in July 1969 and was commanded by Neil Armstrong. Its lunar module was named Eagle.",
        {
            "1. Apollo 11 lifted off in July 1969.": "fully",
            "1. Apollo 11 was commanded by Neil Armstrong.": "fully",
            "2. The lunar module of Apollo 11 was named Eagle.": "fully",
        },
        {"": 1.0},
    ),
    "returns": Example(
        "How do returns work?",
        [
            "Goods can be sent back for 30 days. They have to be unused, and in the packaging they came in."
        ],
        "You can send goods back for 30 days if they are unused. The money is paid back within 24 hours.",
        {
            "1. Goods can be sent back for 30 days if they are unused.": "fully",
            "2. The money is paid back within 24 hours.": "nothing",
        },
        {"": 0.5, "strict": 0.0},
    ),
    "dose": Example(
        "How much may I take?",
        ["No more than 500 mg may be taken in a day. Never go beyond this limit."],
        "It is safe to take up to 1000 mg a day.",
        {"1. It is safe to take up to 1000 mg a day.": "contradicts"},
        {"": 0.0},
    ),
    "infield fly": Example(
        "What is the infield fly rule for?",
        [
            "The infield fly rule keeps the defense from an unfair advantage.",
            "It applies with runners on first and second base.",
        ],
        "The infield fly rule keeps the defense from dropping a fly ball on purpose to turn a double play.",
        {
            "1. The infield fly rule keeps the defense from dropping a fly ball on purpose.": "fully",
            "1. The infield fly rule prevents an easy double play while runners are on base.": "nothing",
        },
        {"": 0.5},
    ),
}
VERDICTS = {
    "fully": "Fully Supported",
    "nothing": "No Evidence",
    "contradicts": "Contradictory",
}


class Result(NamedTuple):
    """One of the twelve."""

    name: str
    documented: Any
    score: Any
    words: str
    """Why, as the adapter says it."""


def strands_results(model: Any) -> list[Result]:
    """What Strands' evaluator gives with a model."""
    from strands_evals.types.evaluation import EvaluationData

    from faith_dspy.integrations.strands import FaithfulnessEvaluator

    evaluator = FaithfulnessEvaluator(model)
    results = []
    for name, example in STRANDS.items():
        case = EvaluationData(
            input=example.question,
            actual_output=example.answer,
            metadata={"context": example.context},
        )
        (output,) = evaluator.evaluate(case)
        score = None if output.label == "not_applicable" else output.score
        row = Result(f"Strands, {name}", example.scores[""], score, output.reason)
        results.append(row)
    return results


def axion_results(model: Any) -> list[Result]:
    """What axion's metric gives with a model: each score, and each answer's verdicts."""
    from faith_dspy.integrations.axion import DatasetItem, Faithfulness

    results = []
    for name, example in AXION.items():
        item = DatasetItem(
            query=example.question,
            actual_output=example.answer,
            retrieved_content=example.context,
        )
        for mode, documented in example.scores.items():
            metric = Faithfulness(llm=model, strict_mode=mode == "strict")
            result = asyncio.run(metric.execute(item))
            title = f"axion, {name}, {mode}" if mode else f"axion, {name}"
            row = Result(title, documented, result.score, result.explanation)
            results.append(row)
            if not mode:
                documented = [VERDICTS[label] for label in example.replies.values()]
                verdicts = [claim.verdict for claim in result.signals.judged_claims]
                row = Result(f"{title}: claims", documented, verdicts, "")
                results.append(row)
    return results


def main() -> None:
    """Print what an LM gives beside what the pages say."""
    model = sys.argv[1] if sys.argv[1:] else "local"
    results = strands_results(model) + axion_results(model)
    for one in results:
        sign = "=" if one.score == one.documented else "≠"
        print(f"{sign} {one.name}: documented {one.documented}, here {one.score}")
        if one.score != one.documented and one.words:
            print("    " + one.words.replace("\n", "\n    "))
    equal = sum(one.score == one.documented for one in results)
    print(f"{equal} of {len(results)} as documented, by {model}")


if __name__ == "__main__":
    main()
