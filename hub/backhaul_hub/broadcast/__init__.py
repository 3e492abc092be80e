"""Live messages for people: points, events, alerts, and presence, sent along the tree.

Enter at `points`, `events`, `alerts`, and `presence`. All of it is core NATS and stored nowhere;
who hears it is decided by `people.scope`. Nothing here changes a value.
"""
