"""One file per library that a judge can be used from."""
