"""What judging costs and how well it agrees with people, measured beside the others. See README.md."""
