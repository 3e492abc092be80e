"""The I/O that agent, hub and Spark's jobs have in common: clocks, the NATS client, metrics over HTTP.

Enter at `clock` (time as an argument), `patched_client` (nats-py as agent and hub need it),
`jetstream` (answers of its API), `trouble` (waiting out a failure, logged once), and `metrics_server`.
Nothing here knows a ledger, hub.db or a table; it may import the codec, and nothing of agent, hub and Spark.
"""
