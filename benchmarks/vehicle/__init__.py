"""Benchmarks of the agent on its vehicle: the rate that it keeps, its memory, its disk, its local programs.

Each module with `run(*, quick)` starts real processes by `tests.support.rig`.
"""
