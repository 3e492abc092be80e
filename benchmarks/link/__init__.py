"""Benchmarks of the link between vehicle and hub: bytes, resuming, slow and idle links, files and commands over it.

A gateway's whole link stands in `benchmarks.gateway`; `plain_link` is the NATS set-up that ours is compared with.
"""
