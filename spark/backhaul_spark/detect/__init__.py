"""Anomalies in one series: a detector, its findings, and the quantiles that it rests on. Pure.

Enter at `detector`. Nothing here knows tables or devices.
"""
