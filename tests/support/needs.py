"""What `make test-all` needs of the machine, and whether it is there.

python tests/support/needs.py              says so
python tests/support/needs.py --packages   names Debian's packages of what is missing
"""

import os
import shutil
import sys
from pathlib import Path


def postgresql():
    """The folder of the server's programs, which is on nobody's PATH."""
    folders = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        Path("/usr/local/bin"),
        Path("/usr/bin"),
    ]
    return next(
        (
            str(f)
            for f in folders
            if (f / "initdb").exists() and (f / "postgres").exists()
        ),
        None,
    )


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
POSTGRESQL = postgresql()
JAVA = shutil.which("java") or os.environ.get("JAVA_HOME")
NEEDS = (
    ("chromium", CHROMIUM, "pages in a browser"),
    ("postgresql", POSTGRESQL, "studies kept in PostgreSQL"),
    ("default-jre-headless", JAVA, "Spark"),
)
"""Debian's package, where its program is, and what is tested with it."""


def main():
    if "--packages" in sys.argv:
        print(*(package for package, found, _ in NEEDS if not found))
        return
    print(
        "make test-all installs the dependency group peers, fetches the embedded model, and needs of this machine:"
    )
    for package, found, what in NEEDS:
        print(
            f"  {what:28}{found or f'missing, its tests are skipped: apt-get install {package}'}"
        )


if __name__ == "__main__":
    main()
