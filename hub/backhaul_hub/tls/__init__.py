"""TLS of the hub's servers: certificates made, renewed, replaced, and watched.

Enter at `setup` and `watch`; `authority` signs without I/O. Certificates of hours are elsewhere
(`lane_records.completeness`).
"""
