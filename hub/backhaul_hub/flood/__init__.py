"""Vehicles that flood the hub: noticed by the traffic of their links, and kept out for a while.

Enter at `guard`; `detector` decides without I/O.
"""
