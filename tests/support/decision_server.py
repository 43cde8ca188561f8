"""A decision model for tests."""

import json
import threading
from http.server import ThreadingHTTPServer

from tests.support.chat_server import JsonHandler

KEY = "ts-key-1f3a5c7e"


class DecisionServer:
    """``POST /v1/systemone`` on loopback, as DSPy's client documents it. Another key is refused with 401.

    ``says``: the probability of the first option of a question, as a function of its name and the request. ``answers``:
    what is done to the answers before they are sent.
    """

    def __init__(self, says):
        self.says, self.answers, self.requests = says, lambda answers: answers, []
        owner = self

        class Handler(JsonHandler):
            def do_POST(self):
                assert self.path == "/v1/systemone"
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if asked["state"] != "yes":  # a preflight
                    owner.requests.append(asked)
                if self.headers["Authorization"] != f"Bearer {KEY}":
                    error = {
                        "error_type": "authentication_error",
                        "message": "Invalid API key",
                    }
                    self.reply(401, {"detail": error})
                else:
                    answers = {
                        name: owner.answer(name, asked) for name in asked["questions"]
                    }
                    usage = {
                        "input_tokens": 50 + 10 * len(answers),
                        "output_tokens": 2 * len(answers),
                    }
                    self.reply(
                        200,
                        {
                            "model": "jev-1.13.0",
                            "answers": owner.answers(answers),
                            "usage": usage,
                        },
                    )

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(
            target=self.http.serve_forever, args=(0.02,), daemon=True
        ).start()

    def answer(self, name, asked):
        """A choice: the first option has the probability that it says, the others share the rest."""
        options = list(asked["questions"][name]["criteria"])
        p = 0.9 if asked["state"] == "yes" else self.says(name, asked)
        shares = {
            o: p if i == 0 else (1 - p) / (len(options) - 1)
            for i, o in enumerate(options)
        }
        best = max(shares, key=lambda o: shares[o])
        return {
            "type": "choice",
            "choice": best,
            "confidence": shares[best],
            "probabilities": shares,
        }

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def statement_of(name, asked):
    """The statement that a question is about."""
    inputs = asked["state"]["inputs"]
    return (
        inputs["statement"]
        if "statement" in inputs
        else inputs["statements"][name.removeprefix("verdict_")]
    )
