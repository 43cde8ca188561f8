"""Tuning: labels in, champion out."""
