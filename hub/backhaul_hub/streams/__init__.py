"""The hub's streams and consumers, declared in one place, and the share of the disk that each gets.

Enter at `streams` and `twin_streams`; `disk_shares` decides without I/O.
"""
