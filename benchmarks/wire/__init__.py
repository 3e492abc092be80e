"""Benchmarks of the wire format: sizes of frames, and the time to decode and search them.

Each module here has `run(*, quick)`. They need no server.
"""
