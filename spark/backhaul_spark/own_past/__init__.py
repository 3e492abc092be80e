"""Compares a device that has too few peers with its own days before. Pure numpy.

Enter at `compare`. Nothing here knows tables, or the fleet that asks.
"""
