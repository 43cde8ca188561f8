"""Measurements that are run by hand: each a module with one command, its results in ``results/``."""

from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared" / "data"
"""Labels files of public sets, in a folder beside the clone."""
