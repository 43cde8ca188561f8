"""Answers, and what an LM of known strength says of them, without an LM."""

import numpy as np

from faith_dspy import Judge
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.results import JudgedAnswer, Prompts
from faith_dspy.optimize.select.ask import Replies
from faith_dspy.program.reply import LABEL_LOGIT
from faith_dspy.schema import Judgment, RawJudgment, RawVerdict, Usage, Verdict

KNOWN, NOTHING = Judge("openai/known", classifier=None), Usage()
COLOURS = ("blue", "green", "red", "white", "black")


def examples(n, *, known_words=0.8, prefix="k", seed=0):
    """One answer a context, half of them unfaithful; of those ``known_words`` have a word that the context lacks, and
    of the faithful ones the rest."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        text, faithful = f"The {prefix}{i} kettle is {COLOURS[i % 5]}.", i % 2 == 0
        novel = (rng.random() < known_words) != faithful
        said = text.replace(COLOURS[i % 5], "made of porcelain") if novel else text
        row = {
            "id": f"{prefix}{i}",
            "context": [text, "It holds a litre."],
            "answer": said,
            "faithful": faithful,
        }
        rows.append(parse_example(row))
    return rows


def replies(
    labelled,
    name="sentence",
    *,
    separation,
    offset=0.0,
    probabilities=True,
    seed=1,
    judge=KNOWN,
    usage=NOTHING,
):
    """What an LM says that tells faithful answers from others by so many standard deviations of its log-odds.

    ``offset`` is added to these; without ``probabilities`` only the verdict is known.
    """
    rng = np.random.default_rng(seed)
    answers = []
    for e in labelled:
        logit = 1.5 * (separation * (e.label - 0.5) + rng.normal()) + offset
        logit = float(np.clip(logit, -6, 6))
        verdict = Verdict.FULLY_SUPPORTED if logit >= 0 else Verdict.NOT_SUPPORTED
        if not probabilities:
            logit = LABEL_LOGIT if logit >= 0 else -LABEL_LOGIT
        said = RawVerdict(
            text=e.answer,
            sentence_index=0,
            verdict=verdict,
            logit=logit,
            probability=1 / (1 + np.exp(-logit)) if probabilities else None,
        )
        raw = RawJudgment(raw_verdicts=(said,), usage=usage)
        judgment = Judgment(score=1.0, faithful=logit >= 0)
        answers.append(JudgedAnswer.judged(e, raw, judgment))
    return Replies(name, "by sentence", {}, judge, answers, Prompts(now={}))
