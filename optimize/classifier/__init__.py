"""The classifier fitted on labels: probabilities, threshold, review range."""
