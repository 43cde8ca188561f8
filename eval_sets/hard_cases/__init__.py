"""The shipped set; see CARD.md."""
