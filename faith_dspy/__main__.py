"""``python -m faith_dspy``: the command line."""

from faith_dspy.cli import main

main()
