"""What the hub needs of NATS: connections, JetStream requests, readers of streams, JWTs, and keys.

Enter at `connection` and `jetstream`. Nothing here knows devices, lanes, or hub.db.
"""
