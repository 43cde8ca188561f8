"""Judgments and studies for people: terminal and HTML."""
