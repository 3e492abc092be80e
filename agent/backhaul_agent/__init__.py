"""The vehicle's agent: it records programs' points, and brings each record to the hub once.

A point travels through the rooms `ingest`, `commit`, `ledger`, and `uplink`; the hub's messages
come in through `downlink`. `daemon` opens the ledger; `parts` builds all parts around it and runs
them. Enter there, or at `cli` for the command line and at `client` for programs. No module here
imports the hub's or Spark's packages; all share `backhaul_codec`.
"""
