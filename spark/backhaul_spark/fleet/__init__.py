"""Findings across the fleet: devices, hours, and firmware compared with their peers.

Enter at `job`. `cohorts`, `robust`, and `judge` decide on arrays. This room reads tables and writes
findings; it changes no history.
"""
