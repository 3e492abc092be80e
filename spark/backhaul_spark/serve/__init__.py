"""Answers about the past of one series for pages: by rollups and points, and by UP where ingest has not been yet.

Enter at `answers`; `server` has it answer over NATS. `plan`, `sums` and `gaps` are pure. Nothing here
starts Spark, nor writes a table.
"""
