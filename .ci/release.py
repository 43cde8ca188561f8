"""Build the last commit in build/release, and try what was built as a user would.

`make release-check REPOSITORY=https://…`: the repository's address stands in no file. With it, README's links and
pictures are made absolute, as an index page needs them, and the package names it; without it they stay relative.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

RELEASE = Path("build/release").resolve()
SOURCE, DIST = RELEASE / "source", RELEASE / "dist"
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


def pythons(project: dict[str, Any]) -> dict[str, str | None]:
    """Each version that the package names, with its interpreter on this machine."""
    named = "Programming Language :: Python :: 3."
    minors = [c.removeprefix(named) for c in project["classifiers"] if named in c]
    found = {f"3.{minor}": shutil.which(f"python3.{minor}") for minor in minors}
    return {version: path if _starts(path) else None for version, path in found.items()}


def _starts(python: str | None) -> bool:
    """A version manager may have a command for a Python that is not installed."""
    return (
        bool(python) and not subprocess.run([python, "-c", ""], check=False).returncode
    )


def first_example(readme: str) -> tuple[str, str]:
    """README's first Python code, and what stands below it as its output."""
    code, output = re.search(
        r"^```python\n(.*?)^```\n.*?^```\n(.*?)^```", readme, re.DOTALL | re.MULTILINE
    ).groups()
    return code, output


def try_wheel(wheel: Path, python: str, venv: Path) -> None:
    """Install it in an empty environment, run the demo and README's first code."""
    run(python, "-m", "venv", venv)
    here = venv / "bin/python"
    run(here, "-m", "pip", "install", "--quiet", wheel)
    run(here, "-c", SIZE)
    run(here, "-c", "import faith_dspy; print(faith_dspy.__version__)")
    run(venv / "bin/faith-dspy", "demo")
    code, expected = first_example((SOURCE / "README.md").read_text(encoding="utf-8"))
    command = [here, "-X", "utf8", "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if printed.strip() != expected.strip():
        sys.exit(f"README's first code printed something else:\n{printed}")


def main(repository: str) -> None:
    """Build and check; install and try on each Python that the package names and this machine has."""
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
    (wheel,) = DIST.glob("*.whl")
    named = pythons(tomllib.loads(project.read_text(encoding="utf-8"))["project"])
    for version, python in named.items():
        if python is None:
            print(f"python{version} is not on this machine: not tried")
            continue
        print(f"Python {version}", flush=True)
        try_wheel(wheel, python, RELEASE / f"venv-{version}")
    if not any(named.values()):
        sys.exit("none of these Pythons is on this machine")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
