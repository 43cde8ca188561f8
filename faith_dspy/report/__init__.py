"""Results for people: tables, judgments in the terminal and on an HTML page."""
