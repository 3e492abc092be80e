"""Completeness of hours in the tables: whether all that a vehicle acknowledged is in points.

Enter at `hour_reports`; `facts` collects what they are judged by, `chained` and `hashes` prove it
by content. The judgement itself is `backhaul_codec.assurance.completeness`, the same at the hub.
"""
