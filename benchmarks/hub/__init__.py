"""Benchmarks of the hub: draining a backlog, the twin, identities, abuse, a cluster, a move to another server.

Each module with `run(*, quick)` starts real servers by `tests.support.rig`.
"""
