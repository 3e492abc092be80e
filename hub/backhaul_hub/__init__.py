"""The hub: it sources each vehicle's streams, proves them gap-free, and keeps the fleet's twins.

A message travels through the rooms `links` (sources), `uplink` (continuity), and `sync` or `twin`;
words for a vehicle leave through `sync.outbox`. `control` builds the control plane and runs it.
Enter there, or at `cli` for the command line. No module here imports the agent's or Spark's
packages; all share `backhaul_codec`.
"""
