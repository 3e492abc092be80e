"""The fleet's history: points ingested once, rolled up, judged for completeness, and searched for anomalies.

Points travel through the rooms `source`, `ingest`, and `tables`; `rollup`, `completeness`, `rules`, and
`fleet` read them from there. Enter at `cli`, or at `query` for one series. No module here imports
the agent's or the hub's package; all share `backhaul_codec`.
"""
