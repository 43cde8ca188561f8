from __future__ import annotations

import os

import pytest
from cases import CASES

os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # before either is imported: tests ask nobody on the network
os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"
LABELS = {text: label for case in CASES for text, label in case.sentences}
BINARY = {"fully": "Yes", "partly": "No", "nothing": "No", "contradicts": "No"}


@pytest.fixture(params=CASES, ids=lambda c: f"{c.subject}-{c.version}")
def case(request):
    """Each answer of each subject."""
    return request.param


@pytest.fixture
def recorded(chat_server, judge_at):
    """Makes a judge whose endpoint replies to the sentences of the cases as was recorded: (judge, endpoint)."""

    def make(**dials):
        server = chat_server()

        def say(asked):
            label = LABELS[server.statement(asked)]
            return label if dials.get("verdicts") == "graded" else BINARY[label]

        server.says = say
        return judge_at(server, **dials)

    return make
