"""Measurements that are run by hand: each a module with one command, its results in ``results/``."""
