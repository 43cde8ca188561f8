"""A finished study for people: card, pages, plots."""
