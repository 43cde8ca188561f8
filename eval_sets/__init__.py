"""Labelled sets: what is there, and how it is loaded."""
