"""The control plane beside the hub's nats-server: streams, sources, continuity, devices."""
