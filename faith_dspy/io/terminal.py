"""Text on any terminal: plain signs for those that its encoding lacks."""

from __future__ import annotations

import codecs
import json

PLAIN_SIGNS = "faith_dspy"
"""Name of the error handler of codecs: a sign that an encoding lacks is a plain one, else ``\\u….``, as JSON has it."""
_PLAIN = str.maketrans("✓✗←→…–−·“”’", "+x<>.--|'''")
"""What stands for our own signs, each as wide."""


def _in_plain(exc: UnicodeError) -> tuple[str, int]:
    if not isinstance(exc, UnicodeEncodeError):
        raise exc
    lacking = exc.object[exc.start : exc.end].translate(_PLAIN)
    return json.dumps(lacking)[1:-1], exc.end


codecs.register_error(PLAIN_SIGNS, _in_plain)
