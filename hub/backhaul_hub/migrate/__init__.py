"""The hub's streams moved to another server, with a way back: `backhaul-hub migrate`.

Enter at `migrate`. `mirrors` and `bridge` copy, `compare` proves both sides alike before the old
one ends.
"""
