"""Compares a device's day with its own days before, and the time of it with the fleet's. Pure numpy.

Enter at `compare`, where a device has too few peers, and at `rhythm`, where nothing else tells its clock. Nothing
here knows tables, or the fleet that asks.
"""
