"""Every form in which LMs write a verdict: read right, or not at all; never as another verdict."""

import pytest

from faith_dspy.lm.capabilities import thoughts_end
from faith_dspy.program.reply import find_label
from faith_dspy.program.signatures import INSTRUCTIONS

BINARY = {
    "Yes": [
        "Yes", "yes.", "**Yes**", "YES!", " yes\n", "`Yes`", '"Yes"', "_Yes_", "- Yes", "Y", "Yes, it does.",
        "Yes. The context says so.", "Yes – the first chunk says it", "Yes because chunk 0 says so", "Yes it is",
        "Verdict: Yes", "**Verdict:** Yes", "Answer: **Yes**", "Final answer: yes", "The answer is yes",
        '{"verdict": "Yes"}', '```json\n{"verdict": "Yes"}\n```', '{"reason": "It says so.", "verdict": "Yes"}',
        '{"supported": true}', '{"answer": "yes", "confidence": 0.9}', "Supported", "Fully supported.",
        "The statement is fully supported by the context.", "It is supported", "Completely supported by the context",
        "The kettle is blue, says chunk 0.\nYes", "The context says it.\n\nVerdict: Yes", "Yes [0]", "yes 0, 2",
        "True", "Correct.", "# Verdict: Yes", "Entailed", "Label: Yes\nReason: No other kettle is named.",
        "Yes. No other kettle is mentioned.", "<think>No? Verdict: No</think>\n\nYes",
        "[THINK]Perhaps not.[/THINK]Yes", '{"judgement": "supported"}',
    ],
    "No": [
        "No", "no.", "**No**", "No!", "no – the context does not say", "No, the context says otherwise.",
        "No because it holds 0.9 litres", "Verdict: No", "**Verdict: No**", "Answer: no", "Conclusion: No",
        '{"verdict": "No"}', '```json\n{"verdict": "No"}\n```', "```\n{'verdict': 'No'}\n```", '{"supported": false}',
        '{"verdict": false}', "Not supported", "Unsupported", "Partially supported", "Only partially supported",
        "Contradicted", "Fully contradicted", "Contradictory.", "Not fully supported", "Completely unsupported",
        "The statement is not supported by the context.", "The claim is contradicted by the context.",
        "Not mentioned in the context.", "No evidence", "No evidence in the context", "Not entailed", "False",
        "No, it is not supported", "No. It is only partially supported.", "It says 0.9 litres.\nNo", "Mostly supported",
        "The statement is partially supported", "Verdict: Not supported\nWhy: nothing says so.", "not-supported",
        "NOT_SUPPORTED", "Hallucinated", "No [1]", "N",
        '{"judgement": "unsupported"}',
    ],
    None: [
        "", " ", "**", "Maybe", "N/A", "I cannot tell", "I can't tell.", "Cannot be determined", "Unknown",
        "Unclear", "Not enough information", "Yes and no", "Yes/No", "Yes or No", "Yes, but the price differs",
        "Yesterday it was",
        "No, it is fully supported", "No. Fully supported.", "Verdict: Yes\nVerdict: No", "Yes\nVerdict: No",
        "No contradiction found", "No doubt about it", "No one disputes it", "The", "The context speaks of lamps.",
        "I'm sorry, but I can't assist with that.", "Not contradicted", "Supported in some respects", "未知", "[0]",
        "Verdict:", "Verdict: see above", "<think>Yes", "<think>Verdict: Yes", "The statement is about lamps.",
        '{"verdict": "Yes"} {"verdict": "No"}', "Oui, c'est étayé par le contexte.", "Unless it is red, yes", "0", "1",
        "Is the statement fully supported by the context? Answer Yes or No.",
    ],
}  # fmt: skip
GRADED = {
    "fully": ["fully", "**Fully**", "Fully supported", "Supported", "Verdict: fully", "Fully (all of it)", "fully."],
    "partly": ["partly", "Partially supported", "Partial", "partly: the colour is right", "Mostly supported"],
    "nothing": ["nothing", "No evidence", "Not mentioned", "nothing.", "Unsupported", "Verdict: no evidence"],
    "contradicts": [
        "contradicts", "Contradicted", "Fully contradicted", "Contradictory", "It contradicts", "contra",
        '{"verdict": "contradicts"}', "The statement is contradicted by the context.", "Completely contradicted",
    ],
    None: ["Yes", "No", "N/A", "I cannot tell", "Not fully supported", "Fully or partly", "fully, but not the price",
           "Partially contradicted", "partly\nVerdict: nothing", "Not contradicted", "not", "supports and contradicts"],
}  # fmt: skip
FIVE_LEVEL = {
    "completely": [
        "completely",
        "Completely Yes",
        "Completely supported",
        "Verdict: completely",
        "Fully supported",
    ],
    "generally": [
        "generally",
        "Generally Yes",
        "Mostly supported",
        "generally supported",
    ],
    "mixed": ["mixed", "Neutral/Mixed", "Partially supported", "Mixed."],
    "hardly": ["hardly", "Not Generally", "Hardly supported", "Mostly unsupported"],
    "not": [
        "not",
        "Not At All",
        "Not supported",
        "Unsupported",
        "Completely unsupported",
        "Contradicted",
    ],
    None: [
        "Yes",
        "No",
        "N/A",
        "Not fully supported",
        "Not completely",
        "between mixed and hardly",
        "4",
        "4/5",
    ],
}
GROUNDED = {
    "Grounded": [
        "Grounded",
        "Fully grounded",
        "grounded in the context",
        "Verdict: Grounded",
    ],
    "Invented": ["Invented", "Not grounded", "Ungrounded", "invented.", "Made up"],
    None: ["Some of it is invented", "Grounded or invented", "I cannot tell"],
}
TRUE_FALSE = {
    "True": [
        "True",
        "**True**",
        "Verdict: True",
        "True, the context says so",
        "Supported",
    ],
    "False": ["False", "Contradicted", "false.", "The statement is False"],
    "Unknown": [
        "Unknown",
        "N/A",
        "I cannot tell",
        "Not mentioned",
        "Not enough information",
        "unclear",
    ],
    None: [
        "True or False",
        "Not supported",
        "Partially supported",
        "Yes and no",
        "True\nVerdict: False",
    ],
}
FORMS = [
    pytest.param(name, label, reply, id=f"{name}-{reply[:30]!r}")
    for name, table in (
        ("supported", BINARY), ("graded", GRADED), ("five_level", FIVE_LEVEL), ("grounded", GROUNDED),
        ("true_false_unknown", TRUE_FALSE),
    )
    for label, replies in table.items()
    for reply in replies
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "reply"), FORMS)
def test_a_form(name, label, reply):
    text = reply[thoughts_end(reply) :]
    found = find_label(text, tuple(INSTRUCTIONS[name].labels))
    assert (found.name if found else None) == label
