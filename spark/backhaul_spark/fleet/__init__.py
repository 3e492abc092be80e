"""Anomalies over the whole fleet: every device against its peers and its own past."""
