"""Recordings as points: a file's rows, by a mapping that says which column is what. Desk tools use it."""
