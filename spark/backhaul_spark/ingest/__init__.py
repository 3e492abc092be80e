"""A batch of messages made part of the points table, exactly once.

Enter at `stream` (a streaming query) and `batch` (one batch, without Spark). `coverage` knows which
messages the table holds; `said_again` keeps a reading that comes twice once.
"""
