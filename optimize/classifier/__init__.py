"""The classifier fitted on labels: probabilities, threshold, review range."""

from faith_dspy.errors import need

need("numpy", "Tuning and testing a judge")
