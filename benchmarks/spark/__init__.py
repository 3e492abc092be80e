"""Benchmarks of Spark's jobs: ingest, the twin job, anomalies, and their kills; and the sums for a fleet's size.

Most need Java; `sizing` does not.
"""
