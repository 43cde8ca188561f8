"""A judge in use: drift, flips, unlabelled traffic, people's feedback."""

from faith_dspy.errors import need

need("numpy", "Measuring agreement")
