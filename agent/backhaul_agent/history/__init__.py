"""History for local programs: one series from the ledger and the streams, merged by time.

Enter at `service`. `merge` decides without I/O; `ledger_source` and `stream_source` read in slices.
This room reads only: it never writes the ledger or a stream.
"""
