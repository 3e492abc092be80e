"""How a vehicle gets its identity: a one-time token, keys, files, units, and later other keys.

Enter at `by_token` (a new vehicle), `key_rotation` (another key), and `handover` (a ledger for
another device). Every step leaves the directory so that the next run goes on. Nothing here runs
inside a commit or a lane.
"""
