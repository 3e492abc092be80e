"""Spark's share of NATS: a small synchronous client, streams read by sequence, and offsets.

Enter at `connection` and `direct_get`; `offsets` decides without I/O. Nothing here imports Spark.
"""
