"""Prompts compiled by DSPy optimizers, one stage at a time."""
