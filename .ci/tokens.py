"""Hold the tokens of code in each room to the numbers in pyproject.toml, `[tool.tokens]`.

    python .ci/tokens.py            say which rooms have more than their number; exit 1 if any has
    python .ci/tokens.py --lower    write today's number for each room that has fewer
    python .ci/tokens.py --set      write today's number for each room, more or fewer: a decision for the changelog

Lines are no measure, as they can be packed. Tokens are those of Python, without comments, docstrings and layout.
"""

import re
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NL,
}
# Python 3.12 divides f-strings into tokens; here each is one, as before.
F_STRING = {getattr(tokenize, "FSTRING_START", -1): 1}
F_STRING[getattr(tokenize, "FSTRING_END", -2)] = -1


def count_tokens(path: Path) -> int:
    """Return the tokens of code in a file."""
    total = depth = 0
    statement: list[int] = []
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            change = F_STRING.get(token.type, 0)
            if token.type == tokenize.NEWLINE:
                is_docstring = statement == [tokenize.STRING]
                total += 0 if is_docstring else len(statement)
                statement = []
            elif depth == 0 and token.type not in LAYOUT:
                statement.append(token.type)
            depth += change
    return total


def files_of(room: str) -> list[Path]:
    """Return a room's files: those a pattern names, or all below a folder."""
    if "*" in room:
        return sorted(ROOT.glob(room))
    return sorted((ROOT / room).rglob("*.py"))


def main(arguments: list[str]) -> int:
    """Compare or write; return the exit status."""
    page = ROOT / "pyproject.toml"
    before = text = page.read_text(encoding="utf-8")
    limits: dict[str, int] = tomllib.loads(text)["tool"]["tokens"]
    status = 0
    for room, limit in limits.items():
        tokens = sum(map(count_tokens, files_of(room)))
        if "--set" in arguments or ("--lower" in arguments and tokens < limit):
            line = rf'^"{re.escape(room)}" = \d+$'
            text = re.sub(line, f'"{room}" = {tokens}', text, flags=re.MULTILINE)
            if tokens != limit:
                print(f"{room}: {limit:,} -> {tokens:,}")
        elif tokens > limit:
            print(
                f"{room} has {tokens:,} tokens of code, {tokens - limit:,} more than pyproject.toml allows. Look for "
                "what the change makes superfluous; `make ratchet RATCHET=--set` raises the number."
            )
            status = 1
    if text != before:
        page.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
