"""Vehicles that flood the hub: noticed by what their links carry, and kept out for a while.

Enter at `guard`; `detector` decides without I/O.
"""
