"""Judges that go through a fork, by real processes and a server that keeps its connections."""

import subprocess
import sys

import pytest

from tests.support.chat_server import JsonHandler

FORKING = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from faith_dspy import Judge
from faith_dspy.lm.make import make_lm

def ask(i):
    colour = "red" if i % 2 else "blue"
    faithful = judge(context=["The kettle is blue."], answer=f"Kettle {i} is {colour}.").faithful
    return faithful is (i % 2 == 0)

base, engine = sys.argv[1:]
lm = make_lm("openai/tiny", api_base=base, engine=engine, cache=False, num_retries=0, timeout=10)
judge = Judge(lm, classifier=None)
with ThreadPoolExecutor(4) as pool:
    right = [*pool.map(ask, range(12))]
children = []
for child in range(2):
    children.append(os.fork())
    if not children[-1]:
        with ThreadPoolExecutor(4) as pool:
            right += pool.map(ask, range(12))
        os._exit(not all(right))
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""
EMBEDDED = """
import os
from dspy import lm15
from faith_dspy import Judge
from faith_dspy.lm.metered import MeteredLM

class Engine:
    def complete(self, request):
        return lm15.Response(None, request.model, lm15.Message.assistant("Yes"), "stop", lm15.Usage(1, 1))

judge = Judge(MeteredLM("own/engine", engine=Engine(), cache=False), classifier=None)
asked = {"context": ["The kettle is blue."], "answer": "It is blue."}
assert judge(**asked).faithful
if not os.fork():
    try:
        judge(**asked)
    except Exception as exc:
        print(type(exc).__name__, exc)
else:
    os.wait()
"""


def says(asked):
    statement = asked["messages"][-1]["content"].rpartition("Statement:")[2]
    return "No" if "red" in statement else "Yes"


def run(*words):
    command = [sys.executable, "-W", "ignore", "-c", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize(
    "engine", ["auto", pytest.param("litellm", marks=pytest.mark.all)]
)
def test_children_get_their_own_replies(chat_server, monkeypatch, engine):
    """A judge that was used before two processes were forked judges rightly in each of them."""
    monkeypatch.setattr(JsonHandler, "protocol_version", "HTTP/1.1")
    assert run(FORKING, chat_server(says=says).base, engine) == "[0, 0]"


def test_an_engine_stays_in_its_process():
    """Its threads do not live in a child, nor are its connections a child's own: one sentence says what to do."""
    said = run(EMBEDDED)
    assert said.startswith(
        "ConfigError own/engine was made before this process was forked"
    )
