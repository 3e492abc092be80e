"""Fixtures of the hub's tests."""

from tests.hub.people_hub import people
from tests.support.nats_server import nats_server

__all__ = ["nats_server", "people"]
