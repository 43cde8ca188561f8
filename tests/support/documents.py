"""What stands in the documents."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(text, language=""):
    """What stands in the fenced blocks of a language."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


README = text_of("README.md")
