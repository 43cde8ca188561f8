"""Verdicts to numbers: score, classifier, agreement, statistics."""
