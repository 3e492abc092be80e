"""The hub's share of NATS: connections, JetStream requests, readers of streams, JWTs, and keys.

Enter at `connection` and `jetstream`. Nothing here knows devices, lanes, or hub.db.
"""
