"""A recorder on loopback: which key is sent where, when an adapter is given a client of the user's own."""

import json

import pytest

pytest.importorskip("ragas")
pytest.importorskip("strands_evals")
pytest.importorskip("deepeval")
pytest.importorskip("pydantic_ai")

import instructor
import openai
from deepeval.models import DeepEvalBaseLLM
from deepeval.models import OpenAIModel as DeepEvalModel
from langchain_openai import ChatOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from ragas.llms import llm_factory
from strands.models.openai import OpenAIModel as StrandsModel

from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.integrations.adapters import judge_of

pytestmark = pytest.mark.all
GIVEN = {"question": "?", "context": ["It is blue."]}
OWN_KEY, FOREIGN_KEY = "key-of-the-client", "key-of-the-environment"


CLIENTS = {
    "instructor": lambda at: instructor.from_openai(openai.OpenAI(**at), model="tiny"),
    "RAGAS llm_factory": lambda at: llm_factory("tiny", client=openai.OpenAI(**at)),
    "RAGAS llm_factory, async": lambda at: llm_factory(
        "tiny", client=openai.AsyncOpenAI(**at)
    ),
    "LangChain": lambda at: ChatOpenAI(model="tiny", **at),
    "Strands": lambda at: StrandsModel(client_args=at, model_id="tiny"),
    "DeepEval": lambda at: DeepEvalModel(model="tiny", **at),
    "Pydantic AI": lambda at: OpenAIChatModel("tiny", provider=OpenAIProvider(**at)),
}


def _stream(text):
    """A completion as OpenAI's API streams it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    chunk = {"id": "1", "created": 1, "model": "tiny", "choices": [choice]}
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    yield f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()


@pytest.fixture
def recorders(chat_server, monkeypatch):
    """Endpoints that note the keys they are sent: the client's, and the one that the environment names."""

    def say(asked):
        return {"body": _stream("Yes")} if asked.get("stream") else "Yes"

    own, foreign = (chat_server(says=say, models=[]) for _ in range(2))
    monkeypatch.setenv("OPENAI_API_KEY", FOREIGN_KEY)
    monkeypatch.setenv("OPENAI_API_BASE", foreign.base)
    monkeypatch.setenv("OPENAI_BASE_URL", foreign.base)
    return own, foreign


def ask(client, recorders):
    """The keys that each endpoint was sent for a judgment, and the tokens that it took."""
    judgment = judge_of({}, client)(**GIVEN, answer="It is blue.")
    assert judgment.score == 1.0, judgment
    keys = [{str(k).removeprefix("Bearer ") for k in one.keys} for one in recorders]
    return keys, (judgment.usage.prompt_tokens, judgment.usage.output_tokens)


@pytest.mark.parametrize("client", CLIENTS)
def test_which_key_goes_where(recorders, client):
    """A client's key goes to its own address, and nothing anywhere else. Tokens are counted as far as it tells them."""
    at = {"base_url": recorders[0].base, "api_key": OWN_KEY}
    keys, tokens = ask(CLIENTS[client](at), recorders)
    assert keys == [{OWN_KEY}, set()]
    assert tokens == ((0, 0) if client in ("Strands", "DeepEval") else (100, 5))


def test_a_name_takes_key_and_address_from_the_environment(recorders):
    assert ask("openai/tiny", recorders)[0] == [set(), {FOREIGN_KEY}]


@pytest.mark.parametrize("kind", [openai.OpenAI, openai.AsyncOpenAI])
def test_a_client_without_a_model_is_refused(recorders, kind):
    """A bare one at once, with what would do in its place. instructor keeps its model to itself: the first call tells,
    before anything is sent."""
    own, foreign = recorders
    client = kind(base_url=own.base, api_key=OWN_KEY)
    with pytest.raises(ConfigError, match=r"from_openai\(client, model=.*dspy\.LM\("):
        judge_of({}, client)
    judge = judge_of({}, instructor.from_openai(client))
    with pytest.raises(LMUnavailableError, match="names no model"):
        judge.preflight()
    assert own.keys == foreign.keys == []


def test_a_refused_key_ends_the_work(recorders):
    """A key that the endpoint refuses is said as such, as for any LM."""
    own, _ = recorders
    own.says = {"status": 401, "text": "no such key"}
    judge = judge_of({}, ChatOpenAI(model="tiny", base_url=own.base, api_key=OWN_KEY))
    with pytest.raises(LMUnavailableError, match="Check its key"):
        judge.batch([{**GIVEN, "answer": "It is blue."}])


class Written(DeepEvalBaseLLM):
    """A model that a user of DeepEval wrote, and what it says."""

    def __init__(self, said):
        self.said = said

    def generate(self, prompt):
        return "" + self.said

    load_model = a_generate = get_model_name = generate


def test_a_model_of_ones_own():
    """What a user wrote for DeepEval is asked, too; its judge has the class's name. A mistake in it is told in its own
    words, and is not taken for a client that names no model."""
    judge = judge_of({}, Written("Yes"))
    assert judge(**GIVEN, answer="It is blue.").score == 1.0
    assert judge.lm_name.endswith("/Written")
    judgment = judge_of({}, Written(1))(**GIVEN, answer="It is blue.")
    assert judgment.unscored == "lm_failed"
    assert 'can only concatenate str (not "int") to str' in judgment.detail
    assert "names no model" not in judgment.detail
