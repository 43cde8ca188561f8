"""Judgments as they are shown, without a judge."""

from faith_dspy.schema import Judgment, StatementVerdict
from faith_dspy.text.sentences import sentences


def judged(answer, *statements, **fields):
    """A judgment of ``answer`` with these statements: each the first sentence unless it says otherwise."""
    parts = sentences(answer)
    rows = []
    for fields_of_one in statements:
        row = {"sentence_index": 0} | fields_of_one
        text = parts[row["sentence_index"] or 0].text
        rows.append(StatementVerdict(**{"text": text} | row))
    scored = {} if "unscored" in fields else {"score": 0.5, "faithful": False}
    return Judgment(sentences=parts, statements=tuple(rows), **scored | fields)
