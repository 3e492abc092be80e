"""Anomalies in one series, and in several together: detectors, their findings, quantiles, rows. Pure.

Enter at `detector` for one series, at `joint` for several. Nothing here knows tables or devices.
"""
