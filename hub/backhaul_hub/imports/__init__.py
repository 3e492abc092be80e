"""Old logs of a fleet, brought into the history by an operator (docs/replay.md, ADR 30)."""
