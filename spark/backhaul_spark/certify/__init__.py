"""Certificates of hours in the tables: whether all that a vehicle acknowledged is in points.

Enter at `certificates`; `facts` collects what they are judged by, `chained` and `hashes` prove it
by content. The judgement itself is `backhaul_codec.assurance.certificates`, the same at the hub.
"""
