"""``faith-dspy …``, the command line: a module for each group of commands."""

from faith_dspy.cli.main import app as app
from faith_dspy.cli.main import main as main
