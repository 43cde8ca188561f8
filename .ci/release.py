"""Build the last commit in build/release, and try what was built as a user would.

`make release-check REPOSITORY=https://…`: the repository's address stands in no file. With it, README's links and
pictures are made absolute, as an index page needs them, and the package names it; without it they stay relative.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

RELEASE = Path("build/release").resolve()
SOURCE, DIST, VENV = RELEASE / "source", RELEASE / "dist", RELEASE / "venv"
JUDGMENT = """
from faith_dspy import Judge

context = ["Lamps can be returned within 30 days."]
answers = ["You can return a lamp within 30 days.", "Shipping is free."]
assert [Judge("none")(context=context, answer=answer).faithful for answer in answers] == [True, False]
"""
SIZE = """
from importlib import metadata
found = [d for d in metadata.distributions() if d.name != "pip"]
size = sum(f.locate().stat().st_size for d in found for f in d.files or () if f.locate().is_file())
print(f"{len(found)} packages, {size / 1e6:.0f} MB")
"""


def run(*command: str | Path, cwd: Path = RELEASE) -> None:
    """A step; the first that fails ends the check."""
    print("$", *command[:2], flush=True)
    subprocess.run(list(map(str, command)), cwd=cwd, check=True)


def address(repository: str, readme: str, version: str) -> str:
    """README with absolute links: of the version's tag, pictures as files."""
    readme = re.sub(
        r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{repository}/raw/v{version}/", readme
    )
    return re.sub(
        r"((?<!!)\[[^\]]*\]\()(?!https?:|#)",
        rf"\1{repository}/blob/v{version}/",
        readme,
    )


def main(repository: str) -> None:
    """Build, check, install, judge."""
    subprocess.run(["rm", "-rf", RELEASE], check=True)
    SOURCE.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=SOURCE, input=archive, check=True)
    project, readme = SOURCE / "pyproject.toml", SOURCE / "README.md"
    if repository:
        version = tomllib.loads(project.read_text())["project"]["version"]
        readme.write_text(address(repository, readme.read_text(), version))
        urls = {
            "Source": "",
            "Changelog": f"/blob/v{version}/CHANGELOG.md",
            "Issues": "/issues",
        }
        lines = [f'{name} = "{repository}{path}"' for name, path in urls.items()]
        project.write_text(
            "\n".join([project.read_text(), "[project.urls]", *lines, ""])
        )
    run(sys.executable, "-m", "build", "--outdir", DIST, SOURCE)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    run(sys.executable, "-m", "venv", VENV)
    (wheel,) = DIST.glob("*.whl")
    run(VENV / "bin/python", "-m", "pip", "install", "--quiet", wheel)
    run(VENV / "bin/python", "-c", SIZE)
    run(VENV / "bin/python", "-c", "import faith_dspy; print(faith_dspy.__version__)")
    run(VENV / "bin/faith-dspy", "demo")
    run(VENV / "bin/python", "-c", JUDGMENT)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
