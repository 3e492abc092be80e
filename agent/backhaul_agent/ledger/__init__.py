"""The ledger: one SQLite file with all that the agent acknowledged and the hub has not confirmed.

Enter at `ledger` (write), `reader` (ask, on a connection of its own), and `schema` (tables, and the
checks before one is trusted). `lock` lets one process in. `eviction_policy`, `lane_routing`, and
`age_index` decide without I/O. Nothing here knows NATS.
"""
