"""Answers like an assistant's, labelled twice; see CARD.md."""
