"""People at the hub: their credentials, and which part of the tree each may see and change.

Enter at `services` (what a person may ask) and `credentials`. `scope` decides without I/O.
"""
